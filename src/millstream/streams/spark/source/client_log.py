"""The topic log of a real cluster, through the client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.blocking_producer import BlockingBulkProducer
from millstream.client.bulk.puller import BlockingBulkPuller
from millstream.client.replica_reads import ReadFrom
from millstream.client.values import PullBatch, QueueAddress, range_is_gone
from millstream.model.errors import ConnectionFailed, ConsumeRefused, NameRefused, Refused
from millstream.model.filter import TagFilter, parse_tag_filter
from millstream.model.message import Message
from millstream.model.operations import PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import split_record
from millstream.protocol.remoting.messages.cold_ranges import ColdRangesBody
from millstream.security.signature import Credentials
from millstream.security.tls import client_context
from millstream.streams.spark.source.bulk_rows import keep_rows
from millstream.streams.spark.source.cold_pieces import ColdSpan
from millstream.streams.spark.source.position import QueueSpan, Slice
from millstream.streams.spark.source.topic_log import Access
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.places import ObjectPlace

__all__ = ["ClientLog"]

_PULL_MESSAGES = 4096
_PULL_BYTES = 4 * 1024 * 1024
_FIRST_FETCH_BYTES = 1024 * 1024
_LEAST_FETCH_BYTES = 16 * 1024
_FETCHED_TABLE_BYTES = 32 * 1024 * 1024
"""A fetch asks for half as much where its table has more, and for twice as much where it has less than a quarter.

