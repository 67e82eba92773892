"""A compacted topic as rows to look up: the last message of each key, as of now."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.streams.errors import JobError
from millstream.streams.operators.changes import Row
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.spark.hidden import KIND_COLUMN
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.operators.values import rows_of
from millstream.streams.spark.source.body_format import UPSERTS, formats_of
from millstream.streams.spark.source.partition import Slice, TopicPartition
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.reader import read_partition
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec
from millstream.streams.spark.source.topic_log import Access, open_log

__all__ = ["MAX_TOPIC_KEYS", "UPSERTS", "LatestRows", "topic_batches", "topic_ends"]

MAX_TOPIC_KEYS: Final = 10_000_000
"""Keys of a topic that becomes a dimension table at most: while it is loaded, all of them are in memory."""

_TIMEOUT_S = 10.0
_GONE = (RowKind.DELETE.value, RowKind.UPDATE_BEFORE.value)


class LatestRows:
    """The last row of each key among batches whose first `keys` columns are the key; what is outdated is let go.

    `slack` is how many outdated rows are kept beside as many as count.
    """

    def __init__(self, keys: int, *, slack: int = 100_000) -> None:
        self._keys = keys
        self._slack = slack
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._places: dict[Row, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, batch: pa.RecordBatch, kinds: pa.Array) -> None:
        """Rows that come later than all before."""
        number = len(self._batches)
        for place, (key, kind) in enumerate(zip(rows_of(batch, self._keys), kinds.to_pylist(), strict=True)):
            if kind in _GONE:
                self._places.pop(key, None)
            else:
                self._places[key] = (number, place)
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows > 2 * len(self._places) + self._slack:
            self._tidy()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        places: list[list[int]] = [[] for _ in self._batches]
        for number, place in self._places.values():
            places[number].append(place)
        for batch, chosen in zip(self._batches, places, strict=True):
            if chosen:
                yield batch.take(pa.array(sorted(chosen)))

    def _tidy(self) -> None:
        kept = list(self.batches())
        self._batches, self._rows = [], 0
        self._places.clear()
        if kept:
            whole = pa.Table.from_batches(kept).combine_chunks().to_batches()
            for batch in whole:
                number = len(self._batches)
                self._places.update((key, (number, place)) for place, key in enumerate(rows_of(batch, self._keys)))
                self._batches.append(batch)
                self._rows += batch.num_rows


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where the queues of a topic begin and end."""

    begins: Mapping[str, int]
    ends: dict[str, int]


def topic_ends(spec: LookupSpec) -> dict[str, int]:
    """Where each queue of the topic ends now. Raises NameRefused TOPIC_NOT_FOUND, ConnectionFailed."""
    return _ends(spec).ends


def _ends(spec: LookupSpec) -> _Ends:
    log = open_log(spec.option("nameserver"), timeout_s=_TIMEOUT_S, access=Access.of(dict(spec.options)))
    try:
        spans = log.spans(spec.option("topic"))
    finally:
        log.close()
    begins = {queue: span.min_offset for queue, span in spans.items()}
    return _Ends(begins, {queue: span.max_offset for queue, span in sorted(spans.items())})


def topic_batches(spec: LookupSpec) -> Iterator[pa.RecordBatch]:
    """The last row of each key, in the columns of `spec`; messages that are no rows are passed over.

    Raises JobError JOB_FAILED for more than `MAX_TOPIC_KEYS`, and what the cluster says.
    """
    table = Table(
        spec.name,
        tuple(PhysicalColumn(one.name, one.type) for one in spec.stored),
        dict(spec.options),
        primary_key=spec.primary_key,
    )
    types = {one.name: one.type for one in spec.stored}
    names = dict.fromkeys((*spec.primary_key, *spec.schema.names))
    body, key = formats_of(table)
    span = _ends(spec)
    slices = tuple(
        Slice(queue, span.begins[queue], end) for queue, end in span.ends.items() if end > span.begins[queue]
    )
    latest = LatestRows(len(spec.primary_key))
    with tempfile.TemporaryDirectory(prefix="millstream-topic-") as spool:
        source = SourceSpec(
            nameserver=spec.option("nameserver"),
            topic=spec.option("topic"),
            access=Access.of(dict(spec.options)),
            columns=tuple(SourceColumn(name, types[name]) for name in names),
            start=Position(),
            tag=spec.option("tag", "*"),
            spool=spool,
            keep_malformed=False,
            body=body,
            key=key,
            changes=True,
            upserts=True,
        )
        for batch in read_partition(source, TopicPartition(slices)):
            latest.add(batch.select(list(names)), batch.column(KIND_COLUMN))
            if len(latest) > MAX_TOPIC_KEYS:
                words = (
                    f"The topic {spec.option('topic')} has more than {MAX_TOPIC_KEYS:,} keys, too many for {spec.name}."
                )
                raise JobError("JOB_FAILED", words)
    for batch in latest.batches():
        yield batch.select(spec.schema.names)
