"""Failed calls of user functions: the error report of each, and its recipients.

A worker collects them while it computes; where nobody collects, the error goes through to whoever called.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final

import msgspec

from millstream.streams.functions.user_functions.calling import CallWatchdog, watch_calls

__all__ = [
    "MAX_SHOWN_ARGUMENTS",
    "MAX_TRACE",
    "FailedCall",
    "UserFunctionFailed",
    "collecting",
    "failed_call",
    "note",
    "watch",
]

MAX_SHOWN_ARGUMENTS: Final = 500
"""Characters of a call's arguments, and of what it raised, that are shown at most."""

MAX_TRACE: Final = 4_000
"""Characters of a call's traceback that are shown at most, the innermost ones."""

_PACKAGE = "millstream."


class FailedCall(msgspec.Struct, frozen=True):
    """One call of `function` (`module.name`) without a value: why, where in the user's own code, on what arguments.

    `given` is a row for which an aggregate was called, as JSON; blank for other calls.
    """

    function: str
    arguments: str
    reason: str
    trace: str
    given: bytes = b""

    def __str__(self) -> str:
        where = f"\n{self.trace}" if self.trace else ""
        return f"{self.function}({self.arguments}): {self.reason}{where}"


class UserFunctionFailed(Exception):
    """A call without a value where nothing may be lost; `call` tells which."""

    def __init__(self, call: FailedCall) -> None:
        super().__init__(str(call))
        self.call = call

    def __reduce__(self) -> tuple[type[UserFunctionFailed], tuple[FailedCall]]:
        return UserFunctionFailed, (self.call,)


_collected: list[FailedCall] | None = None
_fails = False
_watch = CallWatchdog(0)


@contextlib.contextmanager
def collecting(*, fails: bool, timeout_ms: int | None = None) -> Iterator[list[FailedCall]]:
    """What `note` is told while this lasts; with `fails` it raises all the same. A call may take `timeout_ms`."""
    global _collected, _fails, _watch
    before = _collected, _fails, _watch
    found: list[FailedCall] = []
    try:
        with watch_calls(timeout_ms) as watch:
            _collected, _fails, _watch = found, fails, watch
            yield found
    finally:
        _collected, _fails, _watch = before


def watch() -> CallWatchdog:
    """What bounds the calls of whoever collects; it bounds nothing where nobody does."""
    return _watch


def note(function: str, arguments: Sequence[Any], error: BaseException, *, row: bool = False) -> None:
    """Tell of a call that raised `error`; with `row` the arguments are a row that may be kept.

    Raises UserFunctionFailed where calls must not fail, or nobody collects.
    """
    call = failed_call(function, arguments, error)
    if row:
        call = msgspec.structs.replace(call, given=msgspec.json.encode({"arguments": list(arguments)}, enc_hook=repr))
    if _collected is None or _fails:
        raise UserFunctionFailed(call) from error
    _collected.append(call)


def failed_call(function: str, arguments: Sequence[Any], error: BaseException) -> FailedCall:
    """What is told of a call that raised `error`."""
    reason = f"{type(error).__name__}: {error}"
    shown = reason if len(reason) <= MAX_SHOWN_ARGUMENTS else f"{reason[:MAX_SHOWN_ARGUMENTS]} ..."
    return FailedCall(function, shown_arguments(arguments), shown, shown_trace(error))


def shown_arguments(arguments: Sequence[Any]) -> str:
    """The arguments as Python writes them, cut where they are long."""
    text = ", ".join(map(_repr_of, arguments))
    return text if len(text) <= MAX_SHOWN_ARGUMENTS else f"{text[:MAX_SHOWN_ARGUMENTS]} ..."


def shown_trace(error: BaseException) -> str:
    """The traceback from the user's first frame on; blank where the error is not of the user's code."""
    frames = list(traceback.walk_tb(_users_part(error.__traceback__)))
    if not frames:
        return ""
    found = traceback.TracebackException(type(error), error, _users_part(error.__traceback__), compact=True)
    text = "".join(found.format(chain=False)).rstrip()
    return text if len(text) <= MAX_TRACE else f"... {text[-MAX_TRACE:]}"


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
        trace = trace.tb_next
    return trace


def _repr_of(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return f"<{type(value).__name__}>"
