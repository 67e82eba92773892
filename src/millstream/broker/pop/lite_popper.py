"""Pop over lite topics: a client receives from the topics that it subscribed to, in order within each.

A lite topic is looked at only when something happened to it: a message came, a delivery was acknowledged or its time
is over, a client subscribed. So a receive costs what it takes, however many lite topics its client has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from millstream.broker.pop.dead_letters import DeadLetterQueues
from millstream.broker.pop.lite_subscriptions import LiteSubscriptions, Subscriber, party_of
from millstream.broker.pop.lite_topics import LiteTopics
from millstream.broker.pop.pop_scan import PopScan, pop_until_deadline
from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.broker.queues.fifo import NO_GROUP, FifoLedger, attempt_key_of
from millstream.broker.queues.ledger import Ledger
from millstream.broker.queues.long_polling import MIN_ALARM_S, LongPolls
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.reader import Reader
from millstream.broker.queues.topics import TopicRegistry
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.group import GroupConfig
from millstream.model.lite import (
    LITE_PREFIX,
    MAX_LITE_SUBSCRIPTIONS,
    LiteAction,
    LiteStart,
    LiteStartKind,
    LiteSync,
    check_lite_topic,
    lite_queue,
)
from millstream.model.operations import PoppedMessage, PopRequest
from millstream.model.topic import MessageType

__all__ = ["LitePopper"]

_QUEUE = 0
"""A lite topic has one queue."""


@dataclass(slots=True)
class LitePopper:
    """Answers the receives and the subscriptions of lite consumers. `close` ends what it plans by itself."""

    topics: TopicRegistry
    groups: GroupRegistry
    offsets: OffsetTable
    reader: Reader
    polls: LongPolls
    dead_letters: DeadLetterQueues
    lite_topics: LiteTopics
    broker_name: str
    clock: Clock
    subscriptions: LiteSubscriptions = field(default_factory=LiteSubscriptions)
    _due: list[tuple[int, str, str]] = field(default_factory=list)
    _planned: dict[tuple[str, str], int] = field(default_factory=dict)
    _alarm: asyncio.TimerHandle | None = None

    async def pop(self, request: PopRequest) -> list[PoppedMessage]:
        """Messages of the client's lite topics; [] after `wait_ms` with nothing. Raises as `Popper.pop`.

        A group that is not FIFO gets one message of a lite topic at a time, so the order holds whatever its client
        does with a batch.
        """
        return await pop_until_deadline(self, request)

    def sync(self, request: LiteSync) -> list[tuple[str, str]]:
        """Take over what a client says that it reads; pairs of client and lite topic whose subscription this ended.

        Raises TOPIC_NOT_FOUND, ILLEGAL_TOPIC for a topic of another type, GROUP_NOT_FOUND, ILLEGAL_LITE_TOPIC,
        LITE_SUBSCRIPTION_QUOTA_EXCEEDED.
        """
        topic = self.topics.get(request.topic)
        if topic.message_type is not MessageType.LITE:
            raise NameRefused("ILLEGAL_TOPIC", f"The topic {topic.name!r} is of type {topic.message_type.value}.")
        group = self.groups.ensure(request.group)
        if len(request.lite_topics) > MAX_LITE_SUBSCRIPTIONS:
            raise ConsumeRefused(
                "LITE_SUBSCRIPTION_QUOTA_EXCEEDED",
                f"The request names {len(request.lite_topics)} lite topics; the limit is {MAX_LITE_SUBSCRIPTIONS}.",
            )
        for lite_topic in request.lite_topics:
            check_lite_topic(lite_topic)
        whose = (request.client_id, request.group, request.topic)
        if request.action is LiteAction.PARTIAL_REMOVE:
            self.subscriptions.remove(*whose, request.lite_topics)
            return []
        if request.action is LiteAction.COMPLETE_REMOVE:
            self.subscriptions.keep(*whose, ())
            return []
        if request.action is LiteAction.COMPLETE_ADD:
            self.subscriptions.keep(*whose, request.lite_topics)
        is_partial = request.action is LiteAction.PARTIAL_ADD
        added = self.subscriptions.add(*whose, request.lite_topics, exclusive=group.lite_exclusive, takes=is_partial)
        for name in added.new:
            if is_partial and len(self.subscriptions.readers(name, group.name)) == 1:
                self._begin(group.name, name, request.start)
        subscriber = self.subscriptions.find(*whose)
        if added.new and subscriber is not None:
            self._wake(subscriber)
        return list(added.lost)

    def note_arrivals(self, queues: Iterable[tuple[str, int]]) -> None:
        """Messages became readable in these queues, of which some may be lite topics."""
        for name, _ in queues:
            if name.startswith(LITE_PREFIX):
                self._mark(name, None)

    def note_change(self, group: str, name: str, ledger: Ledger) -> None:
        """A delivery of the lite topic was acknowledged, or the time of its return has changed."""
        if self._can_give(name, ledger):
            self._mark(name, group)
        else:
            self._plan(group, name, ledger)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop what is held here of a topic or a group that is deleted."""
        self.subscriptions.forget(topic=topic, group=group)

    def shift(self, step_ms: int) -> None:
        """The wall clock was put forward by so much, or back; the ledgers have been moved."""
        self._planned = {key: due_ms + step_ms for key, due_ms in self._planned.items()}
        self._due = [(due_ms, *key) for key, due_ms in self._planned.items()]
        heapify(self._due)

    def close(self) -> None:
        """Plan nothing more."""
        if self._alarm is not None:
            self._alarm.cancel()

    def scan(self, request: PopRequest) -> PopScan:
        """See `PopSource`."""
        group = self.groups.ensure_enabled(request.group)
        scan = PopScan(self.reader, request, group, self.broker_name, self.clock.now_ms())
        self._drain_due()
        subscriber = self.subscriptions.find(request.client_id, request.group, request.topic)
        if subscriber is None:
            return scan
        attempt_key = attempt_key_of(request.attempt_id)
        for name in subscriber.attempts.get(attempt_key, ()):
            scan.repeat(name, _QUEUE, self.offsets.ledger(group.name, name, _QUEUE))
        if scan.taken:
            return scan
        looked_at = self._take(scan, subscriber, group)
        subscriber.remember(attempt_key, looked_at)
        return scan

    def pass_on(self, request: PopRequest) -> None:
        """See `PopSource`."""
        self.polls.pass_on(party_of(request.group, request.client_id), request.topic, None)

    def wake_freed(self, group: str, topic: str, queue_id: int, ledger: Ledger) -> None:
        """See `PopSource`."""
        self.note_change(group, topic, ledger)

    def give_back(self, request: PopRequest, taken: Sequence[PoppedMessage]) -> None:
        """See `PopSource`."""
        for one in taken:
            name = lite_queue(request.topic, one.handle.lite_topic)
            ledger = self._open(request.group, name)
            delivery = one.handle.queue_offset, one.handle.pop_time_ms
            ledger.change_invisible(*delivery, self.clock.now_ms(), 0, uncounted=True)
            self.note_change(request.group, name, ledger)

    async def wait(self, request: PopRequest, timeout_s: float) -> bool:
        """See `PopSource`."""
        return await self.polls.wait_pop(party_of(request.group, request.client_id), request.topic, None, timeout_s)

    def _take(self, scan: PopScan, subscriber: Subscriber, group: GroupConfig) -> list[str]:
        """Take from what is pending; the lite topics that gave something."""
        gave = []
        while subscriber.pending and scan.scanned_all:
            name = next(iter(subscriber.pending))
            del subscriber.pending[name]
            if not self._has_messages(name):
                continue
            ledger = self._open(group.name, name)
            if not self._can_give(name, ledger, scan.now_ms):
                self._plan(group.name, name, ledger)
                continue
            before, limit = len(scan.taken) + len(scan.dead), scan.limit
            scan.limit = limit if group.fifo else before + 1
            scan.take(name, _QUEUE, ledger)
            scan.limit = limit
            if len(scan.taken) + len(scan.dead) > before:
                gave.append(name)
            if scan.entries_left <= 0 and self._can_give(name, ledger):
                subscriber.pending[name] = None
            self._plan(group.name, name, ledger)
        return gave

    def _open(self, group: str, name: str) -> FifoLedger:
        ledger = self.offsets.ledger(group, name, _QUEUE)
        min_offset = self.reader.store.min_offset(name, _QUEUE)
        if ledger is None:
            ledger = self.offsets.open_ledger(group, name, _QUEUE, fifo=True, first_offset=min_offset)
        ledger.pass_over(min_offset)
        assert isinstance(ledger, FifoLedger)
        return ledger

    def _can_give(self, name: str, ledger: Ledger, now_ms: int | None = None) -> bool:
        """Whether the lite topic is free and has something."""
        if not isinstance(ledger, FifoLedger):
            return False
        if ledger.peek_due(self.clock.now_ms() if now_ms is None else now_ms) is not None:
            return True
        return ledger.admits(NO_GROUP) and ledger.cursor < self.reader.store.max_offset(name, _QUEUE)

    def _has_messages(self, name: str) -> bool:
        """Whether the lite topic is there. One that is being deleted must not get a ledger any more."""
        return self.reader.store.max_offset(name, _QUEUE) > 0 and name not in self.lite_topics.leaving

    def _begin(self, group: str, name: str, start: LiteStart) -> None:
        """Put the group where its only reader wants it to begin."""
        if start.kind is LiteStartKind.LAST:
            return
        store = self.reader.store
        low, high = store.min_offset(name, _QUEUE), store.max_offset(name, _QUEUE)
        if not self._has_messages(name):
            return
        wanted = {
            LiteStartKind.MIN: low,
            LiteStartKind.MAX: high,
            LiteStartKind.OFFSET: start.value,
            LiteStartKind.TAIL: high - max(start.value, 0),
        }
        cursor = wanted.get(start.kind)
        if cursor is None:
            cursor = store.offset_by_time(name, _QUEUE, start.value)
        self._open(group, name)
        self.offsets.reset(group, name, _QUEUE, min(max(cursor, low), high), self.clock.now_ms())

    def _mark(self, name: str, group: str | None) -> None:
        for subscriber in self.subscriptions.readers(name, group):
            subscriber.pending[name] = None
            self._wake(subscriber)

    def _wake(self, subscriber: Subscriber) -> None:
        self.polls.wake_group(subscriber.party, subscriber.topic, _QUEUE)

    def _plan(self, group: str, name: str, ledger: Ledger) -> None:
        """See to it that the lite topic is looked at when its next delivery comes back."""
        due_ms = ledger.next_due_ms()
        if due_ms is None:
            self._planned.pop((group, name), None)
            return
        planned_ms = self._planned.get((group, name))
        if planned_ms is None or due_ms < planned_ms:
            self._planned[group, name] = due_ms
            heappush(self._due, (due_ms, group, name))
            self._set_alarm()

    def _drain_due(self) -> None:
        now_ms = self.clock.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            due_ms, group, name = heappop(self._due)
            if self._planned.get((group, name)) != due_ms:
                continue
            del self._planned[group, name]
            ledger = self.offsets.ledger(group, name, _QUEUE)
            if ledger is not None:
                self.note_change(group, name, ledger)

    def _set_alarm(self) -> None:
        """One alarm for all: at the time of the first that comes back."""
        now_ms = self.clock.now_ms()  # First: where it finds a step of the clock, the times are moved.
        if not self._due:
            return
        delay_s = max((self._due[0][0] - now_ms) / 1000, MIN_ALARM_S)
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            if not self._alarm.cancelled() and self._alarm.when() <= loop.time() + delay_s:
                return
            self._alarm.cancel()
        self._alarm = loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._drain_due()
        if self._due:
            self._set_alarm()
