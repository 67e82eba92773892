"""The asynchronous edge of the store: appends of one turn of the event loop become one write.

Under async flush a sender is answered after the write, and a thread flushes every `flush_interval_ms`. Under sync flush
it is answered after one fdatasync in that thread; what is written meanwhile waits for the next one. A replicated store
answers besides only what replicas have confirmed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import types
from collections import deque
from collections.abc import Callable, Collection, Container, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.model.errors import MessageRefused, MillstreamError, StoreError
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.protocol.record_encoder import PlainRecord
from millstream.store.files import FileNotOpened
from millstream.store.message_store import MessageStore
from millstream.store.write_batch import AnyPlace, AnyRecord, AppendedRecord, PendingRecord, measure_bodies, note_queues

__all__ = [
    "FLUSH_TIMEOUT_S",
    "MAX_WAITING_BYTES",
    "REPLICAS_TIMEOUT_S",
    "Appender",
    "Dispatcher",
    "Ended",
    "is_stored",
]

MAX_WAITING_BYTES = 256 * 1024 * 1024
"""Bodies that wait to be written or flushed; more is refused with TOO_MANY_REQUESTS."""

FLUSH_TIMEOUT_S = 5.0
"""How long a sender waits for a sync flush before it hears FLUSH_TIMEOUT; RocketMQ's `syncFlushTimeout`."""

REPLICAS_TIMEOUT_S = 3.0
"""How long a sender waits for the replicas before it hears REPLICAS_TIMEOUT; RocketMQ's `slaveTimeout`."""

Ended = Callable[[Sequence[AnyPlace], BaseException | None], None]
"""Hears where records were stored, or why they were not; it must not raise."""


class Dispatcher(Protocol):
    """Chooses the light queues of records. Called in the turn in which they are written."""

    topics: Container[str]
    """The topics whose records it is asked about; others pay this look alone."""

    def dispatch(self, record: PendingRecord) -> list[PendingRecord]:
        """The record with its light queues, and behind it more records to be stored with it, for those queues that it
        has no room to name. Asked about all records of a call that has one of these topics. Raises what refuses it."""
        ...

    def dispatch_plain(self, record: PlainRecord) -> bool:
        """Give an ordinary record its light queues; False where it may have no room to name all. Raises the same."""
        ...

    def note_stored(self, record: PendingRecord, place: AppendedRecord) -> None:
        """A record that it was asked about was written; it must not raise."""
        ...


_FLUSH_PAUSE_S = 0.1
"""Until a flush that found no descriptor is tried again."""

RECORD_OVERHEAD_BYTES = 512
"""What a waiting record counts beside its body."""

_log = logging.getLogger(__name__)


def is_stored(error: BaseException | None) -> bool:
    """Whether records stand in the log after their append ended so: also if only the word of disk or replicas is late.

    Who stores such records again has them twice.
    """
    return error is None or (isinstance(error, StoreError) and error.name in ("FLUSH_TIMEOUT", "REPLICAS_TIMEOUT"))


@types.coroutine
def _rest_of_turn() -> Generator[None, None, None]:
    """Return in the next turn of the event loop."""
    yield


@dataclass(slots=True, eq=False)
class _Waiting:
    """One call that has no answer yet, or has just got it. It has a future where somebody waits with one, and `ended`
    where somebody is to be told."""

    records: Sequence[AnyRecord]
    size_bytes: int
    is_many: bool
    future: asyncio.Future[Any] | None
    appended: Any = None
    error: BaseException | None = None
    is_answered: bool = False
    ended: Ended | None = None
    is_of_one_topic: bool = False
    copies: Sequence[PendingRecord] = ()
    """Records that are stored with it and that its caller does not hear of."""
    light_queues: Collection[str] = ()
    """The light queues that have one of its records."""
    replaced: tuple[tuple[int, PlainRecord], ...] = ()
    """The plain records in whose place others are stored, and the positions of those; they are to say where, too."""

    def resolve(self) -> None:
        if self.is_answered:
            return
        self.is_answered = True
        if self.ended is not None:
            self.ended(self.appended, None)
        if self.future is not None and not self.future.done():
            self.future.set_result(self.appended)

    def refuse(self, error: BaseException) -> None:
        if self.is_answered:
            return
        self.is_answered = True
        self.error = error
        if self.ended is not None:
            self.ended((), error)
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class _Group:
    """What one write has stored and one flush, or the replicas, will confirm."""

    log_end: int
    waiting: list[_Waiting]
    written_s: float


