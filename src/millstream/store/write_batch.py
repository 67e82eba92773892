"""Lays out one `put`: offsets, encoded records and index entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from millstream.model.errors import MessageRefused
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, encode_light_places
from millstream.model.message import OutgoingMessage
from millstream.model.properties import INNER_BASE, INNER_NUMBER, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, TAGS
from millstream.protocol.checksum import write_number
from millstream.protocol.record_encoder import PlainRecord, RecordEncoder
from millstream.store.batch_queue import BATCH_ENTRY, MAX_BATCH_COUNT
from millstream.store.commit_log import BLANK_BYTES, CommitLog, Run
from millstream.store.consume_queue import ENTRY, ENTRY_BYTES, tags_code
from millstream.store.queue_table import AnyQueue, QueueTable

__all__ = [
    "AnyPlace",
    "AnyRecord",
    "AppendedRecord",
    "PendingRecord",
    "QueueShare",
    "WriteBatch",
    "measure_bodies",
    "measure_stored",
    "note_queues",
]


class PendingRecord(NamedTuple):
    """A message and the queue it goes to. A tuple like the next one, because both are made for every message.

    `batch_count` is for a queue of batches: the number of messages that the record holds, 1 to 32,767. A queue is of
    the kind of its first record. `light_queues` are the stored names of the light queues that get an entry of the
    record as well, each once; what the message's own properties say of that does not count.
    """

    message: OutgoingMessage
    queue_id: int
    batch_count: int | None = None
    light_queues: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        """The message's topic."""
        return self.message.topic

    @property
    def body(self) -> bytes:
        """The message's body."""
        return self.message.body


AnyRecord = PendingRecord | PlainRecord
"""What a store takes."""

_BATCHES = object()


class AppendedRecord(NamedTuple):
    """Where a message was stored; of a batch its first one."""

    queue_offset: int
    log_offset: int
    size_bytes: int
    store_timestamp_ms: int


AnyPlace = AppendedRecord | PlainRecord
"""Where a message was stored: a plain record says it of itself, which saves one object for each."""

_IS_COMPILED: Final = not __file__.endswith(".py")
_ENTRY_SIZE_AT: Final = 8
_ENTRY_CODE_AT: Final = 12
_BLANK_ENTRY: Final = bytes(ENTRY_BYTES)
_pack_entry = ENTRY.pack
_appended = partial(tuple.__new__, AppendedRecord)
"""A named tuple's own constructor takes its fields apart and together again."""


class QueueShare:
    """What one `put` adds to one queue: packed index entries, and the queue offset behind them.

    `batch_count` is None for a queue of single messages, and for a queue of batches something that no count is.
    """

    __slots__ = ("batch_count", "entries", "first_offset", "next_offset", "queue")

    def __init__(self, queue: AnyQueue) -> None:
        self.queue: Final = queue
        self.batch_count: Final = _BATCHES if queue.holds_batches else None
        self.first_offset: Final = queue.next_offset
        self.next_offset = self.first_offset
        self.entries = bytearray()

    def with_place(self, message: OutgoingMessage | None, count: int | None) -> OutgoingMessage:
        """The message with what a record of a batch queue says of itself, so that a scan of the log can tell it."""
        queue = self.queue
        if message is None or count is None or not queue.holds_batches or not 1 <= count <= MAX_BATCH_COUNT:
            kind = "batches" if queue.holds_batches else "single messages"
            raise ValueError(
                f"queue {queue.queue_id} of {queue.topic!r} holds {kind}; a record of {count} does not fit"
            )
        places = {INNER_NUMBER: str(count), INNER_BASE: str(self.next_offset)}
        return message.with_properties({**message.properties, **places})

    def add(self, log_offset: int, size: int, code: int, timestamp_ms: int, count: int | None) -> None:
        """Add the entry of the next record, which stands there; `count` for a queue of batches."""
        entries = self.entries
        if count is not None:
            entries += BATCH_ENTRY.pack(log_offset, size, code, timestamp_ms, self.next_offset, count, 0, 0)
            self.next_offset += count
            return
        self.next_offset += 1
        if _IS_COMPILED:
            # Byte by byte, which in C costs less than the objects to pack.
            at = len(entries)
            entries += _BLANK_ENTRY
            write_number(entries, at, 8, log_offset)
            write_number(entries, at + _ENTRY_SIZE_AT, 4, size)
            write_number(entries, at + _ENTRY_CODE_AT, 8, code)
        else:
            entries += _pack_entry(log_offset, size, code)

    def commit(self) -> None:
        """Let the queue have the entries."""
        queue = self.queue
        if queue.holds_batches:
            queue.append(bytes(self.entries), self.next_offset - self.first_offset)
        else:
            queue.entry_files.tail += self.entries


