"""Messages, or packed records, to the matches of rules; and rows that only tell event time."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.client.bulk.fetched import plain_body
from millstream.protocol.record import split_record
from millstream.streams.errors import RuleError
from millstream.streams.plan.hits import SOURCE_QUEUE
from millstream.streams.rules.packed.guard import SeenRecords
from millstream.streams.rules.packed.record import BatchEnd, unpack
from millstream.streams.rules.reference import FieldOf, field_reader, number_of, text_of
from millstream.streams.rules.rule import Path
from millstream.streams.rules.stage.raw_events import RawEvents
from millstream.streams.spark.columns.rows import QUEUE_COLUMN, TICK_COLUMN
from millstream.streams.spark.columns.types import arrow_schema
from millstream.streams.spark.rules.hit_columns import Hits, RuleColumns
from millstream.streams.spark.rules.stages import KeptStages, VersionStage
from millstream.streams.spark.rules.task_report import Judged, TaskReport
from millstream.streams.spark.runtime.micro_batch import collector_paused
from millstream.streams.spark.source.dead_letters import MalformedWriter
from millstream.streams.spark.source.formats.decoder import Malformed
from millstream.streams.spark.source.messages import Messages
from millstream.streams.spark.source.position import Slice
from millstream.streams.spark.source.rows import WAKE_TIME_MS, metadata_column, tick_row
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec

if TYPE_CHECKING:
    from millstream.streams.connectors.rules.packed_reader import PackedHitsSpec

__all__ = ["EVENT_TIME", "HitRows", "PackedHits", "clock_row", "event_time_us"]


EVENT_TIME = "event_time"
"""The column that such a row has."""

_US = 1000
"""Microseconds in a millisecond."""


def clock_row(schema: pa.Schema, queue: str, newest_us: int) -> pa.RecordBatch:
    """The row for the newest event time of `queue`."""
    # Each queue has a clock of its own, which a tick with that time would overrule.
    known_values = {EVENT_TIME: newest_us, QUEUE_COLUMN: queue, TICK_COLUMN: WAKE_TIME_MS * _US}
    values = [
        pa.array([known_values[field.name]], _plain(field.type)).cast(field.type)
        if field.name in known_values
        else pa.nulls(1, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(values, schema=schema)


def _plain(arrow_type: pa.DataType) -> pa.DataType:
    """What a value of Python is before it becomes a column's."""
    return pa.int64() if pa.types.is_timestamp(arrow_type) else arrow_type


_ROWS_PER_RECORD_BATCH = 5_000


