"""Topic ranges as a worker reads them: cold parts from the object store, the rest from the broker.

A store is opened in the process that reads, behind every fork, with the keys of access of its environment. Where that
fails, or an object is not what it should be, the broker gives the messages, and a detour is noted for the driver.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from millstream.client.bulk.fetched import decode_fetch
from millstream.client.values import PullBatch, QueueAddress
from millstream.model.errors import ExtraMissing, MillstreamError
from millstream.model.filter import TagFilter, parse_tag_filter
from millstream.model.operations import PullStatus
from millstream.model.properties import decode_properties
from millstream.protocol.record import split_record
from millstream.streams.spark.source.bulk_rows import keep_rows
from millstream.streams.spark.source.cold_pieces import ColdPiece, walk_slice
from millstream.streams.spark.source.position import Slice
from millstream.streams.spark.source.topic_log import TopicLog
from millstream.streams.state.spool import Spool
from millstream.tiered.chunk import damage_of
from millstream.tiered.cold_scan import ColdBlock, ColdScan
from millstream.tiered.objects import ObjectStoreDenied
from millstream.tiered.places import ObjectPlace

__all__ = ["STORES", "ColdDetour", "ColdLog", "Detours", "OpenStores", "detour_spool"]

_log = logging.getLogger(__name__)

_Rows = TypeVar("_Rows", Sequence[memoryview], pa.Table)

MAX_OPEN_STORES: Final = 8
"""Object stores that a worker keeps open; brokers of a cluster have one or few between them."""

REFUSAL_S: Final = 60.0
"""Seconds for which a worker does not ask a store again that refused it."""


@dataclass(frozen=True, slots=True)
class ColdDetour:
    """Cold offsets of a queue, from `start` to before `end`, that a worker read through the broker, and why."""

    queue: str
    start: int
    end: int
    reason: str


def detour_spool(directory: Path) -> Spool[ColdDetour]:
    """The detours of one table; a file for each slice that has any."""
    return Spool(directory, ".detours", ColdDetour)


@dataclass(frozen=True, slots=True)
class Detours:
    """What workers read through the broker of one table, as the driver hears of it."""

    table: str
    spool: Spool[ColdDetour]

    def take(self) -> tuple[int, str]:
        """How many rows of a micro-batch, and a sentence on why; 0 and a blank where all went as it should."""
        rows, reason = 0, ""
        for detour in self.spool.take():
            rows += detour.end - detour.start
            reason = reason or detour.reason
        if not rows:
            return 0, ""
        return rows, f"Cold messages of {self.table} are read through the broker, as the job's workers cannot: {reason}"


@dataclass
class OpenStores:
    """The object stores that this process has opened, and those that refused it."""

    clock: Callable[[], float] = time.monotonic
    _process: int = 0
    _scans: dict[ObjectPlace, ColdScan] = field(default_factory=dict)
    _refusals: dict[ObjectPlace, tuple[float, MillstreamError]] = field(default_factory=dict)

    def scan(self, place: ObjectPlace) -> ColdScan:
        """Reads of the store there. Raises EXTRA_MISSING, ObjectStoreDenied, ObjectStoreAway."""
        if self._process != os.getpid():
            # A client does not live on behind a fork; it is the parent's to close.
            self._process = os.getpid()
            self._scans, self._refusals = {}, {}
        until_s, refusal = self._refusals.get(place, (0.0, None))
        if refusal is not None and self.clock() < until_s:
            raise refusal
        scan = self._scans.pop(place, None)
        if scan is None:
            try:
                scan = ColdScan(place.open(to_read=True))
            except MillstreamError as error:
                self.note_failure(place, error)
                raise
        self._scans[place] = scan
        if len(self._scans) > MAX_OPEN_STORES:
            self._scans.pop(next(iter(self._scans))).objects.close()
        return scan

    def note_failure(self, place: ObjectPlace, error: MillstreamError) -> None:
        """Ask a store that refuses, or that cannot be opened here, no more for a while; the log says so once."""
        if not isinstance(error, (ObjectStoreDenied, ExtraMissing)):
            return
        if place not in self._refusals:
            _log.warning(
                "This worker reads cold messages through the broker, as it cannot read %s itself: %s", place.url, error
            )
        self._refusals[place] = self.clock() + REFUSAL_S, error


STORES: Final = OpenStores()
"""Those of this process."""


class ColdLog:
    """Reads slices of one topic, with some of its tags. `pieces` are the cold ones of each slice."""

    def __init__(
        self,
        log: TopicLog,
        topic: str,
        tag: str,
        pieces: Mapping[Slice, Sequence[ColdPiece]],
        stores: OpenStores = STORES,
    ) -> None:
        self._log = log
        self._topic = topic
        self._tag = tag
        self._pieces = pieces
        self._stores = stores
        self.detours: list[ColdDetour] = []
        """Those of the slice that was begun last."""

    def read(self, part: Slice) -> Iterator[Sequence[memoryview]]:
        """See `TopicLog.read`; a topic with cold pieces here holds no batches."""
        wanted = parse_tag_filter(self._tag)

        def take(piece: ColdPiece, block: ColdBlock) -> Iterator[tuple[Sequence[memoryview], int]]:
            records = _records_within(block, piece.start, piece.end)
            yield records if wanted.takes_all else [one for one in records if _has_tag(wanted, one)], piece.end

        return self._walk(part, take, lambda rest: self._log.read(self._topic, rest, self._tag))

    def read_bulk(self, part: Slice) -> Iterator[pa.Table]:
        """See `TopicLog.read_bulk`."""
        tags = parse_tag_filter(self._tag).tags

        def take(piece: ColdPiece, block: ColdBlock) -> Iterator[tuple[pa.Table, int]]:
            within = Slice(piece.queue, piece.start, piece.end)
            broker, _, queue_id = piece.queue.rpartition("/")
            queue = QueueAddress(self._topic, broker, int(queue_id), "")
            data = b"".join(block.records)
            answer = PullBatch(PullStatus.FOUND, block.next_queue_offset, piece.start, piece.end, data)
            offset = max(piece.start, block.first_queue_offset)
            while offset < min(block.next_queue_offset, piece.end):
                batch = decode_fetch(answer, queue, offset)
                offset = batch.next_offset
                yield keep_rows(batch, self._topic, within, tags), offset

        return self._walk(part, take, lambda rest: self._log.read_bulk(self._topic, rest, self._tag))

    def _walk(
        self,
        part: Slice,
        take: Callable[[ColdPiece, ColdBlock], Iterator[tuple[_Rows, int]]],
        ask: Callable[[Slice], Iterator[_Rows]],
    ) -> Iterator[_Rows]:
        """The rows of the slice. `take` gives those of a block, each with the offset behind it."""
        self.detours = []
        for step in walk_slice(part, self._pieces.get(part, ())):
            if isinstance(step, Slice):
                yield from ask(step)
                continue
            offset = step.start
            try:
                for block in self._blocks(step):
                    for rows, following in take(step, block):
                        offset = min(following, block.next_queue_offset, step.end)
                        if len(rows):
                            yield rows
                if offset < step.end:
                    raise damage_of(step.where.key, f"it ends before offset {step.end} of {self._topic}/{step.queue}")
            except MillstreamError as error:
                self._stores.note_failure(step.place, error)
                self.detours.append(ColdDetour(step.queue, offset, step.end, str(error)))
            if offset < step.end:
                yield from ask(Slice(step.queue, offset, step.end))

    def _blocks(self, piece: ColdPiece) -> Iterator[ColdBlock]:
        queue_id = int(piece.queue.rpartition("/")[2])
        scan = self._stores.scan(piece.place)
        return scan.blocks(self._topic, queue_id, piece.where, piece.start, piece.end)


def _records_within(block: ColdBlock, start: int, end: int) -> Sequence[memoryview]:
    """The block's records with offsets from `start` to before `end`; each is one message."""
    first, behind = block.first_queue_offset, block.next_queue_offset
    if start <= first and behind <= end:
        return block.records
    if behind - first == len(block.records):
        return block.records[max(0, start - first) : end - first]
    return [one for one in block.records if start <= split_record(one).queue_offset < end]


def _has_tag(wanted: TagFilter, record: memoryview) -> bool:
    return wanted.matches(decode_properties(split_record(record).properties))
