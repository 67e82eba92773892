"""Declarations of user functions: `udf`, `udtf`, `udaf`, and `sql_function`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from millstream.streams.plan.types import DataType

__all__ = [
    "DEFAULT_CAPACITY",
    "MAX_CAPACITY",
    "MAX_RETRIES",
    "Declaration",
    "declaration_of",
    "is_declared",
    "sql_function",
    "udaf",
    "udf",
    "udtf",
]

DEFAULT_CAPACITY: Final = 20
"""Calls of an async function that a worker has under way at a time if its declaration does not say."""

MAX_CAPACITY: Final = 1_000
"""Calls of an async function that a worker may have under way at a time."""

MAX_RETRIES: Final = 10
"""How often a call that raises may be retried."""

_DECLARED = "__sql_function__"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a decorator says; None where the annotations say it.

    `result` is a type of SQL or an annotation of Python, as `list[str]`. `vectorised` functions get whole columns.
    `capacity`, `retries` and `retry_wait_ms` are of async functions; `timeout_ms` bounds one call of those, and one
    call of any other in which Python itself runs.
    """

    arguments: tuple[DataType, ...] | None = None
    result: Any = None
    deterministic: bool = True
    is_table: bool = False
    is_aggregate: bool = False
    vectorised: bool | None = None
    capacity: int = DEFAULT_CAPACITY
    timeout_ms: int | None = None
    retries: int = 0
    retry_wait_ms: int = 0


def declaration_of(found: object) -> Declaration:
    """The declaration of a function, a method or a class; one that says nothing where there is none.

    Raises TypeError for a mark of something else.
    """
    owner = getattr(found, "__self__", found)
    declaration = getattr(found, _DECLARED, None) or getattr(type(owner), _DECLARED, None)
    if declaration is not None and not isinstance(declaration, Declaration):
        raise TypeError("has a wrong declaration")
    return declaration or Declaration()


def is_declared(found: object) -> bool:
    """Whether a decorator has marked it."""
    return hasattr(found, _DECLARED)


def sql_function(
    *, arguments: Sequence[DataType] | None = None, result: DataType | None = None, deterministic: bool = True
) -> Callable[[F], F]:
    """Declares the types of a function or class where its annotations do not; a table function's result is a ROW."""
    return _marking(Declaration(_types(arguments), result, deterministic))


def udf(
    *,
    arguments: Sequence[DataType] | None = None,
    result: Any = None,
    deterministic: bool = True,
    vectorised: bool | None = None,
    capacity: int = DEFAULT_CAPACITY,
    timeout_s: float | None = None,
    retries: int = 0,
    retry_wait_s: float = 0.0,
) -> Callable[[F], F]:
    """Declares a function of the values of one row; vectorised, of whole columns. See `Declaration`.

    Raises ValueError for a limit that cannot be.
    """
    declaration = Declaration(_types(arguments), result, deterministic, vectorised=vectorised)
    return _marking(_check_limits(declaration, capacity, timeout_s, retries, retry_wait_s))


def udtf(
    *,
    arguments: Sequence[DataType] | None = None,
    result: Any = None,
    deterministic: bool = True,
    capacity: int = DEFAULT_CAPACITY,
    timeout_s: float | None = None,
    retries: int = 0,
    retry_wait_s: float = 0.0,
) -> Callable[[F], F]:
    """Declares a table function, which gives any number of rows for each row; `result` is one of them.

    Raises ValueError for a limit that cannot be.
    """
    declaration = Declaration(_types(arguments), result, deterministic, is_table=True)
    return _marking(_check_limits(declaration, capacity, timeout_s, retries, retry_wait_s))


def udaf(*, arguments: Sequence[DataType] | None = None, result: Any = None) -> Callable[[F], F]:
    """Declares an aggregate: a class as `millstream.streams.functions.user_functions.user_aggregates` describes it."""
    return _marking(Declaration(_types(arguments), result, is_aggregate=True))


def _types(arguments: Sequence[DataType] | None) -> tuple[DataType, ...] | None:
    return None if arguments is None else tuple(arguments)


def _marking(said: Declaration) -> Callable[[F], F]:
    def mark(function: F) -> F:
        setattr(function, _DECLARED, said)
        return function

    return mark


def _check_limits(
    said: Declaration, capacity: int, timeout_s: float | None, retries: int, retry_wait_s: float
) -> Declaration:
    if not 0 < capacity <= MAX_CAPACITY:
        raise ValueError(f"capacity is 1 to {MAX_CAPACITY}, not {capacity}")
    if not 0 <= retries <= MAX_RETRIES:
        raise ValueError(f"retries is 0 to {MAX_RETRIES}, not {retries}")
    if timeout_s is not None and timeout_s <= 0:
        raise ValueError(f"timeout_s is more than 0, not {timeout_s}")
    if retry_wait_s < 0:
        raise ValueError(f"retry_wait_s is not less than 0, as {retry_wait_s} is")
    return replace(
        said,
        capacity=capacity,
        timeout_ms=None if timeout_s is None else max(1, round(timeout_s * 1000)),
        retries=retries,
        retry_wait_ms=round(retry_wait_s * 1000),
    )
