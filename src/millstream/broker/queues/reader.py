"""Reads the queues of topics: lists them, finds the offset of a time, and returns messages.

A damaged message is named in the log and passed over, never served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from millstream.broker.queues.light_copies import as_light_message, place_in_light_queue
from millstream.broker.queues.topics import TopicRegistry
from millstream.broker.state.state_log import is_private_topic
from millstream.model.errors import ConsumeRefused, MillstreamError, NameRefused, StoreError
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.light_queue import LIGHT_PREFIX, is_light_queue
from millstream.model.message import StoredMessage
from millstream.model.operations import QueueRange
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.batches import BatchCache, UnpackedBatch, is_arrow_batch, unpack
from millstream.protocol.message_run import decode_run
from millstream.protocol.record import decode_record, outline_record, place_of
from millstream.store.consume_queue import LOST_TAGS_CODE, IndexEntry, tags_code
from millstream.store.index.key_index import DEFAULT_RESULTS
from millstream.store.light_queue import LightEntry
from millstream.store.message_store import MessageStore
from millstream.transport.heavy_work import HEAVY_BYTES, HEAVY_WORK

__all__ = [
    "AWAY_PAUSE_S",
    "MAX_PREPARED_BATCHES",
    "MAX_SCANNED_ENTRIES",
    "Queues",
    "Reader",
    "check_readable",
    "find_time",
    "outside",
]


def outside(topic: str, held: QueueRange, queue_offset: int) -> ConsumeRefused:
    """The refusal of an offset that the queue does not have."""
    offsets = f"{held.min_offset} to {held.max_offset}"
    return ConsumeRefused(
        "ILLEGAL_OFFSET", f"Queue {held.queue_id} of {topic!r} has the offsets {offsets}; {queue_offset} is outside."
    )


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of all topics; every call is from the event loop's thread. Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND."""

    topics: TopicRegistry
    store: MessageStore

    def ranges(self, topic: str) -> list[QueueRange]:
        """What can be read of each queue, all as of one moment."""
        return [self._range(topic, queue_id) for queue_id in range(self.topics.get(topic).queues)]

    def range_of(self, topic: str, queue_id: int) -> QueueRange:
        """What can be read of one queue."""
        self.check(topic, queue_id)
        return self._range(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """The first offset stored at or after the time; `upper`: the last one stored at or before it."""
        self.check(topic, queue_id)
        return self.store.offset_by_time(topic, queue_id, timestamp_ms, upper=upper)

    async def find_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """As `offset_by_time`, with messages that lie in the object store. Raises what that raises."""
        self.check(topic, queue_id)
        return await find_time(self.store, topic, queue_id, timestamp_ms, upper)

    def first_stored_ms(self, topic: str, queue_id: int) -> int | None:
        """When the first readable message of the queue was stored; None where there is none."""
        self.check(topic, queue_id)
        first = self.store.min_offset(topic, queue_id)
        if first >= self.store.max_offset(topic, queue_id):
            return None
        return self.store.stored_ms_at(topic, queue_id, first)

    def backlog_bytes(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Bytes of the log from the queue's record at an offset on, of all queues: what a reader there has before it.

        0 at the queue's end. Of what lies in the object store nothing is counted but the whole log.
        """
        if self.store.is_away(topic, queue_id, queue_offset):
            return self.store.visible_log_offset - self.store.log_start
        entries = self.store.entries(topic, queue_id, queue_offset, 1)
        return self.store.visible_log_offset - entries[0].log_offset if entries else 0

    async def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_results: int
    ) -> list[bytes | memoryview]:
        """Records of the topic with the key or unique key, stored in that time, newest first; 64 at most."""
        self.topics.get(topic)
        found: list[bytes | memoryview] = list(
            await asyncio.to_thread(self.store.find_by_key, topic, key, begin_ms, end_ms, max_results)
        )
        cold, wanted = self.store.cold, min(max_results, DEFAULT_RESULTS)
        if cold is None or len(found) >= wanted:
            return found
        # What has gone up may be in the log as well.
        known = {place_of(record) for record in found}
        for record in await asyncio.to_thread(cold.find_by_key, topic, key, begin_ms, end_ms, wanted):
            if len(found) < wanted and place_of(record) not in known:
                found.append(record)
        return found

    def record_at(self, log_offset: int) -> memoryview | None:
        """The record that begins at an offset of the log; None where none begins there, or it is damaged.

        Nor are records of the broker's own state shown, among which are users' secrets.
        """
        record = self.store.record_at(log_offset)
        return None if record is None or is_private_topic(outline_record(record).topic) else record

    async def find_cold_record(self, log_offset: int) -> bytes | None:
        """The record that began at an offset of the log, from the object store. Raises what that raises."""
        cold = self.store.cold
        return None if cold is None else await asyncio.to_thread(cold.find_record, log_offset)

    def check(self, topic: str, queue_id: int) -> None:
        """Refuse a queue that the topic does not have."""
        queues = self.topics.get(topic).queues
        if not 0 <= queue_id < queues:
            raise NameRefused(
                "QUEUE_NOT_FOUND", f"The topic {topic!r} has {queues} queues; {queue_id} is none of them."
            )

    def check_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Refuse an offset behind the queue's end, which messages to come have: ILLEGAL_OFFSET."""
        held = self.range_of(topic, queue_id)
        if queue_offset > held.max_offset:
            raise outside(topic, held, queue_offset)

    def _range(self, topic: str, queue_id: int) -> QueueRange:
        store = self.store
        return QueueRange(
            queue_id,
            store.min_offset(topic, queue_id),
            store.max_offset(topic, queue_id),
            store.last_store_timestamp_ms(topic, queue_id),
        )


async def find_time(store: MessageStore, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
    """The first offset stored at or after the time, on the disk or in the object store; `upper`: the last one stored
    at or before it. Raises what the object store raises."""
    here = store.offset_by_time(topic, queue_id, timestamp_ms, upper=upper)
    if store.cold is None or here > store.disk_offset(topic, queue_id):
        # The disk has a message from before that time, so none in the object store is nearer.
        return here
    there = await asyncio.to_thread(store.cold.offset_at, topic, queue_id, timestamp_ms + upper)
    if there is None or there > here:
        return here
    return max(there - 1, store.min_offset(topic, queue_id)) if upper else there


_log = logging.getLogger(__name__)

MAX_SCANNED_ENTRIES = 16_384
"""Index entries that one request looks at in one turn of the event loop, so that a filter that matches nothing in a
long queue does not hold up everybody else."""

AWAY_PAUSE_S: Final = 0.5
"""Seconds that a request waits before it asks again for cold messages that the object store did not give."""

FetchCold = Callable[[str, int, int], Awaitable[None]]
"""Fetches the records of a topic's queue from an offset on. Raises what the object store raises."""

MAX_PREPARED_BATCHES: Final = 4
"""Batches that are unpacked ahead for one request; what it reads beyond them is unpacked in its turn."""

_READ = int(Permission.READ)


def check_readable(topic: TopicConfig, queue_id: int | None) -> None:
    """Refuse to read a topic without permission (FORBIDDEN) or a queue that it does not have (QUEUE_NOT_FOUND)."""
    if not int(topic.permission) & _READ or topic.read_queues < 1:
        raise NameRefused("FORBIDDEN", f"The topic {topic.name!r} has no readable queue.")
    if queue_id is not None and not 0 <= queue_id < topic.read_queues:
        raise NameRefused(
            "QUEUE_NOT_FOUND",
            f"The topic {topic.name!r} has {topic.read_queues} readable queues; {queue_id} is none of them.",
        )


@dataclass(frozen=True, slots=True)
class Reader:
    """Records of the store, whole or None; batches as the messages they hold."""

    store: MessageStore
    fetch_cold: FetchCold | None = None
    """Has cold records at hand; None where there are none."""
    _batches: BatchCache = field(default_factory=BatchCache)
    _unpacking: dict[int, asyncio.Future[UnpackedBatch]] = field(default_factory=dict)

    def record(self, topic: str, queue_id: int, entry: IndexEntry) -> bytes | memoryview | None:
        """The record as stored; None, and an error in the log, if it is damaged."""
        try:
            return self.store.read(entry)
        except StoreError as error:
            _log_damage(error, topic, queue_id, entry)
            return None

    def entries(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """At most `max_count` entries from `queue_offset` on, one for each message; size 0 for a damaged batch's."""
        found = self.store.entries(topic, queue_id, queue_offset, max_count)
        if not found or not self.store.holds_batches(topic, queue_id):
            return found
        expanded: list[IndexEntry] = []
        for entry in found:
            if len(expanded) >= max_count:
                break
            batch = self.batch(topic, queue_id, entry)
            first = max(entry.queue_offset, queue_offset)
            last = min(entry.queue_offset + entry.message_count, first + max_count - len(expanded))
            for offset in range(first, last):
                if batch is None:
                    expanded.append(IndexEntry(offset, entry.log_offset, 0, LOST_TAGS_CODE))
                else:
                    code = tags_code(batch.tag(offset))
                    expanded.append(IndexEntry(offset, entry.log_offset, entry.size_bytes, code))
        return expanded

    def batch(self, topic: str, queue_id: int, entry: IndexEntry) -> UnpackedBatch | None:
        """The messages of a record; None, and an error in the log, if it is damaged."""
        if not self._batches.has(entry.log_offset):
            batch = None
            try:
                batch = unpack(self.store.read(entry))
            except StoreError as error:
                _log_damage(error, topic, queue_id, entry)
            self._batches.keep(entry.log_offset, batch)
        return self._batches.find(entry.log_offset)

    def is_away(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether the records from the offset on lie in the object store and are not at hand."""
        return self.store.is_away(topic, queue_id, queue_offset)

    async def fetch_away(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Have such records at hand; False, after a pause of up to `AWAY_PAUSE_S`, where that fails for now."""
        if self.fetch_cold is not None:
            try:
                await self.fetch_cold(topic, queue_id, queue_offset)
            except MillstreamError as error:
                _log.warning("Cold messages of %s/%d from offset %d: %s", topic, queue_id, queue_offset, error)
            else:
                return True
        await asyncio.sleep(AWAY_PAUSE_S)
        return False

    async def prepare(self, topic: str, queue_id: int, queue_offset: int, count: int) -> int:
        """Unpack in a thread the batches that hold so many messages from the offset on, so that they are quickly read.

        At most `MAX_PREPARED_BATCHES`; gives how many messages of the wanted ones are there. Raises TOO_MANY_REQUESTS.
        """
        if not self.store.holds_batches(topic, queue_id):
            return 0
        found = 0
        for entry in self.store.entries(topic, queue_id, queue_offset, MAX_PREPARED_BATCHES):
            if found >= count:
                break
            found += entry.queue_offset + entry.message_count - max(entry.queue_offset, queue_offset)
            if not self._batches.has(entry.log_offset):
                await self._unpack(topic, queue_id, entry)
        return min(found, count)

    async def _unpack(self, topic: str, queue_id: int, entry: IndexEntry) -> None:
        """Once, however many wait for it."""
        running = self._unpacking.get(entry.log_offset)
        if running is None:
            record = self.record(topic, queue_id, entry)
            if record is None or not (len(record) > HEAVY_BYTES or is_arrow_batch(record)):
                return
            work = HEAVY_WORK.run(len(record), partial(unpack, record))
            running = self._unpacking[entry.log_offset] = asyncio.ensure_future(work)
            running.add_done_callback(partial(self._note_unpacked, entry.log_offset))
        try:
            # Whoever gives up leaves the others their batch.
            await asyncio.shield(running)
        except StoreError as error:
            _log_damage(error, topic, queue_id, entry)

    def _note_unpacked(self, log_offset: int, unpacked: asyncio.Future[UnpackedBatch]) -> None:
        del self._unpacking[log_offset]
        if unpacked.cancelled():
            return
        error = unpacked.exception()
        if error is None:
            self._batches.keep(log_offset, unpacked.result())
        elif isinstance(error, StoreError):
            self._batches.keep(log_offset, None)

    def message(self, topic: str, queue_id: int, entry: IndexEntry) -> StoredMessage | None:
        """The message; None, and an error in the log, if it is damaged."""
        if self.store.holds_batches(topic, queue_id):
            return self._message_of_batch(topic, queue_id, entry)
        try:
            message = decode_record(self.store.read(entry), verify=False)
        except StoreError as error:
            _log_damage(error, topic, queue_id, entry)
            return None
        return as_light_message(message, entry.queue_offset) if isinstance(entry, LightEntry) else message

    def message_run(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int
    ) -> list[StoredMessage] | None:
        """At most `max_count` messages from an offset that the queue has on, read together; never empty. None where
        `message` has to be asked for each: they have more than `max_bytes`, one is unusual or damaged, or of a batch.
        """
        run = self.store.read_run(topic, queue_id, queue_offset, max_count, max_bytes)
        messages = None if run is None else decode_run(*run)
        if messages is not None and topic.startswith(LIGHT_PREFIX) and is_light_queue(topic):
            place_in_light_queue(messages, queue_offset)
        return messages

    def _message_of_batch(self, topic: str, queue_id: int, entry: IndexEntry) -> StoredMessage | None:
        batch = self._batches.find(entry.log_offset)
        if batch is None and entry.size_bytes:
            found = self.store.entries(topic, queue_id, entry.queue_offset, 1)
            batch = self.batch(topic, queue_id, found[0]) if found else None
        return batch.message(entry.queue_offset) if batch is not None else None

    async def find_first_offset(self, group: GroupConfig, topic: str, queue_id: int) -> int:
        """As `first_offset`, to the message also in the object store. Raises what that raises."""
        if group.first_position is FirstPosition.TIME:
            return await find_time(self.store, topic, queue_id, group.first_time_ms)
        return self.first_offset(group, topic, queue_id)

    def first_offset(self, group: GroupConfig, topic: str, queue_id: int) -> int:
        """Where the group begins in a queue that it has no position in, as its settings say.

        Of what lies in the object store at a time it is where the object begins, at the latest.
        """
        match group.first_position:
            case FirstPosition.FIRST:
                return self.store.min_offset(topic, queue_id)
            case FirstPosition.LAST:
                return self.store.max_offset(topic, queue_id)
            case FirstPosition.TIME:
                here = self.store.offset_by_time(topic, queue_id, group.first_time_ms)
                if self.store.cold is None or here > self.store.disk_offset(topic, queue_id):
                    return here
                there = self.store.cold.bound_at(topic, queue_id, group.first_time_ms)
                return here if there is None else min(here, there)

    def message_at(self, topic: str, queue_id: int, queue_offset: int) -> StoredMessage | None:
        """The message at an offset; None if it is damaged or the queue no longer has it."""
        for entry in self.entries(topic, queue_id, queue_offset, 1):
            if entry.queue_offset == queue_offset:
                return self.message(topic, queue_id, entry)
        return None


def _log_damage(error: StoreError, topic: str, queue_id: int, entry: IndexEntry) -> None:
    if error.name != "RECORD_DAMAGED":
        raise error
    _log.error(
        "Passed over a damaged message: topic %s, queue %d, queue offset %d, log offset %d, %d bytes. %s",
        topic, queue_id, entry.queue_offset, entry.log_offset, entry.size_bytes, error,
    )  # fmt: skip
