"""The state form of an operator, by which a changed query finds the state of its predecessor.

The id of an operator follows from what it keeps: its kind, its keys, what it computes, and where its columns come from.
It does not follow from its place in the query, from conditions, projections and names below and above it, or from
sinks. So state stays where such things change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from millstream.streams.plan.aggregates import Aggregate, AggregateCall, WindowAggregate
from millstream.streams.plan.changelog import changelog_of, upsert_key_of
from millstream.streams.plan.expressions import Column, Expression, operands_of_and, substitute
from millstream.streams.plan.joins import Join, JoinKind, LookupJoin, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import (
    Filter,
    Node,
    Normalize,
    OnePerKey,
    Project,
    Scan,
    Union,
    Watermarked,
    WindowRows,
    inputs_of,
    scans_of,
)
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.tables import ComputedColumn
from millstream.streams.plan.types import DataType, Field, Schema
from millstream.streams.plan.windows import Attached, Session, Window

__all__ = ["StateForm", "form_of", "has_form"]

_ID_CHARACTERS: Final = 12

_KINDS: Final[dict[type[Node], str]] = {
    Aggregate: "GROUP BY",
    WindowAggregate: "window aggregation",
    WindowRows: "session window",
    Join: "join",
    TemporalJoin: "temporal join",
    SetOperation: "set operation",
    Normalize: "last row of each key",
    OnePerKey: "one row of each key",
    Rank: "Top-N",
    Sort: "ORDER BY",
    Over: "OVER",
    Match: "MATCH_RECOGNIZE",
    Watermarked: "watermark column",
}

_Origins = Mapping[str, Expression]
"""The columns of a node as expressions over the columns of tables and of operators below it."""


@dataclass(frozen=True, slots=True)
class StateForm:
    """What an operator keeps. Two operators with one `id` read and write the same state.

    `keys` and `holds` say in words by what and what it keeps, `tables` from which tables its rows come. `conditions`
    are those below it that choose its rows; another condition leaves the form as it is.
    """

    id: str
    kind: str
    keys: tuple[str, ...]
    holds: tuple[str, ...]
    tables: tuple[str, ...]
    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"{self.kind}{by} over {', '.join(self.tables) or 'no table'}: {', '.join(self.holds) or 'its rows'}"


def has_form(node: Node) -> bool:
    """Whether the node keeps state in a stream."""
    return type(node) in _KINDS and (not isinstance(node, WindowRows) or isinstance(node.window, Session))


def form_of(node: Node) -> StateForm | None:
    """The form of the node's state; None for a node that keeps none."""
    if not has_form(node):
        return None
    below = [_origins(one) for one in inputs_of(node)]
    keys, holds = _parts(node, below)
    shapes = [_shape(one) for one in inputs_of(node)]
    modes = [changelog_of(one).value for one in inputs_of(node)]
    plain = repr((_KINDS[type(node)], keys, holds, shapes, modes))
    return StateForm(
        hashlib.sha256(plain.encode()).hexdigest()[:_ID_CHARACTERS],
        _KINDS[type(node)],
        tuple(keys),
        tuple(holds),
        tuple(sorted({scan.table.name for scan in scans_of(node)})),
        tuple(sorted({text for one in inputs_of(node) for text in _conditions(one)})),
    )


