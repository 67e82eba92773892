"""Tunes cyclic garbage collection: rare while a process starts, and seldom while it serves.

A start creates many objects and little garbage. A server with many connections has many objects that stay: looking at
all of them stops its event loop, for 0.3 s with 8,000 sessions, and with Python's usual thresholds that came 46 times
while these connected.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["SERVING_THRESHOLDS", "STARTING_THRESHOLD", "freeze_gc", "relax_gc", "restore_gc"]

STARTING_THRESHOLD: Final = 200_000
"""New objects between two looks for garbage during a start; with Python's 700 those are an eighth of it."""

SERVING_THRESHOLDS: Final = (25_000, -1 if sys.version_info < (3, 14) else 10, 80)
"""Of a server: new objects between two looks at them, which take some 5 ms, and looks until one is at all objects. So 2
million objects, some 200 MB, may be garbage in cycles before all are looked at. With -1 no look is at the young ones
alone: what stays, as all that belongs to a client that connects, would be looked at again by the next one. From Python
3.14 on the second number means something else."""

_usual = gc.get_threshold()


def relax_gc() -> None:
    """A start begins."""
    gc.set_threshold(STARTING_THRESHOLD, *_usual[1:])


def restore_gc() -> None:
    """The start is over, or it is none of a server: look as Python does."""
    gc.set_threshold(*_usual)


def freeze_gc() -> None:
    """The start of a server is over, and what it made stays: never look at that again, and seldom at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SERVING_THRESHOLDS)
