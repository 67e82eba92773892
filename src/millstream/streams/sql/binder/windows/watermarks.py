"""WATERMARK FOR c AS ...: how far rows may be behind the newest one, or an expression of the row that says it."""

from __future__ import annotations

import datetime
from dataclasses import replace

from millstream.streams.plan.tables import Watermark
from millstream.streams.plan.types import Field, Schema, TypeKind
from millstream.streams.sql.binder.scalars import Scope, bind_term
from millstream.streams.sql.syntax.expressions import CallTerm, IntervalTerm, LiteralTerm, NameTerm, Operation, Term
from millstream.streams.sql.syntax.script import Script
from millstream.streams.sql.syntax.tables import WatermarkDefinition

__all__ = ["bind_watermark"]

_UNITS_MS = {"SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000, "WEEK": 604_800_000}
_EXAMPLE = "As in WATERMARK FOR ts AS ts - INTERVAL '5' SECOND."


def bind_watermark(definition: WatermarkDefinition, field: Field, schema: Schema, script: Script) -> Watermark:
    """The watermark on `field`, a column of `schema` that is known. Raises SqlError."""
    if not field.type.is_timestamp:
        message = f'A watermark needs a TIMESTAMP, but "{field.name}" is {field.type}.'
        raise script.error("SQL_TYPE", message, definition.column.span, remedy="Compute one with TO_TIMESTAMP.")
    expression = definition.expression
    if isinstance(expression, CallTerm) and expression.name.upper() == "SOURCE_WATERMARK":
        message = "SOURCE_WATERMARK() is not supported: no source here has watermarks of its own."
        raise script.error("SQL_UNSUPPORTED", message, expression.span, remedy=_EXAMPLE)
    shift = _shift(expression, field.name)
    if shift is None and isinstance(expression, CallTerm) and expression.name.upper() == "WITHOFFSET":
        message = f"withOffset takes {field.name} and a whole number of milliseconds."
        raise script.error("SQL_TYPE", message, expression.span)
    if shift is not None and shift <= datetime.timedelta():
        return Watermark(field.name, round(-shift / datetime.timedelta(milliseconds=1)))
    bound = bind_term(expression, Scope(script, schema, place="a watermark"))
    if bound.type.kind not in (TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ):
        message = f"A watermark is a time, but this is {bound.type}."
        raise script.error("SQL_TYPE", message, expression.span, remedy=_EXAMPLE)
    return replace(Watermark(field.name, 0), expression=bound)


def _shift(term: Term, column: str) -> datetime.timedelta | None:
    """By how much the expression is later than the column; None if it is anything else than the column moved."""
    match term:
        case NameTerm(parts=(name,)):
            return datetime.timedelta() if name == column else None
        case Operation(operator="-" | "+" as operator, operands=(inside, IntervalTerm(duration=duration))):
            moved = _shift(inside, column)
            if moved is None or duration is None:
                return None
            return moved + duration if operator == "+" else moved - duration
        case CallTerm(name=name, arguments=(NameTerm(parts=(of,)), LiteralTerm(value=int(amount)))) if (
            name.upper() == "WITHOFFSET" and of == column
        ):
            return -datetime.timedelta(milliseconds=amount)
        case CallTerm(name="TIMESTAMPADD", arguments=(LiteralTerm(value=str(unit)), amount_term, inside)):
            moved, units = _shift(inside, column), _whole(amount_term)
            if moved is None or units is None or unit not in _UNITS_MS:
                return None
            return moved + datetime.timedelta(milliseconds=units * _UNITS_MS[unit])
        case _:
            return None


def _whole(term: Term) -> int | None:
    match term:
        case LiteralTerm(value=int(value)):
            return value
        case Operation(operator="NEGATE", operands=(LiteralTerm(value=int(value)),)):
            return -value
        case _:
            return None
