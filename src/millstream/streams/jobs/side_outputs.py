"""Side outputs of a query, such as late rows, and the driver's duties for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millstream.model.message import Message
from millstream.streams.connectors.rocketmq.group_positions import GroupPositions
from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.jobs.failed_calls import FailedCalls
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.learning.pinned_model import PinnedModel
from millstream.streams.operators.operator import Row
from millstream.streams.operators.state import OpenEnds
from millstream.streams.plan.tables import Table
from millstream.streams.spark.lookups.job_tables import JobTables
from millstream.streams.spark.operators.operator_reports import (
    EventTimes,
    LateShape,
    ends_by_operator,
    event_times_of,
    late_spool,
    open_ends_spool,
    times_spool,
)
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.spark.source.cold_log import Detours
from millstream.streams.spark.source.dead_letters import DeadLetters
from millstream.streams.spark.source.topic_log import Access, TopicLog, open_log
from millstream.streams.spark.translation.batch_relations import UntimedRows

__all__ = ["LATE_TOPIC", "LateOutput", "SideOutputs"]


LATE_TOPIC = "late.topic"
"""The option of a table that names the topic; without it late rows are only counted."""

_REASON = "the row came behind the watermark"
_TIMEOUT_S = 10.0


class LateOutput:
    """Empties the spool of late rows. `shapes` are the inputs of each operator by its name."""

    def __init__(self, spool: Path, shapes: Mapping[str, Sequence[LateShape]], settings: JobSettings) -> None:
        self._spool = late_spool(spool)
        self._shapes = shapes
        self._settings = settings

    def deliver(self) -> Counter[str]:
        """How many rows were late, by operator; all are in their topics now. A replay sends them again."""
        counts: Counter[str] = Counter()
        logs: dict[str, TopicLog] = {}
        try:
            for late in self._spool.take():
                late_rows = late.rows()
                counts[late.operator] += len(late_rows)
                for number, shape in enumerate(self._shapes.get(late.operator, ())):
                    rows = [row for of, row in late_rows if of == number]
                    for table in shape.tables if rows else ():
                        if LATE_TOPIC in table.options:
                            self._send(table, shape, rows, late.operator, logs)
        finally:
            for log in logs.values():
                log.close()
        return counts

    def _send(
        self, table: Table, shape: LateShape, rows: Sequence[Row], operator: str, logs: dict[str, TopicLog]
    ) -> None:
        nameserver = table.options.get("nameserver", self._settings.nameserver)
        topic = table.options[LATE_TOPIC]
        if table.name not in logs:
            logs[table.name] = open_log(nameserver, timeout_s=_TIMEOUT_S, access=Access.of(table.options))
        log = logs[table.name]
        log.ensure_topic(topic)
        properties = {"reason": _REASON, "operator": operator, "source_table": table.name}
        bodies = encode_rows(shape.batch(rows), shape.schema)
        log.send([Message(topic, body, user_properties=dict(properties)) for body in bodies])


@dataclass(frozen=True)
class SideOutputs:
    """All of it for one query; the driver goes through it at the end of each micro-batch."""

    dead_letters: Sequence[DeadLetters]
    """Malformed messages, for each table that may have some."""

    late: LateOutput
    """Rows that came behind the watermark."""

    calls: FailedCalls
    """Calls of users' functions that failed."""

    tables: JobTables
    """The dimension tables that the query joins."""

    reports: Path
    """Where operators leave what they know of event time and what waits for it."""

    source_tables: Mapping[int, str]
    """The tables that are read, by the numbers that operators know them by."""

    detours: Sequence[Detours] = ()
    """Cold messages that went through the broker, for each table."""

    guards: Sequence[RuleGuard] = ()
    """What looks after rules that judge for the query."""

    models: Sequence[PinnedModel] = ()
    """Models that the query scores by; they hear of each micro-batch that begins."""

    untimed: UntimedRows = field(default_factory=UntimedRows)
    """Counts rows without event time in windows that Spark runs."""

    notices: Sequence[str] = ()
    """What the user is to know of the start."""

    groups: GroupPositions = field(default_factory=lambda: GroupPositions({}))
    """Consumer groups that hear of each micro-batch that is done."""

    def take_event_times(self) -> EventTimes:
        """What operators and windows of a batch know of event time after a micro-batch."""
        times, counts = event_times_of(times_spool(self.reports).take(), self.source_tables), self.untimed.counts()
        tables = {*counts, *times.untimed}
        return times._replace(untimed={name: max(counts.get(name, 0), times.untimed.get(name, 0)) for name in tables})

    def take_open_ends(self) -> dict[str, OpenEnds]:
        """What waits for the watermark after a micro-batch, by operator."""
        return ends_by_operator(open_ends_spool(self.reports).take())

    def trouble(self) -> str | None:
        """What hinders, in one line, while rows are delivered all the same."""
        troubles = [*(guard.trouble() for guard in self.guards), *(model.problem() for model in self.models)]
        return next((one for one in troubles if one), self.tables.trouble())
