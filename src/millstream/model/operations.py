"""The operations of a broker: one request and one result type each, independent of the protocol."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum

from millstream.model.filter import ALL, MessageFilter
from millstream.model.handles import ReceiptHandle
from millstream.model.message import StoredMessage
from millstream.model.topic import RETRY_PREFIX

__all__ = [
    "RECOVERY_TIME_S",
    "AckRequest",
    "ChangeInvisibleRequest",
    "DeadLetter",
    "DeadLetterPage",
    "DeadLetterQuery",
    "DeadLetterReason",
    "PopRequest",
    "PoppedMessage",
    "PullRequest",
    "PullResult",
    "PullStatus",
    "QueuePoint",
    "QueueProgress",
    "QueueRange",
    "QueueReset",
    "RedriveResult",
    "Redriven",
    "ResetRequest",
    "Resolution",
    "SendBackRequest",
    "SendReceipt",
]


RECOVERY_TIME_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""The property with the seconds before a transaction's producer is asked for the first time."""


class Resolution(Enum):
    """What a producer says of its transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """It cannot tell yet, and will be asked again."""


@dataclass(slots=True)
class SendReceipt:
    """Where one message was stored; it is acknowledged at the broker's ack level."""

    message_id: str
    offset_message_id: str
    queue_id: int
    queue_offset: int
    log_offset: int
    store_timestamp_ms: int
    broker_name: str = ""
    due_ms: int | None = None
    """When a delayed message will be delivered; None for one that is there already."""


class PullStatus(Enum):
    """The outcome of a pull."""

    FOUND = "found"
    NOTHING_NEW = "nothing new"
    ALL_FILTERED = "all filtered"
    OFFSET_ILLEGAL = "offset illegal"


@dataclass(slots=True)
class PullRequest:
    """Read a queue from an offset. `wait_ms` holds the request until something matches; 0 answers at once."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int = 32
    max_bytes: int = 256 * 1024
    filter: MessageFilter = ALL
    wait_ms: int = 0
    raw: bool = False
    """Records as they stand in the log, batches whole, unverified and unfiltered; only `max_bytes` bounds them."""


@dataclass(slots=True)
class PullResult:
    """Records as stored (RocketMQ layout, one buffer each; raw ones and those that need no waiting several to a buffer)
    and where to go on. `message_count` is how many there are, where they are known to hold one message each."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: tuple[bytes | memoryview, ...] = ()
    message_count: int = 0


@dataclass(slots=True)
class PopRequest:
    """Take messages out of sight for `invisible_ms`. `queue_id` None takes from `queues`, or from all of the topic.

    `attempt_id` repeats a FIFO receive that failed on the way. `max_messages` 32 at most. From a topic of type LITE
    `client_id` gets messages of the lite topics that it subscribed to.
    """

    group: str
    topic: str
    invisible_ms: int
    queue_id: int | None = None
    max_messages: int = 32
    filter: MessageFilter = ALL
    wait_ms: int = 0
    attempt_id: str = ""
    client_id: str = ""
    queues: tuple[int, ...] = ()
    anywhere: bool = False
    """Where several brokers hold the topic: what another one has will do as well."""
    in_order: bool = False
    """Keep order as for a group that does, whatever the group's setting."""
    takes_expired: bool = False
    """Deliver messages whose time is over as well, as to one who moves them elsewhere."""
    releases: bool = False
    """Of a light queue: first make visible what the group was given before and has not acknowledged, as for a reader
    that takes the place of one that is gone."""


@dataclass(slots=True)
class PoppedMessage:
    """One delivery: the message, its handle, and which delivery this is (1 is the first)."""

    message: StoredMessage
    handle: ReceiptHandle
    delivery_attempt: int


@dataclass(slots=True)
class AckRequest:
    """Say that one delivery was consumed. Acknowledging twice is no error.

    `in_time`: refuse a delivery whose time is over, although nobody else has it yet.
    """

    group: str
    topic: str
    handle: ReceiptHandle
    in_time: bool = False


