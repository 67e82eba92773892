"""Slow, silent and flooding clients of WebSockets and event streams."""

from __future__ import annotations

import asyncio
from typing import Final

from crash.attacked_server import AttackedServer
from crash.event_inputs import STREAM, open_socket
from crash.held_connections import HeldConnections
from crash.programme import ProgrammeRun
from crash.protocol_inputs import masked_frame
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message

__all__ = ["EventClients"]

_KIB: Final = 1024
_COMMAND: Final = masked_frame(0x81, b'{"action":"ack","handles":["x"]}')
_PING: Final = masked_frame(0x89, b"")
_HALF_BYTES: Final = 250 * _KIB
_FLOOD_BYTES: Final = 512 * _KIB
_BODY_BYTES: Final = 256 * _KIB


class EventClients:
    """Each attack leaves its connections open until they are let go."""

    def __init__(self, run: ProgrammeRun, server: AttackedServer, held: HeldConnections, clients: int) -> None:
        self._run = run
        self._server = server
        self._held = held
        self._clients = clients

    async def idle(self) -> None:
        """Half of them WebSockets and half streams, which say nothing more. They are spread over some groups."""
        for number in range(self._clients):
            await self._open(open_socket(f"x7-{number % 8}"), reads=True)
            await self._open(STREAM, reads=True)
        await asyncio.sleep(self._run.by_size(1, 25, 60))

    async def halves(self) -> None:
        """Messages whose end does not come: one large frame, or many pieces."""
        begin = masked_frame(0x01, bytes(_HALF_BYTES))
        pieces = masked_frame(0x01, b"x") + masked_frame(0x00, b"y" * 1000) * (_HALF_BYTES // 1024)
        for number in range(self._clients):
            await self._open(open_socket() + (begin, begin[:-1], pieces)[number % 3])
        await asyncio.sleep(self._run.by_size(2, 8, 8))

    async def floods(self) -> None:
        """Pings, commands, empty pieces and pipelined requests, of clients that do not read the answers."""
        piece = masked_frame(0x00, b"")
        request = b"GET /health HTTP/1.1\r\n\r\n"
        floods = (
            open_socket() + _PING * (_FLOOD_BYTES // len(_PING)),
            open_socket() + _COMMAND * (_FLOOD_BYTES // len(_COMMAND)),
            open_socket() + masked_frame(0x01, b"") + piece * (_FLOOD_BYTES // len(piece)),
            STREAM + request * (_FLOOD_BYTES // len(request)),
        )
        for number in range(self._clients):
            await self._open(floods[number % len(floods)])
        await asyncio.sleep(self._run.by_size(2, 8, 8))

    async def unread(self) -> None:
        """WebSockets and streams that read none of what comes."""
        for number in range(self._clients):
            await self._open(open_socket(f"x7-{number % 8}", "?max_in_flight=1000") if number % 2 else STREAM)
        await asyncio.to_thread(self._fill_topic, self._run.by_size(100, 400, 400))
        await asyncio.sleep(2)

    async def _open(self, said: bytes, *, reads: bool = False) -> None:
        writer = await self._held.connect(self._server.http, reads=reads)
        writer.write(said)
        self._run.count("event_clients")

    def _fill_topic(self, count: int) -> None:
        with BlockingClient(self._server.nameserver, timeout_s=20.0) as client:
            for _ in range(count):
                client.send(Message("orders", bytes(_BODY_BYTES)))
