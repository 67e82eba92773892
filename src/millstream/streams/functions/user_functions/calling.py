"""Calls a user's function for the rows of a batch: one by one, by column, or concurrently (async).

Every way gives a value for each row, and a failure for each row whose call raised, took too long or was of no use.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import FrameType
from typing import Any, Final

from millstream.streams.functions.user_functions.declarations import Declaration, declaration_of

__all__ = [
    "CAUGHT",
    "COLUMN_TYPES",
    "CallTookTooLong",
    "CallWatchdog",
    "Calling",
    "Failure",
    "Way",
    "await_calls",
    "call_by_row",
    "calling_of",
    "column_hint",
    "watch_calls",
]

_IDLE: Final = -1

TICKS: Final = 4
"""Checks of a call within its time limit: it is stopped within a fourth of that time after it."""

COLUMN_TYPES: Final = {
    "Int64Array": int,
    "DoubleArray": float,
    "StringArray": str,
    "BooleanArray": bool,
    "BinaryArray": bytes,
    "int64": int,
    "float64": float,
    "str_": str,
    "bool": bool,
    "bool_": bool,
    "bytes_": bytes,
}
"""Columns of pyarrow and the kinds of numpy's, and the annotation of one value of each."""


class Way(Enum):
    """What a function gets of a batch."""

    ROWS = "the values of one row"
    ARROW = "columns of pyarrow"
    NUMPY = "columns of numpy"
    ASYNC = "the values of one row, many rows at once"


@dataclass(frozen=True, slots=True)
class Calling:
    """A function with how it is called, and what its author said of it."""

    function: Callable[..., Any]
    way: Way
    said: Declaration


Failure = tuple[int, BaseException]
"""The place of a row in its batch, and what its call raised."""


class CallTookTooLong(BaseException):
    """Raised within a user's code, which has no business catching it."""


CAUGHT: Final = (Exception, SystemExit, CallTookTooLong)
"""What a call may raise without an end to its process."""


def calling_of(function: Callable[..., Any], marked: object) -> Calling:
    """How `function` is called; `marked` is what a decorator may have marked, the function or its class."""
    declaration = declaration_of(marked)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return Calling(function, Way.ASYNC, declaration)
    modules = {module for hint in _hints(function).values() if (module := _column_module(hint))}
    if "numpy" in modules:
        return Calling(function, Way.NUMPY, declaration)
    is_arrow = bool(modules) if declaration.vectorised is None else declaration.vectorised
    return Calling(function, Way.ARROW if is_arrow else Way.ROWS, declaration)


def column_hint(hint: Any) -> Any:
    """The annotation of one value where `hint` is that of a column whose kind is known; else `hint` itself."""
    if not _column_module(hint):
        return hint
    if typing.get_origin(hint) is None:
        return COLUMN_TYPES.get(getattr(hint, "__name__", ""), hint)
    kinds = [kind for part in typing.get_args(hint) for kind in typing.get_args(part)]
    return next((COLUMN_TYPES[name] for kind in kinds if (name := getattr(kind, "__name__", "")) in COLUMN_TYPES), hint)


def call_by_row(
    function: Callable[..., Any], rows: Sequence[tuple[Any, ...]], timeout_ms: int | None
) -> tuple[list[Any], list[Failure]]:
    """The value of each row, None for one that failed. A call that runs on in Python for too long is stopped."""
    count, first = len(rows), 0
    values: list[Any] = [None] * count
    failures: list[Failure] = []
    with watch_calls(timeout_ms) as watch:
        while first < count:
            try:
                for place in range(first, count):
                    watch.number = place
                    values[place] = function(*rows[place])
                watch.number = _IDLE
                first = count
            except CAUGHT as error:
                failures.append((watch.number, error))
                values[watch.number] = None
                first = watch.number + 1
    return values, failures


def await_calls(
    calling: Calling, rows: Sequence[tuple[Any, ...]], timeout_ms: int | None
) -> tuple[list[Any], list[Failure]]:
    """The value of each row in the rows' order, None for one that failed; as many calls as allowed are under way."""
    return _loop().run_until_complete(_all(calling, rows, calling.said.timeout_ms or timeout_ms))


async def _all(
    calling: Calling, rows: Sequence[tuple[Any, ...]], timeout_ms: int | None
) -> tuple[list[Any], list[Failure]]:
    values: list[Any] = [None] * len(rows)
    failures: list[Failure] = []
    waiting = iter(enumerate(rows))

    async def work() -> None:
        for place, row in waiting:
            try:
                values[place] = await _one(calling, row, timeout_ms)
            except CAUGHT as error:
                failures.append((place, error))

    await asyncio.gather(*(work() for _ in range(min(calling.said.capacity, len(rows)))))
    return values, sorted(failures, key=lambda failure: failure[0])


async def _one(calling: Calling, row: tuple[Any, ...], timeout_ms: int | None) -> Any:
    declaration = calling.said
    for attempt in range(declaration.retries + 1):
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                if inspect.isasyncgenfunction(calling.function):
                    return [one async for one in calling.function(*row)]
                return await calling.function(*row)
        except CAUGHT as error:
            if attempt == declaration.retries:
                if isinstance(error, TimeoutError) and timeout_ms is not None and not str(error):
                    raise TimeoutError(f"no answer within {timeout_ms / 1000:g} s") from error
                raise
            await asyncio.sleep(declaration.retry_wait_ms / 1000)
    raise AssertionError("unreachable")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for the process, so that connections that a function keeps stay good from one batch to the next."""
    return asyncio.new_event_loop()


class CallWatchdog:
    """Counts how often a call was found under way; `number` is the call's."""

    def __init__(self, timeout_ms: int) -> None:
        self.number = _IDLE
        self._timeout_ms = timeout_ms
        self._seen = _IDLE
        self._ticks = 0
        self._calls = 0

    def begin(self) -> None:
        """A call begins."""
        self._calls += 1
        self.number = self._calls

    def end(self) -> None:
        """No call is under way."""
        self.number = _IDLE

    def tick(self, _signal: int, _frame: FrameType | None) -> None:
        """Raises CallTookTooLong where the same call was under way at all the last ticks."""
        if self.number != self._seen:
            self._seen, self._ticks = self.number, 0
        self._ticks += 1
        if self.number != _IDLE and self._ticks > TICKS:
            self._ticks = 0
            raise CallTookTooLong(f"the call did not end within {self._timeout_ms / 1000:g} s")


@contextmanager
def watch_calls(timeout_ms: int | None) -> Iterator[CallWatchdog]:
    """Bounds calls while this lasts; only in a process's main thread, which alone hears signals."""
    watch = CallWatchdog(timeout_ms or 0)
    if not timeout_ms or threading.current_thread() is not threading.main_thread():
        yield watch
        return
    before = signal.signal(signal.SIGALRM, watch.tick)
    tick_s = timeout_ms / 1000 / TICKS
    signal.setitimer(signal.ITIMER_REAL, tick_s, tick_s)
    try:
        yield watch
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}


def _column_module(hint: Any) -> str:
    """pyarrow or numpy where the annotation is one of their columns; blank for others."""
    found = typing.get_origin(hint) or hint
    name, module = getattr(found, "__name__", ""), str(getattr(found, "__module__", "")).partition(".")[0]
    return module if module in ("pyarrow", "numpy") and (name.endswith("Array") or name == "ndarray") else ""
