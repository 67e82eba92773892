"""Splits stateful outputs over hits from rule evaluation, with a topic of packed hits between two queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.streams.connectors.rocketmq.sink import SEND_TIMEOUT_S
from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.connectors.rules.options import HITS_TOPIC, ORIGIN_OPTION, PACKED_HITS
from millstream.streams.connectors.rules.packed_sink import PackedSink
from millstream.streams.errors import JobError
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.optimizer.two_stage_rules import (
    hits_tables,
    over_tables,
    pack_hits,
    packed_columns,
    widen_table,
)
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.tables import Table
from millstream.streams.rules.packed.packer import PackedColumns
from millstream.streams.spark.source.topic_log import Access, open_log
from millstream.streams.spark.translation.translate import is_stateful

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
        return [replace(output, node=over_tables(output.node, packed)) for output in self.counting]

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
    counting = [output for output in outputs if is_stateful(output.node) and hits_tables([output.node])]
    tables = hits_tables([output.node for output in counting])
    if not tables or settings.batch:
        return None
    for table in tables:
        _check_topic(table)
    wider: dict[str, Table] = {}
    packing = []
    for table in tables:
        nodes = [output.node for output in counting]
        columns = packed_columns(table, nodes)
        wider[table.name] = widen_table(table, columns)
        packing.append(_packing(wider[table.name], columns, nodes, settings))
    plain = [output for output in outputs if output not in counting]
    judging = [*(replace(output, node=over_tables(output.node, wider)) for output in plain), *packing]
    return PartedHits(judging, counting, tables)


def tell_sinks(outputs: Sequence[Output], guards: Sequence[RuleGuard]) -> None:
    """Let the sinks of packed hits know where the workers leave how far event time has come."""
    directories = {f"{guard.table.name}{_SUFFIX}": guard.directory for guard in guards}
    for output in outputs:
        if isinstance(output.sink, PackedSink):
            output.sink.judged = directories[output.sink.name]


def _check_topic(table: Table) -> None:
    topic = table.options[HITS_TOPIC]
    if topic == table.options["topic"]:
        words = f"The hits of the table {table.name} would go to {topic!r}, where its events come from."
        raise JobError(
            "JOB_FAILED", words, remedy=f"Name a topic for hits alone, such as '{HITS_TOPIC}' = '{topic}_hits'."
        )


def _packing(table: Table, columns: PackedColumns, nodes: Sequence[Node], settings: JobSettings) -> Output:
    """The output that packs the hits that one of the nodes wants."""
    node = pack_hits(table, columns, nodes)
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


def _packed_table(table: Table, origin: str) -> Table:
    options = {name: value for name, value in table.options.items() if name not in _OF_THE_START}
    between = {"connector": PACKED_HITS.name, "topic": table.options[HITS_TOPIC], ORIGIN_OPTION: origin}
    return replace(table, name=f"{table.name}{_SUFFIX}", options=options | between)
