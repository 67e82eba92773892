"""Counters of a broker: plain numbers that are read when metrics are scraped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from millstream.broker.delivery.admission import type_of
from millstream.broker.delivery.delay import TIMER_TOPIC, timer_of
from millstream.model.light_queue import LIGHT_PREFIX, is_light_queue
from millstream.model.operations import PoppedMessage, PullRequest, PullResult, Resolution
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record_encoder import PlainRecord
from millstream.store.message_store import AppendedRecord, PendingRecord
from millstream.store.write_batch import measure_stored
from millstream.telemetry.counters import Counters, Histogram

__all__ = [
    "DELAY_BOUNDS_S",
    "LATENESS_BOUNDS_MS",
    "MAX_COUNTED_PAIRS",
    "MAX_COUNTED_TOPICS",
    "SIZE_BOUNDS_BYTES",
    "Count",
    "Incoming",
    "Outgoing",
    "Statistics",
    "TimerTraffic",
    "TransactionTraffic",
]

MAX_COUNTED_TOPICS: Final = 1000
"""Topics (with the type of message) that are counted each for itself; the others are counted together."""

MAX_COUNTED_PAIRS: Final = 2000
"""Pairs of group and topic that are counted each for itself; the others are counted together."""

SIZE_BOUNDS_BYTES: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""RocketMQ's own bounds."""

LATENESS_BOUNDS_MS: Final = (10, 100, 500, 1000, 5000, 60_000, 3_600_000)
"""Bounds of how late delayed messages are, and of how long transactions take."""

DELAY_BOUNDS_S: Final = (60, 600, 3600, 43_200, 86_400, 259_200)
"""RocketMQ's own bounds."""


# What every send needs is kept at hand: in Python 3.11 each way from an enum's class to a member, its value and its
# hash runs in Python.
_MIXED, _DELAY = MessageType.MIXED, MessageType.DELAY
_PLAIN = MessageType.NORMAL.value


