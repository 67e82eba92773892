"""Delivers delayed messages when they are due, each exactly once, also over crashes.

What waits is a record of the timer topic; the `TimerStore` knows when each is due. A delivered message names the record
it comes from, so a start finds in the log which timers are done. Everything is taken from what readers of the log see:
nothing is scheduled or delivered that a crash could take back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from millstream.broker.delivery.delay import TIMER_TOPIC, delivered_message_of, timer_of
from millstream.broker.delivery.staged_messages import marked_messages, needed_from, to_its_queue
from millstream.broker.periodic_task import PeriodicTask
from millstream.broker.queues.reader import Reader
from millstream.broker.queues.topics import TopicRegistry
from millstream.broker.statistics import Statistics
from millstream.model.clock import Clock
from millstream.model.errors import MessageRefused, MillstreamError, Refused
from millstream.model.message import OutgoingMessage
from millstream.model.properties import REAL_TOPIC, TIMER_OF
from millstream.protocol.record import decode_record
from millstream.store.appender import Appender, is_stored
from millstream.store.message_store import AppendedRecord, MessageStore, PendingRecord
from millstream.store.timer.timer_store import TimerStore

__all__ = ["CANCELLED_TOPIC", "CHECKPOINT_INTERVAL_S", "Timers"]

CANCELLED_TOPIC = "rmq_sys_timer_cancelled"
"""The system topic whose records say which timers were recalled."""

CHECKPOINT_INTERVAL_S = 10.0
"""Time between two checkpoints of the timers, if anything was stored; bounds what a start reads again."""

POLL_S = 0.1
"""How late a message is delivered at most, beside the time that delivering takes."""

MAX_A_ROUND = 256
"""Messages that one round schedules, and delivers, before others get their turn."""

_log = logging.getLogger(__name__)


class Timers:
    """The delayed messages of one broker; every call from its event loop.

    A replica's are followed by `take_up_some` until `start`, which then has little of the log to read.
    """

    _appender: Appender

    def __init__(
        self,
        store: MessageStore,
        topics: TopicRegistry,
        directory: Path,
        clock: Clock,
        statistics: Statistics | None = None,
    ) -> None:
        self._statistics = statistics or Statistics()
        self._store = store
        self._reader = Reader(store)
        self._topics = topics
        self._clock = clock
        self._timers = TimerStore.open(
            directory, queue_end=store.max_offset(TIMER_TOPIC, 0), log_end=store.visible_log_offset
        )
        self._task = PeriodicTask("Delayed messages", self._round, lambda: POLL_S if self.pending else None)
        self._passed = 0
        self._cancelling: set[int] = set()
        self._delivering: frozenset[int] = frozenset()
        self._known_log_offset = self._timers.covered_log_offset
        self._settled_log_offset = self._known_log_offset
        self._checkpoint_s = clock.monotonic_s()

    async def start(self, appender: Appender) -> None:
        """Take up what the log says beyond what is known, then deliver in the background."""
        self._appender = appender
        await asyncio.to_thread(self._take_up)
        self._settled_log_offset = self._store.visible_log_offset
        self._store.pins.append(self._oldest_log_offset)
        self._task.start()

    def take_up_some(self) -> bool:
        """Take up a part of what the log says beyond what is known, in some milliseconds; whether there is more."""
        if self._schedule():
            return True
        end = self._store.visible_log_offset
        if not self.pending or self._known_log_offset >= end:
            self._known_log_offset = end
            return False
        # None was delivered or recalled before it was stored.
        start = max(self._known_log_offset, min(self._oldest_log_offset(), end))
        done, self._known_log_offset = marked_messages(self._store, start, TIMER_OF)
        for _, queue_offset in done:
            self._timers.finish(queue_offset)
        return True

    async def save_followed(self) -> None:
        """Write a checkpoint of what was taken up. Raises what bringing the log to the disk raises."""
        self._settled_log_offset = self._known_log_offset
        await self._checkpoint()

    async def close(self) -> None:
        """Finish the round that is under way and write a checkpoint."""
        if await self._task.close():
            with contextlib.suppress(MillstreamError, OSError):
                await self._checkpoint()

    def note_arrivals(self, pairs: Sequence[tuple[str, int]]) -> None:
        """Note that these queues have new visible records."""
        if (TIMER_TOPIC, 0) in pairs:
            self._task.wake()

    @property
    def pending(self) -> int:
        """How many messages wait."""
        return len(self._timers)

    @property
    def unscheduled(self) -> int:
        """How many records of the timer topic were not looked at yet."""
        return max(self._store.max_offset(TIMER_TOPIC, 0) - self._next_offset(), 0)

    def counts(self, bounds_s: Sequence[int]) -> list[int]:
        """How many messages are due in up to so many seconds, by these ascending bounds, and how many behind the last
        one: each message counts in one of the numbers. A bound of 0 counts those that are due.
        """
        return self._timers.counts(self._clock.now_ms(), bounds_s)

    @property
    def schedule_lag_ms(self) -> int | None:
        """Milliseconds since the first record of the timer topic was stored that was not looked at yet; 0 where there
        is none, None where it cannot be told.
        """
        if not self.unscheduled:
            return 0
        found = self._store.entries(TIMER_TOPIC, 0, self._next_offset(), 1)
        stored_ms = self._store.stored_ms(found[0]) if found else 0
        return max(self._clock.now_ms() - stored_ms, 0) if stored_ms else None

    @property
    def delivery_lag_ms(self) -> int:
        """Milliseconds since the first message was due that is due and not delivered; 0 where there is none."""
        now_ms = self._clock.now_ms()
        due_ms = [self._timers.due_ms(queue_offset) for queue_offset in self._timers.due(now_ms, 1)]
        return max((now_ms - one for one in due_ms if one is not None), default=0)

    def check_room(self) -> None:
        """Refuse a delayed message where too many wait already: TOO_MANY_REQUESTS."""
        if self._timers.is_full:
            raise Refused("TOO_MANY_REQUESTS", f"{self.pending} delayed messages wait, which is the limit.")

    async def recall(self, topic: str, message_id: str) -> None:
        """Take a delayed message back, so that it is never delivered; it is so for good when this returns.

        Raises TOPIC_NOT_FOUND, MESSAGE_NOT_FOUND, and what storing raises.
        """
        self._topics.get(topic)
        found = await asyncio.to_thread(self._store.find_by_key, TIMER_TOPIC, message_id)
        for record in map(decode_record, found):
            if record.properties.get(REAL_TOPIC) == topic and await self.cancel(record.queue_offset):
                return
        raise MessageRefused(
            "MESSAGE_NOT_FOUND", f"No message {message_id[:80]!r} for the topic {topic!r} waits for its time."
        )

    async def cancel(self, queue_offset: int) -> bool:
        """Recall what waits at that queue offset of the timer topic; False if it does not wait any more.

        It is cancelled for good when this returns. Raises what storing raises.
        """
        held = queue_offset in self._delivering or queue_offset in self._cancelling
        if held or self._timers.due_ms(queue_offset) is None:
            return False
        mark = OutgoingMessage(CANCELLED_TOPIC, b"", {TIMER_OF: str(queue_offset)}, queue_id=0)
        stored = self._appender.append(PendingRecord(mark, 0))
        self._cancelling.add(queue_offset)
        stored.add_done_callback(lambda stored: self._note_cancelled(queue_offset, stored))
        # Whoever recalls may go: the mark is stored all the same.
        await asyncio.shield(stored)
        return True

    def _note_cancelled(self, queue_offset: int, stored: asyncio.Future[AppendedRecord]) -> None:
        self._cancelling.discard(queue_offset)
        if is_stored(stored.exception()):
            self._timers.finish(queue_offset)

    def _take_up(self) -> None:
        while self.take_up_some():
            pass

    def _schedule(self) -> bool:
        """Take new records of the timer topic; whether there were any."""
        entries = self._store.entries(TIMER_TOPIC, 0, self._next_offset(), MAX_A_ROUND)
        for entry in entries:
            message = self._reader.message(TIMER_TOPIC, 0, entry)
            due_ms = timer_of(message) if message is not None else None
            if due_ms is not None:
                self._timers.schedule(due_ms, entry.queue_offset)
            self._passed = entry.queue_offset + 1
        return bool(entries)

    def _next_offset(self) -> int:
        """Damaged records of the timer topic cannot be scheduled, and are passed over once."""
        return max(self._timers.next_queue_offset, self._passed)

    async def _round(self) -> bool:
        if not self._cancelling:
            # No delivery and no cancellation is between its record and its mark now.
            self._settled_log_offset = self._store.visible_log_offset
        busy = self._schedule()
        due = self._timers.due(self._clock.now_ms(), MAX_A_ROUND)
        due = [queue_offset for queue_offset in due if queue_offset not in self._cancelling]
        if due:
            await self._deliver(due)
        if self._timers.needs_checkpoint or self._clock.monotonic_s() - self._checkpoint_s >= CHECKPOINT_INTERVAL_S:
            await self._checkpoint()
        return busy or bool(due)

    async def _deliver(self, due: Sequence[int]) -> None:
        pending, offsets, due_ms = [], [], []
        for queue_offset in due:
            message = self._reader.message_at(TIMER_TOPIC, 0, queue_offset)
            found = delivered_message_of(message) if message is not None else None
            record = to_its_queue(found, self._topics) if found is not None else None
            if found is None:
                _log.error("The delayed message at queue offset %d is damaged.", queue_offset)
            elif record is None:
                _log.warning("The delayed message at queue offset %d: its topic %s is gone.", queue_offset, found.topic)
            if record is None:
                self._timers.finish(queue_offset)
                continue
            pending.append(record)
            offsets.append(queue_offset)
            due_ms.append(self._timers.due_ms(queue_offset))
        if not pending:
            return
        self._delivering = frozenset(offsets)
        try:
            await self._appender.append_many(pending)
        except MillstreamError as error:
            if not is_stored(error):
                raise
        finally:
            self._delivering = frozenset()
        for queue_offset in offsets:
            self._timers.finish(queue_offset)
        self._count(pending, due_ms)

    def _count(self, delivered: Sequence[PendingRecord], due_ms: Sequence[int | None]) -> None:
        now_ms = self._clock.now_ms()
        for record, time_ms in zip(delivered, due_ms, strict=True):
            self._statistics.timers[record.message.topic].settled += 1
            if time_ms is not None:
                self._statistics.lateness.add(max(now_ms - time_ms, 0))

    async def _checkpoint(self) -> None:
        self._checkpoint_s = self._clock.monotonic_s()
        if not self.pending and self._timers.next_queue_offset == self._timers.covered_queue_offset:
            return
        try:
            await asyncio.to_thread(self._timers.checkpoint, self._settled_log_offset, self._store.flush_log)
        except OSError as error:
            _log.warning("The timers are not saved and will be tried again: %s", error)

    def _oldest_log_offset(self) -> int:
        """Where the log is still needed from."""
        return needed_from(self._store, TIMER_TOPIC, self._timers.oldest_pending())
