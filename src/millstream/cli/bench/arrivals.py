"""Which messages of a run have arrived, when and how often: each carries a mark of the run and its number."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from millstream.telemetry.latency import LatencyRecorder

__all__ = ["MARK_BYTES", "Arrivals"]

_RUN_BYTES: Final = 8
_NUMBER_BYTES: Final = 8

MARK_BYTES: Final = _RUN_BYTES + _NUMBER_BYTES
"""Bytes of a body that the mark takes."""

_LAST_ARRIVALS_S: Final = 10.0
"""How long arrivals are waited for after the last send."""


class Arrivals:
    """The book of one run. Messages of other runs and of strangers are passed over."""

    def __init__(self, size: int) -> None:
        self._run = os.urandom(_RUN_BYTES)
        self._padding = b"x" * (size - MARK_BYTES)
        self._due_s: dict[int, float] = {}
        self._sent: set[int] = set()
        self._seen: set[int] = set()
        self._changed = asyncio.Event()
        self.duplicates = 0
        self.latency = LatencyRecorder()

    def body(self, number: int, due_s: float) -> bytes:
        """The body of a message whose time runs from `due_s` on."""
        self._due_s[number] = due_s
        return self._run + number.to_bytes(_NUMBER_BYTES, "big") + self._padding

    def sent(self, number: int) -> None:
        """The server has acknowledged it: it has to arrive."""
        self._sent.add(number)
        self._changed.set()

    def note(self, body: bytes, now_s: float, measured_from_s: float) -> None:
        """Something has arrived."""
        if not body.startswith(self._run):
            return
        number = int.from_bytes(body[_RUN_BYTES:MARK_BYTES], "big")
        if number in self._seen:
            self.duplicates += 1
            return
        self._seen.add(number)
        self._changed.set()
        due_s = self._due_s.pop(number)
        if due_s >= measured_from_s:
            self.latency.add(now_s - due_s)

    @property
    def delivered(self) -> int:
        """Messages that have arrived, each counted once."""
        return len(self._seen)

    @property
    def missing(self) -> int:
        """Messages that were acknowledged to the sender and have not arrived."""
        return len(self._sent - self._seen)

    async def wait_for_all(self) -> None:
        """Wait until nothing is missing, for a while at most."""
        try:
            async with asyncio.timeout(_LAST_ARRIVALS_S):
                while self.missing:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
