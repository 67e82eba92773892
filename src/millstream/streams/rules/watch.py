"""Watches tests that may raise or hang: user functions and backtracking expressions."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

import msgspec

from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.predicate_tests import PredicateTest
from millstream.streams.rules.reference import FieldOf, answer

__all__ = ["DEFAULT_ALLOWANCE_MS", "Failure", "Watch"]

DEFAULT_ALLOWANCE_MS: Final = 2_000
"""How long one atom's user function or backtracking expression may take over one batch."""

_RISKY: Final = frozenset((Op.MATCHES, Op.CALL))
"""Atoms that run code or expressions of users."""

_GLANCES: Final = 4
"""How often a test that runs is looked at within its allowance."""


class _OutOfTime(Exception):
    """A test was stopped."""


class Failure(msgspec.Struct, frozen=True):
    """An atom that cannot be asked any more, why, and the value that it was asked about."""

    predicate: Predicate
    reason: str
    value: Any = None
    too_slow: bool = False


class Watch:
    """Asks risky questions within `with watch:`; those that fail are in `failures` and say nothing from then on.

    A test that runs on is stopped while it runs only in the main thread (by SIGALRM, which is given back); elsewhere
    its time is taken when it is over.
    """

    def __init__(self, allowance_ms: int = DEFAULT_ALLOWANCE_MS) -> None:
        self._allowance_ms = allowance_ms
        self.failures: dict[Predicate, Failure] = {}
        self._spent_ns: dict[Predicate, int] = {}
        self._since_ns = 0
        self._restore: tuple[Any, float, float, float] | None = None

    def test_of(self, question: PredicateTest) -> Callable[[Any], bool | None]:
        """The question's answer to a form, watched where the question is risky."""
        return self._watch_test(question.predicate, question.ask) if question.risky else question.ask

    def answer(self, predicate: Predicate, field_of: FieldOf) -> bool | None:
        """What `plain.answer` says of an event, watched where the atom is risky; those that fail are unknown."""
        if predicate.op not in _RISKY:
            return answer(predicate, field_of)
        return self._watch_test(predicate, lambda value: answer(predicate, lambda _field: value))(
            field_of(predicate.field)
        )

    def _watch_test(self, predicate: Predicate, ask: Callable[[Any], bool | None]) -> Callable[[Any], bool | None]:
        def watch_call(formed: Any) -> bool | None:
            if predicate in self.failures:
                return None
            began_ns = time.perf_counter_ns()
            too_slow = True
            try:
                try:
                    self._since_ns = began_ns
                    verdict = ask(formed)
                finally:
                    self._since_ns = 0
            except _OutOfTime:
                reason = f"takes longer than {self._allowance_ms} ms"
            except Exception as error:  # noqa: BLE001 - the function is the user's: whatever it raises is its rule's
                reason, too_slow = f"{type(error).__name__}: {error}", False
            else:
                spent_ns = self._spent_ns[predicate] = (
                    self._spent_ns.get(predicate, 0) + time.perf_counter_ns() - began_ns
                )
                if spent_ns <= self._allowance_ms * 1_000_000:
                    return verdict
                reason = f"takes longer than {self._allowance_ms} ms over a batch"
            self.failures[predicate] = Failure(predicate, reason, formed, too_slow)
            return None

        return watch_call

    def __enter__(self) -> Self:
        self._spent_ns.clear()
        if threading.current_thread() is threading.main_thread():
            glance_s = self._allowance_ms / 1000 / _GLANCES
            handler = signal.signal(signal.SIGALRM, self._interrupt_slow)
            left_s, each_s = signal.setitimer(signal.ITIMER_REAL, glance_s, glance_s)
            self._restore = (handler, left_s, each_s, time.monotonic())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._restore is not None:
            handler, left_s, each_s, since_s = self._restore
            self._restore = None
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            if left_s:
                signal.setitimer(signal.ITIMER_REAL, max(left_s - (time.monotonic() - since_s), 0.001), each_s)

    def _interrupt_slow(self, _signal: int, _frame: FrameType | None) -> None:
        if self._since_ns and time.perf_counter_ns() - self._since_ns > self._allowance_ms * 1_000_000:
            self._since_ns = 0
            raise _OutOfTime
