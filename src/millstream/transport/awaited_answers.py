"""Pending requests of one end of a connection, by opaque."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millstream.model.errors import MillstreamError, TimedOut
from millstream.model.message import Address
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["AwaitedAnswers"]

_OPAQUE_LIMIT = 0x7FFF_FFFF


class AwaitedAnswers:
    """Gives each request its opaque and hands the answer to the future that waits for it.

    The two ends of a connection count their opaques apart, so each has one of these.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[asyncio.Future[RemotingCommand], asyncio.TimerHandle]] = {}
        self._opaque = 0
        self._arrived = 0
        self.on_silence: Callable[[float], None] | None = None
        """Called with its seconds when a request's time is over and no answer at all came since it was sent."""

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def expect(self, command: RemotingCommand, peer: Address, timeout_s: float) -> asyncio.Future[RemotingCommand]:
        """The future answer to `command`, which gets its opaque here; TimedOut where none comes in time."""
        command.opaque = self._opaque = (self._opaque + 1) & _OPAQUE_LIMIT
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        deadline = self._loop.call_later(timeout_s, self._expire, command.opaque, peer, timeout_s, self._arrived)
        self._waiting[command.opaque] = (future, deadline)
        return future

    def deliver(self, answer: RemotingCommand) -> None:
        """Hand an answer over; nothing where nobody waits for it any more."""
        self._arrived += 1
        future, deadline = self._waiting.pop(answer.opaque, (None, None))
        if future is not None and deadline is not None:
            deadline.cancel()
            if not future.done():
                future.set_result(answer)

    def refuse(self, command: RemotingCommand, error: MillstreamError) -> None:
        """End the wait for the answer to `command`, which could not be sent, with `error`."""
        future, deadline = self._waiting.pop(command.opaque)
        deadline.cancel()
        future.set_exception(error)

    def fail(self, error: MillstreamError) -> None:
        """End every wait with `error`."""
        waiting, self._waiting = self._waiting, {}
        for future, deadline in waiting.values():
            deadline.cancel()
            if not future.done():
                future.set_exception(error)

    def _expire(self, opaque: int, peer: Address, timeout_s: float, arrived_before: int) -> None:
        future, _ = self._waiting.pop(opaque, (None, None))
        if future is not None and not future.done():
            future.set_exception(TimedOut(f"{peer.host}:{peer.port} did not answer within {timeout_s:g} s."))
        if self._arrived == arrived_before and self.on_silence is not None:
            self.on_silence(timeout_s)
