"""Test input for tables: messages in order, split into micro-batches, and the readers for Spark."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millstream.model import properties as names
from millstream.model.message import Address, OutgoingMessage
from millstream.model.properties import decode_properties, encode_properties
from millstream.protocol.record import encode_record
from millstream.streams.spark.columns.rows import TICK_COLUMN
from millstream.streams.spark.source.dead_letters import MalformedWriter
from millstream.streams.spark.source.messages import RecordMessages
from millstream.streams.spark.source.position import Position, Slice, divide
from millstream.streams.spark.source.rows import END_OF_TIME_MS, WAKE_TIME_MS, RowBuilder
from millstream.streams.spark.source.spec import SourceSpec
from millstream.streams.spark.source.topic_partition import TopicPartition

__all__ = ["CLOCK_FILE", "FIRST_STORE_MS", "QUEUE_PREFIX", "FedEntry", "FedMessage", "FedSpec", "Feed", "encoded_row"]


FIRST_STORE_MS: Final = 1_767_225_600_000
"""Store and born time of the first message that names none: 2026-01-01 in UTC; each next one is a millisecond later."""

_TOPIC: Final = "fed"
_HOST: Final = Address("127.0.0.1", 1)


@dataclass(frozen=True, slots=True)
class FedMessage:
    """One message, where a test needs more than a row: `body` is the row as a dict, or the text as it is stored.

    `time_ms` is its born and store time; None: the next millisecond.
    """

    body: Mapping[str, Any] | str | bytes | None
    key: str = ""
    tag: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    time_ms: int | None = None


class FedEntry(msgspec.Struct, array_like=True):
    """One message as it travels. `is_tick`: it brings its event time and is no row."""

    queue: int
    offset: int
    time_ms: int
    body: bytes
    properties: bytes = b""
    is_tick: bool = False

    def record(self) -> memoryview:
        """As a record that was pulled."""
        properties = decode_properties(self.properties)
        message = OutgoingMessage(_TOPIC, self.body, properties, born_timestamp_ms=self.time_ms)
        record = encode_record(
            message,
            queue_id=self.queue,
            queue_offset=self.offset,
            log_offset=0,
            store_timestamp_ms=self.time_ms,
            store_host=_HOST,
        )
        return memoryview(record)


class Feed(msgspec.Struct):
    """The entries of one table, and of each micro-batch where it ends: the next offset of each queue.

    `nows_us` are the processing times of the micro-batches, where the test says them.
    """

    entries: dict[int, list[FedEntry]] = {}
    ends: list[dict[int, int]] = []
    nows_us: list[int | None] = []

    def add(self, queue: int, message: FedMessage, time_ms: int, *, is_tick: bool = False) -> None:
        """A message behind the others of its queue."""
        body = message.body if isinstance(message.body, bytes) else encoded_row(message.body)
        properties = dict(message.properties)
        if message.key:
            properties[names.KEYS] = message.key
        if message.tag:
            properties[names.TAGS] = message.tag
        here = self.entries.setdefault(queue, [])
        here.append(FedEntry(queue, len(here), time_ms, body, encode_properties(properties), is_tick))

    def cut(self, now_us: int | None = None) -> None:
        """End the micro-batch here; one without rows is one all the same."""
        self.ends.append(self.offsets())
        self.nows_us.append(now_us)

    def offsets(self) -> dict[int, int]:
        """Behind the last entry of each queue."""
        return {queue: len(entries) for queue, entries in self.entries.items()}

    def write(self, path: Path) -> None:
        """Leave everything in `path`, whole or not at all."""
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_bytes(msgspec.msgpack.encode(self))
        unfinished.replace(path)

    @classmethod
    def read(cls, path: str) -> Feed:
        """What `write` left."""
        return msgspec.msgpack.decode(Path(path).read_bytes(), type=cls)


def encoded_row(body: Mapping[str, Any] | str | None) -> bytes:
    """A row as JSON, a text as UTF-8, nothing as an empty body. Times stand as SQL writes them."""
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    return msgspec.json.encode({name: _plain(value) for name, value in body.items()})


def _plain(value: Any) -> Any:
    match value:
        case datetime.datetime():
            moment = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"{moment.isoformat(' ')}{'Z' if value.tzinfo else ''}"
        case decimal.Decimal():
            return str(value)
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return value


CLOCK_FILE: Final = "now"
"""Holds the processing time of the micro-batch that runs, in microseconds."""

QUEUE_PREFIX: Final = "test/"
"""Begins the name of every queue."""


@dataclass(frozen=True, slots=True)
class FedSpec:
    """One read of one table: what is read and how, and the `file` of its feed. `cut_ms` of positions counts batches."""

    source: SourceSpec
    file: str

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden ones."""
        return self.source.schema()

    def stream_reader(self) -> DataSourceStreamReader:
        """A reader of micro-batches."""
        return FedStreamReader(self)

    def batch_reader(self) -> DataSourceReader:
        """A reader of everything."""
        return FedBatchReader(self)


class FedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch after the other, then the end of time where the run ends it."""

    def __init__(self, spec: FedSpec) -> None:
        self._spec = spec

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position that was fixed when the job's checkpoint was made."""
        return self._spec.source.start.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """None: a test says itself where a micro-batch ends."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """All runs are bounded."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch, also of one without rows; `start` itself behind the last one."""
        begin, ends = Position.from_json(start), Feed.read(self._spec.file).ends
        if begin.ended:
            return start
        if begin.cut_ms < len(ends):
            queues = {f"{QUEUE_PREFIX}{queue}": offset for queue, offset in ends[begin.cut_ms].items()}
            return replace(begin, queues=queues, cut_ms=begin.cut_ms + 1).to_json()
        return replace(begin, ended=True).to_json() if self._spec.source.final_tick else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        begin, until = Position.from_json(start), Position.from_json(end)
        write_time(self._spec, until.cut_ms)
        tasks = [TopicPartition(slices) for slices in divide(begin, until, self._spec.source.parallelism)]
        if until.ended and not begin.ended:
            return [*tasks, TopicPartition((), END_OF_TIME_MS)]
        # A silent source wakes such a job right behind its rows; here that is part of each micro-batch.
        return [*tasks, TopicPartition((), WAKE_TIME_MS)] if self._spec.source.wake_again else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read_partition(self._spec, partition, ticks=True)


class FedBatchReader(DataSourceReader):
    """Everything that was fed, once."""

    def __init__(self, spec: FedSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; at least one, which may be empty."""
        spec = self._spec.source
        write_time(self._spec, len(Feed.read(self._spec.file).ends))
        tasks = [TopicPartition(slices) for slices in divide(spec.start, spec.end or spec.start, spec.parallelism)]
        return [*tasks, TopicPartition((), END_OF_TIME_MS)] if spec.final_tick else tasks or [TopicPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return _read_partition(self._spec, partition, ticks=False)


def write_time(spec: FedSpec, batches: int) -> None:
    """Leave the processing time of the last of so many micro-batches where its operators look."""
    nows_us = Feed.read(spec.file).nows_us[:batches]
    if nows_us and nows_us[-1] is not None:
        path = Path(spec.file).with_name(CLOCK_FILE)
        unfinished = path.with_name(f".{CLOCK_FILE}-{Path(spec.file).name}")
        unfinished.write_text(str(nows_us[-1]))
        unfinished.replace(path)


def _read_partition(spec: FedSpec, partition: InputPartition, *, ticks: bool) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r} is no partition of a test's table")
    builder = RowBuilder(spec.source)
    feed = Feed.read(spec.file)
    for part in partition.slices:
        yield from _slice(spec, feed, builder, part, ticks=ticks)
    if partition.tick_ms is not None:
        yield builder.tick(partition.tick_ms)


def _slice(spec: FedSpec, feed: Feed, builder: RowBuilder, part: Slice, *, ticks: bool) -> Iterator[pa.RecordBatch]:
    entries = feed.entries[int(part.queue.removeprefix(QUEUE_PREFIX))][part.start : part.end]
    spool = MalformedWriter(spec.source.spool, part, keep_bodies=True)
    for is_tick, same in groupby(entries, lambda entry: entry.is_tick):
        messages = RecordMessages([entry.record() for entry in same])
        if is_tick and not ticks:
            continue
        rows, malformed = builder.rows(messages, part.queue)
        for refused in malformed:
            spool.add(messages.queue_offset(refused.position), refused.reason, messages.body(refused.position))
        if rows.num_rows:
            yield _as_ticks(rows) if is_tick else rows
    spool.finish()


def _as_ticks(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as such that only bring their event times."""
    place = rows.schema.get_field_index(TICK_COLUMN)
    ticks = pa.repeat(pa.scalar(WAKE_TIME_MS * 1000, pa.int64()), rows.num_rows).cast(rows.schema.field(place).type)
    return rows.set_column(place, rows.schema.field(place), ticks)
