"""A topic of a RocketMQ cluster as a source of a job.

Where a job without a checkpoint begins to read a topic, as `scan.startup.mode` says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millstream.model.errors import NameRefused
from millstream.streams.connectors.rocketmq.group_positions import JobGroupPosition
from millstream.streams.connectors.rocketmq.reader import TopicSpec
from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.nodes import Scan
from millstream.streams.plan.tables import MetadataColumn, PhysicalColumn, Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.data_source import load_rows
from millstream.streams.spark.source.dead_letters import DeadLetters, malformed_spool
from millstream.streams.spark.source.formats.body_format import CHANGELOG_FORMATS, formats_of
from millstream.streams.spark.source.position import Position, QueueSpan
from millstream.streams.spark.source.reading import ReadDefaults, Reading
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec, WantedRows, as_kind
from millstream.streams.spark.source.topic_log import TopicLog, open_log

__all__ = ["Beginning", "TopicSource", "first_position", "topic_source"]

_OFFSET = re.compile(r"(?:broker:(?P<broker>[^,;:]+),)?(?:queue|partition):(?P<queue>\d+),offset:(?P<offset>\d+)")


_SHOWN_QUEUES = 3


@dataclass(frozen=True, slots=True)
class Beginning:
    """A position, and what the user has not asked for in so many words, in one sentence, blank for nothing."""

    position: Position
    notice: str = ""


def first_position(log: TopicLog, source: SourceSettings, name: str) -> Beginning:
    """Where to begin; offsets that the topic does not have become its nearest ones.

    Raises JobError GROUP_WITHOUT_OFFSETS where the table says so.
    """
    notice = ""
    spans = log.spans(source.topic)
    match source.startup.lower():
        case "latest-offset":
            queues = {queue: span.max_offset for queue, span in spans.items()}
        case "timestamp":
            queues = {queue: log.offset_at(source.topic, queue, source.startup_timestamp_ms) for queue in spans}
        case "specific-offsets":
            queues = _named_offsets(source.startup_offsets, spans)
        case "group-offsets":
            committed = {queue: log.committed_offset(source.group, source.topic, queue) for queue in spans}
            notice = _without_offsets(source, committed)
            queues = {
                queue: span.max_offset
                if committed[queue] is None and source.group_reset == "latest"
                else _within(span, committed[queue])
                for queue, span in spans.items()
            }
        case _:
            queues = {queue: span.min_offset for queue, span in spans.items()}
    return Beginning(Position(queues, name=name), notice)


def _without_offsets(source: SourceSettings, committed: Mapping[str, int | None]) -> str:
    """What is to be said of queues in which the group has no offset; blank where it has one in each."""
    missing = sorted(queue for queue, offset in committed.items() if offset is None)
    if not missing:
        return ""
    problem = f"The group {source.group} has no offsets in "
    if len(missing) < len(committed):
        more = f" and {len(missing) - _SHOWN_QUEUES} more" if len(missing) > _SHOWN_QUEUES else ""
        problem += f"{len(missing)} of {len(committed)} queues ({', '.join(missing[:_SHOWN_QUEUES])}{more}) of "
    problem += f"the topic {source.topic}"
    if source.group_reset == "none":
        raise JobError("GROUP_WITHOUT_OFFSETS", f"{problem}.")
    return f"{problem}: the job begins at the {source.group_reset} ones ('scan.startup.group-offsets.reset')."


def _named_offsets(text: str, spans: dict[str, QueueSpan]) -> dict[str, int]:
    """Where each queue begins; one that is not named at its start. Without a broker, that number of every broker."""
    found = list(_OFFSET.finditer(text))
    queues = {}
    for queue, span in spans.items():
        broker, _, number = queue.rpartition("/")
        named = [one for one in found if one["queue"] == number and one["broker"] in (None, broker)]
        queues[queue] = _within(span, int(named[-1]["offset"]) if named else None)
    return queues


def _within(span: QueueSpan, offset: int | None) -> int:
    return span.min_offset if offset is None else min(max(offset, span.min_offset), span.max_offset)


TIMEOUT_S = 10.0
"""How long one call to the messaging system may take."""


class TopicSource:
    """A topic of a RocketMQ cluster. Raises NameRefused TOPIC_NOT_FOUND, ConnectionFailed.

    With `waits` a topic that is not there is read from its beginning once it is.
    """

    def __init__(self, table: Table, settings: SourceSettings, *, waits: bool = False) -> None:
        self.table = table
        self._settings = settings
        self._beginning = Beginning(Position(name=table.name))
        self._end = Position(name=table.name)
        self._refusal: JobError | None = None
        log = open_log(settings.nameserver, timeout_s=TIMEOUT_S, access=settings.access, read_from=settings.read_from)
        try:
            spans = log.spans(settings.topic)
            self._end = Position({queue: span.max_offset for queue, span in spans.items()}, name=table.name)
            self._beginning = first_position(log, settings, table.name)
        except NameRefused as error:
            if not waits or error.name != "TOPIC_NOT_FOUND":
                raise
        except JobError as error:
            # A job that goes on from its checkpoint needs no offsets of the group.
            self._refusal = error
        finally:
            log.close()

    def beginning(self) -> Position:
        """What `scan.startup.mode` says. Raises JobError GROUP_WITHOUT_OFFSETS where the table says so."""
        if self._refusal is not None:
            raise self._refusal
        return self._beginning.position

    def notice(self) -> str:
        """What is to be said of the beginning, blank for nothing."""
        return self._beginning.notice

    def end(self) -> Position:
        """The ends of all queues."""
        return self._end

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The topic's rows, decoded in Spark's Python workers."""
        return load_rows(
            spark, as_kind(TopicSpec, self.spec(spark, columns, reading)), batch=reading.batch, ends=reading.ends
        )

    def spec(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> SourceSpec:
        """What is read of the topic, and how."""
        settings = self._settings
        body, key = formats_of(self.table)
        narrowed = body.name in ("json", *CHANGELOG_FORMATS)
        judging = reading.judging
        return SourceSpec(
            nameserver=settings.nameserver,
            topic=settings.topic,
            columns=_source_columns(self.table, columns, narrowed=narrowed),
            start=reading.start,
            end=self._end if reading.batch else None,
            tag=settings.tag,
            max_rows=settings.max_rows,
            parallelism=spark.sparkContext.defaultParallelism,
            final_tick=reading.final_tick,
            spool=str(reading.spool),
            keep_malformed=settings.dead_letter_topic is not None,
            decoded=str(reading.decoded) if reading.passes > 1 else "",
            queues=reading.queues,
            body=body,
            key=key,
            changes=changelog_of(Scan(self.table, ())) is ChangelogMode.RETRACT,
            upserts=self.table.upserts,
            wake_after_ms=reading.wake_after_ms,
            wake_again=reading.wake_again,
            timeout_s=TIMEOUT_S,
            access=settings.access,
            read_from=settings.read_from,
            cold=settings.cold,
            wanted=None
            if judging is None
            else WantedRows(
                str(judging.file),
                _source_columns(self.table, judging.columns, narrowed=narrowed),
                judging.drops,
            ),
        )

    def guard(self, reading: Reading, job: str) -> RuleGuard | None:
        """None: a topic is not judged."""
        return None

    def group(self) -> JobGroupPosition | None:
        """The offsets of the table's consumer group, if it has one."""
        settings = self._settings
        if not settings.group:
            return None
        return JobGroupPosition(
            settings, partial(open_log, settings.nameserver, timeout_s=TIMEOUT_S, access=settings.access)
        )

    def letters(self, spool: Path) -> DeadLetters:
        """Malformed messages go to the dead-letter topic."""
        settings = self._settings
        topic, nameserver = settings.dead_letter_topic, settings.nameserver
        return DeadLetters(
            malformed_spool(spool),
            settings.topic,
            topic,
            nameserver,
            TIMEOUT_S,
            settings.access,
            self.table.name,
            "Name their format; plain text is one STRING column with 'format' = 'raw'. "
            f"See one: millstream consume {settings.topic} --count 1.",
        )


def _source_columns(table: Table, wanted: Mapping[str, DataType], *, narrowed: bool) -> tuple[SourceColumn, ...]:
    """The physical and metadata columns of those names, in the table's order; `narrowed` ones have the wanted types.

    Only a format that names fields can leave some out.
    """
    columns = []
    for column in table.columns:
        if column.name not in wanted:
            continue
        if isinstance(column, PhysicalColumn):
            columns.append(SourceColumn(column.name, wanted[column.name] if narrowed else column.type))
        elif isinstance(column, MetadataColumn):
            columns.append(SourceColumn(column.name, column.type, column.key))
    return tuple(columns)


def topic_source(table: Table, job: ReadDefaults) -> TopicSource:
    """The topic of a table. Raises NameRefused TOPIC_NOT_FOUND, ConnectionFailed."""
    return TopicSource(table, SourceSettings.of(table, job), waits=job.waits_for_topics)