class Appender:
    """Appends for senders of one event loop, all of whose calls come from that loop.

    `on_visible` is called in the loop with each (topic, queue number) that has new readable records. A failed write or
    sync is final: what waits and what comes later fails with STORE_FAILED. A full disk is not, nor is want of a
    descriptor: DISK_FULL and FILE_NOT_OPENED for those that met it.
    """

    def __init__(self, store: MessageStore, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.on_visible: Callable[[Sequence[tuple[str, int]]], None] | None = None
        self.check_admission: Callable[[], None] | None = None
        """Raises what refuses messages before they are written, as where too few replicas would have them."""
        self.dispatcher: Dispatcher | None = None
        self._store = store
        self._loop = loop or asyncio.get_running_loop()
        self._sync_flush = store.options.sync_flush
        self._replicated = store.options.replicated
        if self._replicated:
            store.on_confirmed.append(self._release)
        self._arrived: list[_Waiting] = []
        self._written: deque[_Group] = deque()
        self._waiting_bytes = 0
        self._failure: StoreError | None = None
        self._is_closed = False
        # One thread for flushes, and one for checkpoints, which must not hold them up.
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="millstream-flush")
        self._flush: asyncio.Future[None] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._unconfirmed: asyncio.TimerHandle | None = None
        self._upkeep = self._loop.create_task(self._keep_up())

    def append(self, record: PendingRecord) -> asyncio.Future[AppendedRecord]:
        """Where the message was stored, once the flush policy's promise holds. Refusals are raised at once."""
        future = self._loop.create_future()
        self._enter(_Waiting((record,), _size_bytes((record,)), False, future))
        return future

    def append_many(self, records: Sequence[AnyRecord]) -> asyncio.Future[list[AppendedRecord]]:
        """As `append`, for records that are stored together or not at all."""
        future = self._loop.create_future()
        self._enter(_Waiting(records, _size_bytes(records), True, future))
        return future

    def append_then(self, records: Sequence[AnyRecord], ended: Ended) -> None:
        """As `append_many`, for records of one topic, but `ended` is called, in the turn in which it is known: a future
        would cost one more."""
        self._enter(_Waiting(records, _size_bytes(records), True, None, ended=ended, is_of_one_topic=True))

    async def append_now(
        self, records: Sequence[AnyRecord], *, is_of_one_topic: bool = False
    ) -> list[AppendedRecord]:  # fmt: skip
        """As `append_many`, for those who wait at once: without a flush to wait for it takes no future.

        Who is cancelled while it waits has its records stored all the same.
        """
        waiting = _Waiting(records, _size_bytes(records), True, None, is_of_one_topic=is_of_one_topic)
        self._enter(waiting)
        try:
            await _rest_of_turn()
        finally:
            # Who resumes first writes for all that arrived meanwhile.
            if waiting.appended is None and waiting.error is None:
                self._write_arrived()
        if not waiting.is_answered:
            waiting.future = self._loop.create_future()
            await waiting.future
        if waiting.error is not None:
            raise waiting.error
        appended: list[AppendedRecord] = waiting.appended
        return appended

    def _enter(self, waiting: _Waiting) -> None:
        if self._failure is not None:
            raise StoreError("STORE_FAILED", self._failure.message)
        if self._is_closed:
            raise StoreError("STORE_FAILED", "The store is closing.")
        if self.check_admission is not None:
            self.check_admission()
        if self._waiting_bytes + waiting.size_bytes > MAX_WAITING_BYTES:
            raise MessageRefused(
                "TOO_MANY_REQUESTS", f"{self._waiting_bytes} bytes wait for the disk; the limit is {MAX_WAITING_BYTES}."
            )
        self._waiting_bytes += waiting.size_bytes
        if (waiting.future is not None or waiting.ended is not None) and not self._arrived:
            self._loop.call_soon(self._write_arrived)
        self._arrived.append(waiting)

    def _write_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        if arrived:
            self._write(arrived)

    def _write(self, arrived: list[_Waiting]) -> None:
        dispatcher = self.dispatcher
        watched = [] if dispatcher is None else [each for each in arrived if _is_watched(each, dispatcher.topics)]
        if watched and dispatcher is not None:
            refused = self._dispatch(watched, dispatcher)
            arrived = [waiting for waiting in arrived if waiting not in refused]
            watched = [waiting for waiting in watched if waiting not in refused]
            if not arrived:
                return
        records = [record for waiting in arrived for record in waiting.records]
        for waiting in watched:
            records += waiting.copies
        try:
            appended = self._store.put(records)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the senders' answer
            self._write_apart(arrived, error)
            return
        position = 0
        for waiting in arrived:
            if waiting.is_many:
                waiting.appended = appended[position : position + len(waiting.records)]
                position += len(waiting.records)
            else:
                waiting.appended = appended[position]
                position += 1
        if dispatcher is not None:
            for waiting in watched:
                places = waiting.appended if waiting.is_many else (waiting.appended,)
                for position, plain in waiting.replaced:
                    plain.queue_offset, plain.log_offset, plain.size_bytes, plain.store_timestamp_ms = places[position]
                for record, place in zip(waiting.records, places, strict=True):
                    if isinstance(record, PendingRecord):
                        dispatcher.note_stored(record, place)
        self._note_stored(arrived)

    def _dispatch(self, watched: list[_Waiting], dispatcher: Dispatcher) -> list[_Waiting]:
        """Give the records their light queues; the calls that were refused."""
        refused = []
        for waiting in watched:
            records: list[AnyRecord] = []
            copies: list[PendingRecord] = []
            replaced: list[tuple[int, PlainRecord]] = []
            try:
                for record in waiting.records:
                    if not isinstance(record, PendingRecord):
                        if dispatcher.dispatch_plain(record):
                            records.append(record)
                            continue
                        replaced.append((len(records), record))
                        record = _as_pending(record)
                    first, *more = dispatcher.dispatch(record)
                    records.append(first)
                    copies += more
            except MillstreamError as error:
                self._refuse([waiting], error)
                refused.append(waiting)
                continue
            waiting.records, waiting.copies = records, copies
            # Not anew: a write that failed for another call is tried again with the records that it had.
            waiting.replaced += tuple(replaced)
            waiting.light_queues = {name for record in (*records, *copies) for name in record.light_queues}
        return refused

    def _write_apart(self, arrived: list[_Waiting], error: Exception) -> None:
        """Store each call by itself after the write of all has failed, so that one bad message fails no other."""
        if isinstance(error, StoreError) and error.name == "STORE_FAILED":
            self._refuse(arrived, error)
            self._fail(error)
        elif len(arrived) == 1:
            self._refuse(arrived, error)
        else:
            for waiting in arrived:
                self._write([waiting])

    def _refuse(self, refused: Sequence[_Waiting], error: BaseException) -> None:
        for waiting in refused:
            self._waiting_bytes -= waiting.size_bytes
            waiting.refuse(error)

    def _note_stored(self, stored: list[_Waiting]) -> None:
        if not self._sync_flush and not self._replicated:
            self._answer(stored)
            return
        self._written.append(_Group(self._store.written_log_offset, stored, self._loop.time()))
        # Who stores nothing waits for what came before, and that may be safe already.
        self._release()
        if self._sync_flush:
            self._start_flush()
        if self._replicated:
            self._watch_replicas()

    def _release(self) -> None:
        """Answer what is visible now."""
        stored: list[_Waiting] = []
        visible = self._store.visible_log_offset
        while self._written and self._written[0].log_end <= visible:
            stored += self._written.popleft().waiting
        if stored:
            self._answer(stored)

    def _watch_replicas(self) -> None:
        if self._written and self._unconfirmed is None:
            due_s = self._written[0].written_s + REPLICAS_TIMEOUT_S
            self._unconfirmed = self._loop.call_at(due_s, self._replicas_are_late)

    def _replicas_are_late(self) -> None:
        self._unconfirmed = None
        self._refuse_unconfirmed(self._loop.time() - REPLICAS_TIMEOUT_S)
        later = [group for group in self._written if any(not waiting.is_answered for waiting in group.waiting)]
        if later:
            due_s = later[0].written_s + REPLICAS_TIMEOUT_S
            self._unconfirmed = self._loop.call_at(due_s, self._replicas_are_late)

    def _refuse_unconfirmed(self, written_until_s: float = math.inf) -> None:
        """Tell those who wait since then that the replicas are late; what they stored is seen once it is confirmed."""
        error = StoreError("REPLICAS_TIMEOUT", f"The replicas did not confirm it within {REPLICAS_TIMEOUT_S:g} s.")
        for group in self._written:
            if group.written_s <= written_until_s:
                for waiting in group.waiting:
                    waiting.refuse(error)

    def _answer(self, stored: list[_Waiting]) -> None:
        for waiting in stored:
            self._waiting_bytes -= waiting.size_bytes
            waiting.resolve()
        if self.on_visible is not None:
            pairs: set[tuple[str, int]] = set()
            for waiting in stored:
                note_queues(waiting.records, pairs)
                if waiting.light_queues:
                    pairs.update((name, LIGHT_QUEUE_NUMBER) for name in waiting.light_queues)
            self.on_visible(list(pairs))

    def _start_flush(self) -> None:
        unflushed = self._written and self._written[-1].log_end > self._store.flushed_log_offset
        if self._flush is None and unflushed:
            self._flush = self._loop.run_in_executor(self._threads, self._store.flush_log)
            if self._late is None:
                self._late = self._loop.call_later(FLUSH_TIMEOUT_S, self._flush_is_late)
            self._flush.add_done_callback(self._end_flush)

    def _end_flush(self, flush: asyncio.Future[None]) -> None:
        self._flush = None
        error = flush.exception()
        if isinstance(error, FileNotOpened):
            # Its senders wait on: nothing has failed, and their time runs.
            self._loop.call_later(_FLUSH_PAUSE_S, self._start_flush)
            return
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if error is not None:
            self._fail(error)
            return
        self._start_flush()
        self._release()

    def _flush_is_late(self) -> None:
        self._late = None
        error = StoreError("FLUSH_TIMEOUT", f"The disk did not confirm the write within {FLUSH_TIMEOUT_S:g} s.")
        for group in self._written:
            if group.log_end > self._store.flushed_log_offset:
                for waiting in group.waiting:
                    waiting.refuse(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            _log.error("The store takes no more messages: %s", error)
        self._failure = error if isinstance(error, StoreError) else StoreError("STORE_FAILED", str(error))
        while self._written:
            self._refuse(self._written.popleft().waiting, self._failure)

    async def _keep_up(self) -> None:
        """Flush in the background, and write checkpoints, until cancelled or failed."""
        store, has_to_wait = self._store, False
        while self._failure is None:
            await asyncio.sleep(store.options.flush_interval_ms / 1000)
            try:
                if not self._sync_flush and store.flushed_log_offset < store.written_log_offset:
                    await self._loop.run_in_executor(self._threads, store.flush_log)
                if store.checkpoint_is_due:
                    await self._loop.run_in_executor(self._threads, store.write_checkpoint)
                has_to_wait = False
            except StoreError as error:
                if error.name not in ("DISK_FULL", "FILE_NOT_OPENED"):
                    self._fail(error)
                elif not has_to_wait:
                    _log.warning("The flush or the checkpoint has to wait: %s", error)
                    has_to_wait = True

    async def close(self) -> None:
        """Write and answer what waits, and end the threads. The store stays open. Closing twice is no error."""
        self._is_closed = True
        self._write_arrived()
        while self._flush is not None:
            await asyncio.wait([self._flush])
            await asyncio.sleep(0)
        if self._written:
            # No descriptor came free for the last flush, or replicas are behind; the records are in the log.
            (self._flush_is_late if self._sync_flush else self._refuse_unconfirmed)()
            self._written.clear()
        if self._release in self._store.on_confirmed:
            self._store.on_confirmed.remove(self._release)
        for timer in (self._late, self._unconfirmed):
            if timer is not None:
                timer.cancel()
        self._upkeep.cancel()
        await asyncio.gather(self._upkeep, return_exceptions=True)
        await self._loop.run_in_executor(None, self._threads.shutdown)


def _size_bytes(records: Sequence[AnyRecord]) -> int:
    """What the records count while they wait."""
    return RECORD_OVERHEAD_BYTES * len(records) + measure_bodies(records)


def _is_watched(waiting: _Waiting, topics: Container[str]) -> bool:
    """Whether a dispatcher is to be asked about the call's records: one look suffices where all are of one topic."""
    if waiting.is_of_one_topic:
        return waiting.records[0].topic in topics
    for record in waiting.records:  # noqa: SIM110 - a generator would cost more than the looks
        if record.topic in topics:
            return True
    return False


def _as_pending(plain: PlainRecord) -> PendingRecord:
    """The record as one that may have light queues."""
    message = OutgoingMessage(
        topic=plain.topic,
        body=plain.body,
        properties=plain.properties,
        queue_id=plain.queue_id,
        system_flag=SystemFlag(plain.system_flag),
        born_timestamp_ms=plain.born_timestamp_ms,
        born_host=plain.born_host,
    )
    return PendingRecord(message, plain.queue_id)