class Incoming:
    """What was stored of one topic and type."""

    __slots__ = ("messages", "size_bytes", "sizes")

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.sizes = Histogram(SIZE_BOUNDS_BYTES)

    def add(self, records: Sequence[PendingRecord], places: Sequence[AppendedRecord]) -> None:
        """Count these records. Runs for every message that is sent, so the histogram is filled in place."""
        counts = self.sizes.counts
        size_bytes = 0
        for record, place in zip(records, places, strict=True):
            count = record.message.message_count
            record_bytes = place.size_bytes
            size_bytes += record_bytes
            self.messages += count
            counts[bisect_left(SIZE_BOUNDS_BYTES, record_bytes // count)] += count
        self.size_bytes += size_bytes
        self.sizes.total = self.size_bytes

    def add_plain(self, records: Sequence[PlainRecord]) -> None:
        """Count stored records of one message each."""
        size_bytes, largest = measure_stored(records)
        counts = self.sizes.counts
        self.messages += len(records)
        self.size_bytes += size_bytes
        self.sizes.total = self.size_bytes
        if largest <= SIZE_BOUNDS_BYTES[0]:
            counts[0] += len(records)
            return
        for record in records:
            counts[bisect_left(SIZE_BOUNDS_BYTES, record.size_bytes)] += 1


class Outgoing:
    """What one group got of one topic; `again` are deliveries that were not the message's first."""

    __slots__ = ("again", "messages", "size_bytes")

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.again = 0


class Count:
    """One number."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class TimerTraffic:
    """Delayed messages of one topic that began to wait, for how many seconds, and that were delivered."""

    __slots__ = ("delays", "scheduled", "settled")

    def __init__(self) -> None:
        self.scheduled = 0
        self.settled = 0
        self.delays = Histogram(DELAY_BOUNDS_S)

    def add(self, record: PendingRecord, place: AppendedRecord) -> None:
        """Count a message that begins to wait."""
        self.scheduled += 1
        due_ms = timer_of(record.message)
        if due_ms is not None:
            self.delays.add(max(due_ms - place.store_timestamp_ms, 0) / 1000)


class TransactionTraffic:
    """Transactions of one topic that their producers ended, and how many milliseconds after their half messages."""

    __slots__ = ("committed", "finishes", "rolled_back")

    def __init__(self) -> None:
        self.committed = 0
        self.rolled_back = 0
        self.finishes = Histogram(LATENESS_BOUNDS_MS)


class Statistics:
    """The counters of one broker since it started; keys are names as the log has them."""

    def __init__(self) -> None:
        self.incoming: Counters[tuple[str, str], Incoming] = Counters(Incoming, MAX_COUNTED_TOPICS)
        """By topic and type of message."""
        self.outgoing: Counters[tuple[str, str], Outgoing] = Counters(Outgoing, MAX_COUNTED_PAIRS)
        """By group and topic, as the next one."""
        self.dead_letters: Counters[tuple[str, str], Count] = Counters(Count, MAX_COUNTED_PAIRS)
        self.expired: Counters[tuple[str, str], Count] = Counters(Count, MAX_COUNTED_PAIRS)
        """By group and topic: messages that were passed over because their time was over."""
        self.timers: Counters[str, TimerTraffic] = Counters(TimerTraffic, MAX_COUNTED_TOPICS)
        self.transactions: Counters[str, TransactionTraffic] = Counters(TransactionTraffic, MAX_COUNTED_TOPICS)
        self.lateness = Histogram(LATENESS_BOUNDS_MS)
        """Milliseconds from the time at which delayed messages were due to their delivery."""

    def note_stored(
        self,
        topic: TopicConfig,
        records: Sequence[PendingRecord],
        places: Sequence[AppendedRecord],
        *,
        typed: bool = True,
    ) -> None:
        """Messages of one topic were stored; `typed`: all of its type."""
        kind = topic.message_type
        if not typed or kind is _MIXED or kind is _DELAY:
            self._stored_apart(topic, records, places)
            return
        self.incoming[topic.name, kind._value_].add(records, places)

    def stored_plain(self, topic: str, records: Sequence[PlainRecord]) -> None:
        """The same of ordinary messages, each of which is known to be one of type NORMAL."""
        self.incoming[topic, _PLAIN].add_plain(records)

    def _stored_apart(
        self, topic: TopicConfig, records: Sequence[PendingRecord], places: Sequence[AppendedRecord]
    ) -> None:
        """The same where each message has to be looked at: for its type, and whether it waits for its time."""
        for record, place in zip(records, places, strict=True):
            self.incoming[topic.name, type_of(record.message).value].add((record,), (place,))
            if record.message.topic == TIMER_TOPIC:
                self.timers[topic.name].add(record, place)

    def note_popped(self, group: str, topic: str, popped: Sequence[PoppedMessage]) -> None:
        """Messages were delivered for a time. Those of light queues, which may be very many, count for the topics that
        they were sent to."""
        if not popped:
            return
        if topic.startswith(LIGHT_PREFIX) and is_light_queue(topic):
            for one in popped:
                self.note_popped(group, one.message.topic, (one,))
            return
        outgoing = self.outgoing[group, topic]
        outgoing.messages += len(popped)
        for one in popped:
            outgoing.size_bytes += len(one.message.body)
            if one.delivery_attempt > 1:
                outgoing.again += 1

    def note_delivered(self, group: str, topic: str, count: int, body_bytes: int) -> None:
        """So many messages were delivered for the first time, for a time; of no light queue."""
        outgoing = self.outgoing[group, topic]
        outgoing.messages += count
        outgoing.size_bytes += body_bytes

    def note_pulled(self, request: PullRequest, result: PullResult, *, holds_batches: bool) -> None:
        """A reader got records. Where one of them may hold many messages, the way that the reader went is counted."""
        if not result.records:
            return
        whole = request.raw or (holds_batches and request.filter.takes_all)
        outgoing = self.outgoing[request.group, request.topic]
        count = result.message_count or len(result.records)
        outgoing.messages += result.next_offset - request.queue_offset if whole else count
        outgoing.size_bytes += sum(map(len, result.records))

    def note_dead_letter(self, group: str, topic: str) -> None:
        """A message of the topic went to the group's dead-letter topic."""
        self.dead_letters[group, topic].number += 1

    def note_expired(self, group: str, topic: str) -> None:
        """The group passed over a message of the topic because its time was over."""
        self.expired[group, topic].number += 1

    def note_end_of_transaction(self, topic: str, resolution: Resolution, elapsed_ms: int) -> None:
        """A transaction was committed or rolled back by its producer."""
        traffic = self.transactions[topic]
        if resolution is Resolution.COMMIT:
            traffic.committed += 1
        else:
            traffic.rolled_back += 1
        traffic.finishes.add(max(elapsed_ms, 0))

    def forget_topic(self, topic: str) -> None:
        """Drop what is counted of a deleted topic."""
        for incoming in [key for key in self.incoming if key[0] == topic]:
            del self.incoming[incoming]
        for table in (self.outgoing, self.dead_letters, self.expired):
            for pair in [pair for pair in table if pair[1] == topic]:
                table.pop(pair, None)
        self.timers.pop(topic, None)
        self.transactions.pop(topic, None)

    def forget_group(self, group: str) -> None:
        """Drop what is counted of a deleted group."""
        for table in (self.outgoing, self.dead_letters, self.expired):
            for pair in [pair for pair in table if pair[0] == group]:
                table.pop(pair, None)
