"""What a builder of Spark columns is, and how it sees literal arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.expressions import Call, Literal

__all__ = ["Builder", "literal", "null_unless_all"]

Builder = Callable[[Call, Sequence[Column]], Column]
"""Builds the column of a call from the columns of its arguments, in their order."""

T = TypeVar("T")


def literal(call: Call, position: int, kind: type[T]) -> T | None:
    """The value of a literal argument of that kind; None if it is missing, NULL or no literal."""
    if position >= len(call.arguments):
        return None
    argument = call.arguments[position]
    value = argument.value if isinstance(argument, Literal) else None
    return value if isinstance(value, kind) else None


def null_unless_all(columns: Sequence[Column], value: Column) -> Column:
    """`value` where no column is NULL, else NULL."""
    condition = F.lit(True)
    for column in columns:
        condition = condition & column.isNotNull()
    return F.when(condition, value)
