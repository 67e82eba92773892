"""Result values of the client: queues with their brokers, offset ranges, receipts and pulled batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.model.errors import ConsumeRefused
from millstream.model.message import StoredMessage
from millstream.model.operations import PullStatus, QueueRange
from millstream.protocol.batches import messages_of
from millstream.protocol.record import decode_record, iterate_records

__all__ = ["BrokerQueueRange", "PullBatch", "QueueAddress", "SendResult", "range_is_gone"]


@dataclass(frozen=True, slots=True, order=True)
class QueueAddress:
    """One queue of a topic and the broker that holds it. `broker_address` is `host:port`."""

    topic: str
    broker_name: str
    queue_id: int
    broker_address: str


@dataclass(frozen=True, slots=True)
class BrokerQueueRange:
    """What can be read of one queue of one broker."""

    broker_name: str
    range: QueueRange
    queue: QueueAddress


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where one message was stored. `message_id` is the producer's, `offset_message_id` the broker's.

    A delayed message has a recall handle; its queue offset is that of the place where it waits.
    """

    message_id: str
    queue: QueueAddress
    queue_offset: int
    offset_message_id: str
    recall_handle: str = ""


@dataclass(frozen=True, slots=True)
class PullBatch:
    """One answer to a pull: whole records in RocketMQ's layout, laid end to end, and where to go on."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffer: bytes = b""
    offset: int = 0
    """What the pull asked for; a batch may begin before it."""

    def records(self) -> Iterator[memoryview]:
        """Each record as a slice of `buffer`, nothing copied or decoded."""
        return iterate_records(self.buffer)

    def messages(self, *, verify: bool = False) -> list[StoredMessage]:
        """The records decoded, batches as the messages from `offset` on that they hold.

        `verify` checks each body's checksum again, which the broker has done before. Raises RECORD_DAMAGED.
        """
        found = []
        for record in self.records():
            if verify:
                decode_record(record)
            found += messages_of(record, self.offset)
        return found


def range_is_gone(queue: QueueAddress, offset: int, end: int, batch: PullBatch) -> ConsumeRefused:
    """The error for a range that the broker does not hold (any more)."""
    return ConsumeRefused(
        "ILLEGAL_OFFSET",
        f"Queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name} was to be read from {offset} to {end}, "
        f"but holds {batch.min_offset} to {batch.max_offset}.",
    )
