"""Translates plan nodes to data frames.

Rows for many branches at once. Spark's plan holds one literal for the constants, however many branches there are.

Changes as rows that say what they are, and rows that say so as changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from millstream.streams.errors import JobError
from millstream.streams.plan.aggregates import Aggregate, Expand, WindowAggregate
from millstream.streams.plan.backends import needs_own_in_batch
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.expressions import Call
from millstream.streams.plan.fan_out import Constants, FanOut
from millstream.streams.plan.joins import Correlate, Join, LookupJoin
from millstream.streams.plan.nodes import (
    Filter,
    FromChangelog,
    Node,
    Project,
    Scan,
    ToChangelog,
    Union,
    Values,
    WindowRows,
    inputs_of,
)
from millstream.streams.plan.tables import ComputedColumn
from millstream.streams.plan.types import Schema
from millstream.streams.plan.user_calls import PythonRows, calls_users_functions, has_user_call
from millstream.streams.plan.windows import Cumulate, Hop, Tumble, Window
from millstream.streams.spark.columns.rows import (
    KIND_COLUMN,
    QUEUE_COLUMN,
    TICK_COLUMN,
    WANTED_COLUMN,
    Copies,
    EventClock,
    Rows,
    expand,
    quoted_name,
    settle,
)
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.operators.wirings import wiring_of
from millstream.streams.spark.translation.batch_relations import (
    UntimedRows,
    batch_aggregation,
    batch_join,
    batch_window,
)
from millstream.streams.spark.translation.expressions import column_of
from millstream.streams.spark.translation.lookup_join import looked_up
from millstream.streams.spark.translation.operator_host import OperatorHost
from millstream.streams.spark.translation.python_rows import python_rows
from millstream.streams.spark.translation.rowwise import correlated_rows, expanded_rows, value_rows
from millstream.streams.spark.translation.user_calls import UserCalls

__all__ = ["Translation", "converted_rows", "fanned_out_rows", "is_shareable", "is_stateful", "needs_operators"]


def converted_rows(node: ToChangelog | FromChangelog, rows: Rows) -> Rows:
    """The rows of `node`, whose input has `rows`."""
    if isinstance(node, FromChangelog):
        code = rows.columns[node.op]
        kind = _choose(code, node.kinds).cast("tinyint")
        if node.fails:
            # What is no row, such as a tick, has no code either.
            is_row = F.lit(True) if rows.condition is None else F.coalesce(rows.condition, F.lit(False))
            kind = F.when(is_row, F.coalesce(kind, F.raise_error(_unknown(code, node)).cast("tinyint")))
        kept = {name: rows.columns[name] for name in node.schema.names}
        return replace(rows.with_columns(kept), kind=kind).where(kind.isNotNull())
    # Sources and operators leave the kind of an insert blank.
    row_kind = F.lit(RowKind.INSERT.value) if rows.kind is None else F.coalesce(rows.kind, F.lit(RowKind.INSERT.value))
    code = _choose(row_kind, node.codes)
    columns = {name: code if name == node.op else rows.columns[name] for name in node.schema.names}
    return replace(rows.with_columns(columns), kind=None).where(code.isNotNull())


def _unknown(code: SparkColumn, node: FromChangelog) -> SparkColumn:
    """Why a row with that code ends the job."""
    known = ", ".join(f"'{code}'" for code, _ in node.kinds)
    shown = F.coalesce(F.concat(F.lit("'"), code, F.lit("'")), F.lit("NULL"))
    remedy = "Give it a kind in op_mapping, or leave such rows out by error_handling => 'SKIP'."
    words = f", but FROM_CHANGELOG knows {known}. {remedy}"
    return F.concat(F.lit("A row has the code "), shown, F.lit(f' in "{node.op}"{words}'))


def _choose(value: SparkColumn, pairs: Iterable[tuple[object, object]]) -> SparkColumn:
    """What belongs to the value; NULL for one that has nothing."""
    (first, chosen), *others = pairs
    start = F.when(value == F.lit(first), F.lit(chosen))
    return reduce(lambda found, pair: found.when(value == F.lit(pair[0]), F.lit(pair[1])), others, start)


def fanned_out_rows(node: FanOut, rows: Rows) -> Rows:
    """The rows that some branch wants, as a copy for each branch that does: no row is read twice for that."""
    branches = column_of(node.branches, rows.columns)

    def of_branch(number: SparkColumn) -> dict[str, SparkColumn]:
        constants = {one.name: _constant_at(one, number) for one in node.constants}
        return {**rows.columns, **constants}

    return replace(rows.where(F.size(branches) > 0), copies=Copies(branches, of_branch))


def _constant_at(constants: Constants, number: SparkColumn) -> SparkColumn:
    """Spark reads the text once, when it plans the query."""
    values = F.from_json(F.lit(json.dumps(constants.values)), ArrayType(spark_type(constants.type)))
    return F.element_at(values, number + 1)


def is_stateful(node: Node) -> bool:
    """Whether the node keeps rows or sums over time."""
    return wiring_of(node) is not None or any(is_stateful(below) for below in inputs_of(node))


def needs_operators(node: Node, *, batch: bool) -> bool:
    """Whether something in the node's tree runs in operators of ours; then all stateful parts of it do."""
    return needs_own_in_batch(node) if batch else is_stateful(node)


