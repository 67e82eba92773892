"""Late rows at the end of a micro-batch: counted by operator, and sent to the topic that their table names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from millstream.model.message import Message
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.operators.operator import Row
from millstream.streams.plan.tables import Table
from millstream.streams.spark.operators.late_shapes import LateShape
from millstream.streams.spark.operators.operator_reports import late_spool
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.spark.source.topic_log import Access, TopicLog, open_log

__all__ = ["LATE_TOPIC", "LateOutput"]

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
