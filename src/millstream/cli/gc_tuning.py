"""Tunes cyclic garbage collection: a start creates many objects and little garbage, so it collects rarely."""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["STARTING_THRESHOLD", "freeze_gc", "relax_gc", "restore_gc"]

STARTING_THRESHOLD: Final = 200_000
"""New objects between two looks for garbage during a start; with Python's 700 those are an eighth of it."""

_usual = gc.get_threshold()


def relax_gc() -> None:
    """A start begins."""
    gc.set_threshold(STARTING_THRESHOLD, *_usual[1:])


def restore_gc() -> None:
    """The start is over, or it is none of a server."""
    gc.set_threshold(*_usual)


def freeze_gc() -> None:
    """The start is over, and what it made stays: never look at that again."""
    gc.collect()
    gc.freeze()
    restore_gc()
