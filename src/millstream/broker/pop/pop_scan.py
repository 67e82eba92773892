"""One scan over queues in one turn of the event loop: collects messages to pop and those due for dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from millstream.broker.pop.dead_letters import DeadLetterQueues, ExhaustedDelivery
from millstream.broker.queues.fifo import NO_GROUP, FifoLedger, attempt_key_of, line_of
from millstream.broker.queues.ledger import Delivery, Ledger
from millstream.broker.queues.puller import MAX_WAIT_MS
from millstream.broker.queues.reader import MAX_SCANNED_ENTRIES, Reader
from millstream.broker.queues.retry_lines import RETRY_KIND, restore_topic
from millstream.model import properties
from millstream.model.expiry import is_expired
from millstream.model.group import GroupConfig
from millstream.model.handles import FIFO_REVIVE_QUEUE, ReceiptHandle
from millstream.model.light_queue import is_light_queue
from millstream.model.lite import lite_topic_of
from millstream.model.message import StoredMessage
from millstream.model.operations import PoppedMessage, PopRequest
from millstream.model.properties import EXPIRES_MS
from millstream.store.consume_queue import IndexEntry

__all__ = [
    "BURIAL_MS",
    "MAX_POP_BYTES",
    "MAX_POP_MESSAGES",
    "PopScan",
    "PopSource",
    "handle_of",
    "pop_until_deadline",
]

MAX_POP_MESSAGES = 32
"""Messages of one pop at most, whatever it asks for."""

MAX_POP_BYTES = 4 * 1024 * 1024
"""Bytes of bodies after which a pop takes no further message."""

BURIAL_MS = 30_000
"""Milliseconds for which a message is out of sight while it is moved to the dead-letter topic."""

_ENTRIES_PER_LOOK = 512
"""Index entries read at one go where a filter may pass over many of them."""


@dataclass(slots=True)
class PopScan:
    """What one pop took and what it may still take. `take` goes through the queues one after another."""

    reader: Reader
    request: PopRequest
    group: GroupConfig
    broker_name: str
    now_ms: int
    entries_left: int = MAX_SCANNED_ENTRIES
    size_bytes: int = 0
    taken: list[PoppedMessage] = field(default_factory=list)
    dead: list[ExhaustedDelivery] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    """The topics of messages that it passed over because their time is over."""
    limit: int = field(init=False)
    """Messages that it takes at most."""
    away: tuple[str, int, int] | None = None
    """Topic, queue and offset of messages that it wanted and that are to be fetched from the object store first."""
    _takes_again: bool = False
    """Whether it looks at the group's retry topic, where it wants the messages of the request's topic alone."""

    def __post_init__(self) -> None:
        self.limit = min(max(1, self.request.max_messages), MAX_POP_MESSAGES)

    @property
    def is_full(self) -> bool:
        """Whether it takes nothing more."""
        return len(self.taken) + len(self.dead) >= self.limit or self.size_bytes >= MAX_POP_BYTES

    @property
    def scanned_all(self) -> bool:
        """Whether it saw all there was: neither full nor out of its share of index entries."""
        return (
            len(self.taken) + len(self.dead) < self.limit and self.size_bytes < MAX_POP_BYTES and self.entries_left > 0
        )

    def repeat_returned(self, topic: str, queue_id: int, ledger: Ledger | None) -> None:
        """As `repeat`, of the group's retry topic."""
        self._takes_again = True
        self.repeat(topic, queue_id, ledger)
        self._takes_again = False

    def take_returned(self, topic: str, queue_id: int, ledger: Ledger) -> None:
        """As `take`, from the group's retry topic."""
        self._takes_again = True
        self.take(topic, queue_id, ledger)
        self._takes_again = False

    def repeat(self, topic: str, queue_id: int, ledger: Ledger | None) -> None:
        """Take what the same attempt took before and did not acknowledge, as when its answer was lost.

        A delivery with less than half of its time left gets all of it again, and with it another handle.
        """
        if not isinstance(ledger, FifoLedger):
            return
        invisible_ms = self.request.invisible_ms
        for delivery in ledger.repeat(attempt_key_of(self.request.attempt_id), self.now_ms):
            if self._is_away(topic, queue_id, delivery.queue_offset):
                return
            message = self._own(self.reader.message_at(topic, queue_id, delivery.queue_offset))
            if message is None:
                continue
            if delivery.visible_ms - self.now_ms < invisible_ms // 2:
                ledger.change_invisible(delivery.queue_offset, delivery.pop_time_ms, self.now_ms, invisible_ms)
            self._take(topic, queue_id, ledger, delivery, message)

    def take(self, topic: str, queue_id: int, ledger: Ledger) -> None:
        """Take from one queue what is visible again, then what is new."""
        if not isinstance(ledger, FifoLedger):
            self._redeliver(topic, queue_id, ledger)
            self._deliver(topic, queue_id, ledger)
            return
        before = len(self.taken)
        ledger.begin_batch(self.now_ms)
        self._redeliver(topic, queue_id, ledger)
        self._deliver(topic, queue_id, ledger)
        handles = [popped.handle for popped in self.taken[before:]]
        batch = [ledger.find(handle.queue_offset, handle.pop_time_ms) for handle in handles]
        ledger.end_batch(attempt_key_of(self.request.attempt_id), batch)

    def _redeliver(self, topic: str, queue_id: int, ledger: Ledger) -> None:
        """Take what is visible again; what has no attempt left is set aside for the dead-letter topic."""
        while (delivery := ledger.peek_due(self.now_ms)) is not None and self.scanned_all:
            if self._is_away(topic, queue_id, delivery.queue_offset):
                return
            self.entries_left -= 1
            message = self._own(self.reader.message_at(topic, queue_id, delivery.queue_offset))
            if message is None or self._is_expired(message) or not self.request.filter.matches(message.properties):
                ledger.settle(delivery.queue_offset)
            elif self._attempts(delivery, message) >= self.group.max_attempts:
                ledger.hold(delivery, self.now_ms, BURIAL_MS)
                self.dead.append(ExhaustedDelivery(ledger, delivery, message, self._attempts(delivery, message)))
            else:
                ledger.redeliver(delivery, self.now_ms, self.request.invisible_ms)
                self._take(topic, queue_id, ledger, delivery, message)

    def _deliver(self, topic: str, queue_id: int, ledger: Ledger) -> None:
        """Take what was never delivered, from the cursor on; what the filter does not want is consumed silently."""
        reader, wanted = self.reader, self.request.filter
        takes_all = wanted.takes_all
        end = reader.store.max_offset(topic, queue_id)
        reads_runs = takes_all and not self._takes_again and not isinstance(ledger, FifoLedger)
        while ledger.cursor < end and ledger.room > 0 and self.scanned_all:
            if self._is_away(topic, queue_id, ledger.cursor):
                return
            if reads_runs and self._deliver_run(topic, queue_id, ledger):
                continue
            count = self.limit - len(self.taken) - len(self.dead) if takes_all else _ENTRIES_PER_LOOK
            entries = reader.entries(topic, queue_id, ledger.cursor, min(count, self.entries_left))
            for entry in entries:
                self.entries_left -= 1
                if entry.queue_offset > ledger.cursor:
                    ledger.pass_over(entry.queue_offset)
                if takes_all or wanted.may_match(entry.tags_code):
                    message = reader.message(topic, queue_id, entry)
                    if self._takes_again:
                        message = self._own(message)
                    if (
                        message is not None
                        and (takes_all or wanted.matches(message.properties))
                        and not (EXPIRES_MS in message.properties and self._is_expired(message))
                    ):
                        self._deliver_one(topic, queue_id, ledger, entry, message)
                        if not self.scanned_all or ledger.room <= 0:
                            return
                        continue
                    self.entries_left -= wanted.read_cost
                ledger.pass_over(entry.queue_offset + 1)
                if self.entries_left <= 0:
                    return
            if not entries:
                # Compaction has left nothing from here on.
                ledger.pass_over(end)

    def _deliver_run(self, topic: str, queue_id: int, ledger: Ledger) -> bool:
        """Take all that comes next, as far as it can be read together; False where nothing of it can."""
        taken, now_ms, invisible_ms = self.taken, self.now_ms, self.request.invisible_ms
        count = min(self.limit - len(taken) - len(self.dead), self.entries_left, ledger.room)
        max_bytes = MAX_POP_BYTES - self.size_bytes
        messages = self.reader.message_run(topic, queue_id, ledger.cursor, count, max_bytes)
        if messages is None:
            return False
        broker_name, lite_topic = self.broker_name, lite_topic_of(topic)
        for message in messages:
            if EXPIRES_MS in message.properties and self._is_expired(message):
                ledger.pass_over(message.queue_offset + 1)
                self.entries_left -= 1
                continue
            delivery = ledger.deliver(message.queue_offset, now_ms, invisible_ms)
            handle = handle_of(ledger, delivery, broker_name, queue_id, message.log_offset, lite_topic)
            taken.append(PoppedMessage(message, handle, 1))
            self.entries_left -= 1
            self.size_bytes += len(message.body)
        return True

    def _deliver_one(
        self, topic: str, queue_id: int, ledger: Ledger, entry: IndexEntry, message: StoredMessage
    ) -> None:
        now_ms, invisible_ms = self.now_ms, self.request.invisible_ms
        if isinstance(ledger, FifoLedger):
            # A group that keeps order does so by message group; order by request is RocketMQ's, of the whole queue.
            line = line_of(message.properties.get(properties.MESSAGE_GROUP)) if self.group.fifo else NO_GROUP
            if not ledger.admits(line):
                ledger.hold_back(entry.queue_offset, line)
                self.entries_left -= self.request.filter.read_cost
                return
            delivery = ledger.deliver(entry.queue_offset, now_ms, invisible_ms, line)
        else:
            delivery = ledger.deliver(entry.queue_offset, now_ms, invisible_ms)
        self._take(topic, queue_id, ledger, delivery, message)

    def _take(self, topic: str, queue_id: int, ledger: Ledger, delivery: Delivery, message: StoredMessage) -> None:
        kind, attempts = 0, delivery.attempts
        if self._takes_again:
            kind, attempts = RETRY_KIND, attempts + message.reconsume_times
        lite_topic = lite_topic_of(topic)
        handle = handle_of(ledger, delivery, self.broker_name, queue_id, message.log_offset, lite_topic, kind)
        self.taken.append(PoppedMessage(message, handle, attempts))
        self.size_bytes += len(message.body)

    def _is_expired(self, message: StoredMessage) -> bool:
        """Whether the message's time is over, for a request that does not want such ones."""
        if self.request.takes_expired or not is_expired(message.properties, self.now_ms):
            return False
        self.expired.append(message.topic)
        return True

    def _is_away(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether messages are in the object store and not at hand; it notes which, and the ledger stays as it is."""
        if not self.reader.is_away(topic, queue_id, queue_offset):
            return False
        self.away = topic, queue_id, queue_offset
        return True

    def _own(self, message: StoredMessage | None) -> StoredMessage | None:
        """The message as its topic's consumers know it; None for one of another topic."""
        if message is None or not self._takes_again:
            return message
        own = restore_topic(message)
        return own if own.topic == self.request.topic else None

    def _attempts(self, delivery: Delivery, message: StoredMessage) -> int:
        """How often the message was delivered; those before it was given back count as well."""
        return delivery.attempts + message.reconsume_times if self._takes_again else delivery.attempts


def handle_of(
    ledger: Ledger,
    delivery: Delivery,
    broker_name: str,
    queue_id: int,
    log_offset: int,
    lite_topic: str,
    topic_kind: int = 0,
) -> ReceiptHandle:
    """What the consumer hands back to speak of this delivery."""
    start_offset = queue_offset = delivery.queue_offset
    # By position: names cost as much as the values, and every delivery has one.
    return ReceiptHandle(
        start_offset,
        delivery.pop_time_ms,
        delivery.invisible_ms,
        FIFO_REVIVE_QUEUE if isinstance(ledger, FifoLedger) else 0,
        topic_kind,
        broker_name,
        queue_id,
        queue_offset,
        log_offset,
        lite_topic,
    )


class PopSource(Protocol):
    """What a pop takes from: the queues of a topic, or the lite topics of a client."""

    dead_letters: DeadLetterQueues

    def scan(self, request: PopRequest) -> PopScan:
        """Take what can be taken now. Raises what refuses the request."""
        ...

    def pass_on(self, request: PopRequest) -> None:
        """Wake the next that waits for the same: this request leaves something."""
        ...

    def wake_freed(self, group: str, topic: str, queue_id: int, ledger: Ledger) -> None:
        """Wake those for whom the end of a delivery opens the queue."""
        ...

    def give_back(self, request: PopRequest, taken: Sequence[PoppedMessage]) -> None:
        """Make visible what nobody got, in its place and without an attempt."""
        ...

    async def wait(self, request: PopRequest, timeout_s: float) -> bool:
        """Wait for something to take; False after the timeout."""
        ...


async def pop_until_deadline(source: PopSource, request: PopRequest) -> list[PoppedMessage]:
    """Deliveries of the source; [] after `wait_ms` (MAX_WAIT_MS at most) with nothing. Raises what the looks raise;
    then, and where it is cancelled, nothing is taken."""
    deadline_s: float | None = None
    while True:
        scan = source.scan(request)
        if deadline_s is None and (scan.dead or not scan.taken):
            # Most find something at once: only those that do not ask for the time.
            deadline_s = asyncio.get_running_loop().time() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        if not scan.scanned_all:
            source.pass_on(request)
        if scan.expired or scan.dead:
            try:
                await _settle_rest(source, request, scan)
            except BaseException:
                source.give_back(request, scan.taken)
                raise
        if scan.taken:
            return scan.taken
        if scan.dead:
            continue
        if scan.away is not None and await scan.reader.fetch_away(*scan.away):
            continue
        assert deadline_s is not None
        remaining_s = deadline_s - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            return []
        if scan.away is not None or not scan.scanned_all:
            await asyncio.sleep(0)
        elif not await source.wait(request, remaining_s):
            return []


async def _settle_rest(source: PopSource, request: PopRequest, scan: PopScan) -> None:
    """Count what had expired, and move what has no attempt left to the dead-letter topic."""
    for topic in scan.expired:
        source.dead_letters.statistics.note_expired(request.group, topic)
    for dead in await source.dead_letters.bury_all(request.group, scan.dead) if scan.dead else ():
        # A light queue has messages of other topics.
        place = request.topic if is_light_queue(request.topic) else dead.message.topic
        source.wake_freed(request.group, place, dead.message.queue_id, dead.ledger)