class PackedHits:
    """Makes record batches of exactly `schema`. `seen` is what was seen before the micro-batch; it is not changed."""

    def __init__(self, spec: PackedHitsSpec, seen: SeenRecords) -> None:
        self.schema: pa.Schema = arrow_schema(spec.schema())
        self._spec = spec
        self._seen = SeenRecords.from_json(seen.to_json())

    def of(self, part: Slice, pulls: Iterable[Sequence[memoryview]]) -> Iterator[pa.RecordBatch]:
        """The hits of a slice's records, then a row for each source queue's newest event time."""
        spool = MalformedWriter(self._spec.spool, part, keep_bodies=self._spec.keep_malformed)
        waiting: list[pa.RecordBatch] = []
        times_us: dict[str, int] = {}
        for record in (record for records in pulls for record in records):
            parts = split_record(record)
            body = plain_body(parts)
            try:
                rows = self._rows(part.queue, body, times_us)
            except RuleError as error:
                spool.add(parts.queue_offset, error.message, body)
                continue
            if rows is not None:
                waiting.append(rows)
            if sum(batch.num_rows for batch in waiting) >= _ROWS_PER_RECORD_BATCH:
                yield _together(waiting)
                waiting = []
        if EVENT_TIME in self.schema.names:
            waiting += [clock_row(self.schema, queue, time_us) for queue, time_us in sorted(times_us.items())]
        spool.finish()
        if waiting:
            yield _together(waiting)

    def tick(self, time_ms: int) -> pa.RecordBatch:
        """One row that is no data: it moves event time to `time_ms`."""
        return tick_row(self.schema, time_ms)

    def _rows(self, into: str, body: bytes | memoryview, times_us: dict[str, int]) -> pa.RecordBatch | None:
        """The hits of a record; None for one that is not ours, was seen, or is an end, whose times are taken."""
        head, rows = unpack(body)
        if head.origin != self._spec.origin:
            return None
        if isinstance(head, BatchEnd):
            for queue, time_us in head.times_us.items() if head.batch_id > self._seen.batch_id else ():
                times_us[queue] = max(time_us, times_us.get(queue, time_us))
            return None
        if rows is None or not rows.num_rows or not self._seen.admits(into, head):
            return None
        arrays = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.schema.names
            else pa.repeat(pa.scalar(head.queue, field.type), rows.num_rows)
            if field.name == QUEUE_COLUMN
            else pa.nulls(rows.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


_UNITS_US = ((10**11, 10**6), (10**14, 10**3), (10**17, 1))
"""A number below the first counts units of so many microseconds: seconds, milliseconds, microseconds."""

_NANOSECONDS = 1000
_END_US = 253_402_300_800_000_000
"""The year 10000, from which on nothing can be shown."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def event_time_us(value: Any) -> int | None:
    """Microseconds since 1970 of an ISO 8601 or SQL text (UTC without a zone) or of a number; None for anything else.

    A number, or its text, counts seconds, milliseconds, microseconds or nanoseconds, whichever is of our days.
    """
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return _of_number(number_of(value.strip()))
        return ((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH) // _MICROSECOND
    return _of_number(number_of(value))


def _of_number(number: int | float | None) -> int | None:
    if number is None or number < 0:
        return None
    for below, unit_us in _UNITS_US:
        if number < below:
            return int(number * unit_us)
    time_us = int(number // _NANOSECONDS) if number < _END_US * _NANOSECONDS else _END_US
    return time_us if time_us < _END_US else None


"""Microseconds in a millisecond."""


class HitRows:
    """Makes record batches of exactly `schema` by one version of the rules; see `MessageRows`.

    A body that is no JSON object is malformed. Behind the hits stands a tick with the newest time of all events as its
    event time, so that windows close where no rule fits.
    """

    def __init__(self, spec: SourceSpec, judged: Judged, version: int, stages: KeptStages) -> None:
        self.schema: pa.Schema = arrow_schema(spec.schema())
        self.report = TaskReport(version)
        self._topic = spec.topic
        self._columns = spec.columns
        self._queues = spec.queues
        self._judged = judged
        self._stages = stages
        self._times = any(column.metadata is None and column.name == EVENT_TIME for column in spec.columns)

    def rows(self, messages: Messages, queue: str = "") -> tuple[pa.RecordBatch, tuple[Malformed, ...]]:
        """The hits in the order of their events, and the messages that are no events."""
        with collector_paused():
            return self._rows(messages, queue)

    def _rows(self, messages: Messages, queue: str) -> tuple[pa.RecordBatch, tuple[Malformed, ...]]:
        stage = self._stages.of(self._judged, self.report.version)
        paths = self._time_paths(stage)
        bodies = messages.views()
        reader = stage.reader(frozenset(path[0] for path in paths if path))
        events, refused = reader.read(bodies, are_texts=messages.are_texts())
        if refused:
            places = {one.place for one in refused}
            messages = messages.keep(
                pa.array([place for place in range(len(bodies)) if place not in places], pa.int32())
            )
        hits = stage.evaluate(events)
        self._count(len(events), hits, stage.columns)
        chunk = _Chunk(self._topic, queue, stage, messages, events, hits)
        times = chunk.event_times_us(paths) if self._times else None
        arrays = [
            chunk.column(column, self.schema.field(number).type, times) for number, column in enumerate(self._columns)
        ]
        newest_us = None if times is None or not len(times) else int(times.max())
        if newest_us is not None:
            self.report.saw(queue, newest_us)
        malformed = tuple(Malformed(one.place, one.reason) for one in refused)
        return self._batch(arrays, queue, len(hits.rows), newest_us), malformed

    def _time_paths(self, stage: VersionStage) -> list[Path]:
        """Where events may tell their times, where these are asked for."""
        fields = self._judged.time_fields if self._times else ()
        return [path for field in fields for path in stage.paths.get(field, ((field,), tuple(field.split("."))))]

    def finish(self) -> TaskReport:
        """All that was found, once the last messages were judged."""
        if self.report.events:
            self.report.add(self._stages.of(self._judged, self.report.version).report_since())
        return self.report

    def tick(self, time_ms: int) -> pa.RecordBatch:
        """One row that is no data: it moves event time to `time_ms`."""
        return tick_row(self.schema, time_ms)

    def _count(self, events: int, hits: Hits, columns: RuleColumns) -> None:
        numbers, counts = np.unique(hits.rules, return_counts=True)
        ids = [columns.rules[number].id for number in numbers.tolist()]
        self.report.add(TaskReport(self.report.version, events, dict(zip(ids, counts.tolist(), strict=True))))

    def _batch(self, arrays: list[pa.Array], queue: str, count: int, newest_us: int | None) -> pa.RecordBatch:
        if self._queues:
            arrays.append(pa.repeat(queue, count))
        tick_type = self.schema.field(len(arrays)).type
        arrays.append(pa.nulls(count, tick_type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if newest_us is None:
            return batch
        tick = clock_row(self.schema, queue, newest_us)
        return pa.Table.from_batches([batch, tick]).combine_chunks().to_batches()[0]


class _Chunk:
    """The messages of one record batch, their events and hits, and the values that columns have of them."""

    def __init__(
        self,
        topic: str,
        queue: str,
        stage: VersionStage,
        messages: Messages,
        events: RawEvents,
        hits: Hits,
    ) -> None:
        self._topic = topic
        self._queue = queue
        self._stage = stage
        self._messages = messages
        self._events = events
        self._hits = hits
        self._rows, self._places = np.unique(hits.rows, return_inverse=True)

    def event_times_us(self, paths: Sequence[Path]) -> np.ndarray[Any, Any]:
        """The time of each event: the first of `paths` that tells one, else when it was stored."""
        numbers = self._messages.numbers("store-timestamp")
        stored = list(self._messages.metadata("store-timestamp")) if numbers is None else numbers
        times = np.array(stored, np.int64) * _US
        for place, values in enumerate(zip(*map(self._events.at, paths), strict=True)):
            first_us = next((time_us for value in values if (time_us := event_time_us(value)) is not None), None)
            if first_us is not None:
                times[place] = first_us
        return times

    def column(self, column: SourceColumn, arrow_type: pa.DataType, times: np.ndarray[Any, Any] | None) -> pa.Array:
        """The values of a column, one for each hit."""
        if column.metadata == SOURCE_QUEUE:
            return pa.repeat(pa.scalar(self._queue, arrow_type), len(self._hits.rows))
        if column.metadata is not None:
            kept = self._messages.keep(pa.array(self._rows, pa.int32()))
            return metadata_column(self._topic, kept, column, arrow_type).take(pa.array(self._places))
        match column.name:
            case "event":
                raw = self._events.raw
                return pa.array([str(raw[row], "utf-8") for row in self._rows], arrow_type).take(pa.array(self._places))
            case "event_time":
                assert times is not None
                return pa.array(times[self._hits.rows]).cast(arrow_type)
            case "version":
                return pa.repeat(pa.scalar(self._stage.version, arrow_type), len(self._hits.rows))
            case "hits":
                return pa.repeat(pa.scalar(1, arrow_type), len(self._hits.rows))
            case "shows":
                return pa.array(self._each(self._shown_fields), arrow_type)
            case "group_key":
                return pa.array(self._each(self._stage.columns.group_key), arrow_type)
            case "measured":
                return pa.array(self._each(self._stage.columns.measure), arrow_type)
        return self._stage.columns.column(column.name, arrow_type, self._hits.rules)

    def _each(self, value: Callable[[int, str | None, FieldOf], Any]) -> list[Any]:
        hits = zip(self._hits.rows.tolist(), self._hits.rules.tolist(), strict=True)
        parts = self._hits.parts
        return [value(rule, parts.get(number), self._field_of(row)) for number, (row, rule) in enumerate(hits)]

    def _shown_fields(self, rule: int, _part: str | None, field_of: FieldOf) -> list[tuple[str, str]]:
        found = ((name, field_of(name)) for name in self._stage.columns.rules[rule].shows)
        return [(name, text_of(value)) for name, value in found if value is not None]

    def _field_of(self, row: int) -> FieldOf:
        return field_reader(self._events[row], self._stage.paths)
