"""Ends transactions and checks with producers; a message appears in its topic once or never, also over crashes.

What waits is a half message in the log; `PendingTransactions` knows which have not ended. What ends one is in the log
too (`half_messages`), so a start reads the document saved last and the log behind it. Everything is taken from what
readers of the log see: no transaction is known that a crash could take back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from millstream.broker.delivery.admission import MAX_RECOVERY_TIME_S
from millstream.broker.delivery.half_messages import (
    GIVEN_UP_TOPIC,
    HALF_OF,
    HALF_TOPIC,
    OP_TOPIC,
    Outcome,
    committed_message_of,
    given_up,
    mark,
    outcome_of,
    recovery_ms_of,
    settles,
    shown_to_producer,
)
from millstream.broker.delivery.pending_transactions import PendingTransactions, SavedTransactions
from millstream.broker.delivery.staged_messages import marked_messages, needed_from, to_its_queue
from millstream.broker.periodic_task import PeriodicTask
from millstream.broker.queues.reader import Reader
from millstream.broker.queues.topics import TopicRegistry
from millstream.broker.statistics import Statistics
from millstream.model.clock import BackedClock, Clock
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import MessageRefused, MillstreamError, Refused
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.operations import Resolution
from millstream.model.properties import REAL_TOPIC, UNIQUE_KEY
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.store.appender import Appender, is_stored
from millstream.store.message_store import AppendedRecord, MessageStore, PendingRecord

__all__ = ["CHECKPOINT_INTERVAL_S", "MAX_PENDING", "TransactionOptions", "Transactions"]

MAX_PENDING = 100_000
"""Transactions that have not ended at most; further ones are refused. Bounds the memory at some 40 MB."""

CHECKPOINT_INTERVAL_S = 10.0
"""Time between two saves, if anything has changed; bounds what a start reads again."""

POLL_S = 0.5
"""How late a producer is asked at most, beside the time that asking others takes."""

MAX_A_ROUND = 256
"""Half messages that one round takes in, and asks about, before others get their turn."""

MAX_SEARCHES = 2
"""Searches at once for how a transaction that is not pending has ended; others wait their turn."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """When producers are asked about transactions that they have not ended; the defaults are RocketMQ's.

    `first_check_ms` after the send (the producer can ask for another time), then every `check_interval_ms`,
    `max_checks` times. Only a question that was handed to a producer counts; what is older than `keep_ms` is given up
    in any case.
    """

    first_check_ms: int = 6_000
    check_interval_ms: int = 30_000
    max_checks: int = 15
    keep_ms: int = 72 * 3_600_000


@dataclass(frozen=True, slots=True)
class _Settling:
    """An end on its way into the log, whose records lie at `log_offset` or behind it."""

    stored: asyncio.Future[list[AppendedRecord]]
    log_offset: int


class Transactions:
    """The transactions of one broker; every call from its event loop.

    Those of a replica are followed by `take_up_some` until `start`, which then has little of the log to read. Each of
    `on_check` may hand a question to a producer, and says whether it did. They are tried in turn.
    """

    _appender: Appender

    def __init__(
        self,
        store: MessageStore,
        topics: TopicRegistry,
        saved: SavedTransactions,
        clock: Clock,
        options: TransactionOptions,
        statistics: Statistics | None = None,
    ) -> None:
        self._statistics = statistics or Statistics()
        self.on_check: list[Callable[[RecoverOrphanedTransaction], bool]] = []
        self._store = store
        self._reader = Reader(store)
        self._topics = topics
        self._saved = saved
        self._clock = clock
        self._age_clock = BackedClock(clock)
        self._options = options
        document = saved.load(queue_end=store.max_offset(HALF_TOPIC, 0), log_end=store.visible_log_offset)
        self._pending = PendingTransactions(document.queue_offset, document.pending)
        self._known_log_offset = document.log_offset
        self._unmarked: dict[int, OutgoingMessage] = {}
        self._settling: dict[int, _Settling] = {}
        self._task = PeriodicTask(
            "Transactions", self._round, lambda: POLL_S if self.pending or self._is_active else None
        )
        self._is_active = False
        self._seen_offset = 0
        self._noted: dict[int, tuple[str, int]] = {}
        self._searching = asyncio.Semaphore(MAX_SEARCHES)
        self._turn = 0
        self._changed = False
        self._saved_s = clock.monotonic_s()
        self._saved_log_offset = document.log_offset

    async def start(self, appender: Appender) -> None:
        """Take up what the log says beyond what is known, then ask producers in the background."""
        self._appender = appender
        await asyncio.to_thread(self._take_up)
        longest_ms = max(MAX_RECOVERY_TIME_S * 1000, self._options.first_check_ms, self._options.check_interval_ms)
        self._pending.limit_checks(self._clock.now_ms() + longest_ms)
        unmarked, self._unmarked = self._unmarked, {}
        if unmarked:
            # A crash has cut off the marks.
            await appender.append_many([PendingRecord(each, 0) for each in unmarked.values()])
        self._store.pins.append(self._oldest_log_offset)
        self._task.start()

    def take_up_some(self) -> bool:
        """Take up a part of what the log says beyond what is known, in some milliseconds; whether there is more."""
        if self._take_new():
            return True
        end = self._store.visible_log_offset
        if not (self._pending or self._unmarked) or self._known_log_offset >= end:
            self._known_log_offset = end
            return False
        # None ends before it began.
        start = max(self._known_log_offset, 0 if self._unmarked else min(self._oldest_log_offset(), end))
        ends, self._known_log_offset = marked_messages(self._store, start, HALF_OF)
        self._take_ends(ends)
        return True

    async def save_followed(self) -> None:
        """Save what was taken up, unless the end of a transaction is known whose mark is still to come."""
        if not self._unmarked:
            await self._save(self._known_log_offset)

    async def close(self) -> None:
        """Finish what is under way and save."""
        was_running = await self._task.close()
        while self._settling:
            await asyncio.wait([settling.stored for settling in self._settling.values()])
        if was_running:
            await self._save(self._settled_log_offset)

    def note_arrivals(self, pairs: Sequence[tuple[str, int]]) -> None:
        """Note that these queues have new visible records."""
        if not self._is_active and (HALF_TOPIC, 0) in pairs:
            self._is_active = True
            self._task.wake()

    def note(self, message: OutgoingMessage, place: AppendedRecord) -> None:
        """What a half message that was just stored says, so that it need not be read again to be taken in."""
        if place.queue_offset >= self._pending.next_queue_offset:
            wait_ms = recovery_ms_of(message) or self._options.first_check_ms
            message_id = message.properties.get(UNIQUE_KEY, "")
            self._noted[place.queue_offset] = message_id, self._check_ms(place.store_timestamp_ms, wait_ms)

    def shift(self, step_ms: int) -> None:
        """The wall clock was put forward by so much, or back: producers are asked as far from now as before."""
        self._noted = {offset: (name, check_ms + step_ms) for offset, (name, check_ms) in self._noted.items()}
        self._pending.shift(step_ms)
        self._changed = True

    @property
    def pending(self) -> int:
        """How many transactions have not ended."""
        return len(self._pending)

    def check_room(self) -> None:
        """Refuse a transaction where too many have not ended: TOO_MANY_REQUESTS."""
        count = self.pending + self._store.max_offset(HALF_TOPIC, 0) - self._pending.next_queue_offset
        if count >= MAX_PENDING:
            raise Refused("TOO_MANY_REQUESTS", f"{count} transactions have not ended, which is the limit.")

    async def end(self, topic: str, message_id: str, resolution: Resolution) -> None:
        """Commit or roll back the transaction of a message; it is so at the store's ack level when this returns.

        To end it the same way again is no error. UNKNOWN changes nothing. Where the message was sent more than once
        under its id, one of its half messages is committed and the others are dropped. Raises TRANSACTION_NOT_FOUND,
        TRANSACTION_ENDED (otherwise, or given up), TOPIC_NOT_FOUND, and what storing raises.
        """
        while True:
            halves = self._find(topic, message_id)
            under_way = [self._settling[each.queue_offset] for each in halves if each.queue_offset in self._settling]
            if not under_way:
                break
            await asyncio.wait([settling.stored for settling in under_way])
        if not halves:
            await self._check_ended(topic, message_id, resolution)
        elif resolution is not Resolution.UNKNOWN:
            await asyncio.shield(self._settle(halves, resolution is Resolution.COMMIT))
            self._statistics.note_end_of_transaction(
                topic, resolution, self._clock.now_ms() - halves[0].store_timestamp_ms
            )

    def half_at(self, queue_offset: int, log_offset: int) -> StoredMessage | None:
        """The half message at that place, in the topic that it was sent to, ended or not; None if it is none."""
        half = self._reader.message_at(HALF_TOPIC, 0, queue_offset) if queue_offset >= 0 else None
        return shown_to_producer(half) if half is not None and half.log_offset == log_offset else None

    def _find(self, topic: str, message_id: str) -> list[StoredMessage]:
        """The half messages of a transaction that has not ended."""
        while self._take_new():
            pass
        found = [self._reader.message_at(HALF_TOPIC, 0, offset) for offset in self._pending.find(message_id)]
        return [half for half in found if half is not None and half.properties.get(REAL_TOPIC) == topic]

    async def _check_ended(self, topic: str, message_id: str, resolution: Resolution) -> None:
        """Say how a transaction that is not pending has ended, unless it is what was wanted."""
        async with self._searching:
            marks = await asyncio.to_thread(self._store.find_by_key, OP_TOPIC, message_id)
        for record in marks:
            told = decode_record(record)
            outcome = outcome_of(told)
            if outcome is None or told.properties.get(REAL_TOPIC) != topic:
                continue
            same = {Resolution.COMMIT: Outcome.COMMITTED, Resolution.ROLLBACK: Outcome.ROLLED_BACK}.get(resolution)
            if outcome is same or resolution is Resolution.UNKNOWN:
                return
            raise MessageRefused(
                "TRANSACTION_ENDED",
                f"The transaction {message_id[:80]!r} was {outcome.value}; it cannot {resolution.value} now.",
            )
        raise MessageRefused(
            "TRANSACTION_NOT_FOUND", f"No transaction {message_id[:80]!r} of the topic {topic[:200]!r} is known."
        )

    def _settle(self, halves: Sequence[StoredMessage], commits: bool) -> asyncio.Future[list[AppendedRecord]]:
        kept, *others = halves
        # Those that are dropped go first: no cut of the write may leave one of them beside the committed message.
        records = [PendingRecord(mark(each, Outcome.ROLLED_BACK), 0) for each in others]
        if commits:
            message = committed_message_of(kept)
            record = to_its_queue(message, self._topics) if message is not None else None
            if record is None:
                self._topics.get(kept.properties.get(REAL_TOPIC, ""))
                raise MessageRefused("TRANSACTION_NOT_FOUND", "The half message does not say where it belongs.")
            records.append(record)
        records.append(PendingRecord(mark(kept, Outcome.COMMITTED if commits else Outcome.ROLLED_BACK), 0))
        return self._begin([each.queue_offset for each in halves], records)

    def _begin(
        self, queue_offsets: Sequence[int], records: Sequence[PendingRecord]
    ) -> asyncio.Future[list[AppendedRecord]]:
        """Store what ends these transactions. Nothing else ends them meanwhile, and the waiter may stop waiting."""
        settling = _Settling(self._appender.append_many(records), self._store.visible_log_offset)
        for queue_offset in queue_offsets:
            self._settling[queue_offset] = settling
        settling.stored.add_done_callback(lambda stored: self._note_settled(queue_offsets, stored))
        return settling.stored

    def _note_settled(self, queue_offsets: Sequence[int], stored: asyncio.Future[list[AppendedRecord]]) -> None:
        has_ended = is_stored(stored.exception())
        for queue_offset in queue_offsets:
            del self._settling[queue_offset]
            if has_ended:
                self._pending.remove(queue_offset)
                self._changed = True

    def _take_up(self) -> None:
        while self.take_up_some():
            pass

    def _take_ends(self, ends: Iterable[tuple[StoredMessage, int]]) -> None:
        """Take up what has ended by these records, and what marks are still to come."""
        for message, queue_offset in ends:
            if message.topic == OP_TOPIC:
                self._changed |= self._pending.remove(queue_offset)
                self._unmarked.pop(queue_offset, None)
            elif settles(message) and self._pending.remove(queue_offset):
                self._changed = True
                outcome = Outcome.GIVEN_UP if message.topic == GIVEN_UP_TOPIC else Outcome.COMMITTED
                half = self._reader.message_at(HALF_TOPIC, 0, queue_offset)
                if half is not None:
                    self._unmarked[queue_offset] = mark(half, outcome)

    def _take_new(self) -> bool:
        """Take in new half messages; whether there were any."""
        entries = self._store.entries(HALF_TOPIC, 0, self._pending.next_queue_offset, MAX_A_ROUND)
        for entry in entries:
            noted = self._noted.pop(entry.queue_offset, None)
            if noted is None:
                half = self._reader.message(HALF_TOPIC, 0, entry)
                if half is None:
                    self._pending.note_passed(entry.queue_offset)
                    continue
                wait_ms = recovery_ms_of(half) or self._options.first_check_ms
                noted = half.message_id, self._check_ms(half.store_timestamp_ms, wait_ms)
            self._pending.add(entry.queue_offset, *noted)
        self._changed |= bool(entries)
        return bool(entries)

    def _check_ms(self, stored_ms: int, wait_ms: int) -> int:
        # Store timestamps never go back, so they may be ahead of a clock that did.
        return min(stored_ms, self._clock.now_ms()) + wait_ms

    async def _round(self) -> bool:
        busy = self._take_new()
        self._is_active = self._seen_offset != self._pending.next_queue_offset
        self._seen_offset = self._pending.next_queue_offset
        now_ms = self._clock.now_ms()
        due = self._pending.due(now_ms, MAX_A_ROUND)
        for queue_offset in due:
            self._changed = True
            if queue_offset in self._settling:
                self._pending.put_off(queue_offset, now_ms + self._options.check_interval_ms)
                continue
            ending = self._check(queue_offset, now_ms)
            if ending is not None:
                await asyncio.shield(ending)
        if self._clock.monotonic_s() - self._saved_s >= CHECKPOINT_INTERVAL_S:
            await self._save(self._settled_log_offset)
        return busy or bool(due)

    def _check(self, queue_offset: int, now_ms: int) -> asyncio.Future[list[AppendedRecord]] | None:
        """Ask a producer about a transaction; what ends it instead, where it is not to be asked about any more."""
        half = self._reader.message_at(HALF_TOPIC, 0, queue_offset)
        if half is None:
            _log.error("The half message at queue offset %d is damaged; its transaction is given up.", queue_offset)
            self._pending.remove(queue_offset)
            return None
        if self._topics.find(half.properties.get(REAL_TOPIC, "")) is None:
            _log.warning("The transaction %s is rolled back: its topic is gone.", half.message_id[:80])
            return self._begin([queue_offset], [PendingRecord(mark(half, Outcome.ROLLED_BACK), 0)])
        is_old = self._age_clock.now_ms() - half.store_timestamp_ms > self._options.keep_ms
        if is_old or self._pending.checks(queue_offset) >= self._options.max_checks:
            return self._give_up(half)
        next_check_ms = now_ms + self._options.check_interval_ms
        if self._ask(RecoverOrphanedTransaction(shown_to_producer(half), half.message_id)):
            self._pending.note_check(queue_offset, next_check_ms)
        else:
            self._pending.put_off(queue_offset, next_check_ms)
        return None

    def _ask(self, question: RecoverOrphanedTransaction) -> bool:
        self._turn += 1
        count = len(self.on_check)
        return any(self.on_check[(self._turn + number) % count](question) for number in range(count))

    def _give_up(self, half: StoredMessage) -> asyncio.Future[list[AppendedRecord]]:
        self._topics.ensure_own(TopicConfig(GIVEN_UP_TOPIC, read_queues=1, write_queues=1))
        _log.warning(
            "The transaction %s is given up: nobody said how it ended. Its message is kept in %s.",
            half.message_id[:80],
            GIVEN_UP_TOPIC,
        )
        records: list[OutgoingMessage] = [given_up(half), mark(half, Outcome.GIVEN_UP)]
        return self._begin([half.queue_offset], [PendingRecord(record, 0) for record in records])

    @property
    def _settled_log_offset(self) -> int:
        return min((each.log_offset for each in self._settling.values()), default=self._store.visible_log_offset)

    async def _save(self, log_offset: int) -> None:
        """Bring what is pending to the disk; what ends from here on stands in the log behind the offset."""
        self._saved_s = self._clock.monotonic_s()
        if not self._changed and not (self._pending and log_offset > self._saved_log_offset):
            return
        self._changed = False
        document = self._saved.document(self._pending.next_queue_offset, log_offset, list(self._pending.list_saved()))
        try:
            # The log first: after a power failure no file may speak of more than the log has.
            await asyncio.to_thread(self._store.flush_log)
            await asyncio.to_thread(self._saved.save, document)
            self._saved_log_offset = log_offset
        except MillstreamError as error:
            self._changed = True
            _log.warning("The pending transactions are not saved and will be tried again: %s", error)

    def _oldest_log_offset(self) -> int:
        """Where the log is still needed from."""
        return needed_from(self._store, HALF_TOPIC, self._pending.oldest())