def _parts(node: Node, below: Sequence[_Origins]) -> tuple[list[str], list[str]]:
    """The keys, and all else on which the bytes of the state depend."""
    match node:
        case Aggregate(keys=keys, aggregates=calls):
            return _texts(keys, below[0]), [_call(call, below[0]) for _, call in calls]
        case WindowAggregate(keys=keys, aggregates=calls, window=window, emit=emit):
            spoken = [] if emit is None else [str(emit)]
            time = _time(window.time_column, node.input.schema)
            made = [_call(call, below[0]) for _, call in calls]
            return _texts(keys, below[0]), [f"{_window(window, below[0])}{time}", *made, *spoken]
        case WindowRows(window=window):
            names = window.keys if isinstance(window, Session) else ()
            time = _time(window.time_column, node.input.schema)
            return _columns_of(names, below[0]), [f"{_window(window, below[0])}{time}", *_columns(node.input, below[0])]
        case Join() | TemporalJoin():
            return _join_parts(node, below)
        case SetOperation(kind=kind, keep_all=keep_all):
            return [], [kind.value + (" ALL" if keep_all else ""), *_columns(node.left, below[0])]
        case Normalize(keys=names):
            return _columns_of(names, below[0]), _columns(node.input, below[0])
        case OnePerKey(keys=names, on_conflict=conflict):
            return _columns_of(names, below[0]), [conflict.value, *_columns(node.input, below[0])]
        case Rank():
            ends = [] if node.window_end is None else [f"final at {below[0][node.window_end]}"]
            ranked = ["with ranks"] if node.rank_name is not None else []
            held = [
                f"{node.function} {node.first} to {node.last}",
                *_order(node, below[0]),
                *ends,
                *ranked,
            ]
            return _columns_of(node.partition, below[0]), [*held, *_columns(node.input, below[0])]
        case Sort():
            rows = [f"LIMIT {node.limit} OFFSET {node.offset}"]
            return [], [*_order(node, below[0]), *rows, *_columns(node.input, below[0])]
        case Over():
            made = [_call(over.call, below[0]) for over in node.calls]
            held = [
                *_order(node, below[0]),
                str(node.frame),
                *(["whole"] if node.whole else []),
                *made,
            ]
            return _columns_of(node.partition, below[0]), [*held, *_columns(node.input, below[0])]
        case Match():
            defines = [f"{name} AS {substitute(value, below[0])}" for name, value in node.defines]
            measures = [f"{substitute(value, below[0])}" for _, value in node.measures]
            within = [] if node.within_ms is None else [f"within {node.within_ms} ms"]
            search = [f"PATTERN {node.pattern}", f"{node.skip.mode.value} {node.skip.variable}".strip(), *within]
            unless = [f"{one} unless {other}" for one, other in node.unless]
            held = [*_order(node, below[0]), *search, *unless, *defines, *measures]
            return _columns_of(node.partition, below[0]), held
        case _:
            return [], []


def _join_parts(node: Join | TemporalJoin, below: Sequence[_Origins]) -> tuple[list[str], list[str]]:
    left, right = below
    keys = [f"{left[ours]} = {right[theirs]}" for ours, theirs in node.keys]
    both = {**left, **right}
    held = [node.kind.value]
    # The condition of an inner join chooses pairs behind the state; that of an outer one is in the state.
    if node.condition is not None and node.kind is not JoinKind.INNER:
        held.append(f"if {substitute(node.condition, both)}")
    if isinstance(node, TemporalJoin):
        primary = [str(right[name]) for name in sorted(upsert_key_of(node.right) or ())]
        held.append(f"at {left[node.left_time]} of versions at {right[node.right_time]} by {', '.join(primary)}")
    else:
        if node.bounds is not None:
            one, other = left[node.bounds.left_time], right[node.bounds.right_time]
            held.append(f"{one} from {node.bounds.lower_ms} to {node.bounds.upper_ms} ms after {other}")
        if node.window_ends is not None:
            held.append(f"in windows to {left[node.window_ends[0]]}")
        if node.null_aware:
            held.append("NOT IN")
    sides = [f"left {text}" for text in _columns(node.left, left)]
    return keys, [*held, *sides, *(f"right {text}" for text in _columns(node.right, right))]


def _texts(named: Sequence[tuple[str, Expression]], below: _Origins) -> list[str]:
    return [f"{substitute(value, below)} {_type(value.type)}" for _, value in named]


def _columns_of(names: Sequence[str], below: _Origins) -> list[str]:
    return [f"{below[name]} {_type(below[name].type)}" for name in names]


def _columns(node: Node, below: _Origins) -> list[str]:
    """All columns in their order, for operators that keep whole rows."""
    return [f"{below[of.name]} {_type(of.type)}" for of in node.schema.fields]


def _order(node: Rank | Sort | Over | Match, below: _Origins) -> list[str]:
    texts = [(str(replace(key, column=str(below[key.column]))), key.column) for key in node.order]
    return [f"ordered by {text}{_time(column, node.input.schema)}" for text, column in texts]


def _time(column: str, schema: Schema) -> str:
    """What time a column is, if it is a time attribute: other operators run by these."""
    field = schema.find(column)
    if field is None:
        return ""
    return " (processing time)" if field.proctime else " (event time)" if field.rowtime else ""


def _call(call: AggregateCall, below: _Origins) -> str:
    return f"{_resolve(call, below)} {_type(call.type)}"


