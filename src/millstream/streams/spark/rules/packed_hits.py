"""Packed records to hits of a source's schema, in a worker: those that were seen are left out, broken ones are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.client.bulk.fetched import plain_body
from millstream.protocol.record import split_record
from millstream.streams.errors import RuleError
from millstream.streams.rules.packed.guard import SeenRecords
from millstream.streams.rules.packed.record import BatchEnd, unpack
from millstream.streams.spark.columns.hidden import QUEUE_COLUMN
from millstream.streams.spark.columns.types import arrow_schema
from millstream.streams.spark.rules.clock_rows import EVENT_TIME, clock_row
from millstream.streams.spark.source.malformed import MalformedWriter
from millstream.streams.spark.source.partition import Slice
from millstream.streams.spark.source.rows import tick_row

if TYPE_CHECKING:
    from millstream.streams.connectors.rules.packed_reader import PackedHitsSpec

__all__ = ["PackedHits"]

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
