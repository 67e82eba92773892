"""Groups requests of one code that arrived in one chunk, where answering them together is cheaper."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.request_shape import RequestShape, ShapedRun

if TYPE_CHECKING:
    from millstream.transport.remoting_connection import Connection

__all__ = ["BatchHandler", "RequestBatch", "RunAnswers", "RunHandler"]


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """The first `count` of the requests that a handler was shown. `frames` become their answers, all of them SUCCESS.

    Where `frames` end with a refusal, nothing of the turn was done, and each of its requests is handled by itself.
    Any other error answers all of them.
    """

    count: int
    frames: asyncio.Future[bytes]


class BatchHandler(ABC):
    """A handler of one request that can take several at once. It is shown no oneway requests, and asked for a turn
    only where no gate has to see each request."""

    @abstractmethod
    def __call__(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand | None]:
        """Answer one request."""

    @abstractmethod
    def take(self, commands: Sequence[RemotingCommand], start: int, connection: Connection) -> RequestBatch | None:
        """A turn of the commands from `start` on, up to the first one that is none of its own; None where that is at
        `start`. Must not raise after it has begun anything."""

    @abstractmethod
    def take_run(self, run: ShapedRun, connection: Connection) -> RequestBatch | None:
        """The same of sends that are alike, from the first one on."""


class RunAnswers(Protocol):
    """Answers the requests of one run, in the turn in which it came."""

    def answer(self, requests: list[Any], start: int, frames: list[bytes | memoryview], max_bytes: int) -> int:
        """Append the answers to requests from `start` on to `frames`, all of them SUCCESS, until these have more than
        `max_bytes` or one has to be handled by itself; how many were answered."""
        ...


class RunHandler(ABC):
    """A handler of requests that are often alike and are answered at once. It is asked for a run only where no gate
    has to see each request."""

    @abstractmethod
    def __call__(
        self, command: RemotingCommand, connection: Connection
    ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
        """Answer one request."""

    @abstractmethod
    def open_run(self, shape: RequestShape) -> RunAnswers | None:
        """What answers requests of the shape in this turn; None where each has to be handled by itself."""