def _resolve(call: AggregateCall, below: _Origins) -> AggregateCall:
    return call.over_parts(iter([substitute(part, below) for part in call.parts]))


def _type(of: DataType) -> str:
    return str(of.as_nullable())


def _window(window: Window, below: _Origins) -> str:
    def name(column: str) -> str:
        return str(below.get(column, column))

    if isinstance(window, Attached):
        return str(Attached(name(window.start_column), name(window.end_column), name(window.time_column)))
    if isinstance(window, Session):
        return str(replace(window, time_column=name(window.time_column), keys=tuple(map(name, window.keys))))
    return str(replace(window, time_column=name(window.time_column)))


def _conditions(node: Node) -> Iterator[str]:
    """The conditions between a node and the operators and tables below it."""
    if isinstance(node, Filter):
        below = _origins(node.input)
        yield from (str(substitute(one, below)) for one in operands_of_and(node.predicate))
    if not has_form(node):
        for one in inputs_of(node):
            yield from _conditions(one)


def _shape(node: Node) -> str:
    """Where the rows of a node come from: its tables and operators, without what chooses and renames."""
    form = form_of(node)
    if form is not None:
        return form.id
    match node:
        case Scan(table=table):
            return table.name
        case Filter(input=below) | Project(input=below):
            return _shape(below)
        case LookupJoin(input=below, table=table, kind=kind):
            return f"LOOKUP({kind.value}, {table.name}, {_shape(below)})"
        case _:
            return f"{type(node).__name__}({', '.join(map(_shape, inputs_of(node)))})"


def _origins(node: Node) -> dict[str, Expression]:
    """Each column of a node over the columns of tables and operators."""
    match node:
        case Scan():
            return _table_columns(node)
        case Project(columns=columns):
            below = _origins(node.input)
            return {name: substitute(value, below) for name, value in columns}
        case Aggregate(keys=keys, aggregates=calls) | WindowAggregate(keys=keys, aggregates=calls):
            below = _origins(node.input)
            made: dict[str, Expression] = {name: substitute(value, below) for name, value in keys}
            made.update((name, Column(str(_resolve(call, below)), call.type)) for name, call in calls)
            label = _window(node.window, below) if isinstance(node, WindowAggregate) else ""
            return {of.name: made.get(of.name) or _own_column(of, label) for of in node.schema.fields}
        case Match(measures=measures):
            below = _origins(node.input)
            renamed: dict[str, Expression] = {
                name: Column(f"MATCH({substitute(value, below)})", value.type) for name, value in measures
            }
            return {of.name: renamed.get(of.name) or below[of.name] for of in node.schema.fields}
        case Union(inputs=inputs):
            parts = [list(_origins(one).values()) for one in inputs]
            fields = zip(node.schema.fields, *parts, strict=True)
            return {of.name: _one_of(of, same) for of, *same in fields}
        case LookupJoin(table=table, columns=columns):
            types = {of.name: of.type for of in node.schema.fields}
            found: dict[str, Expression] = {name: Column(f"{table.name}.{of}", types[name]) for name, of in columns}
            return {**_origins(node.input), **found}
        case _:
            return _pass_through(node)


def _table_columns(node: Scan) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    for column in node.table.columns:
        if isinstance(column, ComputedColumn):
            found[column.name] = substitute(column.expression, found)
        else:
            found[column.name] = Column(f"{node.table.name}.{column.name}", column.type)
    return {of.name: found[of.name] for of in node.schema.fields}


def _pass_through(node: Node) -> dict[str, Expression]:
    """Columns that come through as they are, and those that the node adds."""
    below: dict[str, Expression] = {}
    for one in inputs_of(node)[::-1]:
        below.update(_origins(one))
    label = _window(node.window, below) if isinstance(node, WindowRows) else type(node).__name__
    if isinstance(node, Over):
        made = {over.name: Column(f"OVER({_resolve(over.call, below)})", over.call.type) for over in node.calls}
        below.update(made)
    return {of.name: below.get(of.name) or _own_column(of, label) for of in node.schema.fields}


def _own_column(of: Field, label: str) -> Column:
    return Column(f"{label}.{of.name}" if label else of.name, of.type)


def _one_of(of: Field, same: Sequence[Any]) -> Expression:
    texts = [str(one) for one in same]
    first: Expression = same[0]
    return first if len(set(texts)) == 1 else Column(f"UNION({', '.join(texts)})", of.type)
