"""The cold tier of a broker: uploads ranges of the log to an object store, reads them, and deletes them.

Everything is decided here, in the event loop; the log is walked and the object store is asked in threads. The rows of
the map are changes of the broker's state: a start, a replica and the next master have them without asking the store.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import msgspec

from millstream.broker.cold_checks import ColdChecks
from millstream.broker.cold_manifest import encode_manifest
from millstream.broker.cold_merges import ColdMerges
from millstream.broker.cold_owner import ColdOwner
from millstream.broker.cold_report import ColdTierReport
from millstream.broker.cold_rounds import repeat_rounds
from millstream.broker.cold_topics import ColdTopics
from millstream.broker.queues.topics import TopicRegistry
from millstream.broker.state.document import Document, SavedDocument, encode_document
from millstream.broker.state.state_log import StateLog
from millstream.broker.state.state_table import StateTable
from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError, StoreError
from millstream.protocol.remoting.administration.cold_checks import ColdStatus, Orphans
from millstream.store.message_store import MessageStore
from millstream.store.snapshot import Snapshot
from millstream.tiered.cold_blocks import CACHED_BLOCK_BYTES, ColdBlocks
from millstream.tiered.cold_losses import ColdLosses
from millstream.tiered.cold_map import (
    ColdMap,
    ColdRange,
    ColdStretch,
    broker_prefix,
    commit_stretch,
    drop_topic,
    forget_objects,
    manifest_prefix,
    remove_objects,
    stretch_name,
)
from millstream.tiered.cold_queues import ColdQueues
from millstream.tiered.cold_work import ColdWork, StretchName, WorkHere
from millstream.tiered.manifests import Manifests
from millstream.tiered.objects import MAX_DELETED_KEYS, ObjectStore
from millstream.tiered.places import ObjectPlace
from millstream.tiered.probe import ObjectStoreProbe, probe_objects
from millstream.tiered.process.cold_process import ColdProcess
from millstream.tiered.upload import STRETCH_BYTES

__all__ = ["ColdTier", "ListedRanges", "TieredOptions", "encode_restored_rows"]

UPLOAD_INTERVAL_S: Final = 5.0
"""Seconds between two looks at whether some of the log is to go up, where nothing is left to go up at once."""

CLEAN_INTERVAL_S: Final = 60.0
"""Seconds between two looks at what is to go from the object store."""

GRACE_MS: Final = 15 * 60 * 1000
"""Milliseconds between the removal of an object and its deletion: who reads it may go on for so long."""

PAUSE_S: Final = 0.0002
"""Seconds that an upload sleeps between pieces of its work, some 1,600 in 100 MB: only a thread that sleeps lets the
event loop go on at once."""

MANIFEST_CHANGES: Final = 16
"""Stretches, and other changes of rows, after which a manifest is written although more are due: 1 GiB of the log."""

READING_THREADS: Final = 8
"""Threads that fetch cold messages, each one request at a time; those that come later wait."""

MAX_LISTED_RANGES: Final = 4096
"""Ranges of cold messages that one answer to a reader names."""

MAX_WAITING_READS: Final = 10_000
"""Fetches that wait for one of these threads; more is refused with TOO_MANY_REQUESTS."""

_ENCODED_AT_ONCE: Final = 512 * 1024
"""Bytes of rows after which others have their turn while the document is made: those of 10,000 parts."""

_VERSION: Final = 1
_RESTORED: Final = "restored"
_NEVER: Final = 1 << 62
"""A state offset that no change has."""

_FAILURES: Final = Backoff(5.0, 60.0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TieredOptions:
    """What goes up and for how long it stays."""

    topics: str = "*"
    """A pattern as of a shell: topics whose names match it go up."""
    keep_hours: int = 72
    """How long messages stay in the object store whose topic has no `reserve.time` (tieredStoreFileReservedTime)."""
    roll_s: float = 3600.0
    """Seconds after which what is stored goes up, however little it is."""
    stretch_bytes: int = STRETCH_BYTES
    """Bytes of the log that go up as soon as they are there."""
    drops_unuploaded: bool = False
    """Whether a disk that is full lets go of messages that did not go up, instead of refusing new ones."""
    cached_bytes: int = CACHED_BLOCK_BYTES
    """Bytes of cold messages that are kept in memory for readers."""
    place: ObjectPlace | None = None
    """Where the objects lie, for readers that open the store themselves; None where others cannot."""
    own_process: bool = False
    """Whether blocks are verified and stretches gathered by a process that opens `place`, not by the broker's own."""


