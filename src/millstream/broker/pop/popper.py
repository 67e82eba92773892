"""Pop: delivers messages for an invisible time, handles acknowledgements, and redelivers what was not acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.broker.light_queues.light_queues import LightQueues
from millstream.broker.pop.dead_letters import DeadLetterQueues
from millstream.broker.pop.lite_popper import LitePopper
from millstream.broker.pop.pop_scan import BURIAL_MS, PopScan, handle_of, pop_until_deadline
from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.broker.queues.fifo import FifoLedger
from millstream.broker.queues.ledger import Ledger
from millstream.broker.queues.long_polling import EVERY_QUEUE, MIN_ALARM_S, LongPolls
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.reader import AWAY_PAUSE_S, Reader, check_readable
from millstream.broker.queues.retry_lines import restore_topic, retry_line, stored_topic
from millstream.broker.queues.topics import RETRY_PREFIX, TopicRegistry
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError, StoreError
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.handles import ReceiptHandle
from millstream.model.light_queue import LIGHT_PREFIX, is_light_queue
from millstream.model.lite import LITE_PREFIX, lite_queue
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    DeadLetterReason,
    PoppedMessage,
    PopRequest,
)
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.cold_records import cold_records_away

__all__ = ["MAX_INVISIBLE_MS", "Popper", "keeps_order"]

MAX_INVISIBLE_MS = 12 * 3600 * 1000
"""Milliseconds that a delivery may be out of sight at most."""

_log = logging.getLogger(__name__)

# At hand, because in Python 3.11 the way from an enum's class to a member runs in Python.
_LITE, _PRIORITY = MessageType.LITE, MessageType.PRIORITY
_LAST, _TIME = FirstPosition.LAST, FirstPosition.TIME


@dataclass(slots=True)
class Popper:
    """Answers pops, acknowledgements and changes of the invisible time."""

    topics: TopicRegistry
    groups: GroupRegistry
    offsets: OffsetTable
    reader: Reader
    polls: LongPolls
    dead_letters: DeadLetterQueues
    lite: LitePopper
    broker_name: str
    clock: Clock
    light_queues: LightQueues
    _turns: dict[tuple[str, str], int] = field(default_factory=dict)

    async def pop(self, request: PopRequest) -> list[PoppedMessage]:
        """Up to `max_messages` (32 at most) deliveries, [] after `wait_ms` with nothing.

        Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, FORBIDDEN, GROUP_NOT_FOUND, ILLEGAL_INVISIBLE_TIME, TOO_MANY_REQUESTS.
        """
        if not 1 <= request.invisible_ms <= MAX_INVISIBLE_MS:
            raise _illegal_invisible(request.invisible_ms, 1)
        topic = self.topics.get(request.topic)
        if topic.message_type is _LITE:
            check_readable(topic, None)
            return await self.lite.pop(request)
        if not request.wait_ms and self._has_nothing(request, topic):
            return []
        if self.reader.store.cold is not None and not await self._begin_at_a_time(request, topic):
            return []
        if topic.holds_batches:
            await self._prepare(request, topic)
        taken = await pop_until_deadline(self, request)
        if taken:
            self.arm(request)
        return taken

    def _has_nothing(self, request: PopRequest, topic: TopicConfig) -> bool:
        """Whether a light queue has nothing for its group, as those of most MQTT clients that come back: then the group
        needs no ledger there, and nothing is looked at. Raises what refuses the request."""
        name, queue_id = request.topic, request.queue_id
        if queue_id is None or not name.startswith(LIGHT_PREFIX) or not is_light_queue(name):
            return False
        check_readable(topic, queue_id)
        self.light_queues.group_for(name, request.group)
        ledger = self.offsets.ledger(request.group, name, queue_id)
        begin = 0 if ledger is None else ledger.cursor
        is_known = self.reader.store.max_offset(name, queue_id) <= begin and (ledger is None or ledger.is_idle)
        return is_known and self.topics.find(RETRY_PREFIX + request.group) is None

    def ack(self, request: AckRequest) -> None:
        """Consume one delivery; a second time is no error. Raises INVALID_RECEIPT_HANDLE."""
        handle = request.handle
        place = _place(request.group, request.topic, handle)
        ledger = self._ledger_of(request.group, place, handle)
        if request.in_time:
            ledger.check_time(handle.queue_offset, handle.pop_time_ms, self.clock.now_ms())
        ledger.acknowledge(handle.queue_offset, handle.pop_time_ms)
        self.wake_freed(request.group, *_waiting_place(request.topic, place, handle.queue_id), ledger)

    def ack_all(self, group: str, topic: str, deliveries: list[tuple[int, int, int]]) -> dict[int, MillstreamError]:
        """As `ack` in time of each delivery, given as queue, queue offset and pop time; what was refused, by position.

        They are of the topic's own queues at this broker, of no lite topic and not of the retry topic.
        """
        now_ms = self.clock.now_ms()  # First: where it finds a step of the clock, the ledgers' times are moved.
        errors: dict[int, MillstreamError] = {}
        position = 0
        while position < len(deliveries):
            queue_id = deliveries[position][0]
            ledger = self.offsets.ledger(group, topic, queue_id)
            if ledger is None:
                errors[position] = _nothing_taken(group, topic, queue_id, self.broker_name)
                position += 1
                continue
            was_full = ledger.room <= 0
            position = ledger.acknowledge_run(deliveries, position, now_ms, errors)
            self.wake_freed(group, *_waiting_place(topic, topic, queue_id), ledger, was_full=was_full)
        return errors

    def is_discarded(self, request: AckRequest) -> bool:
        """Whether a reset discarded the delivery. Raises INVALID_RECEIPT_HANDLE where the group took nothing there."""
        handle = request.handle
        ledger = self._ledger_of(request.group, _place(request.group, request.topic, handle), handle)
        return ledger.is_discarded(handle.pop_time_ms)

    def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        """Make a delivery visible `invisible_ms` (0 s to 12 h) from now; the new handle replaces the old one.

        Raises ILLEGAL_INVISIBLE_TIME, INVALID_RECEIPT_HANDLE.
        """
        if not 0 <= request.invisible_ms <= MAX_INVISIBLE_MS:
            raise _illegal_invisible(request.invisible_ms, 0)
        handle = request.handle
        place = _place(request.group, request.topic, handle)
        ledger = self._ledger_of(request.group, place, handle)
        if request.in_time:
            ledger.check_time(handle.queue_offset, handle.pop_time_ms, self.clock.now_ms())
        place_and_time = (handle.queue_offset, handle.pop_time_ms, self.clock.now_ms(), request.invisible_ms)
        if request.renewal:
            delivery = ledger.renew(*place_and_time)
        else:
            delivery = ledger.change_invisible(*place_and_time, uncounted=request.suspend)
        if handle.lite_topic:
            self.lite.note_change(request.group, place, ledger)
        elif self.polls.has_pops(request.group, request.topic):
            _, queue_id = _waiting_place(request.topic, place, handle.queue_id)
            self.polls.alarm(request.group, request.topic, queue_id, self._due_in_s(ledger) or MIN_ALARM_S)
        held = (handle.queue_id, handle.log_offset, handle.lite_topic, handle.topic_kind)
        return handle_of(ledger, delivery, self.broker_name, *held)

    def release_deliveries(self, group: str, topic: str, queue_id: int) -> int:
        """Make all deliveries of a queue visible that are not acknowledged; how many. Their handles are invalid
        then."""
        ledger = self.offsets.ledger(group, topic, queue_id)
        if ledger is None:
            return 0
        now_ms = self.clock.now_ms()
        held = [delivery for delivery in ledger.in_flight if delivery.pop_time_ms]
        for delivery in held:
            ledger.change_invisible(delivery.queue_offset, delivery.pop_time_ms, now_ms, 0)
        if held:
            self.polls.wake_group(group, topic, queue_id)
        return len(held)

    async def move_to_dead_letter(self, request: AckRequest) -> None:
        """Move one delivery to the group's dead-letter topic and consume it; nothing if it is consumed already.

        Raises INVALID_RECEIPT_HANDLE, and what storing raises: then the delivery stays as it was.
        """
        handle = request.handle
        place = _place(request.group, request.topic, handle)
        ledger = self._ledger_of(request.group, place, handle)
        ledger.check_handle(handle.queue_offset, handle.pop_time_ms)
        if ledger.is_consumed(handle.queue_offset):
            return
        delivery = ledger.find(handle.queue_offset, handle.pop_time_ms)
        at = stored_topic(place), handle.queue_id, handle.queue_offset
        if self.reader.is_away(*at) and not await self.reader.fetch_away(*at):
            raise cold_records_away(*at)
        message = self.reader.message_at(stored_topic(place), handle.queue_id, handle.queue_offset)
        if message is not None:
            attempts = delivery.attempts
            if handle.topic_kind:
                message, attempts = restore_topic(message), attempts + message.reconsume_times
            ledger.hold(delivery, self.clock.now_ms(), BURIAL_MS)
            await self.dead_letters.bury(request.group, message, attempts, DeadLetterReason.CONSUMER)
        ledger.settle(handle.queue_offset)
        self.wake_freed(request.group, *_waiting_place(request.topic, place, handle.queue_id), ledger)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop what is held here of a topic or a group that is deleted."""
        self.lite.forget(topic=topic, group=group)
        for key in [key for key in self._turns if key[0] == group or key[1] == topic]:
            del self._turns[key]

    def scan(self, request: PopRequest) -> PopScan:
        """See `PopSource`."""
        topic = self.topics.get(request.topic)
        check_readable(topic, request.queue_id)
        group = self.group_of(request.group, request.topic)
        if group.first_position is _LAST:
            self._begin_at_the_end(request, group, topic.read_queues)
        queues = self.order_queues(request, topic)
        self.end_turn(request)
        scan = PopScan(self.reader, request, group, self.broker_name, self.clock.now_ms())
        again = self.list_retry_queues(request, group)
        if keeps_order(request, group) and request.attempt_id:
            for queue_id, ledger in again:
                scan.repeat_returned(RETRY_PREFIX + group.name, queue_id, ledger)
            for queue_id in queues:
                scan.repeat(topic.name, queue_id, self.offsets.ledger(request.group, topic.name, queue_id))
            if scan.taken:
                return scan
        # First, as they have waited before: each of them is there for a few attempts only.
        for queue_id, ledger in again:
            scan.take_returned(RETRY_PREFIX + group.name, queue_id, ledger)
        for queue_id in queues if scan.scanned_all else ():
            if self._is_untouched(request, queue_id):
                continue
            scan.take(topic.name, queue_id, self._open(request, group, queue_id))
            if not scan.scanned_all:
                break
        return scan

    def group_of(self, name: str, topic: str) -> GroupConfig:
        """The group, as it reads the topic. Raises GROUP_NOT_FOUND, GROUP_DISABLED, LIGHT_QUEUE_GROUP."""
        if topic.startswith(LIGHT_PREFIX) and is_light_queue(topic):
            return self.light_queues.group_for(topic, name)
        return self.groups.ensure_enabled(name)

    def pass_on(self, request: PopRequest) -> None:
        """See `PopSource`."""
        self.polls.pass_on(request.group, request.topic, request.queue_id)

    def give_back(self, request: PopRequest, taken: Sequence[PoppedMessage]) -> None:
        """See `PopSource`."""
        for one in taken:
            self.change_invisible(ChangeInvisibleRequest(request.group, request.topic, one.handle, 0, suspend=True))

    async def wait(self, request: PopRequest, timeout_s: float) -> bool:
        """See `PopSource`."""
        alarms = self._alarms(request)
        found = await self.polls.wait_pop(request.group, request.topic, request.queue_id, timeout_s, alarms)
        topic = self.topics.find(request.topic) if found else None
        if topic is not None and topic.holds_batches:
            await self._prepare(request, topic)
        return found

    async def _prepare(self, request: PopRequest, topic: TopicConfig) -> None:
        """Unpack ahead what the next look is likely to find in queues of batches."""
        reader, wanted = self.reader, request.max_messages
        for queue_id in (request.queue_id,) if request.queue_id is not None else range(topic.read_queues):
            ledger = self.offsets.ledger(request.group, topic.name, queue_id)
            if ledger is not None and ledger.committed < ledger.cursor:
                # What is in flight may have come back.
                await reader.prepare(topic.name, queue_id, ledger.committed, 1)
            committed = self.offsets.committed_offset(request.group, topic.name, queue_id)
            begin = committed or 0 if ledger is None else ledger.cursor
            begin = max(begin, reader.store.min_offset(topic.name, queue_id))
            wanted -= await reader.prepare(topic.name, queue_id, begin, wanted)
            if wanted <= 0:
                return

    def wake_freed(self, group: str, topic: str, queue_id: int, ledger: Ledger, *, was_full: bool = False) -> None:
        """Wake the group where an acknowledgement opens a queue that was held back, or one that was full until now.

        `was_full`: it was so before several.
        """
        if topic.startswith(LITE_PREFIX):
            self.lite.note_change(group, topic, ledger)
        elif was_full or ledger.room <= 1 or (isinstance(ledger, FifoLedger) and ledger.is_ready):
            self.polls.wake_group(group, topic, queue_id)

    def order_queues(self, request: PopRequest, topic: TopicConfig) -> list[int]:
        """The queues to look at; another one comes first after each `end_turn`, so that none starves.

        In a PRIORITY topic always the highest one, so that a priority waits as long as a higher one has messages.
        """
        if request.queue_id is not None:
            return [request.queue_id]
        if topic.message_type is _PRIORITY and not request.queues:
            return [*reversed(range(topic.read_queues))]
        queues = request.queues or range(topic.read_queues)
        first = self._turns.get((request.group, request.topic), 0) % len(queues)
        return [*queues[first:], *queues[:first]]

    def end_turn(self, request: PopRequest) -> None:
        """Let a request's next look begin with another queue."""
        if request.queue_id is None:
            key = (request.group, request.topic)
            self._turns[key] = self._turns.get(key, 0) + 1

    def _is_untouched(self, request: PopRequest, queue_id: int) -> bool:
        """Whether it is a light queue that never had a message: a hundred thousand sessions wait for their first one,
        and each would have a ledger."""
        return (
            request.topic.startswith(LIGHT_PREFIX)
            and self.offsets.ledger(request.group, request.topic, queue_id) is None
            and not self.reader.store.max_offset(request.topic, queue_id)
        )

    def _open(self, request: PopRequest, group: GroupConfig, queue_id: int, first_offset: int | None = None) -> Ledger:
        """The ledger of a queue; where there is none the group begins at that offset, None: as its settings say."""
        ledger = self.offsets.ledger(request.group, request.topic, queue_id)
        min_offset = self.reader.store.min_offset(request.topic, queue_id)
        fifo = keeps_order(request, group)
        if ledger is None:
            has_position = self.offsets.committed_offset(request.group, request.topic, queue_id) is not None
            if has_position:
                first_offset = min_offset
            elif first_offset is None:
                first_offset = self.reader.first_offset(group, request.topic, queue_id)
            ledger = self.offsets.open_ledger(
                request.group, request.topic, queue_id, fifo=fifo, first_offset=first_offset
            )
            # A group or topic of that name may have been deleted: its handles mean nothing to this ledger.
            ledger.floor_ms = self.clock.now_ms() - 1
            return ledger
        if isinstance(ledger, FifoLedger) is not fifo:
            ledger = self.offsets.convert_ledger(request.group, request.topic, queue_id, ledger, fifo=fifo)
        if min_offset > ledger.cursor:
            ledger.pass_over(min_offset)
        return ledger

    def list_retry_queues(self, request: PopRequest, group: GroupConfig) -> list[tuple[int, Ledger]]:
        """The queues of the group's retry topic that may have messages of the request's topic, with their ledgers."""
        name = RETRY_PREFIX + group.name
        topic = self.topics.find(name)
        if topic is None or request.topic == name:
            return []
        line, store = retry_line(group.name, request.topic), self.reader.store
        fifo = keeps_order(request, group)
        found = []
        for queue_id in range(topic.read_queues):
            ledger = self.offsets.ledger(group.name, line, queue_id)
            # What those consumers of the group have had who pull.
            pulled = max(
                self.offsets.committed_offset(group.name, name, queue_id) or 0, store.min_offset(name, queue_id)
            )
            if ledger is None:
                if pulled >= store.max_offset(name, queue_id):
                    continue
                ledger = self.offsets.open_ledger(group.name, line, queue_id, fifo=fifo, first_offset=pulled)
                ledger.floor_ms = self.clock.now_ms() - 1
            elif isinstance(ledger, FifoLedger) is not fifo:
                ledger = self.offsets.convert_ledger(group.name, line, queue_id, ledger, fifo=fifo)
            ledger.pass_over(pulled)
            found.append((queue_id, ledger))
        return found

    def _begin_at_the_end(self, request: PopRequest, group: GroupConfig, queues: int) -> None:
        """Open all queues at once: what comes later is for the group, in whichever queue and over a crash."""
        missing = [
            queue_id
            for queue_id in range(queues)
            if self.offsets.ledger(request.group, request.topic, queue_id) is None
        ]
        for queue_id in missing:
            self._open(request, group, queue_id)
        if missing:
            try:
                self.offsets.write_changes()
            except StoreError as error:
                if error.name != "DISK_FULL":
                    raise
                # Reading needs no room; maintenance writes it as soon as there is some.
                _log.warning("Where the group %s begins is in memory alone for now: %s", request.group, error)

    async def _begin_at_a_time(self, request: PopRequest, topic: TopicConfig) -> bool:
        """Open the queues of a group that begins at a time, which only the object store may know; False, after a pause,
        where that does not answer for now: then the group must not begin elsewhere."""
        group = self.groups.find(request.group)
        if group is None or not group.enabled or group.first_position is not _TIME or is_light_queue(topic.name):
            return True
        for queue_id in range(topic.read_queues):
            if request.queue_id in (None, queue_id) and not self._has_begun(request, queue_id):
                try:
                    offset = await self.reader.find_first_offset(group, topic.name, queue_id)
                except MillstreamError as error:
                    _log.warning("Where the group %s begins in %s is not known yet: %s", group.name, topic.name, error)
                    await asyncio.sleep(min(AWAY_PAUSE_S, request.wait_ms / 1000))
                    return False
                # Another pop may have begun meanwhile, or the group is another one by now.
                if self.groups.find(group.name) is group and not self._has_begun(request, queue_id):
                    self._open(request, group, queue_id, offset)
        return True

    def _has_begun(self, request: PopRequest, queue_id: int) -> bool:
        place = request.group, request.topic, queue_id
        return self.offsets.ledger(*place) is not None or self.offsets.committed_offset(*place) is not None

    def arm(self, request: PopRequest) -> None:
        """Have those who wait woken when a delivery of these queues becomes visible again."""
        if self.polls.has_pops(request.group, request.topic):
            for queue_id, delay_s in self._alarms(request):
                self.polls.alarm(request.group, request.topic, queue_id, delay_s)

    def _alarms(self, request: PopRequest) -> list[tuple[int, float]]:
        """Of the request's queues those with deliveries in flight, and in how many seconds the next one is visible."""
        topic = self.topics.find(request.topic)
        every = range(0 if topic is None else topic.read_queues)
        alarms = []
        for queue_id in every if request.queue_id is None else (request.queue_id,):
            ledger = self.offsets.ledger(request.group, request.topic, queue_id)
            delay_s = None if ledger is None else self._due_in_s(ledger)
            if delay_s is not None:
                alarms.append((queue_id, delay_s))
        alarms += [(EVERY_QUEUE, delay_s) for delay_s in self._returned_due_in_s(request)]
        return alarms

    def _returned_due_in_s(self, request: PopRequest) -> list[float]:
        """The same of the group's retry topic."""
        retry_topic = self.topics.find(RETRY_PREFIX + request.group)
        line = retry_line(request.group, request.topic)
        queues = 0 if retry_topic is None else retry_topic.read_queues
        ledgers = [self.offsets.ledger(request.group, line, queue_id) for queue_id in range(queues)]
        due = [self._due_in_s(ledger) for ledger in ledgers if ledger is not None]
        return [delay_s for delay_s in due if delay_s is not None]

    def _due_in_s(self, ledger: Ledger) -> float | None:
        now_ms = self.clock.now_ms()  # First: where it finds a step of the clock, the ledger's times are moved.
        due_ms = ledger.next_due_ms()
        return None if due_ms is None else max((due_ms - now_ms) / 1000, MIN_ALARM_S)

    def _ledger_of(self, group: str, topic: str, handle: ReceiptHandle) -> Ledger:
        ledger = self.offsets.ledger(group, topic, handle.queue_id)
        if ledger is None or handle.broker_name != self.broker_name:
            raise _nothing_taken(group, topic, handle.queue_id, handle.broker_name)
        return ledger