class WriteBatch:
    """The records of one `put`, laid out behind the log's end but not yet part of it."""

    def __init__(self, log: CommitLog, queues: QueueTable, encoder: RecordEncoder) -> None:
        self.end = end = log.end
        self.runs = [Run(end, [])]
        self.shares: dict[tuple[str, int], QueueShare] = {}
        self._log = log
        self._limit = log.limit(end)
        self._queues = queues
        self._encoder = encoder
        self._topic = ""
        self._of_queue: dict[int, QueueShare] = {}

    def add(self, records: Iterable[AnyRecord]) -> list[AnyPlace]:
        """Lay out the records one behind the other and say where they will stand."""
        appended: list[AnyPlace] = []
        shares, encoder, timestamp_ms = self.shares, self._encoder, self._encoder.store_timestamp_ms
        laid_out, places = self.runs[-1].records, b""
        end, limit = self.end, self._limit - BLANK_BYTES
        plain: PlainRecord | None
        message: OutgoingMessage | None
        last_tag: str | None = None
        code = 0
        for one in records:
            if isinstance(one, PlainRecord):
                plain, message, batch_count, queue_id, tag = one, None, None, one.queue_id, one.tag
                light = self._light_shares(plain.light_queues) if plain.light_queues else None
                places = _light_places(light) if light else b""
                share = self._plain_share(plain.topic, queue_id)
            else:
                plain, light, (message, queue_id, batch_count, light_queues) = None, None, one
                topic, held = message.topic, message.properties
                tag = held.get(TAGS)
                if light_queues or MULTI_DISPATCH in held:
                    light = self._light_shares(light_queues)
                    message = _with_light_places(message, light)
                share = shares.get((topic, queue_id)) or self._share(topic, queue_id, batch_count)
            queue_offset = share.next_offset
            if batch_count is not share.batch_count:
                message = share.with_place(message, batch_count)
            while True:
                if message is not None:
                    record = encoder.encode(message, queue_id, queue_offset, end)
                else:
                    assert plain is not None
                    record = encoder.encode_plain(plain, queue_offset, end, places)
                size = len(record)
                if end + size <= limit:
                    break
                end, limit = self._roll(end, size)
                laid_out = self.runs[-1].records
            if tag != last_tag:
                # Neighbours often have the same.
                last_tag, code = tag, tags_code(tag)
            share.add(end, size, code, timestamp_ms, batch_count)
            if light:
                _add_to_all(light, end, size, code)
            if plain is not None:
                plain.queue_offset, plain.log_offset = queue_offset, end
                plain.size_bytes, plain.store_timestamp_ms = size, timestamp_ms
                appended.append(plain)
            else:
                appended.append(_appended((queue_offset, end, size, timestamp_ms)))
            laid_out.append(record)
            end += size
        self.end = end
        return appended

    def _share(self, topic: str, queue_id: int, batch_count: int | None) -> QueueShare:
        queue = self._queues.find(topic, queue_id) or self._queues.make_unlisted(
            topic, queue_id, holds_batches=batch_count is not None
        )
        share = self.shares[topic, queue_id] = QueueShare(queue)
        return share

    def _plain_share(self, topic: str, queue_id: int) -> QueueShare:
        """The share of a queue of single messages: neighbours are most often of one topic."""
        if topic is not self._topic:
            self._topic, self._of_queue = topic, {}
        found = self._of_queue.get(queue_id)
        if found is None:
            found = self.shares.get((topic, queue_id)) or self._share(topic, queue_id, None)
            self._of_queue[queue_id] = found
        return found

    def _light_shares(self, names: Iterable[str]) -> list[QueueShare]:
        return [
            self.shares.get((name, LIGHT_QUEUE_NUMBER)) or self._share(name, LIGHT_QUEUE_NUMBER, None) for name in names
        ]

    def _roll(self, end: int, size: int) -> tuple[int, int]:
        """Go on in the next segment: where it starts, and up to where its records may reach."""
        start = self._limit
        self._limit = self._log.limit(start)
        if start + size + BLANK_BYTES > self._limit:
            raise MessageRefused(
                "BODY_TOO_LARGE", f"A record of {size} bytes does not fit a segment of {self._limit - start} bytes."
            )
        self.runs.append(Run(start, []))
        return start, self._limit - BLANK_BYTES


def measure_bodies(records: Sequence[AnyRecord]) -> int:
    """Bytes of the bodies of the records together."""
    size_bytes = 0
    for one in records:
        if isinstance(one, PlainRecord):
            plain = one
            size_bytes += len(plain.body)
        else:
            size_bytes += len(one[0].body)
    return size_bytes


def measure_stored(records: Sequence[PlainRecord]) -> tuple[int, int]:
    """Bytes that the stored records take in the log together, and those of the largest one; 0 for none."""
    total, largest = 0, 0
    for record in records:
        size = record.size_bytes
        total += size
        if size > largest:
            largest = size
    return total, largest


def note_queues(records: Sequence[AnyRecord], found: set[tuple[str, int]]) -> None:
    """Add the (topic, queue number) of each record."""
    topic, last_queue = "", -1
    for one in records:
        if isinstance(one, PlainRecord):
            plain = one
            queue_id = plain.queue_id
            # Neighbours are often of one queue.
            if queue_id != last_queue or plain.topic is not topic:
                topic, last_queue = plain.topic, queue_id
                found.add((topic, queue_id))
        else:
            found.add((one[0].topic, one[1]))


def _add_to_all(shares: list[QueueShare], log_offset: int, size: int, code: int) -> None:
    for share in shares:
        share.add(log_offset, size, code, 0, None)


def _light_places(shares: list[QueueShare]) -> bytes:
    """The places in these light queues as they stand behind all other properties; see below."""
    places = [(share.queue.topic, share.next_offset) for share in shares]
    names, offsets = encode_light_places(places)
    return f"{MULTI_DISPATCH}\x01{names}\x02{MULTI_QUEUE_OFFSET}\x01{offsets}\x02".encode()


def _with_light_places(message: OutgoingMessage, shares: list[QueueShare]) -> OutgoingMessage:
    """The message with its places in these light queues, one behind the other at the end of its properties, from which
    a scan of the log derives their entries; without any that it brought along."""
    held = {
        name: value
        for name, value in message.properties.items()
        if name != MULTI_DISPATCH and name != MULTI_QUEUE_OFFSET
    }
    if shares:
        places = [(share.queue.topic, share.next_offset) for share in shares]
        held[MULTI_DISPATCH], held[MULTI_QUEUE_OFFSET] = encode_light_places(places)
    return message.with_properties(held)