@dataclass(frozen=True, slots=True)
class ListedRanges:
    """Where cold messages lie, up to but without `end_offset`; from `disk_offset` on the disk has them."""

    place: ObjectPlace | None
    ranges: Sequence[ColdRange]
    end_offset: int
    disk_offset: int


class _RowsDocument(Document):
    rows: dict[str, ColdStretch]


class _EncodedRows(Document):
    rows: dict[str, msgspec.Raw]


class ColdTier:
    """Started once its broker leads; a replica follows the rows, and reads as well once `start_reading` was called.

    `open_objects` makes the client of the object store, in the process that uses it; None where there is none, and the
    rows are kept all the same for a start that has one.
    """

    def __init__(
        self,
        saved: Snapshot,
        open_objects: Callable[[], ObjectStore] | None,
        owner: ColdOwner,
        *,
        cluster: str,
        broker: str,
        clock: Clock,
        options: TieredOptions,
    ) -> None:
        document = SavedDocument(saved, _RowsDocument, noun="places of cold messages", version=_VERSION)
        self.table = StateTable("cold", document, ColdStretch, self, encode_in_turns=self._encode_in_turns)
        """The saved form of the map."""
        self.map = ColdMap()
        self._open_objects = open_objects
        self._owner = owner
        self._cluster = cluster
        self._broker = broker
        self._clock = clock
        self._options = options
        self._started_s = 0.0
        self._uploaded_s = 0.0
        self._empty_until = 0
        self._last_error = ""
        self._errors = 0
        self._puts = 0
        self._bytes_written = 0
        self._waiting_reads = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_reading = False
        self._merges: ColdMerges | None = None
        # What an earlier run did not get to say is said with the first stretch at the latest.
        self._changes_unsaid = 0
        self._said_ms: tuple[int, ...] = (0, 0)
        """When the last manifests were begun, the older one first."""
        self._dropped_bytes = self._dropped_until = 0
        self._unconfirmed: list[tuple[int, int]] = []
        self._deleted: set[str] = set()
        """Topics, since the end of the stretch that goes up was known."""

    # The rows, as state of the broker

    def make_document(self) -> _RowsDocument:
        """See `StateOwner`."""
        return _RowsDocument(version=_VERSION, rows=dict(self.map.rows))

    async def _encode_in_turns(self) -> bytes:
        """The text of the document as it is now, made beside other work."""
        found: dict[str, msgspec.Raw] = {}
        size_bytes = 0
        for name, row in list(self.map.rows.items()):
            found[name] = msgspec.Raw(msgspec.json.encode(row))
            size_bytes += len(found[name])
            if size_bytes >= _ENCODED_AT_ONCE:
                size_bytes = 0
                await asyncio.sleep(0)
        return encode_document(_EncodedRows(version=_VERSION, rows=found))

    def load_document(self, document: _RowsDocument) -> None:
        """See `StateOwner`."""
        for name, row in document.rows.items():
            self.map.apply(name, row)

    def apply_change(self, key: str, value: ColdStretch | None) -> None:
        """See `StateOwner`."""
        self.map.apply(key, value)

    def write(self, rows: Iterable[tuple[str, ColdStretch | None]]) -> None:
        """Write rows as state of the broker, and let readers find what they say."""
        changes = list(rows)
        self.table.write_all(changes)
        for name, row in changes:
            self.map.apply(name, row)

    # From start to close

    def start_reading(self, store: MessageStore) -> None:
        """Let the store's readers see cold messages; once for each `close`. Raises what opening the store raises."""
        assert self._open_objects is not None
        self._store = store
        self._objects = self._open_objects()
        place = self._options.place if self._options.own_process else None
        self._work: ColdWork = (
            WorkHere(self._objects, _pause) if place is None else ColdProcess(place, asyncio.get_running_loop())
        )
        self.blocks = ColdBlocks(self._objects, self._work, self._options.cached_bytes, losses=ColdLosses(self._clock))
        self._queues = ColdQueues(self.map, self.blocks)
        self._readers = ThreadPoolExecutor(READING_THREADS, thread_name_prefix="millstream-cold-read")
        store.cold = self._queues
        self._is_reading = True

    def start(
        self,
        store: MessageStore,
        topics: TopicRegistry,
        state: StateLog,
        encode_documents: Callable[[], Awaitable[dict[str, bytes]]],
        may_join: Callable[[Sequence[ColdStretch]], bool],
    ) -> None:
        """Read, unless that is done already, and begin to upload and to clean.

        `encode_documents` gives what a manifest has of the state, by parts of the data directory; `may_join` tells of
        rows that follow one another whether they may become one.
        """
        if not self._is_reading:
            self.start_reading(store)
        self._topics, self._state, self._encode_documents = topics, state, encode_documents
        self._cold_topics = ColdTopics(topics, self._options.topics, self._options.keep_hours)
        self._manifests = Manifests(self._objects, self._cluster, self._broker)
        self._uploader = ThreadPoolExecutor(1, thread_name_prefix="millstream-upload")
        self._owner.start(self._objects, self._readers, state)
        self.checks = ColdChecks(self.map, self._objects, self._readers, store)
        self._merges = ColdMerges(
            self.map,
            self,
            self._work,
            self._uploader,
            self._clock,
            new_name=self._new_name,
            whose=self._whose,
            topics=self._cold_topics,
            may_join=may_join,
        )
        self._uploaded_s = asyncio.get_running_loop().time()
        self._tasks = [
            asyncio.create_task(
                repeat_rounds(self.go_on, UPLOAD_INTERVAL_S, _FAILURES, self._note_error), name="upload"
            ),
            asyncio.create_task(
                repeat_rounds(self.clean, CLEAN_INTERVAL_S, _FAILURES, self._note_error), name="clean-cold"
            ),
        ]

    async def close(self) -> None:
        """End what is under way: an upload that is not whole is dropped by the next start."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await asyncio.to_thread(self._uploader.shutdown, cancel_futures=True)
        if self._is_reading:
            self._is_reading = False
            self._store.cold = None
            await asyncio.to_thread(self._readers.shutdown, cancel_futures=True)
            await asyncio.to_thread(self._work.close)
            self._objects.close()

    @property
    def is_enabled(self) -> bool:
        """Whether there is an object store."""
        return self._open_objects is not None

    def first_needed(self) -> int:
        """The first log offset that has not gone up: the log is kept from there on, however old it is.

        A row that is not confirmed yet counts for nothing: the next master may not have it. A disk that is full pins
        nothing where the settings say so. Fit for any thread.
        """
        if self._options.drops_unuploaded and self._store.is_disk_full:
            return self._store.written_log_offset
        waiting = self._unconfirmed
        if not waiting:
            return self.map.uploaded_log_offset
        return self.map.uploaded_log_offset if self._state.end >= waiting[-1][0] else waiting[0][1]

    # Reading

    async def fetch(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Have the messages from that offset on at hand. Raises as `ColdBlocks`, and TOO_MANY_REQUESTS."""
        if self._waiting_reads >= MAX_WAITING_READS:
            raise MillstreamError("TOO_MANY_REQUESTS", f"{self._waiting_reads} reads of cold messages wait already.")
        self._waiting_reads += 1
        try:
            if not await self._queues.fetch_soon(topic, queue_id, queue_offset):
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._readers, self._queues.fetch, topic, queue_id, queue_offset)
        except MillstreamError as error:
            self._note_error(error)
            raise
        finally:
            self._waiting_reads -= 1

    async def offset_at(self, topic: str, queue_id: int, stored_ms: int) -> int | None:
        """The first cold offset that was stored at that time or later; None where all were before."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._queues.offset_at, topic, queue_id, stored_ms)

    def list_ranges(self, topic: str, queue_id: int, begin: int, end: int) -> ListedRanges:
        """Where messages of a queue from `begin` to before `end` lie, as far as the disk has let them go."""
        place = self._options.place
        if not self._tasks or place is None:
            return ListedRanges(None, (), end, begin)
        disk_offset = self._store.disk_offset(topic, queue_id)
        found = self.map.ranges_between(topic, queue_id, begin, min(end, disk_offset), MAX_LISTED_RANGES)
        is_whole = len(found) < MAX_LISTED_RANGES
        return ListedRanges(place, found, end if is_whole else min(end, found[-1].next_queue_offset), disk_offset)

    # Going up

    async def check_owner(self) -> None:
        """Refuse to change objects of another broker of this one's name: PREFIX_TAKEN. Raises as `ColdOwner.check`."""
        await self._owner.check()

    async def go_on(self) -> bool:
        """Upload what is due, else merge; whether more may be due at once."""
        if await self.upload_due():
            return True
        return await self.merge_due()

    async def merge_due(self) -> bool:
        """Merge some objects if it is time; whether they are merged. Raises as `ColdMerges.merge_due`."""
        assert self._merges is not None
        is_merged = await self._merges.merge_due()
        # A manifest that a directory is restored from must not lead to the objects that were merged.
        self._changes_unsaid += is_merged
        return is_merged

    async def upload_due(self) -> bool:
        """Put the next stretch of the log up if it is time; whether more may be due at once."""
        loop = asyncio.get_running_loop()
        self._note_dropped()
        await self.check_owner()
        begin = self._first_behind
        end = min(self._store.visible_log_offset, self._store.flushed_log_offset)
        if end - begin < self._options.stretch_bytes and (
            end <= begin or loop.time() - self._uploaded_s < self._options.roll_s
        ):
            if self._changes_unsaid:
                await self._put_manifest()
            return False
        # Topics that are created from here on have nothing before the end, and of those that are deleted nothing stays.
        self._deleted.clear()
        await self.drop_begun()
        going = await self._cold_topics.find_going(self._store.counted_from)
        walk = self._store.walk_log(begin, end)
        stretch = await loop.run_in_executor(
            self._uploader, self._work.gather, walk, going, self._options.stretch_bytes
        )
        if stretch.damaged_places:
            _log.error("Passed over %d damaged places of the log on its way up.", stretch.damaged_places)
        if stretch.is_empty and stretch.log_end - self.map.uploaded_log_offset < self._options.stretch_bytes:
            # Rows are records of the log, too: one for each stretch that only has such would never end.
            self._empty_until, self._uploaded_s = stretch.log_end, loop.time()
            return False
        name, row = self._new_name(begin), ColdStretch(0, begin, stretch.log_end)
        self.write([(name, row)])
        classes = await self._cold_topics.classes_of(going)
        objects = await loop.run_in_executor(self._uploader, self._work.put, self._whose(name), row, classes)
        row = commit_stretch(row, objects)
        for topic in self._deleted:
            # Its messages are nobody's any more.
            row = drop_topic(row, topic, self._clock.now_ms())
        self._commit(name, row)
        self._last_error = ""
        self._puts += len(objects)
        self._bytes_written += sum(one.size_bytes for one in objects)
        if stretch.log_end >= end:
            self._uploaded_s = loop.time()
        self._changes_unsaid += 1
        is_more = end - stretch.log_end >= self._options.stretch_bytes
        if not is_more or self._changes_unsaid >= MANIFEST_CHANGES:
            await self._put_manifest()
        return is_more

    async def _put_manifest(self) -> None:
        """Say beside the objects what they mean, once nothing of that can be taken back."""
        await asyncio.sleep(0)
        # What changes from here on may be in the documents or not.
        said, began_ms, seed = self._changes_unsaid, self._clock.now_ms(), self._store.make_seed(at_end=True)
        # Afterwards: they may have later changes than the seed, never earlier ones.
        documents = await self._encode_documents()
        if not self._state.settle():
            return
        place = self._cluster, self._broker, self._clock.now_ms()
        await self._in_thread(lambda: self._manifests.put(encode_manifest(*place, seed, documents)))
        self._changes_unsaid -= said
        self._said_ms = *self._said_ms[1:], began_ms

    def _commit(self, name: str, row: ColdStretch) -> None:
        before = self.map.uploaded_log_offset
        waiting = [one for one in self._unconfirmed if one[0] > self._state.end]
        # Put there first: retention, in its thread, must not see the row without what it waits for.
        self._unconfirmed = [*waiting, (_NEVER, before)]
        try:
            self.write([(name, row)])
        except BaseException:
            self._unconfirmed = waiting
            raise
        self._unconfirmed = [*waiting, (self._state.written_end, before)]

    def _note_dropped(self) -> None:
        """Say what the disk let go of since the last look that had not gone up."""
        begin = max(self.map.uploaded_log_offset, self._dropped_until, self._empty_until)
        # Without a row nothing has ever gone up, and what was there before is no loss.
        if not self.map.rows or self._store.log_start <= begin:
            return
        self._dropped_until = self._store.log_start
        self._dropped_bytes += self._dropped_until - begin
        words = "The disk was full: the log from %d to %d was let go before it went up, and its messages are lost."
        _log.error(words, begin, self._dropped_until)

    @property
    def _first_behind(self) -> int:
        """The first log offset that was not looked at for what goes up."""
        return max(self.map.uploaded_log_offset, self._store.log_start, self._empty_until)

    def _whose(self, name: str) -> StretchName:
        return StretchName(self._cluster, self._broker, name)

    def _new_name(self, log_begin: int) -> str:
        return stretch_name(self._cluster, self._broker, log_begin, 0, secrets.token_hex(8))

    async def drop_begun(self) -> None:
        """Delete what an upload left that did not end, of this broker or of the master before it."""
        for name in self.map.begun:
            await self._in_thread(self._delete_below, name + "/")
            self.write([(name, None)])

    # Going

    async def clean(self) -> bool:
        """Remove what is too old and delete what was removed before; whether more may be due at once."""
        await self.check_owner()
        now_ms = self._clock.now_ms()
        before_ms = {topic: now_ms - keep_ms for topic, keep_ms in self._cold_topics.find_lifetimes().items()}
        expired = self.map.find_expired(before_ms, now_ms - self._cold_topics.keep_ms)
        for name, keys in expired.items():
            # In the turn of the one before it a merge may have been taken up, whose row has the objects now.
            if name in self.map.rows and not self.map.is_replaced(name):
                self.write([(name, remove_objects(self.map.rows[name], keys, now_ms))])
            await asyncio.sleep(0)
        # A manifest that a directory is restored from must not lead to what is deleted by then.
        self._changes_unsaid += len(expired)
        if self._state.settle():
            # What a replica might take back must not cost the objects of the map that it would lead to.
            await self._delete_removed(now_ms - GRACE_MS)
        self.write([(name, None) for name in self.map.empty_rows()])
        return False

    async def _delete_removed(self, before_ms: int) -> None:
        for name, row in list(self.map.rows.items()):
            # Of a merge, once two manifests say where the messages are now: the last may be damaged for a restore.
            end_ms = min(before_ms, *self._said_ms) if self.map.is_replaced(name) else before_ms
            keys = [key for key, removed_ms in row.removed_ms.items() if removed_ms < end_ms]
            for start in range(0, len(keys), MAX_DELETED_KEYS):
                some = keys[start : start + MAX_DELETED_KEYS]
                await self._in_thread(self._objects.delete, some)
                self.write([(name, forget_objects(self.map.rows[name], some))])
                for key in some:
                    self.blocks.forget(key)

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted: its messages are nobody's any more, and a new topic of its name has none of them."""
        now_ms = self._clock.now_ms()
        if self._tasks:
            self._deleted.add(topic)
        rows = self.map.rows_with(topic)
        self.write([(name, drop_topic(row, topic, now_ms)) for name, row in rows])
        self._changes_unsaid += len(rows)

    async def delete_objects(self, keys: Sequence[str]) -> None:
        """Delete at most MAX_DELETED_KEYS objects that no row names. Raises ObjectStoreDenied, ObjectStoreAway."""
        await self._in_thread(self._objects.delete, keys)

    def _delete_below(self, prefix: str) -> None:
        keys = [info.key for info in self._objects.list(prefix)]
        for start in range(0, len(keys), MAX_DELETED_KEYS):
            self._objects.delete(keys[start : start + MAX_DELETED_KEYS])

    # How it fares

    def report(self) -> ColdTierReport:
        """How much is where, and what went wrong last."""
        found = [one for _, one in self.map.objects]
        counters, merges = self.blocks.counters, self._merges
        merged = (0, 0, 0, 0)
        if merges is not None:
            merged = merges.puts + merges.reads, merges.bytes_written, merges.bytes_read, merges.merges
        return ColdTierReport(
            len(found),
            sum(one.size_bytes for one in found),
            self.map.uploaded_log_offset,
            max(0, self._store.visible_log_offset - self._first_behind),
            sum(len(row.removed_ms) for row in self.map.rows.values()),
            counters.requests + self._puts + merged[0],
            self._bytes_written + merged[1],
            counters.bytes_read + merged[2],
            counters.blocks_wanted,
            counters.blocks_cached,
            self._errors,
            counters.damaged,
            self.blocks.losses.passed_over,
            merged[3],
            self._dropped_bytes,
            self._last_error,
            self._work.pid,
            self._work.starts,
        )

    def status(self) -> ColdStatus:
        """What of each queue is cold."""
        found = self.report()
        return self.checks.status(self._topics, found.behind_bytes, found.last_error)

    async def collect(self, after: str, *, deletes: bool) -> Orphans:
        """See `ColdChecks.collect`: of this broker's objects. Raises as that, and PREFIX_TAKEN."""
        if deletes:
            await self.check_owner()
        prefix = broker_prefix(self._cluster, self._broker)
        return await self.checks.collect(prefix, manifest_prefix(prefix), after, deletes, self._clock.now_ms())

    async def probe(self) -> ObjectStoreProbe:
        """Try whether the object store does what is needed. Raises ObjectStoreDenied, ObjectStoreAway."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, probe_objects, self._objects)
        except MillstreamError as error:
            self._note_error(error)
            raise

    def _note_error(self, error: MillstreamError, words: str = "") -> None:
        if words:
            _log.error("The cold tier failed and will try again: %s", words)
        self._last_error = str(error)
        self._errors += 1

    async def _in_thread(self, act: Callable[..., object], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._uploader, act, *arguments)


def encode_restored_rows(saved: bytes, cluster: str, broker: str, log_begin: int) -> bytes:
    """The document of the rows of a restored broker, whose log begins there.

    What was before it and is in no object is lost; a row without objects says so, or the broker would take it for
    something that its disk has let go of. Raises STORE_FORMAT.
    """
    try:
        document = msgspec.json.decode(saved, type=_RowsDocument)
    except msgspec.DecodeError as error:
        raise StoreError("STORE_FORMAT", f"The places of cold messages cannot be read: {error}.") from None
    name = stretch_name(cluster, broker, log_begin, 0, _RESTORED)
    document.rows[name] = ColdStretch(0, log_begin, log_begin, ())
    return encode_document(document)


def _pause() -> None:
    time.sleep(PAUSE_S)
