"""What clients of a process send, taken in slices: however many of them flood, others are served in between.

A limit of each connection is not enough. A thousand clients whose frames have six bytes each make a turn of the event
loop that lasts for seconds, although each of them is given a few kilobytes of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

__all__ = ["INPUT_AT_ONCE_BYTES", "InputPacing"]

INPUT_AT_ONCE_BYTES: Final = 32 * 1024
"""Bytes of clients that are taken in one turn of the event loop, all connections together: some milliseconds of work
where they are the smallest frames. The rest waits its turn, in the order in which it came."""


class InputPacing:
    """Of all connections of a process; all calls from its event loop."""

    def __init__(self) -> None:
        self._bytes = 0
        self._is_counting = False
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def take_now(self, size_bytes: int) -> bool:
        """Whether that much may be taken in this turn, which is counted then; else it has to `wait`."""
        if self._waiting or self._bytes >= INPUT_AT_ONCE_BYTES:
            return False
        self._count(size_bytes)
        return True

    def wait(self, size_bytes: int, take: Callable[[], None]) -> None:
        """Call `take` in a later turn, in which there is room for that much. Each connection waits once at a time."""
        self._waiting.append((size_bytes, take))
        self._count(0)

    async def turn(self, size_bytes: int) -> None:
        """Return when work that costs as much as so many bytes may be done."""
        if self.take_now(size_bytes):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.wait(size_bytes, partial(_let_go_on, place))
        await place

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._bytes = 0
        self._is_counting = False
        for _ in range(len(self._waiting)):
            if self._bytes >= INPUT_AT_ONCE_BYTES:
                break
            size_bytes, take = self._waiting.popleft()
            self._count(size_bytes)
            take()
        if self._waiting:
            self._count(0)


def _let_go_on(place: asyncio.Future[None]) -> None:
    # Who was cancelled meanwhile is done.
    if not place.done():
        place.set_result(None)
