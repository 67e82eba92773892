"""How long a test waits for what must happen: one patience for all, stretched by the environment on slow machines.

A wait ends as soon as its condition holds, so a long patience costs a passing test nothing. No test asserts that
something happens quickly; what needs a quiet machine belongs to `make bench` or `make crash`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

__all__ = ["PATIENCE_S", "PATIENCE_VARIABLE", "eventually", "eventually_blocking", "within_patience"]

PATIENCE_VARIABLE: Final = "MILLSTREAM_TEST_PATIENCE"
"""The environment's factor: 4 waits four times as long before a test fails."""

PATIENCE_S: Final = 60.0 * float(os.environ.get(PATIENCE_VARIABLE, "1"))
"""Seconds that a test waits before it fails."""

_POLL_S: Final = 0.005
_BLOCKING_POLL_S: Final = 0.02

_Result = TypeVar("_Result")


async def eventually(condition: Callable[[], object], *, poll_s: float = _POLL_S) -> None:
    """Return once the condition holds; AssertionError after `PATIENCE_S`."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"the condition did not hold within {PATIENCE_S:.0f} s: {condition}"
        await asyncio.sleep(poll_s)


def eventually_blocking(
    condition: Callable[[], object],
    *,
    poll_s: float = _BLOCKING_POLL_S,
    not_yet: tuple[type[Exception], ...] = (),
    patience_s: float = PATIENCE_S,
) -> None:
    """`eventually` for tests without an event loop; an error of the kinds `not_yet` counts as not yet."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            if condition():
                return
        except not_yet:
            pass
        assert time.monotonic() < deadline_s, f"the condition did not hold within {patience_s:.0f} s: {condition}"
        time.sleep(poll_s)


async def within_patience(awaitable: Awaitable[_Result]) -> _Result:
    """What the awaitable gives; TimeoutError after `PATIENCE_S`."""
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable
