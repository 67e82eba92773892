"""Limits and orders the reads of requests; grpc.aio has no other way to bound their memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from millstream.model.errors import MessageRefused

__all__ = [
    "FAST_READ_S",
    "MAX_FAST_READS",
    "MAX_READS_PER_CONNECTION",
    "MAX_SLOW_READS",
    "READ_TIMEOUT_S",
    "SLOW_READ_GRACE_S",
    "RequestReadLimiter",
]


MAX_FAST_READS = 16
"""Requests of one server that may begin to be read at the same time; nearly all are whole at once."""

FAST_READ_S = 0.25
"""A request that is not whole by then is slow: it leaves its place to the next one."""

MAX_SLOW_READS = 48
"""Slow requests at the same time at most. With the quick ones, each may grow to the limit of a request."""

SLOW_READ_GRACE_S = 5.0
"""A slow request is given up after so long where others need its place; where it has just become slow, at once."""

MAX_READS_PER_CONNECTION = 16
"""Requests of one connection that are read at the same time at most; those of other connections pass the next ones."""

READ_TIMEOUT_S = 30.0
"""Seconds in which a request must have arrived, without its wait before reading."""

_Read = TypeVar("_Read")
_Task = asyncio.Task[Any]


class RequestReadLimiter:
    """The turns of one server's requests; all calls from one event loop."""

    def __init__(
        self,
        *,
        quick_places: int = MAX_FAST_READS,
        slow_places: int = MAX_SLOW_READS,
        per_connection: int = MAX_READS_PER_CONNECTION,
        quick_s: float = FAST_READ_S,
        patience_s: float = SLOW_READ_GRACE_S,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._free = quick_places
        self._slow_places = slow_places
        self._per_connection = per_connection
        self._quick_s = quick_s
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        # When each read began, the longest first.
        self._quick: dict[_Task, float] = {}
        self._slow: dict[_Task, float] = {}
        self._given_up: set[_Task] = set()
        self._held: dict[str, int] = {}
        # Connections in the order in which they get their next turn.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._watch: asyncio.Handle | None = None

    async def read(self, connection: str, receive: Callable[[], Awaitable[_Read]]) -> _Read:
        """What `receive` gives, at the connection's turn. REQUEST_TOO_SLOW where it does not arrive in time."""
        if connection in self._waiting or not self._has_room(connection):
            await self._wait(connection)
        else:
            self._take(connection)
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        self._quick[task] = loop.time()
        if self._watch is None:
            self._watch = loop.call_later(self._quick_s, self._look)
        try:
            return await receive()
        except asyncio.CancelledError:
            if task not in self._given_up or task.uncancel() > 0:
                raise
            raise MessageRefused("REQUEST_TOO_SLOW", "The request did not arrive in time.") from None
        finally:
            self._given_up.discard(task)
            self._free += self._quick.pop(task, None) is not None
            self._slow.pop(task, None)
            self._leave(connection)

    async def _wait(self, connection: str) -> None:
        place = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(connection, deque())
        line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._free += 1
                self._leave(connection)
            elif self._waiting.get(connection) is line and all(waiting.done() for waiting in line):
                del self._waiting[connection]
            raise

    def _has_room(self, connection: str) -> bool:
        return self._free > 0 and self._held.get(connection, 0) < self._per_connection

    def _take(self, connection: str) -> None:
        self._free -= 1
        self._held[connection] = self._held.get(connection, 0) + 1

    def _leave(self, connection: str) -> None:
        held = self._held.pop(connection) - 1
        if held:
            self._held[connection] = held
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        """Give the free places away, one connection after the other."""
        ready = deque(connection for connection in self._waiting if self._has_room(connection))
        while ready and self._free > 0:
            connection = ready.popleft()
            line = self._waiting.pop(connection)
            place = line.popleft()
            if not place.done():
                place.set_result(None)
                self._take(connection)
            if line:
                self._waiting[connection] = line
                if self._has_room(connection):
                    ready.append(connection)

    def _look(self) -> None:
        """Two turns of the loop from now: after a halt of the loop, what arrived meanwhile is taken first."""
        loop = asyncio.get_running_loop()
        self._watch = loop.call_soon(loop.call_soon, self._judge)

    def _judge(self) -> None:
        """Tell the slow reads from the quick ones, and give up those that take too long."""
        now_s = asyncio.get_running_loop().time()
        for task, began_s in [*self._slow.items()]:
            if now_s - began_s >= self._timeout_s:
                self._give_up(task)
        for task, began_s in [*self._quick.items()]:
            if now_s - began_s < self._quick_s:
                break
            self._slow_down(task, began_s, now_s)
        if self._waiting:
            self._admit()
        self._watch = None
        if self._quick or self._slow:
            self._watch = asyncio.get_running_loop().call_later(self._quick_s, self._look)

    def _slow_down(self, task: _Task, began_s: float, now_s: float) -> None:
        """Move a read to the slow ones; at their limit the longest of them gives way, or else this one."""
        if len(self._slow) >= self._slow_places:
            if not self._waiting and now_s - began_s < self._timeout_s:
                return
            longest, since_s = next(iter(self._slow.items()), (task, now_s))
            self._give_up(longest if now_s - since_s >= self._patience_s else task)
        if task in self._quick:
            del self._quick[task]
            self._slow[task] = began_s
            self._free += 1

    def _give_up(self, task: _Task) -> None:
        self._free += self._quick.pop(task, None) is not None
        self._slow.pop(task, None)
        self._given_up.add(task)
        task.cancel()
