"""A broker's remoting connection into which whole chunks are put, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

from millstream.broker.broker import Broker
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame
from millstream.protocol.remoting.shape_memory import ShapeMemory
from millstream.transport.remoting_connection import Connection, Handler
from millstream.transport.remoting_server import RemotingServer
from patience import PATIENCE_S

__all__ = ["ChunkDoor", "Wire"]


class Wire(asyncio.Transport):
    """Takes what a connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.1.2.3", 4567) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.written += data


class ChunkDoor:
    """`learns` is whether the connection learns the shapes of its requests."""

    def __init__(self, broker: Broker, handlers: dict[int, Handler], *, learns: bool) -> None:
        self.broker = broker
        self.server = RemotingServer(handlers, clock=broker.clock)
        self.connection = Connection(self.server, broker.clock)
        self.connection._decoder = FrameDecoder(shapes=ShapeMemory(learns=learns))
        self.wire = Wire()
        self.connection.connection_made(self.wire)

    async def put(self, commands: list[RemotingCommand]) -> dict[int, RemotingCommand]:
        """The answers by opaque."""
        self.wire.written.clear()
        data = b"".join(b"".join(encode_frame(command)) for command in commands)
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))
        async with asyncio.timeout(PATIENCE_S):
            while self.connection.waiting:
                await asyncio.wait(self.connection.waiting)
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        return {answer.opaque: answer for answer in FrameDecoder().feed(bytes(self.wire.written))}
