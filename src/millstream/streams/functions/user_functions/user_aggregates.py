"""User aggregates in Python, as accumulators of our operators.

A class has either Flink's methods: `create_accumulator()`, `accumulate(accumulator, *values)`, `get_value(accumulator)`
and, where the rows or the window ask for them, `retract(accumulator, *values)` and `merge(accumulator, others)`; or is
the accumulator itself, one object for each group: `add(*values)`, `result()`, and `retract(*values)`, `merge(other)`.
What a method returns takes the accumulator's place, unless it is None: then it was changed in place.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.streams.errors import JobError
from millstream.streams.functions.user_functions.calling import CAUGHT
from millstream.streams.functions.user_functions.failed_calls import note, watch
from millstream.streams.functions.user_functions.user_values import plain_value, python_value
from millstream.streams.plan.types import DataType

__all__ = [
    "MAX_STATE_BYTES",
    "AggregateMethods",
    "RetractableUserAggregate",
    "UserAggregate",
    "UserState",
    "aggregate_methods",
    "is_aggregate",
]

MAX_STATE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one group's accumulator, pickled, at most."""

_FLINK = ("create_accumulator", "accumulate", "get_value")
_OWN = ("add", "result")
_ATOMS = (int, float, str, bytes, bool, type(None))


@dataclass(frozen=True, slots=True)
class AggregateMethods:
    """The methods of a class of either form. Each gets the accumulator first; None for one that the class has not.

    `add_hints` and `result_hints` are the functions whose annotations tell the types; the first `skipped` parameters
    of the former are no arguments.
    """

    create: Callable[[], Any]
    add: Callable[..., Any]
    result: Callable[[Any], Any]
    retract: Callable[..., Any] | None
    merge: Callable[[Any, Any], Any] | None
    add_hints: Callable[..., Any]
    result_hints: Callable[..., Any]
    skipped: int


def is_aggregate(kind: object) -> bool:
    """Whether a class has the methods of an aggregate of either form."""
    return isinstance(kind, type) and (_has(kind, _FLINK) or (_has(kind, _OWN) and not hasattr(kind, "eval")))


def aggregate_methods(kind: type) -> AggregateMethods:
    """The methods of a class that is an aggregate. Flink's are those of one object of it; its constructor may raise."""
    if _has(kind, _FLINK):
        one: Any = kind()
        merge: Callable[[Any, Any], Any] | None = None
        if hasattr(one, "merge"):
            merge = lambda accumulator, other: one.merge(accumulator, [other])  # noqa: E731
        retract = getattr(one, "retract", None)
        return AggregateMethods(
            one.create_accumulator, one.accumulate, one.get_value, retract, merge, one.accumulate, one.get_value, 1
        )
    own: Any = kind
    retract, merge = getattr(own, "retract", None), getattr(own, "merge", None)
    return AggregateMethods(own, own.add, own.result, retract, merge, own.add, own.result, 1)


class UserState:
    """A group's accumulator as state: pickled when the state is written, made again when it is first used."""

    __slots__ = ("_name", "_packed", "_value")

    def __init__(self, name: str, value: Any) -> None:
        self._name = name
        self._value = value
        self._packed: bytes | None = None

    @property
    def value(self) -> Any:
        """The user's object."""
        if self._packed is not None:
            self._value, self._packed = pickle.loads(self._packed), None
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value, self._packed = value, None

    def copy(self) -> Any:
        """The user's object as another one, which may be changed."""
        value = self.value
        return value if isinstance(value, _ATOMS) else pickle.loads(self._pickle())

    def __getstate__(self) -> tuple[str, bytes]:
        return self._name, self._pickle()

    def __setstate__(self, state: tuple[str, bytes]) -> None:
        self._name, self._packed = state
        self._value = None

    def _pickle(self) -> bytes:
        if self._packed is not None:
            return self._packed
        try:
            packed = pickle.dumps(self._value, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - a user's class may raise anything
            message = f"The accumulator of {self._name} cannot be kept: {type(error).__name__}: {error}."
            raise JobError("JOB_FAILED", message, remedy="Keep plain values in it, which pickle takes.") from None
        if len(packed) > MAX_STATE_BYTES:
            message = f"An accumulator of {self._name} has {len(packed)} bytes, of {MAX_STATE_BYTES} at most."
            raise JobError("JOB_FAILED", message, remedy="Keep sums in it, not rows.")
        return packed


class UserAggregate:
    """An accumulator of operators over a user's class. Values are tuples of the arguments, NULLs among them.

    A call that raises is noted, and the row counts as far as the call came; the result of such a call is NULL.
    """

    def __init__(self, name: str, methods: AggregateMethods, arguments: Sequence[DataType], result: DataType) -> None:
        self._name = name
        self._methods = methods
        self._result = result
        converts = [python_value(one) for one in arguments]
        self._converts = converts if any(converts) else None

    def new(self) -> UserState:
        return UserState(self._name, self._methods.create())

    def add(self, state: UserState, values: Sequence[tuple[Any, ...]]) -> UserState:
        return self._call(state, values, self._methods.add, comes=True)

    def merge(self, state: UserState, other: UserState) -> UserState:
        if self._methods.merge is None:
            raise JobError("JOB_FAILED", f"{self._name} has no method merge.")
        theirs, bound = other.copy(), watch()
        try:
            bound.begin()
            changed = self._methods.merge(state.value, theirs)
            bound.end()
        except CAUGHT as error:
            bound.end()
            note(self._name, (state.value, theirs), error)
            return state
        if changed is not None:
            state.value = changed
        return state

    def result(self, state: UserState) -> Any:
        bound = watch()
        try:
            bound.begin()
            value = plain_value(self._methods.result(state.value), self._result)
            bound.end()
            return value
        except CAUGHT as error:
            bound.end()
            note(self._name, (state.value,), error)
            return None

    def _call(
        self, state: UserState, values: Sequence[tuple[Any, ...]], call: Callable[..., Any], *, comes: bool
    ) -> UserState:
        accumulator, bound = state.value, watch()
        for given in values:
            arguments = given if self._converts is None else self._convert(given)
            try:
                bound.begin()
                changed = call(accumulator, *arguments)
                bound.end()
            except CAUGHT as error:
                bound.end()
                note(self._name, arguments, error, row=comes)
                continue
            if changed is not None:
                accumulator = changed
        state.value = accumulator
        return state

    def _convert(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        assert self._converts is not None
        return tuple(
            value if convert is None or value is None else convert(value)
            for convert, value in zip(self._converts, given, strict=False)
        )


class RetractableUserAggregate(UserAggregate):
    """A user's aggregate whose class can take rows back."""

    def retract(self, state: UserState, values: Sequence[tuple[Any, ...]]) -> UserState:
        assert self._methods.retract is not None
        return self._call(state, values, self._methods.retract, comes=False)


def _has(kind: type, names: Sequence[str]) -> bool:
    return all(callable(getattr(kind, name, None)) for name in names)
