"""Runs long work on the event loop in slices, so that other work continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

__all__ = ["ROWS_PER_SLICE", "iterate_cooperatively"]

ROWS_PER_SLICE: Final = 64
"""Rows after which others get their turn: one to three milliseconds of work."""

_T = TypeVar("_T")


async def iterate_cooperatively(rows: Iterable[_T]) -> AsyncIterator[_T]:
    """The rows; now and then everything else that waits for the loop runs in between."""
    for number, row in enumerate(rows, 1):
        yield row
        if not number % ROWS_PER_SLICE:
            await asyncio.sleep(0)