@dataclass(slots=True)
class ChangeInvisibleRequest:
    """Make a delivery visible `invisible_ms` from now; the old handle becomes invalid.

    `suspend`: the delivery does not count as an attempt. `renewal`: its consumer does not learn of the new handle, so
    that the old one stays valid as well. `in_time`: as of `AckRequest`.
    """

    group: str
    topic: str
    handle: ReceiptHandle
    invisible_ms: int
    suspend: bool = False
    renewal: bool = False
    in_time: bool = False


@dataclass(frozen=True, slots=True)
class QueueRange:
    """What of a queue can be read: offsets `min_offset` up to but without `max_offset`, and the last store time.

    `last_store_timestamp_ms` is 0 for a queue that holds nothing.
    """

    queue_id: int
    min_offset: int
    max_offset: int
    last_store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in one queue, whose offsets run from `min_offset` up to but without `max_offset`.

    All below `committed` is consumed, nothing from `next_offset` on was delivered. `ready` messages can be received
    now, `in_flight` ones are out of sight. Filters do not count: what one will pass over is ready as well.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    committed: int
    next_offset: int
    ready: int
    in_flight: int
    oldest_ms: int = 0
    """When the oldest message that is not consumed was stored; 0 where all are."""
    consumed_ms: int = 0
    """When the message before `committed` was stored; 0 where it is not known."""
    ready_bytes: int | None = None
    """Bytes of the bodies of what is ready, as they are stored; None where nobody has measured them."""

    @property
    def lag(self) -> int:
        """Messages that are not consumed."""
        return self.ready + self.in_flight


@dataclass(frozen=True, slots=True)
class SendBackRequest:
    """Deliver a message to the group again after a delay: RocketMQ's level (1 to 18), 0 as the group has it, -1 never.

    `log_offset` is where its record lies, `message_id` tells messages of one record apart. `max_reconsume_times` is
    how often the consumer wants it again at most, None as the group has it. `topics` are those that the consumer may
    read: it gives back nothing else.
    """

    group: str
    log_offset: int
    delay_level: int = 0
    message_id: str = ""
    max_reconsume_times: int | None = None
    topics: Container[str] = ()

    def may_be_of(self, topic: str) -> bool:
        """Whether the group may give back messages of the topic."""
        return topic == RETRY_PREFIX + self.group or topic in self.topics


class QueuePoint(Enum):
    """A place of a queue: an offset, the first one stored at a time or later, the first or the one behind the last."""

    OFFSET = "offset"
    TIME = "time"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """Put a group to another place of one queue, or of all (None). `value` is an offset or milliseconds since 1970."""

    group: str
    topic: str
    point: QueuePoint
    value: int = 0
    queue_id: int | None = None


@dataclass(frozen=True, slots=True)
class QueueReset:
    """Where the group was in a queue, where it is now, and how many deliveries in flight were discarded."""

    queue_id: int
    before: int
    after: int
    discarded: int


class DeadLetterReason(Enum):
    """Why a message is a dead letter."""

    ATTEMPTS = "attempts used up"
    CONSUMER = "given up by the consumer"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that a group could not consume. What is not known is blank."""

    queue_offset: int
    message_id: str
    origin_topic: str
    origin_message_id: str
    attempts: int
    dead_ms: int
    reason: str
    size_bytes: int
    is_redriven: bool


@dataclass(frozen=True, slots=True)
class DeadLetterQuery:
    """Dead letters of a group from a queue offset on: those that died in that time (`until_ms` not included).

    `message_ids` are ids of dead letters or of the messages they were; empty for all. `only_waiting` leaves out those
    that were sent again.
    """

    group: str
    offset: int = 0
    max_letters: int = 100
    message_ids: frozenset[str] = frozenset()
    since_ms: int = 0
    until_ms: int = 1 << 62
    only_waiting: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """What a query found, where to go on, and where the dead letters end."""

    letters: tuple[DeadLetter, ...]
    next_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """One dead letter that was sent to a topic, or, with the words of the refusal, was not."""

    queue_offset: int
    message_id: str
    topic: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """What became of the dead letters of one call, where to go on, and where the dead letters end."""

    results: tuple[Redriven, ...]
    next_offset: int
    end_offset: int
