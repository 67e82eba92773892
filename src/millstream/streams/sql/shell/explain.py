"""Formats a plan as text, one line per node with the sink first, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from millstream.streams.connectors.jdbc.options import NOTES_TABLE
from millstream.streams.connectors.registry import connector_of
from millstream.streams.plan.aggregates import Aggregate, AggregateCall, Expand, WindowAggregate
from millstream.streams.plan.backends import NodeBackend, backend_of, needs_own_in_batch, why_own_in_batch
from millstream.streams.plan.changelog import AnyNode, ChangelogMode, RowKind, any_node, changelog_of, first_by_time
from millstream.streams.plan.expressions import Expression
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
    Sink,
    ToChangelog,
    Union,
    Values,
    Watermarked,
    WindowRows,
    inputs_of,
)
from millstream.streams.plan.ordering import Frame, OrderKey, Over, Rank, Sort
from millstream.streams.plan.patterns import Match
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Schema
from millstream.streams.plan.user_calls import PythonRows, users_functions_of
from millstream.streams.plan.windows import Emit

__all__ = ["explain_node", "explain_sink", "explain_state", "json_plan"]


def json_plan(roots: Sequence[Node]) -> str:
    """{"nodes": [{"id", "type", "contents", "changelog", "predecessors"}]}, inputs before what reads them."""
    nodes: list[dict[str, object]] = []
    for root in roots:
        _number(root, nodes)
    return json.dumps({"nodes": nodes}, indent=2)


def _number(node: Node, nodes: list[dict[str, object]]) -> int:
    below = [_number(part, nodes) for part in inputs_of(node)]
    nodes.append(
        {
            "id": len(nodes) + 1,
            "type": type(node).__name__,
            "contents": explain_node(node)[0],
            "changelog": changelog_of(node).value,
            "predecessors": below,
        }
    )
    return len(nodes)


def explain_state(node: Node, *, own: bool) -> str | None:
    """One line; None for a node that keeps nothing. `own`: the query needs operators of ours in batch jobs anyway."""
    kept = _state_text(node)
    if kept is None:
        return None
    if not isinstance(node, WindowAggregate):
        on_spark = isinstance(node, Join | Aggregate) and why_own_in_batch(node) is None
        return f"state: {kept}; in batch jobs none, Spark's own operator" if on_spark else f"state: {kept}"
    reason = why_own_in_batch(node) or ("other nodes of the query need them" if own else None)
    if reason is None:
        return f"state: {kept}; in batch jobs Spark's own window"
    return f"state: {kept}; own operator in batch jobs too: {reason}"


def _state_text(node: Node) -> str | None:
    match node:
        case Aggregate():
            values = ", the values of DISTINCT" if any(call.distinct for _, call in node.aggregates) else ""
            rows = "one row for each key" if node.keys else "one row"
            return f"{rows}{values}, {_duration(node.state_ttl_ms)}"
        case WindowAggregate(emit=emit):
            late = (
                ""
                if emit is None or not emit.lateness_ms
                else f" and those that ended in the last {emit.lateness_ms} ms"
            )
            return f"open windows{late}"
        case WindowRows():
            return "rows of open sessions" if backend_of(node) is NodeBackend.OWN else None
        case Join():
            return _join_state_text(node)
        case TemporalJoin():
            return "rows that wait for the watermark, and the versions that they may need"
        case SetOperation():
            return "how often each row stands on each side, for ever or the job's TTL"
        case OnePerKey():
            return "all rows of each key of the table, for ever or the job's TTL"
        case Normalize():
            return "the last row of each key"
        case Rank() | Over() | Sort():
            return _order_state_text(node)
        case Match(within_ms=within):
            return f"partial matches{'' if within is None else f' of at most {within} ms'}"
        case _:
            return None


def _join_state_text(node: Join) -> str:
    if node.bounds is not None:
        return "rows whose partners may still come"
    if node.window_ends is not None:
        return "rows of open windows"
    left, right = node.state_ttl_ms or (None, None)
    if left == right:
        return f"all rows of both sides, {_duration(left)}"
    return f"all rows of the left side, {_duration(left)}, and of the right side, {_duration(right)}"


def _order_state_text(node: Rank | Over | Sort) -> str:
    changes = changelog_of(node.input) is ChangelogMode.RETRACT
    match node:
        case Rank() if first_by_time(node) is not None:
            return "the first row of each key until the watermark comes to it, then the key, for ever or the job's TTL"
        case Rank(last=last):
            rows = "all rows" if changes else f"the first {last} rows" if last > 1 else "the first row"
            return f"{rows} of each partition{' of open windows' if node.window_end is not None else ''}"
        case Over(whole=True):
            return "all rows until the end"
        case Over():
            timed = changelog_of(node) is ChangelogMode.APPEND
            return (
                "rows that wait for the watermark, and those of the frames" if timed else "all rows of each partition"
            )
        case Sort(limit=limit, offset=offset):
            if limit is None:
                return "rows that wait for the watermark" if node.order else "how many rows were left out"
            if not node.order:
                return "how many rows were given"
            return "all rows" if changes else f"the first {limit + offset} rows"


def _duration(ttl_ms: int | None) -> str:
    return "for ever or the job's TTL" if ttl_ms is None else f"for {ttl_ms} ms"


def explain_sink(sink: Sink) -> list[str]:
    """The lines of an INSERT."""
    first = f"Sink {sink.table.name} ({sink.table.connector}){_writes(sink.table)}"
    return [first, *(f"  {line}" for line in explain_node(sink.input))]


def _writes(table: Table) -> str:
    """How rows reach a table of a database."""
    if connector_of(table.connector).find("sink.exactly-once") is None:
        return ""
    how = f"by key {', '.join(table.primary_key)}" if table.primary_key else "append"
    match table.options.get("sink.exactly-once", "auto").lower():
        case "never":
            return f" [{how}, {'again' if table.primary_key else 'more than once'} where a micro-batch is repeated]"
        case "always":
            return f" [{how}, once]"
        case _:
            notes = table.options.get("sink.exactly-once.table", NOTES_TABLE)
            return f" [{how}, once where {notes} can be used]"


def explain_node(node: Node) -> list[str]:
    """The lines of a query."""
    return list(_lines(node, own=needs_own_in_batch(node)))


def _lines(node: Node, *, own: bool) -> Iterator[str]:
    yield _line(any_node(node)) + _modes(node)
    if isinstance(node, Scan) and (watermark := node.table.watermark) is not None and watermark.column in node.columns:
        behind = f"{watermark.column} - {watermark.delay_ms} ms"
        yield f"  watermark {behind if watermark.expression is None else watermark.expression}"
    called = users_functions_of(node)
    if called:
        yield f"  calls in Python: {', '.join(called)}"
    state = explain_state(node, own=own)
    if state is not None:
        yield f"  {state}"
    for below in inputs_of(node):
        for line in _lines(below, own=own):
            yield f"  {line}"


def _modes(node: Node) -> str:
    backend, changelog = backend_of(node), changelog_of(node)
    shown = [changelog.value] if backend is not NodeBackend.COLUMNS or changelog is ChangelogMode.RETRACT else []
    if backend is not NodeBackend.COLUMNS:
        shown.append(backend.value)
    return f" [{', '.join(shown)}]" if shown else ""


def _line(node: AnyNode) -> str:
    match node:
        case Scan(table=table):
            return f"Scan {table.name} ({table.connector}) columns=[{_columns(node.schema)}]"
        case Values(schema=schema, rows=rows):
            return f"Values columns=[{_columns(schema)}] rows={len(rows)}"
        case Project(columns=columns):
            return f"Project [{_columns_text(columns)}]"
        case Filter(predicate=predicate):
            return f"Filter {predicate}"
        case Union(inputs=inputs):
            return f"Union of {len(inputs)} inputs"
        case Normalize() | OnePerKey() | ToChangelog() | FromChangelog():
            return _changes(node)
        case SetOperation(kind=set_kind, keep_all=keep_all):
            return f"{set_kind.value}{' ALL' if keep_all else ''}"
        case WindowRows() | WindowAggregate() | Aggregate() | Expand() | FanOut():
            return _grouping(node)
        case Join() | TemporalJoin() | LookupJoin() | Correlate():
            return _join(node)
        case Rank() | Over() | Sort() | Watermarked():
            return _ordering(node)
        case Match() | PythonRows():
            return _match(node) if isinstance(node, Match) else _python(node)


def _changes(node: Normalize | OnePerKey | ToChangelog | FromChangelog) -> str:
    if isinstance(node, Normalize):
        return f"Normalize keys=[{', '.join(node.keys)}]"
    if isinstance(node, OnePerKey):
        return f"OnePerKey keys=[{', '.join(node.keys)}] on_conflict=[{node.on_conflict.value}]"
    pairs = node.codes if isinstance(node, ToChangelog) else [(kind, code) for code, kind in node.kinds]
    shown = ", ".join(f"{RowKind(kind).short} {code}" for kind, code in pairs)
    others = f" others=[{'fail' if node.fails else 'skip'}]" if isinstance(node, FromChangelog) else ""
    return f"{type(node).__name__} {node.op}=[{shown}]{others}"


def _grouping(node: WindowRows | WindowAggregate | Aggregate | Expand | FanOut) -> str:
    match node:
        case WindowRows(window=window):
            return f"WindowRows {window}"
        case WindowAggregate():
            emit = "" if node.emit is None else f" emit=[{_emit(node.emit)}]"
            return f"WindowAggregate {node.window} {_keys_and_calls(node.keys, node.aggregates)}{emit}"
        case Aggregate():
            ttl = "" if node.state_ttl_ms is None else f" ttl={node.state_ttl_ms} ms"
            return f"Aggregate {_keys_and_calls(node.keys, node.aggregates)}{ttl}"
        case FanOut(branches=branches, constants=constants):
            return f"FanOut {branches} constants=[{', '.join(constant.name for constant in constants)}]"
        case Expand(names=names, projections=projections):
            shown = "; ".join(", ".join(map(str, values)) for values in projections)
            return f"Expand names=[{', '.join(names)}] projections=[{shown}]"


def _join(node: Join | TemporalJoin | LookupJoin | Correlate) -> str:
    match node:
        case Join():
            text = f"Join {node.kind.value} keys=[{_pairs(node.keys)}]"
            if node.bounds is not None:
                bounds = node.bounds
                text += f" bounds=[{bounds.left_time} from {bounds.right_time} + {bounds.lower_ms} ms"
                text += f" to {bounds.right_time} + {bounds.upper_ms} ms]"
            if node.window_ends is not None:
                text += f" windows=[{_pairs((node.window_ends,))}]"
            if node.null_aware:
                text += " null-aware"
            if node.state_ttl_ms is not None:
                shown = ["none" if ttl is None else f"{ttl} ms" for ttl in node.state_ttl_ms]
                text += f" ttl=[{', '.join(shown)}]"
        case TemporalJoin():
            times = f"{node.right_time} as of {node.left_time}"
            text = f"TemporalJoin {node.kind.value} keys=[{_pairs(node.keys)}] versions=[{times}]"
        case LookupJoin():
            columns = ", ".join(of if of == name else f"{of} AS {name}" for name, of in node.columns)
            text = f"LookupJoin {node.kind.value} {node.table.name} ({node.table.connector})"
            found_by = f"keys=[{_pairs(node.keys)}]" if node.search is None else f"search=[{node.search}]"
            text += f" {found_by} columns=[{columns}]"
            if node.hints:
                text += f" hints=[{', '.join(f'{key}={value}' for key, value in node.hints)}]"
        case Correlate():
            return f"Correlate {node.kind.value} {node.function} AS [{_columns(Schema(node.names))}]"
    return text if node.condition is None else f"{text} condition={node.condition}"


def _ordering(node: Rank | Over | Sort | Watermarked) -> str:
    match node:
        case Watermarked(name=name):
            return f"Watermarked AS {name}"
        case Rank():
            places = str(node.first) if node.first == node.last else f"{node.first}..{node.last}"
            text = f"Rank {node.function} {places} {_partition_text(node.partition, node.order)}"
            text += f" AS {node.rank_name}" if node.rank_name is not None else ""
            final_at = node.window_end or first_by_time(node)
            return text + (f" final at {final_at}" if final_at is not None else "")
        case Over():
            calls = _named_calls((over.name, over.call) for over in node.calls)
            first = node.input.schema.find(node.order[0].column) if node.order else None
            text = f"Over {'whole ' if node.whole else ''}{_partition_text(node.partition, node.order)}"
            return f"{text} {_frame(node.frame, is_number=first is not None and first.type.is_number)} calls=[{calls}]"
        case Sort():
            limit = "" if node.limit is None else f" limit={node.limit}"
            offset = f" offset={node.offset}" if node.offset else ""
            return f"Sort [{_order_text(node.order)}]{limit}{offset}"


def _match(node: Match) -> str:
    skip = f"{node.skip.mode.value}{f' {node.skip.variable}' if node.skip.variable else ''}"
    within = "" if node.within_ms is None else f" within={node.within_ms} ms"
    defines = ", ".join(f"{name} AS {condition}" for name, condition in node.defines)
    unless = "".join(f" {name} unless {other}" for name, other in node.unless)
    return (
        f"Match {node.pattern} {_partition_text(node.partition, node.order)} defines=[{defines}]"
        f" measures=[{_columns_text(node.measures)}] skip={skip}{within}{unless}"
    )


def _python(node: PythonRows) -> str:
    made = f"made=[{_columns(Schema(node.made))}] kept=[{', '.join(node.kept)}]"
    code = node.code
    return f"Python {node.kind.value} {code.name}({', '.join(node.reads)}) {made} on error: {code.on_error.value}"


def _partition_text(partition: tuple[str, ...], order: tuple[OrderKey, ...]) -> str:
    return f"partition=[{', '.join(partition)}] order=[{_order_text(order)}]"


def _order_text(order: tuple[OrderKey, ...]) -> str:
    return ", ".join(map(str, order))


def _frame(frame: Frame, *, is_number: bool) -> str:
    unit = " rows" if frame.unit == "rows" else "" if is_number else " ms"
    before = "all before" if frame.preceding is None else f"{frame.preceding}{unit} before"
    if frame.following != 0:
        before += ", all behind" if frame.following is None else f", {frame.following}{unit} behind"
    return f"frame=[{frame.unit}, {before}]"


def _emit(emit: Emit) -> str:
    early = () if emit.early_ms is None else (f"early each {emit.early_ms} ms" if emit.early_ms else "early at once",)
    late = () if emit.late_ms is None else (f"late each {emit.late_ms} ms" if emit.late_ms else "late at once",)
    lateness = (f"for {emit.lateness_ms} ms",) if emit.lateness_ms else ()
    return ", ".join((*early, *late, *lateness))


def _keys_and_calls(keys: tuple[tuple[str, Expression], ...], aggregates: tuple[tuple[str, AggregateCall], ...]) -> str:
    return f"keys=[{_columns_text(keys)}] aggregates=[{_named_calls(aggregates)}]"


def _named_calls(calls: Iterable[tuple[str, AggregateCall]]) -> str:
    return ", ".join(f"{call} AS {name}" for name, call in calls)


def _columns_text(columns: tuple[tuple[str, Expression], ...]) -> str:
    return ", ".join(name if str(value) == name else f"{value} AS {name}" for name, value in columns)


def _pairs(keys: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{left} = {right}" for left, right in keys)


def _columns(schema: Schema) -> str:
    marks = {(True, False): " *ROWTIME*", (False, True): " *PROCTIME*"}
    return ", ".join(f"{of.name} {of.type}{marks.get((of.rowtime, of.proctime), '')}" for of in schema.fields)
