"""Lookup tables from changelog topics: the latest message of each key, or its versions since a time.

The last row of each key among changes that come one after another.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.rocketmq.options import ROCKETMQ, UPSERT_ROCKETMQ
from millstream.streams.connectors.rocketmq.reader import read_partition
from millstream.streams.dimension.versions import Loaded
from millstream.streams.errors import JobError
from millstream.streams.operators.operator import Row
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.expressions import Call
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.spark.columns.rows import KIND_COLUMN
from millstream.streams.spark.lookups.lookup_table import LookupSpec, LookupTable
from millstream.streams.spark.operators.arrow_rows import rows_of
from millstream.streams.spark.source.formats.body_format import formats_of
from millstream.streams.spark.source.position import Position, Slice
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec
from millstream.streams.spark.source.topic_log import Access, open_log
from millstream.streams.spark.source.topic_partition import TopicPartition

__all__ = ["CHANGES", "MAX_TOPIC_KEYS", "LatestRows", "TopicLookup", "TopicRead", "changes_of", "read_on", "topic_ends"]

_GONE = (RowKind.DELETE.value, RowKind.UPDATE_BEFORE.value)

_Place = tuple[int, int]


class LatestRows:
    """The last row of each key among batches whose first `keys` columns are the key; what is outdated is let go.

    A key of which a part is NULL is none. `keeps_gone` keeps the keys that were deleted as well. `slack` is how many
    outdated rows are kept beside as many as count.
    """

    def __init__(self, keys: int, *, keeps_gone: bool = False, slack: int = 100_000) -> None:
        self._keys = keys
        self._keeps_gone = keeps_gone
        self._slack = slack
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._places: dict[Row, _Place] = {}
        self._gone: dict[Row, _Place] = {}

    def __len__(self) -> int:
        """The keys that are kept."""
        return len(self._places) + len(self._gone)

    def add(self, batch: pa.RecordBatch, kinds: pa.Array) -> None:
        """Rows that come later than all before."""
        number = len(self._batches)
        for place, (key, kind) in enumerate(zip(rows_of(batch, self._keys), kinds.to_pylist(), strict=True)):
            if None in key:
                continue
            if kind in _GONE:
                self._places.pop(key, None)
                if self._keeps_gone:
                    self._gone[key] = (number, place)
            else:
                self._gone.pop(key, None)
                self._places[key] = (number, place)
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows > 2 * len(self) + self._slack:
            self._tidy()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        yield from self._take_rows(self._places.values())

    def changed_keys(self) -> Iterator[pa.RecordBatch]:
        """All keys that are kept, in the columns of the key."""
        for batch in self._take_rows([*self._places.values(), *self._gone.values()]):
            yield batch.select(range(self._keys))

    def _take_rows(self, places: Iterable[_Place]) -> Iterator[pa.RecordBatch]:
        chosen: list[list[int]] = [[] for _ in self._batches]
        for number, place in places:
            chosen[number].append(place)
        for batch, some in zip(self._batches, chosen, strict=True):
            if some:
                yield batch.take(pa.array(sorted(some)))

    def _tidy(self) -> None:
        kept, gone = (list(self._take_rows(places.values())) for places in (self._places, self._gone))
        self._batches, self._rows = [], 0
        for places, batches in ((self._places, kept), (self._gone, gone)):
            places.clear()
            for batch in pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else ():
                number = len(self._batches)
                places.update((key, (number, place)) for place, key in enumerate(rows_of(batch, self._keys)))
                self._batches.append(batch)
                self._rows += batch.num_rows


CHANGES: Final = "lookup.changes."
"""What the options begin with that name the topic of a table's changes."""

MAX_TOPIC_KEYS: Final = 10_000_000
"""Keys of a topic that are read at once at most: while it is loaded, all of them are in memory."""

_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class TopicRead:
    """What was read of a topic, up to `ends` by queue; the columns of `latest` are the key's and those of the spec."""

    latest: LatestRows
    ends: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where the queues of a topic begin and end."""

    begins: Mapping[str, int]
    ends: dict[str, int]


class TopicLookup:
    """A topic whose last message of each key counts; it is only asked as a dimension table."""

    watches = False

    def __init__(self, spec: LookupSpec) -> None:
        self._spec = spec

    def table(self) -> LookupTable:
        """Raises JobError JOB_FAILED."""
        words = f"The table {self._spec.name} is a topic, which is only looked up as a dimension table."
        raise JobError("JOB_FAILED", words, remedy="Leave out 'lookup.store'.")

    def loads_whole(self) -> bool:
        """Always."""
        return True

    def stamp(self) -> str:
        """Blank: where its queues end tells that it went on."""
        return ""

    def load(self, fill: Callable[[], Loaded], directory: Path) -> Loaded:
        """What `fill` gives."""
        return fill()

    def batches(self, spec: LookupSpec, ends: dict[str, int], filters: Sequence[Call]) -> Iterator[pa.RecordBatch]:
        """The last row of each key up to `ends`; messages that are no rows are passed over.

        Raises JobError JOB_FAILED for more than `MAX_TOPIC_KEYS`, and what the cluster says.
        """
        return _read(spec, _ends(spec).begins, ends, LatestRows(len(spec.primary_key))).batches()


def changes_of(spec: LookupSpec) -> LookupSpec | None:
    """The topic whose messages change a table: that of an upsert table, or what 'lookup.changes.topic' names."""
    if connector_of(spec.option("connector")).reads_upserts:
        return spec
    changes = {name.removeprefix(CHANGES): value for name, value in spec.options if name.startswith(CHANGES)}
    if "topic" not in changes:
        return None
    text = changes.get("format", "json").lower()
    options = {**changes, "format": text, "connector": (UPSERT_ROCKETMQ if text == "json" else ROCKETMQ).name}
    return replace(spec, options=tuple(sorted(options.items())), partitions=())


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


def read_on(spec: LookupSpec, since: Mapping[str, int]) -> TopicRead | None:
    """What became of the keys of the messages since, those that were deleted among them; otherwise as `batches`.

    None where that cannot be known: messages since then are gone, or the topic is another one.
    """
    span = _ends(spec)
    for queue, known in since.items():
        if queue not in span.ends or not span.begins[queue] <= known <= span.ends[queue]:
            return None
    begins = {queue: since.get(queue, begin) for queue, begin in span.begins.items()}
    return TopicRead(_read(spec, begins, span.ends, LatestRows(len(spec.primary_key), keeps_gone=True)), span.ends)


def _read(spec: LookupSpec, begins: Mapping[str, int], ends: dict[str, int], latest: LatestRows) -> LatestRows:
    table = Table(
        spec.name,
        tuple(PhysicalColumn(one.name, one.type) for one in spec.stored),
        dict(spec.options),
        primary_key=spec.primary_key,
        upserts=connector_of(spec.option("connector")).reads_upserts,
    )
    types = {one.name: one.type for one in spec.stored}
    names = dict.fromkeys((*spec.primary_key, *spec.schema.names))
    body, key = formats_of(table)
    slices = tuple(Slice(queue, begins[queue], end) for queue, end in ends.items() if end > begins[queue])
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
            upserts=table.upserts,
        )
        for batch in read_partition(source, TopicPartition(slices)):
            latest.add(batch.select(list(names)), batch.column(KIND_COLUMN))
            if len(latest) > MAX_TOPIC_KEYS:
                words = (
                    f"The topic {spec.option('topic')} has more than {MAX_TOPIC_KEYS:,} keys, too many for {spec.name}."
                )
                raise JobError("JOB_FAILED", words)
    return latest
