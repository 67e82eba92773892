"""Rewrites plans of jobs whose 'table.local-time-zone' is not UTC, where instants are read as local times.

The engine keeps TIMESTAMP (without a zone) and TIMESTAMP_LTZ (an instant) alike, in UTC. Between the two stand calls
that only the plan has: LOCAL_TIME(instant, zone) and INSTANT_OF(time, zone).
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import cast

from millstream.streams.functions.calendar import zone_of
from millstream.streams.plan.expressions import Call, Case, Cast, Column, Expression, Literal
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import BIGINT, STRING, DataType, Field, Schema, TypeKind

__all__ = ["is_utc", "read_in_zone"]

_READ_LOCALLY = (TypeKind.STRING, TypeKind.TIMESTAMP, TypeKind.DATE, TypeKind.TIME)
_INSTANT = DataType(TypeKind.TIMESTAMP_LTZ, precision=3)
_TEXT = STRING.as_nullable(False)
_NO_TIME = Literal(-(2**63), BIGINT)
_STANDARD = Literal("yyyy-MM-dd HH:mm:ss", _TEXT)

_FIELDS = frozenset(
    """
    YEAR QUARTER MONTH WEEK DAYOFYEAR DAYOFMONTH DAYOFWEEK HOUR MINUTE SECOND EXTRACT DATE_FORMAT DATEDIFF DATE_ADD
    DATE_SUB
    """.split()
)
"""Functions that read the calendar or the clock of a time."""

_ABSOLUTE_UNITS = ("EPOCH",)


def is_utc(zone: str) -> bool:
    """Whether times in the zone are those of UTC."""
    return zone.upper() in ("UTC", "Z", "ETC/UTC", "DEFAULT", "")


def read_in_zone(node: Node, zone: str) -> Node:
    """The same plan with instants read in the zone. Windows stay aligned to UTC."""
    known = zone_of(zone)
    return node if is_utc(zone) or known is None else cast("Node", _rebuilt(node, Literal(zone, _TEXT)))


def _rebuilt(tree: object, zone: Literal) -> object:
    """Nodes, tables and calls of aggregates with each expression in them translated; all else as it is."""
    if isinstance(tree, Column | Literal | Call | Case | Cast):
        return _expression(tree, zone)
    if isinstance(tree, tuple):
        return tuple(_rebuilt(part, zone) for part in tree)
    if isinstance(tree, DataType | Field | Schema) or not is_dataclass(tree) or isinstance(tree, type):
        return tree
    changed = {part.name: _rebuilt(getattr(tree, part.name), zone) for part in fields(tree)}
    return replace(tree, **changed)


def _expression(expression: Expression, zone: Literal) -> Expression:
    match expression:
        case Call():
            arguments = tuple(_expression(argument, zone) for argument in expression.arguments)
            return _call(replace(expression, arguments=arguments), zone)
        case Cast():
            return _cast(replace(expression, operand=_expression(expression.operand, zone)), zone)
        case Case(branches=branches, otherwise=otherwise):
            pairs = tuple((_expression(when, zone), _expression(then, zone)) for when, then in branches)
            return replace(
                expression, branches=pairs, otherwise=None if otherwise is None else _expression(otherwise, zone)
            )
        case _:
            return expression


def _cast(expression: Cast, zone: Literal) -> Expression:
    operand, wanted = expression.operand, expression.type
    if operand.type.kind is TypeKind.TIMESTAMP_LTZ and wanted.kind in _READ_LOCALLY:
        return replace(expression, operand=_local(operand, zone))
    if operand.type.kind in _READ_LOCALLY and wanted.kind is TypeKind.TIMESTAMP_LTZ:
        time = replace(wanted, kind=TypeKind.TIMESTAMP)
        inside = operand if operand.type.kind is TypeKind.TIMESTAMP else replace(expression, type=time)
        return Call("INSTANT_OF", (inside, zone), wanted)
    return expression


def _call(call: Call, zone: Literal) -> Expression:
    name, arguments = call.function, call.arguments
    if name == "EXTRACT" and isinstance(arguments[0], Literal) and arguments[0].value in _ABSOLUTE_UNITS:
        return call
    if name in _FIELDS:
        return replace(call, arguments=tuple(_as_local(argument, zone) for argument in arguments))
    if name in ("FLOOR", "CEIL") and call.type.kind is TypeKind.TIMESTAMP_LTZ:
        time = replace(call.type, kind=TypeKind.TIMESTAMP)
        local = replace(call, arguments=tuple(_as_local(argument, zone) for argument in arguments), type=time)
        return Call("INSTANT_OF", (local, zone), call.type)
    if name == "LOCALTIMESTAMP":
        return replace(_local(_now(), zone), type=call.type)
    if name in ("CURRENT_DATE", "CURRENT_TIME", "LOCALTIME"):
        return Cast(_local(_now(), zone), call.type)
    if name == "FROM_UNIXTIME":
        seconds = Call("TO_TIMESTAMP_LTZ", (arguments[0], Literal(0, BIGINT)), _INSTANT)
        return Call("DATE_FORMAT", (_local(seconds, zone), *(arguments[1:] or (_STANDARD,))), call.type)
    if name == "UNIX_TIMESTAMP" and arguments:
        return _seconds_of_text(call, zone)
    return call


def _seconds_of_text(call: Call, zone: Literal) -> Expression:
    """Seconds of a text that is a time of the zone; the least BIGINT, as everywhere, for one that is none."""
    time = Call("TO_TIMESTAMP", call.arguments, DataType(TypeKind.TIMESTAMP, precision=3))
    instant = Call("INSTANT_OF", (time, zone), _INSTANT)
    seconds = Call("EXTRACT", (Literal("EPOCH", _TEXT), instant), BIGINT)
    known = Call("COALESCE", (seconds, _NO_TIME), BIGINT)
    missing = Call("IS NULL", (call.arguments[0],), DataType(TypeKind.BOOLEAN, nullable=False))
    return Case(((missing, Literal(None, BIGINT)),), known, call.type)


def _as_local(argument: Expression, zone: Literal) -> Expression:
    return _local(argument, zone) if argument.type.kind is TypeKind.TIMESTAMP_LTZ else argument


def _local(instant: Expression, zone: Literal) -> Call:
    return Call("LOCAL_TIME", (instant, zone), replace(instant.type, kind=TypeKind.TIMESTAMP))


def _now() -> Call:
    return Call("CURRENT_TIMESTAMP", (), _INSTANT.as_nullable(False))
