"""Whose request is read next: few requests at a time are in the reading, so that their bytes stay bounded.

The transport buffers a request until it is whole, however slowly it comes. One that waits for its turn takes no more
than its stream's first window.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from millstream.model.errors import MessageRefused

__all__ = ["MAX_READS", "MAX_READS_PER_CONNECTION", "PATIENCE_S", "READ_TIMEOUT_S", "Intake"]

MAX_READS = 64
"""Requests of one server that are read at the same time at most; each may grow to the limit of a request."""

MAX_READS_PER_CONNECTION = 16
"""The same for one connection. Its further requests wait, and those of other connections pass them."""

PATIENCE_S = 5.0
"""A request that has been read for so long is given up once all places are taken and another request waits."""

READ_TIMEOUT_S = 30.0
"""Seconds in which a request must have arrived, its wait for a turn not included."""

_Read = TypeVar("_Read")
_Task = asyncio.Task[Any]


class Intake:
    """The turns of one server's requests; all calls from one event loop."""

    def __init__(
        self,
        *,
        places: int = MAX_READS,
        per_connection: int = MAX_READS_PER_CONNECTION,
        patience_s: float = PATIENCE_S,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._free = places
        self._per_connection = per_connection
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        # When each read began, the longest first; None once it is given up.
        self._reading: dict[_Task, float | None] = {}
        self._held: dict[str, int] = {}
        # Connections in the order in which they get their next turn.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._watch: asyncio.TimerHandle | None = None

    async def read(self, connection: str, receive: Callable[[], Awaitable[_Read]]) -> _Read:
        """What `receive` gives, at the connection's turn. REQUEST_TOO_SLOW where it does not arrive in time."""
        if connection in self._waiting or not self._has_room(connection):
            await self._wait(connection)
        else:
            self._take(connection)
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        self._reading[task] = loop.time()
        if self._watch is None:
            self._watch = loop.call_later(self._patience_s, self._look)
        try:
            return await receive()
        except asyncio.CancelledError:
            if self._reading[task] is not None or task.uncancel() > 0:
                raise
            raise MessageRefused("REQUEST_TOO_SLOW", "The request did not arrive in time.") from None
        finally:
            del self._reading[task]
            self._leave(connection)

    async def _wait(self, connection: str) -> None:
        place = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(connection, deque())
        line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
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
        self._free += 1
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
        """Give up the reads that take too long."""
        now_s = asyncio.get_running_loop().time()
        wanted = sum(map(len, self._waiting.values())) if self._free <= 0 else 0
        for task, began_s in self._reading.items():
            if began_s is None:
                continue
            if now_s - began_s >= self._timeout_s or (wanted > 0 and now_s - began_s >= self._patience_s):
                wanted -= 1
                self._reading[task] = None
                task.cancel()
        self._watch = None
        if self._reading:
            self._watch = asyncio.get_running_loop().call_later(self._patience_s / 5, self._look)
