"""Responses to long polls: many wake at once, and their messages are fetched in slices.

A message for which a thousand pulls wait would else be read a thousand times before anybody else is served, and before
anybody can see that its answers are not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

__all__ = ["LATE_AT_ONCE", "LATE_AT_ONCE_BYTES", "AnswerPacing", "LateAnswers"]

LATE_AT_ONCE: Final = 256
"""Requests that waited and are answered before others are served, at most."""

LATE_AT_ONCE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of their answers beyond which others are served first."""

_TURNS: Final = 4
"""Turns of the loop after which the answer that a task made lies in its connection, and counts there."""


class AnswerPacing(Protocol):
    """What a request that waited asks before it looks for its answer."""

    async def ready(self) -> None:
        """Return once the answer may be made."""

    def note_size(self, size_bytes: int) -> None:
        """Note how large it is."""


class LateAnswers:
    """Of all connections of a process; all calls from its event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0
        self._is_counting = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Return when the next answer may be made."""
        while self._count >= LATE_AT_ONCE or self._bytes >= LATE_AT_ONCE_BYTES:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place
        self._count += 1
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._end, _TURNS)

    def note_size(self, size_bytes: int) -> None:
        """Note how large an answer is."""
        self._bytes += size_bytes

    def _end(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._end, turns - 1)
            return
        self._count = self._bytes = 0
        self._is_counting = False
        for _ in range(min(LATE_AT_ONCE, len(self._waiting))):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
