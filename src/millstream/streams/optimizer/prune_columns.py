"""Column pruning: keeps only the columns that are read above each node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millstream.streams.plan.aggregates import Aggregate, AggregateCall, Expand, WindowAggregate
from millstream.streams.plan.backends import NodeBackend, backend_of
from millstream.streams.plan.changelog import AnyNode, any_node
from millstream.streams.plan.expressions import Expression, columns_of
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.joins import Correlate, Join, LookupJoin, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import (
    Filter,
    FromChangelog,
    Node,
    Normalize,
    OnePerKey,
    Project,
    Scan,
    ToChangelog,
    Union,
    Values,
    Watermarked,
    WindowRows,
    inputs_of,
    with_inputs,
)
from millstream.streams.plan.ordering import OrderKey, Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.tables import ComputedColumn
from millstream.streams.plan.user_calls import PythonRows
from millstream.streams.plan.windows import Attached, Session, Window

__all__ = ["prune_columns"]


def prune_columns(node: Node) -> Node:
    """The same plan, reading only what it needs."""
    return _prune(node, set(node.schema.names), windowed=False)


def _prune(node: Node, wanted: set[str], *, windowed: bool) -> Node:
    """`node` with at least the `wanted` columns; `windowed` keeps event time for a node above that waits for it."""
    if isinstance(node, Scan):
        return _scan(node, wanted, windowed=windowed)
    narrowed = _drop_unread(node, wanted)
    if (isinstance(narrowed, Over) and not narrowed.calls) or (
        isinstance(narrowed, Watermarked) and narrowed.name not in wanted
    ):
        return _prune(narrowed.input, wanted, windowed=windowed)
    needed = _input_columns_of(any_node(narrowed), wanted)
    # Beside an input with operators, the other inputs of a union carry event time too.
    held = _holds_operator(narrowed) if isinstance(narrowed, Union) else backend_of(narrowed) is not NodeBackend.COLUMNS
    windowed = windowed or held
    inputs = inputs_of(narrowed)
    pruned = tuple(_prune(below, needed & set(below.schema.names), windowed=windowed) for below in inputs)
    return with_inputs(narrowed, pruned)


def _holds_operator(node: Node) -> bool:
    """Whether the node or one below it runs in an operator."""
    return backend_of(node) is not NodeBackend.COLUMNS or any(map(_holds_operator, inputs_of(node)))


def _drop_unread(node: Node, wanted: set[str]) -> Node:
    """The node without the columns that it adds and nobody reads."""
    match node:
        case Project():
            columns = tuple((name, value) for name, value in node.columns if name in wanted)
            kept = {name for name, _ in columns}
            return Project(node.input, columns, node.rowtime & kept, node.proctime & kept)
        case Aggregate() | WindowAggregate():
            return replace(node, aggregates=tuple(call for call in node.aggregates if call[0] in wanted))
        case Over():
            return replace(node, calls=tuple(over for over in node.calls if over.name in wanted))
        case Rank(rank_name=name):
            return replace(node, rank_name=name if name in wanted else None)
        case LookupJoin():
            read = wanted | set(() if node.condition is None else columns_of(node.condition))
            return replace(node, columns=tuple(column for column in node.columns if column[0] in read))
        case PythonRows():
            return replace(node, kept=tuple(name for name in node.kept if name in wanted))
        case Expand():
            places = [place for place, name in enumerate(node.names) if name in wanted]
            names = tuple(node.names[place] for place in places)
            projections = tuple(tuple(values[place] for place in places) for values in node.projections)
            return Expand(node.input, names, projections, node.rowtime & set(names))
        case _:
            return node


def _input_columns_of(node: AnyNode, wanted: set[str]) -> set[str]:
    """The columns of the inputs that a narrowed node reads, by name; names of two inputs differ."""
    match node:
        case Scan() | Values():
            return set()
        case Project(columns=columns):
            return _columns_in(value for _, value in columns)
        case Filter(predicate=condition) | FanOut(branches=condition):
            return wanted | set(columns_of(condition))
        case Expand(projections=projections):
            return _columns_in(value for values in projections for value in values)
        # Whether a row changes depends on each of its columns.
        case Union() | SetOperation() | ToChangelog() | OnePerKey():
            return {name for below in inputs_of(node) for name in below.schema.names}
        case Normalize() | FromChangelog():
            return wanted | (set(node.keys) if isinstance(node, Normalize) else {node.op})
        case WindowRows(window=window):
            return (wanted & set(node.input.schema.names)) | _of_window(window)
        case WindowAggregate():
            return _of_window(node.window) | _of_grouping(node)
        case Aggregate():
            return _of_grouping(node)
        case Join() | TemporalJoin() | LookupJoin() | Correlate() | PythonRows():
            return wanted | _of_join(node)
        case Rank() | Over() | Sort() | Match() | Watermarked():
            return _of_order(node, wanted)


def _of_window(window: Window) -> set[str]:
    match window:
        case Attached(start_column=start, end_column=end, time_column=time):
            return {start, end, time}
        case Session(time_column=time, keys=keys):
            return {time, *keys}
        case _:
            return {window.time_column}


def _of_grouping(node: Aggregate | WindowAggregate) -> set[str]:
    return _columns_in(key for _, key in node.keys) | _of_calls(call for _, call in node.aggregates)


def _of_calls(calls: Iterable[AggregateCall]) -> set[str]:
    read: set[str] = set()
    for call in calls:
        read |= _columns_in(call.parts)
    return read


def _of_join(node: Join | TemporalJoin | LookupJoin | Correlate | PythonRows) -> set[str]:
    if isinstance(node, PythonRows):
        return set(node.reads)
    if isinstance(node, Correlate):
        return set(columns_of(node.function))
    read = set(() if node.condition is None else columns_of(node.condition))
    read |= {left for left, _ in node.keys}
    if isinstance(node, LookupJoin):
        return read | ({node.search.probe} - {""} if node.search is not None else set())
    read |= {right for _, right in node.keys}
    if isinstance(node, TemporalJoin):
        return read | {node.left_time, node.right_time}
    if node.bounds is not None:
        read |= {node.bounds.left_time, node.bounds.right_time}
    return read | set(node.window_ends or ())


def _of_order(node: Rank | Over | Sort | Match | Watermarked, wanted: set[str]) -> set[str]:
    match node:
        case Watermarked(name=name):
            return wanted - {name}
        case Sort(order=order):
            return wanted | _of_keys(order)
        case Rank():
            ends = () if node.window_end is None else (node.window_end,)
            return {*wanted, *node.partition, *_of_keys(node.order), *ends}
        case Over():
            return {*wanted, *node.partition, *_of_keys(node.order), *_of_calls(over.call for over in node.calls)}
        case Match():
            values = (*(value for _, value in node.defines), *(value for _, value in node.measures))
            return {*node.partition, *_of_keys(node.order), *_columns_in(values)}


def _of_keys(order: Iterable[OrderKey]) -> set[str]:
    return {key.column for key in order}


def _columns_in(values: Iterable[Expression]) -> set[str]:
    return {name for value in values for name in columns_of(value)}


def _scan(scan: Scan, wanted: Iterable[str], *, windowed: bool) -> Scan:
    needed = set(wanted)
    watermark = scan.table.watermark
    if windowed and watermark is not None:
        needed.add(watermark.column)
        needed |= set() if watermark.expression is None else set(columns_of(watermark.expression))
    for column in scan.table.columns:
        if isinstance(column, ComputedColumn) and column.name in needed:
            needed |= set(columns_of(column.expression))
    return replace(scan, columns=tuple(name for name in scan.table.schema.names if name in needed))
