"""Outputs that keep state over hits, parted from the judging: a topic of packed hits is between the two queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.rocketmq.sink import SEND_TIMEOUT_S
from millstream.streams.connectors.rules.options import HITS_TOPIC, ORIGIN_OPTION, PACKED_HITS
from millstream.streams.connectors.rules.packed_sink import PackedSink
from millstream.streams.errors import JobError
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.rule_guard import RuleGuard
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.optimizer.pushed import conditions_above
from millstream.streams.plan.expressions import Call, Column, Expression
from millstream.streams.plan.hits import HIT_COLUMNS
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, inputs_of, scans_of, with_inputs
from millstream.streams.plan.reads import columns_read
from millstream.streams.plan.tables import ComputedColumn, MetadataColumn, PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, STRING
from millstream.streams.plan.user_calls import has_user_call
from millstream.streams.rules.packed.packer import OFFSET, QUEUE, PackedColumns
from millstream.streams.spark.rules.hit_rows import SOURCE_QUEUE
from millstream.streams.spark.source.topic_log import Access, open_log
from millstream.streams.spark.translate import is_stateful

__all__ = ["PartedHits", "part_hits", "tell_sinks"]

_SUFFIX = "_packed"
"""What the table of packed hits has behind the name of the table of hits."""

_OF_THE_START = ("scan.startup.mode", "scan.startup.timestamp-millis", "scan.startup.specific-offsets", "tag",
                 "consumer.group")  # fmt: skip
"""Options that say how events are read; all packed hits are."""


@dataclass(frozen=True)
class PartedHits:
    """The outputs of the queries that judge, and those of the queries behind them. `tables` are the tables of hits."""

    judging: list[Output]
    counting: list[Output]
    tables: tuple[Table, ...]

    def counting_of(self, origins: Mapping[str, str]) -> list[Output]:
        """The outputs behind, which read what the jobs `origins` (by table) have packed."""
        packed = {table.name: _packed_table(table, origins[table.name]) for table in self.tables}
        return [replace(output, node=_reading(output.node, packed)) for output in self.counting]

    def make_topics(self, settings: JobSettings) -> None:
        """Create the topics between that are not there. Raises ConnectionFailed, Refused."""
        for table in self.tables:
            nameserver = table.options.get("nameserver", settings.nameserver)
            log = open_log(nameserver, timeout_s=SEND_TIMEOUT_S, access=Access.of(table.options))
            try:
                log.ensure_topic(table.options[HITS_TOPIC])
            finally:
                log.close()


def part_hits(outputs: Sequence[Output], settings: JobSettings) -> PartedHits | None:
    """The outputs parted where their tables ask for it and something keeps state over them; None where nothing does.

    Raises JobError JOB_FAILED for hits that would go where their events come from.
    """
    counting = [output for output in outputs if is_stateful(output.node) and _tables([output])]
    tables = _tables(counting)
    if not tables or settings.batch:
        return None
    for table in tables:
        _check_topic(table)
    wider: dict[str, Table] = {}
    packing = []
    for table in tables:
        nodes = [output.node for output in counting]
        columns = PackedColumns.of(list(_read(table, nodes)))
        wider[table.name] = _wider(table, columns)
        packing.append(_packing(wider[table.name], columns, nodes, settings))
    plain = [output for output in outputs if output not in counting]
    judging = [*(replace(output, node=_reading(output.node, wider)) for output in plain), *packing]
    return PartedHits(judging, counting, tables)


def tell_sinks(outputs: Sequence[Output], guards: Sequence[RuleGuard]) -> None:
    """Let the sinks of packed hits know where the workers leave how far event time has come."""
    directories = {f"{guard.table.name}{_SUFFIX}": guard.directory for guard in guards}
    for output in outputs:
        if isinstance(output.sink, PackedSink):
            output.sink.judged = directories[output.sink.name]


def _tables(outputs: Sequence[Output]) -> tuple[Table, ...]:
    """The tables of hits with a topic between that the outputs read."""
    found = {scan.table.name: scan.table for output in outputs for scan in scans_of(output.node)}
    return tuple(
        table for table in found.values() if connector_of(table.connector).gives_hits and HITS_TOPIC in table.options
    )


def _check_topic(table: Table) -> None:
    topic = table.options[HITS_TOPIC]
    if topic == table.options["topic"]:
        words = f"The hits of the table {table.name} would go to {topic!r}, where its events come from."
        raise JobError(
            "JOB_FAILED", words, remedy=f"Name a topic for hits alone, such as '{HITS_TOPIC}' = '{topic}_hits'."
        )


def _read(table: Table, nodes: Sequence[Node]) -> Mapping[str, object]:
    """The stored columns that the nodes read."""
    computed = {column.name for column in table.columns if isinstance(column, ComputedColumn)}
    return {name: kind for name, kind in columns_read(table, nodes).items() if name not in computed}


def _wider(table: Table, columns: PackedColumns) -> Table:
    """The table with what the packer needs beside what was declared."""
    declared = {column.name for column in table.columns}
    missing = [PhysicalColumn(name, HIT_COLUMNS[name]) for name in columns.needed if name not in declared]
    places = (MetadataColumn(QUEUE, STRING, SOURCE_QUEUE), MetadataColumn(OFFSET, BIGINT, "queue-offset"))
    return replace(table, columns=(*table.columns, *missing, *places))


def _packing(table: Table, columns: PackedColumns, nodes: Sequence[Node], settings: JobSettings) -> Output:
    """The output that packs the hits that one of the nodes wants."""
    wanted = {*columns.needed, QUEUE, OFFSET}
    conditions = [above for node in nodes for above in conditions_above(node, table.name)]
    scans = [scan for node in nodes for scan in scans_of(node) if scan.table.name == table.name]
    scanned = wanted.union(*(scan.columns for scan in scans))
    names = tuple(column.name for column in table.columns if column.name in scanned)
    node: Node = Scan(table, names)
    condition = _any(conditions)
    if condition is not None:
        node = Filter(node, condition)
    types = {column.name: column.type for column in table.columns}
    node = Project(node, tuple((name, Column(name, types[name])) for name in names if name in wanted))
    options = table.options
    sink = PackedSink(
        f"{table.name}{_SUFFIX}",
        node.schema,
        options[HITS_TOPIC],
        columns,
        options.get("nameserver", settings.nameserver),
        timeout_s=SEND_TIMEOUT_S,
        access=Access.of(options),
        delay_us=0 if table.watermark is None else table.watermark.delay_ms * 1000,
    )
    return Output(node, sink)


def _any(conditions: Sequence[tuple[Expression, ...]]) -> Expression | None:
    """What a hit that somebody wants fulfils; None where somebody wants each, or asks a user's function."""
    if any(not parts or any(map(has_user_call, parts)) for parts in conditions):
        return None
    each = [reduce(lambda one, other: Call("AND", (one, other), BOOLEAN), parts) for parts in dict.fromkeys(conditions)]
    return reduce(lambda one, other: Call("OR", (one, other), BOOLEAN), each) if each else None


def _packed_table(table: Table, origin: str) -> Table:
    options = {name: value for name, value in table.options.items() if name not in _OF_THE_START}
    between = {"connector": PACKED_HITS.name, "topic": table.options[HITS_TOPIC], ORIGIN_OPTION: origin}
    return replace(table, name=f"{table.name}{_SUFFIX}", options=options | between)


def _reading(node: Node, tables: Mapping[str, Table]) -> Node:
    """The same node over other tables, by the names of those that it reads."""
    if isinstance(node, Scan):
        return replace(node, table=tables.get(node.table.name, node.table))
    return with_inputs(node, tuple(_reading(below, tables) for below in inputs_of(node)))
