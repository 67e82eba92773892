"""Watched calls of rules' user functions: one that crashes the process, or does not come back, leaves who it was.

Rules are given to the stage with each user function behind `guard_call`, which notes the call in a mapped file before
it begins: the kernel keeps that page however the process dies. The stage itself stops calls that run on in Python; one
that does so within C is ended, with its process, from a thread that needs nothing of the interpreter. What dead
processes left is evidence for `guilty`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from millstream.streams.rules.called_function import function_of
from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Op, Predicate, predicates_of
from millstream.streams.rules.reference import text_of
from millstream.streams.rules.rule import Rule, RuleSet

__all__ = [
    "GUARD",
    "CallWatch",
    "DeadCall",
    "WatchedCall",
    "dead_calls",
    "guard_call",
    "guilty",
    "has_calls",
    "with_guards",
]

GUARD: Final = f"{__name__}:guard_call"
"""How an atom names the guard."""

_PAGE = 4096
_LENGTH_BYTES = 4
_MAX_SHOWN = 500
"""Characters of a value that a note of a call holds."""

_MAX_TRACE_CHARACTERS = 2_000
_MARK, _TRACE = ".call", ".trace"
_TIMEOUT = "Timeout"
"""How the words begin of a process whose time was over."""

_REARM_PART = 10
"""The time of a call may have begun a tenth of the allowance before it: an alarm for each would cost more than it."""


class WatchedCall(msgspec.Struct, frozen=True):
    """A call of `function` (`module:name`) with further arguments `operands` on a value, shown in part."""

    function: str
    operands: tuple[str | int | float | bool, ...]
    value: str


class DeadCall(msgspec.Struct, frozen=True):
    """A call in which its process ended. `trace` is what the process said at its end, blank where it could not."""

    call: WatchedCall
    trace: str

    @property
    def is_certain(self) -> bool:
        """Whether the call is what ended it: whoever is killed from outside says nothing."""
        return bool(self.trace)

    @property
    def took_too_long(self) -> bool:
        """Whether its time was over; else the process crashed."""
        return self.trace.startswith(_TIMEOUT)


class CallWatch:
    """Notes the calls of this process in `directory`; one of more than `allowance_ms` ends the process.

    A batch that goes on for about as long behind its last call ends it too: the allowance is to be far more than that.
    """

    def __init__(self, directory: Path, allowance_ms: int) -> None:
        self._directory = directory
        self._allowance_s = allowance_ms / 1000
        self._mark: mmap.mmap | None = None
        self._trace: IO[str] | None = None
        self._armed_s = 0.0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While this lasts, `guard_call` notes and bounds its calls here."""
        global _watch
        self._open()
        _watch = self
        try:
            yield
        finally:
            _watch = None
            self._disarm()

    def call(self, call: WatchedCall, function: Callable[..., Any], value: Any) -> Any:
        """The function's answer."""
        mark = self._mark
        assert mark is not None
        assert self._trace is not None
        text = msgspec.json.encode(call)[: _PAGE - _LENGTH_BYTES]
        mark[_LENGTH_BYTES : _LENGTH_BYTES + len(text)] = text
        mark[:_LENGTH_BYTES] = len(text).to_bytes(_LENGTH_BYTES)
        if not self._armed_s:
            self._armed_s = time.monotonic()
            faulthandler.dump_traceback_later(self._allowance_s, exit=True, file=self._trace)
        try:
            return function(value, *call.operands)
        finally:
            mark[:_LENGTH_BYTES] = bytes(_LENGTH_BYTES)
            if time.monotonic() - self._armed_s > self._allowance_s / _REARM_PART:
                self._disarm()

    def _disarm(self) -> None:
        self._armed_s = 0.0
        faulthandler.cancel_dump_traceback_later()

    def _open(self) -> None:
        if self._mark is not None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"{os.getpid()}-{time.time_ns()}"
        # Nobody sees the file before it is locked; it stays so until the process ends, which is how that is seen.
        hidden = self._directory / f".{name}"
        file = os.open(hidden, os.O_RDWR | os.O_CREAT)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file, _PAGE)
        self._mark = mmap.mmap(file, _PAGE)
        self._trace = (self._directory / f"{name}{_TRACE}").open("w")
        hidden.rename(self._directory / f"{name}{_MARK}")
        faulthandler.enable(self._trace, all_threads=False)


_watch: CallWatch | None = None


def guard_call(value: Any, function: str, *operands: Any) -> Any:
    """What the user function says; noted while the process watches its calls."""
    target = _target(function)
    if _watch is None:
        return target(value, *operands)
    shown = "" if value is None else text_of(value)[:_MAX_SHOWN]
    return _watch.call(WatchedCall(function, operands, shown), target, value)


@lru_cache(maxsize=1024)
def _target(function: str) -> Callable[..., Any]:
    return function_of(function)


def has_calls(rule_set: RuleSet) -> bool:
    """Whether a rule that is enabled calls a user function."""
    return any(
        predicate.op is Op.CALL
        for rule in rule_set.rules
        if rule.enabled
        for predicate in predicates_of(rule.condition)
    )


def with_guards(rule_set: RuleSet) -> RuleSet:
    """The same rules with their user functions behind `guard_call`."""
    rules = [msgspec.structs.replace(rule, condition=_guard_condition(rule.condition)) for rule in rule_set.rules]
    return msgspec.structs.replace(rule_set, rules=tuple(rules))


def _guard_condition(formula: Condition) -> Condition:
    match formula:
        case Predicate(op=Op.CALL, operands=operands):
            return msgspec.structs.replace(formula, operands=(GUARD, *operands))
        case All(parts=parts):
            return All(tuple(map(_guard_condition, parts)))
        case AnyOf(parts=parts):
            return AnyOf(tuple(map(_guard_condition, parts)))
        case Not(part=part):
            return Not(_guard_condition(part))
        case _:
            return formula


def dead_calls(directory: Path) -> list[DeadCall]:
    """The calls in which processes ended; what they left is removed, as are the files of those that ended in peace."""
    found = []
    for path in sorted(directory.glob(f"*{_MARK}")):
        content = _left_by_the_dead(path)
        if content is None:
            continue
        trace = path.with_suffix(_TRACE)
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            length = int.from_bytes(content[:_LENGTH_BYTES])
            if length:
                call = msgspec.json.decode(content[_LENGTH_BYTES : _LENGTH_BYTES + length], type=WatchedCall)
                found.append(DeadCall(call, trace.read_text(errors="replace")[:_MAX_TRACE_CHARACTERS]))
        path.unlink(missing_ok=True)
        trace.unlink(missing_ok=True)
    return found


def guilty(rule_set: RuleSet, call: WatchedCall) -> list[Rule]:
    """The enabled rules that make such a call."""
    wanted = (call.function, *call.operands)
    return [
        rule
        for rule in rule_set.rules
        if rule.enabled
        and any(predicate.op is Op.CALL and predicate.operands == wanted for predicate in predicates_of(rule.condition))
    ]


def _left_by_the_dead(path: Path) -> bytes | None:
    """The content of a file whose process has ended; None where it lives."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file.read()
    except OSError:
        return None
