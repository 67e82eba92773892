"""What a lookup finds rows by, from its ON: equal columns, or a range, network or prefix in the table's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from millstream.streams.functions.common_type import common_type
from millstream.streams.plan.expressions import Call, Cast, Column, Expression, columns_of
from millstream.streams.plan.joins import LookupSearch, SearchKind
from millstream.streams.plan.nodes import Node
from millstream.streams.sql.binder.join_conditions import equal_pair
from millstream.streams.sql.binder.relations import as_column
from millstream.streams.sql.binder.scalars import convert_type

__all__ = ["bind_search", "equal_columns"]

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONTAINED = {"CIDR_MATCH": SearchKind.NETWORK, "STARTSWITH": SearchKind.PREFIX}


@dataclass(frozen=True, slots=True)
class _Bound:
    """`value` `operator` the table's column; `of` is the condition that says so."""

    value: Expression
    operator: str
    column: Column
    of: Expression


def equal_columns(
    left: Node, right: Node, stored: Mapping[str, str], conditions: Sequence[Expression]
) -> tuple[Node, tuple[tuple[str, str], ...], list[Expression]]:
    """`left` with a column for each value that a stored column of the table equals, these pairs, and the others.

    `stored` are the table's columns by their names on the right. Whole numbers of another width are equal as they are.
    """
    keys: dict[tuple[str, str], None] = {}
    rest: list[Expression] = []
    for condition in conditions:
        value, column = equal_pair(condition, left, right) or (condition, condition)
        if isinstance(column, Cast) and column.type.is_integer and column.operand.type.is_integer:
            column = column.operand
        if isinstance(column, Column) and column.name in stored and value is not condition:
            left, mine = as_column(left, value, "left_key", right.schema.names)
            keys[mine, stored[column.name]] = None
        else:
            rest.append(condition)
    return left, tuple(keys), rest


def bind_search(
    left: Node, stored: Mapping[str, str], conditions: Sequence[Expression], *, full_scan: bool = False
) -> tuple[Node, LookupSearch | None, list[Expression]]:
    """`left` with a column for what is searched, the search that serves the conditions, and those it does not serve.

    `stored` are the table's columns by their names in the conditions. Networks and prefixes come before ranges; where
    nothing serves there is a `full_scan`, or None.
    """
    ours = set(left.schema.names)
    for condition in conditions:
        found = _find_containment(condition, ours, stored)
        if found is not None:
            kind, value, column = found
            left, probe = as_column(left, value, "lookup_probe")
            rest = [other for other in conditions if other is not condition]
            return left, LookupSearch(kind, (stored[column.name],), probe), rest
    between = _range(conditions, ours, stored)
    if between is not None:
        start, end = between
        left, probe = as_column(left, start.value, "lookup_probe")
        columns = stored[start.column.name], stored[end.column.name]
        search = LookupSearch(SearchKind.RANGE, columns, probe, end_included=end.operator == "<=")
        # An index holds the start of each range; a comparison that does not is looked at again.
        served = [end.of] if start.operator == ">" and start.of is not end.of else [start.of, end.of]
        return left, search, [other for other in conditions if not any(other is one for one in served)]
    return left, LookupSearch(SearchKind.ALL) if full_scan else None, list(conditions)


def _find_containment(
    condition: Expression, ours: set[str], stored: Mapping[str, str]
) -> tuple[SearchKind, Expression, Column] | None:
    if not isinstance(condition, Call) or condition.function not in _CONTAINED or len(condition.arguments) != 2:
        return None
    value, column = condition.arguments
    if isinstance(column, Column) and column.name in stored and _is_of(value, ours):
        return _CONTAINED[condition.function], value, column
    return None


def _range(conditions: Sequence[Expression], ours: set[str], stored: Mapping[str, str]) -> tuple[_Bound, _Bound] | None:
    """The first value that has a column of the table below it and one above it."""
    bounds = [bound for condition in conditions for bound in _bounds(condition, ours, stored)]
    for start in bounds:
        for end in bounds:
            if start.operator in (">", ">=") and end.operator in ("<", "<=") and start.value == end.value:
                return start, end
    return None


def _bounds(condition: Expression, ours: set[str], stored: Mapping[str, str]) -> Iterator[_Bound]:
    if not isinstance(condition, Call):
        return
    pairs: list[tuple[Expression, str, Expression]] = []
    if condition.function == "BETWEEN":
        value, low, high = condition.arguments
        pairs = [(value, ">=", low), (value, "<=", high)]
    elif condition.function in _TURNED:
        first, second = condition.arguments
        pairs = [(first, condition.function, second), (second, _TURNED[condition.function], first)]
    for value, operator, column in pairs:
        if isinstance(column, Column) and column.name in stored and _is_of(value, ours):
            wanted = common_type((value.type, column.type))
            if wanted.as_nullable() == column.type.as_nullable():
                yield _Bound(convert_type(value, wanted), operator, column, condition)


def _is_of(value: Expression, ours: set[str]) -> bool:
    read = set(columns_of(value))
    return bool(read) and read <= ours