def keeps_order(request: PopRequest, group: GroupConfig) -> bool:
    """Whether a pop of the group keeps order: the group does, or the request asks for it."""
    return group.fifo or request.in_order


def _place(group: str, topic: str, handle: ReceiptHandle) -> str:
    """The name of the ledger that has the handle's delivery."""
    if handle.topic_kind and not topic.startswith(RETRY_PREFIX):
        return retry_line(group, topic)
    return lite_queue(topic, handle.lite_topic) if handle.lite_topic else topic


def _waiting_place(topic: str, place: str, queue_id: int) -> tuple[str, int]:
    """The topic and the queue on which those wait who may have a delivery of the place next."""
    return (topic, EVERY_QUEUE) if place != stored_topic(place) else (place, queue_id)


def _nothing_taken(group: str, topic: str, queue_id: int, broker_name: str) -> ConsumeRefused:
    return ConsumeRefused(
        "INVALID_RECEIPT_HANDLE",
        f"{group!r} took nothing from queue {queue_id} of {topic!r} at broker {broker_name!r}.",
    )


def _illegal_invisible(invisible_ms: int, least_ms: int) -> ConsumeRefused:
    return ConsumeRefused(
        "ILLEGAL_INVISIBLE_TIME",
        f"The invisible time is {invisible_ms} ms; {least_ms} to {MAX_INVISIBLE_MS} ms are allowed.",
    )
