"""Reads packed hits that another query wrote, in whole micro-batches of it.

What was seen of each queue is part of the offset, so a record that was stored twice counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from millstream.client.bulk.fetched import plain_body
from millstream.protocol.record import split_record
from millstream.streams.connectors.rocketmq.reader import DecodedSlices, TopicSpec, TopicStreamReader
from millstream.streams.errors import RuleError
from millstream.streams.rules.packed.guard import Ahead, SeenRecords, whole_batches
from millstream.streams.rules.packed.record import Head, head_of
from millstream.streams.spark.rules.hit_rows import PackedHits
from millstream.streams.spark.source.position import Position, QueueSpan, Slice
from millstream.streams.spark.source.rows import WAKE_TIME_MS, tick_between
from millstream.streams.spark.source.spec import SourceSpec
from millstream.streams.spark.source.topic_log import TopicLog, open_log
from millstream.streams.spark.source.topic_partition import TopicPartition

__all__ = ["PackedHitsReader", "PackedHitsSpec", "PackedPartition"]

_SEEN = "seen"
"""The key of what was seen in an offset."""

_RECORDS_AHEAD = 5_000
"""Records of a queue whose heads are looked at together, at most; more only where no micro-batch ends among them."""


@dataclass(frozen=True, slots=True)
class PackedHitsSpec(TopicSpec):
    """One read of packed hits; only micro-batches read them."""

    origin: str = ""
    """The job that has packed them: records of others are passed over."""

    def stream_reader(self) -> DataSourceStreamReader:
        """A reader of micro-batches."""
        return PackedHitsReader(self)


class PackedPartition(TopicPartition):
    """What one task reads: whole queues, of each what was seen of it before the micro-batch."""

    def __init__(self, slices: tuple[Slice, ...], seen: SeenRecords, tick_ms: int | None = None) -> None:
        super().__init__(slices, tick_ms)
        self.seen = seen


class PackedHitsReader(TopicStreamReader):
    """Micro-batches of packed hits: each has some whole ones of the query that packed them."""

    _spec: PackedHitsSpec

    def __init__(self, spec: PackedHitsSpec) -> None:
        super().__init__(spec)
        self._ahead: dict[str, Ahead] = {}
        self._read_to: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ahead": {}, "_read_to": {}}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The positions that were fixed when the job's checkpoint was made, with nothing seen."""
        return _offset(self._spec.start, SeenRecords())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch; `start` itself where no micro-batch of the other query is whole."""
        begin, seen = Position.from_json(start).going_on(), SeenRecords.from_json(start.get(_SEEN))
        log = self._cluster()
        self._latest = log.spans(self._spec.topic)
        spans = self._latest if self._target is None else self._target
        self._look_ahead(log, begin, spans, seen.batch_id)
        whole = whole_batches(self._ahead, seen.batch_id)
        if whole:
            self._alarm.rest()
            max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
            return self._up_to(self._choose_end(whole, max_rows), begin, seen)
        has_ended = Position.from_json(start).ended
        if self._target is not None and self._spec.final_tick:
            return start if has_ended else _offset(replace(begin, ended=True), seen)
        if self._target is None and self._alarm.rings():
            return _offset(replace(begin, wakes=begin.wakes + 1), seen)
        return _offset(begin, seen) if has_ended else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch; a queue is read by one alone, since what it repeats is known by its order."""
        begin, until = Position.from_json(start), Position.from_json(end)
        seen = SeenRecords.from_json(start.get(_SEEN))
        slices = [
            Slice(queue, begin.offset(queue), offset)
            for queue, offset in sorted(until.queues.items())
            if offset > begin.offset(queue)
        ]
        tasks: list[InputPartition] = [PackedPartition(group, seen) for group in _shared_out(slices, self._spec)]
        tick_ms = tick_between(begin, until)
        if tick_ms is not None:
            tasks.append(PackedPartition((), seen, tick_ms))
        elif until.wakes > begin.wakes and not tasks:
            tasks.append(PackedPartition((), seen, WAKE_TIME_MS))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The hits of one task; runs in a worker."""
        if not isinstance(partition, PackedPartition):
            raise TypeError(f"{partition!r} is no partition of packed hits")
        hits = PackedHits(self._spec, partition.seen)
        if partition.slices:
            spec = self._spec
            log = open_log(spec.nameserver, timeout_s=spec.timeout_s, access=spec.access, read_from=spec.read_from)
            try:
                for part in partition.slices:
                    yield from self._share_hits(hits, log, part)
            finally:
                log.close()
        if partition.tick_ms is not None:
            yield hits.tick(partition.tick_ms)

    def _share_hits(self, hits: PackedHits, log: TopicLog, part: Slice) -> Iterator[pa.RecordBatch]:
        """The hits of a slice; several passes over a micro-batch unpack them once."""
        made = hits.of(part, log.read(self._spec.topic, part))
        if not self._spec.decoded:
            return made
        slices = DecodedSlices(self._spec.decoded, hits.schema)
        found = slices.find(part)
        return found if found is not None else slices.keep(part, made)

    def _choose_end(self, whole: Sequence[int], max_rows: int) -> int:
        """The last micro-batch to read: as many as have at most `max_rows` (0: all), but one."""
        chosen = whole[0]
        for batch_id in whole[1:]:
            ends = ((one, one.end_of(batch_id)) for one in self._ahead.values())
            if max_rows and sum(one.rows_before(end) for one, end in ends if end is not None) > max_rows:
                break
            chosen = batch_id
        return chosen

    def _up_to(self, batch_id: int, begin: Position, seen: SeenRecords) -> dict[str, Any]:
        """The offset behind a micro-batch, with what is seen by then."""
        queues = dict(begin.queues)
        for queue, ahead in self._ahead.items():
            end = ahead.end_of(batch_id)
            if end is None:
                continue
            queues[queue] = end
            for head in ahead.rows_up_to(end):
                seen.admits(queue, head)
        seen.batch_id = batch_id
        return _offset(replace(begin, queues=queues, cut_ms=0), seen)

    def _look_ahead(self, log: TopicLog, begin: Position, spans: dict[str, QueueSpan], after: int) -> None:
        """Read the heads that lie behind `begin`, with an end later than `after`; those already known not again."""
        for queue, span in spans.items():
            ahead = self._ahead.setdefault(queue, Ahead([]))
            offset = max(begin.offset(queue), span.min_offset)
            ahead.forget_before(offset)
            known = max(offset, self._read_to.get(queue, 0))
            while known < span.max_offset and (len(ahead.heads) < _RECORDS_AHEAD or ahead.newest_end() <= after):
                until = min(span.max_offset, known + _RECORDS_AHEAD)
                ahead.heads.extend(_heads(log, self._spec, Slice(queue, known, until)))
                known = until
            self._read_to[queue] = known


def _heads(log: TopicLog, spec: PackedHitsSpec, part: Slice) -> Iterator[tuple[int, Head]]:
    """The heads of the job's own records; broken ones are told when their rows are read."""
    for records in log.read(spec.topic, part):
        for record in records:
            parts = split_record(record)
            try:
                head = head_of(plain_body(parts))
            except RuleError:
                continue
            if head.origin == spec.origin:
                yield parts.queue_offset, head


def _shared_out(slices: Sequence[Slice], spec: SourceSpec) -> list[tuple[Slice, ...]]:
    """The slices in as many groups as there is work for, the largest first to the smallest group."""
    groups: list[list[Slice]] = [[] for _ in range(min(max(1, spec.parallelism), len(slices)))]
    sizes = [0] * len(groups)
    for part in sorted(slices, key=lambda one: (one.start - one.end, one.queue)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(part)
        sizes[smallest] += part.end - part.start
    return [tuple(group) for group in groups]


def _offset(position: Position, seen: SeenRecords) -> dict[str, Any]:
    return {**position.to_json(), _SEEN: seen.to_json()}
