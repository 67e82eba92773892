"""The size of a job's operator state on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.streams.jobs.identity import read_owner

__all__ = ["MEASURE_S", "StateSize"]

MEASURE_S: Final = 15.0
"""Seconds for which a size is told before the files are looked at again."""


class StateSize:
    """The size of the operators' files below a job's `directory`, of all its queries."""

    def __init__(self, directory: Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock_s = clock_s
        self._measured_s: float | None = None
        self._size_bytes: int | None = None

    def measure(self) -> int | None:
        """Bytes, at most `MEASURE_S` old; None where operators keep their state elsewhere."""
        now_s = self._clock_s()
        if self._measured_s is None or now_s - self._measured_s >= MEASURE_S:
            self._measured_s, self._size_bytes = now_s, self._add_up()
        return self._size_bytes

    def _add_up(self) -> int | None:
        size_bytes = 0
        for query in self._directory.glob("*"):
            owner = read_owner(query)
            if owner is not None and owner.operators:
                return None
            size_bytes += sum(_sizes(query / "operators"))
        return size_bytes


def _sizes(directory: Path) -> list[int]:
    """The sizes of all files; operators remove some while they are looked at."""
    found = []
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                found.append(os.stat(os.path.join(root, name)).st_size)
            except FileNotFoundError:
                continue
    return found