def is_shareable(node: Node) -> bool:
    """Whether the node's rows are rows of its source one by one, so that others can share the pass over it."""
    # Users' functions run on rows of their own, each once.
    if calls_users_functions(node):
        return False
    match node:
        case Scan():
            return True
        case Project() | Filter() | FanOut() | WindowRows(window=Tumble()):
            return is_shareable(node.input)
        case _:
            return False


class Translation:
    """Translates the outputs of one pipeline. `sources` are the data frames of its tables, with the hidden columns.

    `host` is where operators of ours run; None where no output needs them. `one_row` gives the data frame of one row
    that rows of the script stand on; `calls` runs users' functions. `batch`: the sources are read once, as a whole.
    `without_time` is count or fail: whether a row whose event time is NULL ends the job where that time is read.
    `numbers` stand for the tables in event time; without them the order of `sources` says them.
    """

    def __init__(
        self,
        sources: Mapping[str, DataFrame],
        host: OperatorHost | None,
        one_row: Callable[[], DataFrame],
        calls: UserCalls,
        *,
        batch: bool = False,
        without_time: str = "count",
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        self._batch = batch
        self._without_time = without_time
        self._sources = sources
        self._calls = calls
        self._one_row = one_row
        self._numbers = numbers or {name: number for number, name in enumerate(sources)}
        self._host = host
        self.untimed = UntimedRows()
        """What windows of a batch get of rows without event time."""

    def rows(self, node: Node) -> Rows:
        """The rows of `node`. Without state the result stands on a source itself. Ticks are not among the rows."""
        return self._own(node) if needs_operators(node, batch=self._batch) else self._plain(node)

    def event_times(self, scan: Scan) -> Rows:
        """The rows of a table as they move event time, in the columns of `EVENT_TIMES`; ticks are not among them."""
        rows = self._scan_with_clock(scan)
        clock = rows.clock
        assert clock is not None
        columns = {
            "source": clock.source,
            "queue": clock.queue,
            "time_us": clock.time_us,
            "tick_us": F.lit(None).cast("bigint"),
        }
        return Rows(rows.frame, columns, F.col(TICK_COLUMN).isNull() & clock.time_us.isNotNull())

    def _plain(self, node: Node) -> Rows:
        """The rows of a node that needs no operator of ours."""
        if isinstance(node, Scan):
            return self._columns(node)
        if isinstance(node, Values):
            return self._values(node, clocked=False)
        if isinstance(node, Union):
            return self._union([self._plain(below) for below in node.inputs], node)
        if isinstance(node, Join):
            return batch_join(node, self._plain(node.left), self._plain(node.right))
        rows = self._plain(_only_input(node))
        if isinstance(node, WindowAggregate):
            return batch_window(*self._window_apart(node, rows), self.untimed)
        if isinstance(node, Aggregate):
            return batch_aggregation(node, rows)
        return self._rowwise(node, rows)

    def _own(self, node: Node) -> Rows:
        """The rows of a node that has operators of ours in its tree."""
        if isinstance(node, Scan):
            return self._scan_with_clock(node)
        if isinstance(node, Values):
            return self._values(node, clocked=True)
        if isinstance(node, Union):
            return self._union([self._own(below) for below in node.inputs], node)
        if self._batch and isinstance(node, Join | Aggregate) and not needs_own_in_batch(node):
            return self._end_batch(node)
        wiring = wiring_of(node)
        if wiring is None:
            return self._rowwise(node, self._own(_only_input(node)))
        assert self._host is not None
        return self._host.run(node, wiring, [self._own(wire.node) for wire in wiring.inputs])

    def _end_batch(self, node: Node) -> Rows:
        """The rows of a node of a batch job that Spark runs, and behind them the end of event time."""
        end = value_rows(Values(node.schema, ()), self._one_row(), clocked=True)
        assert end.clock is not None
        rows = replace(self._plain(node), clock=replace(end.clock, tick_us=F.lit(None).cast("bigint")))
        return self._union([rows, end], Union((node, Values(node.schema, ()))))

    def _values(self, node: Values, *, clocked: bool) -> Rows:
        """Rows that stand in the script; of one with calls of users' functions the columns are made of no columns."""
        if len(node.rows) > 1 or not any(map(has_user_call, node.rows[0] if node.rows else ())):
            return value_rows(node, self._one_row(), clocked=clocked)
        nothing = Values(Schema(()), ((),))
        columns = tuple(zip(node.schema.names, node.rows[0], strict=True))
        return self._rowwise(Project(nothing, columns), value_rows(nothing, self._one_row(), clocked=clocked))

    def _rowwise(self, node: Node, rows: Rows) -> Rows:
        """The rows of a node that looks at one row at a time."""
        if isinstance(node, LookupJoin):
            host = self._host
            return looked_up(node, rows, "") if host is None else looked_up(node, rows, host.job_id, host.tables)
        if isinstance(node, PythonRows):
            return python_rows(node, rows, self._calls)
        return _stateless(*self._apart(node, rows))

    def _apart(self, node: Node, rows: Rows) -> tuple[Node, Rows]:
        """The node over rows that have the values of its calls of users' functions."""
        match node:
            case Project(columns=named):
                rows, values = self._calls.apart(rows, [value for _, value in named], node.input, node.input.schema)
                names = (name for name, _ in named)
                return replace(node, columns=tuple(zip(names, values, strict=True))), rows
            case Filter(predicate=predicate):
                rows, (plain,) = self._calls.apart(rows, [predicate], node.input, node.input.schema)
                return replace(node, predicate=plain), rows
            case Correlate(function=function):
                rows, (plain,) = self._calls.apart(rows, [function], node.input, node.input.schema)
                array = plain if isinstance(plain, Call) else Call("UNNEST", (plain,), function.type)
                return replace(node, function=array), rows
            case Expand(projections=projections):
                given = [value for values in projections for value in values]
                rows, every = self._calls.apart(rows, given, node.input, node.input.schema)
                width = len(node.names)
                parts = (tuple(every[start : start + width]) for start in range(0, len(every), width))
                return replace(node, projections=tuple(parts)), rows
            case _:
                return node, rows

    def _window_apart(self, node: WindowAggregate, rows: Rows) -> tuple[WindowAggregate, Rows]:
        """The same for a window of Spark's."""
        parts = [key for _, key in node.keys] + [part for _, call in node.aggregates for part in call.parts]
        rows, plain = self._calls.apart(rows, parts, node.input, node.input.schema)
        if plain == parts:
            return node, rows
        left = iter(plain)
        keys = tuple((name, next(left)) for name, _ in node.keys)
        calls = tuple((name, call.over_parts(left)) for name, call in node.aggregates)
        return replace(node, keys=keys, aggregates=calls), rows

    def _scan_with_clock(self, node: Scan) -> Rows:
        source = self._source(node)
        rows = self._columns(node)
        columns = rows.columns
        number = self._numbers[node.table.name]
        watermark = node.table.watermark
        time_us: SparkColumn = F.lit(None).cast("bigint")
        if watermark is not None:
            moment = columns[watermark.column]
            if watermark.expression is not None:
                moment = column_of(watermark.expression, columns)
            time_us = F.unix_micros(moment.cast("timestamp")) - watermark.delay_ms * 1000
        queue = F.col(QUEUE_COLUMN) if QUEUE_COLUMN in source.columns else F.lit(None).cast("string")
        tick_us = F.unix_micros(F.col(TICK_COLUMN))
        # Of a watermark that is an expression, NULL may be the value for a row that has a time.
        is_timed = watermark is not None and watermark.expression is None
        only = frozenset({number})
        clock = EventClock(F.lit(number), queue, time_us, tick_us, only, only if is_timed else frozenset())
        return replace(rows, clock=clock)

    def _columns(self, node: Scan) -> Rows:
        """What the source gives, and the computed columns over it."""
        source = self._source(node)
        hidden = (TICK_COLUMN, QUEUE_COLUMN, KIND_COLUMN, WANTED_COLUMN)
        columns = {name: F.col(quoted_name(name)) for name in source.columns if name not in hidden}
        stored = Schema(tuple(field for field in node.table.schema.fields if field.name in columns))
        rows = Rows(source, columns, F.col(TICK_COLUMN).isNull(), kind=_kind(source))
        for column in node.table.columns:
            if isinstance(column, ComputedColumn) and column.name in node.columns:
                rows, (value,) = self._calls.apart(rows, [column.expression], node, stored, keeps_all=True)
                rows = rows.with_columns({**rows.columns, column.name: column_of(value, rows.columns)})
        watermark = node.table.watermark
        if self._without_time == "fail" and watermark is not None and watermark.column in rows.columns:
            moment = _told_time(rows.columns[watermark.column], node.table.name, watermark.column)
            rows = rows.with_columns({**rows.columns, watermark.column: moment})
        return rows

    def _source(self, node: Scan) -> DataFrame:
        return self._sources[node.table.name]

    def _union(self, inputs: list[Rows], node: Union) -> Rows:
        names = node.schema.names
        pairs = zip(inputs, node.inputs, strict=True)
        frames = [settle(rows, below.schema.names, names) for rows, below in pairs]
        return frames[0].over(reduce(DataFrame.unionAll, [one.rows.frame for one in frames]), inputs)


def _told_time(moment: SparkColumn, table: str, column: str) -> SparkColumn:
    """The event time of a row, which ends the job where it is NULL; ticks have none."""
    words = (
        f"A row of {table} has no event time: {column} is NULL, and 'millstream.null-event-time' is 'fail'. "
        "Correct the rows, give the column another value where it is computed, or set 'count'."
    )
    is_missing = F.col(TICK_COLUMN).isNull() & moment.isNull()
    return F.when(is_missing, F.raise_error(F.lit(words)).cast("timestamp")).otherwise(moment)


def _only_input(node: Node) -> Node:
    below = inputs_of(node)
    if len(below) != 1:
        raise JobError("JOB_FAILED", f"{type(node).__name__} has no translation.")
    return below[0]


def _kind(source: DataFrame) -> SparkColumn | None:
    """The kinds of a source's rows; None where all are inserts."""
    return F.col(KIND_COLUMN) if KIND_COLUMN in source.columns else None


def _stateless(node: Node, rows: Rows) -> Rows:
    match node:
        case Project():
            return _project(node, rows)
        case Filter(predicate=predicate):
            return rows.where(column_of(predicate, rows.columns))
        case WindowRows(window=window):
            return _window_rows(rows, window)
        case Expand():
            return expanded_rows(node, rows)
        case FanOut():
            return fanned_out_rows(node, rows)
        case ToChangelog() | FromChangelog():
            return converted_rows(node, rows)
        case Correlate():
            return correlated_rows(node, rows)
        case _:
            raise JobError("JOB_FAILED", f"{type(node).__name__} has no translation.")


def _project(node: Project, rows: Rows) -> Rows:
    copies = rows.copies
    if copies is not None:
        return replace(
            rows, copies=Copies(copies.each, lambda element: _project_columns(node, copies.columns(element)))
        )
    columns = _project_columns(node, rows.columns)
    return Rows(rows.frame, columns, rows.condition, rows.clock, rows.kind)


def _project_columns(node: Project, columns: Mapping[str, SparkColumn]) -> dict[str, SparkColumn]:
    return {name: column_of(expression, columns) for name, expression in node.columns}


def _window_rows(rows: Rows, window: Window) -> Rows:
    """Each row with the bounds of its window, or once for each of its windows."""
    millis = F.unix_millis(rows.columns[window.time_column])
    match window:
        case Tumble(size_ms=size_ms, offset_ms=offset_ms):
            start = millis - F.pmod(millis - offset_ms, F.lit(size_ms))
            added = _bounds(start, start + size_ms)
            return Rows(rows.frame, {**rows.columns, **added}, rows.condition, rows.clock, rows.kind)
        case Hop(size_ms=size_ms, slide_ms=slide_ms, offset_ms=offset_ms):
            last = millis - F.pmod(millis - offset_ms, F.lit(slide_ms))
            first = millis - F.pmod(millis - offset_ms - size_ms, F.lit(slide_ms)) - size_ms + slide_ms
            starts = F.sequence(first, last, F.lit(slide_ms))
            bounds = F.transform(starts, lambda start: F.struct(start.alias("start"), (start + size_ms).alias("end")))
        case Cumulate(size_ms=size_ms, step_ms=step_ms, offset_ms=offset_ms):
            start = millis - F.pmod(millis - offset_ms, F.lit(size_ms))
            first = start + (F.floor((millis - start) / step_ms) + 1) * step_ms
            ends = F.sequence(first, start + size_ms, F.lit(step_ms))
            bounds = F.transform(ends, lambda end: F.struct(start.alias("start"), end.alias("end")))
        case _:
            raise JobError("JOB_FAILED", f"A window TVF of {window} has no translation.")
    if rows.clock is not None:
        # A row without event time goes on in no window, as under TUMBLE: who keeps state counts it and leaves it out.
        nothing = F.lit(None).cast("bigint")
        bounds = F.when(millis.isNull(), F.array(F.struct(nothing.alias("start"), nothing.alias("end")))).otherwise(
            bounds
        )
    return expand(rows, bounds, lambda one: _bounds(one["start"], one["end"]))


def _bounds(start_ms: SparkColumn, end_ms: SparkColumn) -> dict[str, SparkColumn]:
    return {
        "window_start": F.timestamp_millis(start_ms),
        "window_end": F.timestamp_millis(end_ms),
        "window_time": F.timestamp_millis(end_ms - 1),
    }