What goes beyond the largest table is thrown away and fetched again; what is packed to a fiftieth would be so each time.
"""
_BEYOND = 1 << 62

COLD_LOOK_S: Final = 60.0
"""Seconds after which a broker is asked again where its disk begins, of a queue that is read behind that place."""


class ClientLog:
    """A `TopicLog` over one `BlockingClient`. Not for several threads at once."""

    def __init__(
        self,
        nameserver: str,
        *,
        timeout_s: float,
        access: Access | None = None,
        read_from: ReadFrom = ReadFrom.MASTER,
    ) -> None:
        self._read_from = read_from
        access = access or Access()
        self._client = BlockingClient(
            nameserver,
            timeout_s=timeout_s,
            credentials=Credentials(access.access_key, access.secret_key) if access.access_key else None,
            tls=client_context(access.tls) if access.tls else None,
        )
        self._puller = BlockingBulkPuller(self._client, read_from=read_from)
        # A send that is repeated here could be stored twice; a job repeats what it knows not to be there.
        self._producer = BlockingBulkProducer(self._client, retries=0)
        self._queues: dict[tuple[str, str], QueueAddress] = {}
        self._disk_offsets: dict[tuple[str, str], tuple[int, float]] = {}

    def spans(self, topic: str) -> dict[str, QueueSpan]:
        """What each queue holds, in one look per broker; TOPIC_NOT_FOUND."""
        spans = {}
        for held in self._client.queue_ranges(topic, read_from=self._read_from):
            name = f"{held.broker_name}/{held.range.queue_id}"
            self._queues[topic, name] = held.queue
            spans[name] = QueueSpan(held.range.min_offset, held.range.max_offset, held.range.last_store_timestamp_ms)
        return spans

    def offset_at(self, topic: str, queue: str, timestamp_ms: int) -> int:
        """The first offset whose store time is at or after `timestamp_ms`; the end if there is none."""
        return self._client.offset_by_time(self._queue(topic, queue), timestamp_ms, read_from=self._read_from)

    def committed_offset(self, group: str, topic: str, queue: str) -> int | None:
        """Where the group stands; None where it has not been yet."""
        return self._client.query_offset(group, self._queue(topic, queue))

    def read(self, topic: str, part: Slice, tag: str = "*") -> Iterator[Sequence[memoryview]]:
        """The whole records of a slice with one of the tags, in order; those that retention removed are passed over."""
        wanted = parse_tag_filter(tag)
        queue = self._queue(topic, part.queue)
        offset = part.start
        while offset < part.end:
            batch = self._pull(queue, offset, part.end, wanted)
            if batch.status is PullStatus.OFFSET_ILLEGAL and batch.min_offset > offset:
                offset = batch.min_offset
                continue
            if batch.next_offset <= offset:
                raise range_is_gone(queue, offset, part.end, batch)
            records = list(batch.records())
            while records and split_record(records[-1]).queue_offset >= part.end:
                records.pop()
            if records:
                yield records
            offset = batch.next_offset

    def takes_bulk(self, topic: str) -> bool:
        """Whether the topic's queues hold batches and its brokers know the bulk lane; False where it does not exist."""
        try:
            if not self._holds_batches(topic):
                return False
            # An offset beyond every queue's end costs no reading and shows whether a broker knows the request.
            for queue in {queue.broker_address: queue for queue in self._client.queues(topic)}.values():
                self._puller.fetch(queue, _BEYOND, max_bytes=1)
        except Refused:
            return False
        except ConnectionFailed:
            if self._read_from is ReadFrom.MASTER:
                raise
            # Without masters nobody says what the topic is like; ordinary pulls read every topic.
            return False
        return True

    def read_bulk(self, topic: str, part: Slice, tag: str = "*") -> Iterator[pa.Table]:
        """As `read`, by the bulk lane; damaged records are named in the log and passed over."""
        wanted = parse_tag_filter(tag).tags
        queue = self._queue(topic, part.queue)
        offset, max_bytes = part.start, _FIRST_FETCH_BYTES
        while offset < part.end:
            batch = self._puller.fetch(queue, offset, max_bytes=max_bytes)
            max_bytes = _next_fetch_bytes(max_bytes, batch.table.nbytes)
            if batch.status is PullStatus.OFFSET_ILLEGAL and batch.min_offset > offset:
                offset = batch.min_offset
                continue
            if batch.next_offset <= offset:
                seen = PullBatch(batch.status, batch.next_offset, batch.min_offset, batch.max_offset)
                raise range_is_gone(queue, offset, part.end, seen)
            table = keep_rows(batch, topic, part, wanted)
            if table.num_rows:
                yield table
            offset = batch.next_offset

    def cold_spans(self, topic: str, part: Slice, *, bulk: bool) -> Sequence[ColdSpan]:
        """Where messages of a slice lie that the broker's disk has let go, as far as a reader can fetch them itself.

        Nothing of batches that are not read by the bulk lane: brokers take them apart.
        """
        place = topic, part.queue
        disk_offset, until_s = self._disk_offsets.get(place, (part.end, 0.0))
        if part.start >= disk_offset and time.monotonic() < until_s:
            return ()
        try:
            answers = self._client.cold_ranges(self._queue(topic, part.queue), part.start, part.end)
            is_taken_apart = not bulk and any(answer.ranges for answer in answers) and self._holds_batches(topic)
        except Refused:
            # Such as by a broker that does not know the request.
            answers, is_taken_apart = [], False
        except ConnectionFailed:
            if self._read_from is ReadFrom.MASTER:
                raise
            return ()
        disk_offset = answers[-1].disk_offset if answers and answers[-1].url else 0
        self._disk_offsets[place] = disk_offset, time.monotonic() + COLD_LOOK_S
        return () if is_taken_apart else [_span_of(answer) for answer in answers if answer.ranges]

    def send_bulk(self, topic: str, rows: pa.RecordBatch) -> None:
        """Store rows of the bulk lane's columns in one queue; returns when all are acknowledged."""
        self._producer.send_batch(topic, rows)

    def send(self, messages: Sequence[Message], *, by_key: bool = False, queue: str = "") -> None:
        """Store messages; returns when all are acknowledged."""
        address = self._queue(messages[0].topic, queue) if queue and messages else None
        self._client.send_many(messages, by_key=by_key, queue=address, retries=0)

    def is_compacted(self, topic: str) -> bool:
        """Whether the topic keeps the last message of each key; False where it does not exist."""
        try:
            return self._client.describe_topic(topic).is_compacted
        except NameRefused:
            return False

    def ensure_topic(self, topic: str, *, compacted: bool = False) -> None:
        """Create the topic if it does not exist; a `compacted` one with one queue, so that all is in order."""
        try:
            self._client.describe_topic(topic)
        except NameRefused:
            config = TopicConfig(topic)
            if compacted:
                config = TopicConfig(topic, read_queues=1, write_queues=1, attributes={"cleanup.policy": "COMPACTION"})
            self._client.create_topic(config)

    def show_progress(self, group: str, topic: str, offsets: Mapping[str, int]) -> None:
        """Tell the broker how far `group` is; for display only."""
        for queue, offset in offsets.items():
            try:
                address = self._queue(topic, queue)
            except ConsumeRefused:
                # A position keeps queues that are gone; nobody looks at how far a group is in them.
                continue
            self._client.commit_offset(group, address, offset)

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _holds_batches(self, topic: str) -> bool:
        return self._client.describe_topic(topic).holds_batches

    def _pull(self, queue: QueueAddress, offset: int, end: int, wanted: TagFilter) -> PullBatch:
        limit = min(end - offset, _PULL_MESSAGES)
        return self._client.pull(
            queue, offset, max_messages=limit, max_bytes=_PULL_BYTES, filter=wanted, read_from=self._read_from
        )

    def _queue(self, topic: str, queue: str) -> QueueAddress:
        if (topic, queue) not in self._queues:
            for address in self._client.queues(topic):
                self._queues[topic, f"{address.broker_name}/{address.queue_id}"] = address
        try:
            return self._queues[topic, queue]
        except KeyError:
            raise ConsumeRefused("ILLEGAL_OFFSET", f"The topic {topic} has no queue {queue} any more.") from None


def _next_fetch_bytes(asked_bytes: int, table_bytes: int) -> int:
    if table_bytes > _FETCHED_TABLE_BYTES:
        return max(asked_bytes // 2, _LEAST_FETCH_BYTES)
    return min(asked_bytes * 2, _PULL_BYTES) if table_bytes < _FETCHED_TABLE_BYTES // 4 else asked_bytes


def _span_of(answer: ColdRangesBody) -> ColdSpan:
    ranges = (
        ColdRange(
            row.first_queue_offset,
            row.next_queue_offset,
            row.first_stored_ms,
            row.last_stored_ms,
            row.key,
            row.size_bytes,
        )
        for row in answer.ranges
    )
    return ColdSpan(ObjectPlace(answer.url, answer.endpoint, answer.region), tuple(ranges), answer.disk_offset)
