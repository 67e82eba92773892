"""A port without sockets: frames go through the product's codec and handlers, and what they cost is counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from millstream.model.errors import MillstreamError
from millstream.model.message import Address
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame
from millstream.protocol.remoting.refusals import response_code_of
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["Line", "Port", "frame_of", "resident_bytes"]

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Memory of this process, as the system counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def frame_of(command: RemotingCommand) -> bytes:
    """The bytes in which a peer sends the request."""
    return b"".join(encode_frame(command))


class Line:
    """One peer's connection, as handlers see it."""

    def __init__(self, host: str) -> None:
        self.peer = Address(host, 1)
        self.on_close: list[Callable[[Any], None]] = []
        self.decoder = FrameDecoder()

    def abort(self) -> None:
        """The server ends the connection."""
        self.close()

    def close(self) -> None:
        """The peer is gone."""
        told, self.on_close = self.on_close, []
        for listener in told:
            listener(self)


@dataclass(slots=True)
class Port:
    """Answers one request after another. `cpu_s` is processor time from a request's frame to its answer's."""

    handlers: Mapping[int, Handler]
    cpu_s: float = 0.0
    requests: int = 0
    refused: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    last_cpu_s: float = field(default=0.0, init=False)

    async def serve(self, frame: bytes, line: Line) -> RemotingCommand | None:
        """The answer; a refusal is one, too."""
        began_s = time.process_time()
        answered: RemotingCommand | None = None
        for command in line.decoder.feed(frame):
            answered = await self._answer(command, line)
            if answered is not None:
                self.sent_bytes += sum(map(len, encode_frame(answered)))
        self.last_cpu_s = time.process_time() - began_s
        self.cpu_s += self.last_cpu_s
        self.requests += 1
        self.received_bytes += len(frame)
        return answered

    async def _answer(self, command: RemotingCommand, line: Line) -> RemotingCommand | None:
        try:
            answered = self.handlers[command.code](command, cast("Connection", line))
            return answered if isinstance(answered, RemotingCommand) or answered is None else await answered
        except MillstreamError as error:
            self.refused += 1
            return command.response(response_code_of(error), remark=str(error))

    def take_figures(self) -> dict[str, float]:
        """What was served since the last call."""
        figures = {
            "requests": self.requests,
            "refused": self.refused,
            "cpu_s": round(self.cpu_s, 3),
            "cpu_us_a_request": round(self.cpu_s / max(self.requests, 1) * 1e6, 1),
            "received_mib": round(self.received_bytes / 2**20, 2),
            "sent_mib": round(self.sent_bytes / 2**20, 2),
        }
        self.cpu_s, self.requests, self.refused, self.received_bytes, self.sent_bytes = 0.0, 0, 0, 0, 0
        return figures
