"""Literals with Flink's types."""

from __future__ import annotations

import datetime
import decimal

from millstream.streams.plan.expressions import Literal
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, MAX_DIGITS, NULL, STRING, DataType, TypeKind
from millstream.streams.sql.syntax.expressions import IntervalTerm, LiteralTerm
from millstream.streams.sql.syntax.script import Script

__all__ = ["bind_literal"]

_INTERVAL_DAY = DataType(TypeKind.INTERVAL_DAY, nullable=False)
_INTERVAL_YEAR = DataType(TypeKind.INTERVAL_YEAR, nullable=False)
_INT_LIMIT = 2**31
_BIGINT_LIMIT = 2**63


def bind_literal(term: LiteralTerm | IntervalTerm, script: Script) -> Literal:
    """The literal with the type that Flink gives it. Raises SqlError at a number that fits no type."""
    if isinstance(term, IntervalTerm):
        return Literal(term.months, _INTERVAL_YEAR) if term.duration is None else Literal(term.duration, _INTERVAL_DAY)
    value = term.value
    if value is None:
        return Literal(None, NULL)
    if isinstance(value, bool):
        return Literal(value, BOOLEAN.as_nullable(False))
    if isinstance(value, int):
        if value >= _BIGINT_LIMIT:
            return Literal(decimal.Decimal(value), _decimal_type(decimal.Decimal(value), term, script))
        return Literal(value, (INT if value < _INT_LIMIT else BIGINT).as_nullable(False))
    if isinstance(value, decimal.Decimal):
        return Literal(value, _decimal_type(value, term, script))
    if isinstance(value, float):
        return Literal(value, DOUBLE.as_nullable(False))
    if isinstance(value, datetime.datetime):
        return Literal(value, DataType(TypeKind.TIMESTAMP, nullable=False, precision=term.digits))
    if isinstance(value, datetime.date):
        return Literal(value, DataType(TypeKind.DATE, nullable=False))
    if isinstance(value, bytes):
        return Literal(value, DataType(TypeKind.BYTES, nullable=False))
    return Literal(value, STRING.as_nullable(False))


def _decimal_type(value: decimal.Decimal, term: LiteralTerm, script: Script) -> DataType:
    _, digits, exponent = value.as_tuple()
    scale = -exponent if isinstance(exponent, int) else 0
    # Calcite counts the 0 before the point: 0.25 is a DECIMAL(3, 2).
    precision = max(len(digits), scale + 1 if scale else 0)
    if precision > MAX_DIGITS:
        raise script.error("SQL_TYPE", f"A number has at most {MAX_DIGITS} digits.", term.span)
    return DataType(TypeKind.DECIMAL, nullable=False, precision=precision, scale=scale)
