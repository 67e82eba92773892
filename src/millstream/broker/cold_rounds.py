"""Rounds of background work on cold messages, which go on whatever a round fails with.

A defect in one round, or a library of an object store that raises what it does not document, must not end uploads for
good: the disk would fill without a word. Such an error becomes INTERNAL_ERROR, with a trace of bounded length.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Final

from millstream.model.backoff import Backoff
from millstream.model.errors import MillstreamError

__all__ = ["explain_error", "repeat_rounds", "trace_error"]

MAX_TRACE_LINES: Final = 16
"""Lines of the trace of an unexpected error that the log shows, the last ones."""

MAX_LINE_CHARACTERS: Final = 200
"""Characters of one line of such a trace, and of the error's own words."""


async def repeat_rounds(
    act: Callable[[], Awaitable[bool]],
    interval_s: float,
    retry: Backoff,
    note: Callable[[MillstreamError, str], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Act every `interval_s`, at once again where a round says that more is due, until the task is cancelled.

    `note` hears of each round that failed, with words for the log; the words are blank while rounds fail as the one
    before did. The next round then waits as `retry` says.
    """
    failures, wait_s, said = 0, interval_s, ""
    while True:
        await sleep(wait_s)
        try:
            wait_s = 0.0 if await act() else interval_s
            failures, said = 0, ""
        except Exception as error:  # noqa: BLE001 - the task's edge: nothing would go up any more, and nobody would know
            explained = explain_error(error)
            # The same defect may have other words each time, as with a key that is drawn anew.
            kind = str(error) if explained is error else f"{type(error).__name__} {_place_of(error)}"
            note(explained, "" if kind == said else trace_error(error))
            said = kind
            wait_s = retry.wait_s(failures)
            failures += 1


def explain_error(error: Exception) -> MillstreamError:
    """The error itself where it is of the catalogue, else INTERNAL_ERROR with its kind and the first of its words."""
    if isinstance(error, MillstreamError):
        return error
    words = " ".join(f"{type(error).__name__}: {error}"[:MAX_LINE_CHARACTERS].split())
    return MillstreamError("INTERNAL_ERROR", f"Unexpected {words}.")


def trace_error(error: Exception) -> str:
    """Words for the log: those of an error of the catalogue, else also where it came from, in bounded lines."""
    explained = explain_error(error)
    if explained is error:
        return str(error)
    lines = "".join(traceback.format_tb(error.__traceback__, limit=-MAX_TRACE_LINES)).splitlines()[-MAX_TRACE_LINES:]
    return "\n".join([str(explained), *(line[:MAX_LINE_CHARACTERS] for line in lines)])


def _place_of(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
