"""Message properties: their stored text form, and the names that RocketMQ reserves.

Text form: `key \\x01 value \\x02` repeated; readers accept a missing last \\x02. Source: RocketMQ 5.3 stored layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = [
    "AMQP_KEYS",
    "BORN_HOST",
    "BORN_TIMESTAMP",
    "CLUSTER",
    "DELAYS",
    "DELAY_LEVEL",
    "DELIVERY_TIME_MS",
    "EXPIRES_MS",
    "INNER_BASE",
    "INNER_NUMBER",
    "KEYS",
    "LITE_TOPIC",
    "MAX_PRIORITY",
    "MAX_STORED_BYTES",
    "MESSAGE_GROUP",
    "MULTI_DISPATCH",
    "MULTI_QUEUE_OFFSET",
    "ORIGIN_MESSAGE_ID",
    "POP_CHECK",
    "PRIORITY",
    "PRODUCER_GROUP",
    "PUSH_REPLY_TIME",
    "REAL_QUEUE",
    "REAL_TOPIC",
    "REPLY_TO_CLIENT",
    "RESERVED",
    "RETRY_TOPIC",
    "TAGS",
    "TIMER_OF",
    "TRACE_CONTEXT",
    "TRANSACTION",
    "TRANSACTION_ID",
    "UNIQUE_KEY",
    "decode_priority",
    "decode_properties",
    "encode_properties",
    "has_control_character",
    "parse_properties",
    "put_sorting_properties",
]

KEYS = "KEYS"
TAGS = "TAGS"
UNIQUE_KEY = "UNIQ_KEY"
MESSAGE_GROUP = "__SHARDINGKEY"
PRIORITY = "_SYS_MSG_PRIORITY_"
LITE_TOPIC = "__LITE_TOPIC"
PRODUCER_GROUP = "PGROUP"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
"""In a message that wants a reply, and in the reply: the id of the client that waits for it."""
CLUSTER = "CLUSTER"
"""In a message that wants a reply: the cluster whose reply topic takes it."""
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
"""In a reply: when it was handed to the client that waits."""
DELIVERY_TIME_MS = "TIMER_DELIVER_MS"
"""When a delayed message is to be delivered, since 1970."""
DELAYS = frozenset((DELIVERY_TIME_MS, "TIMER_DELAY_SEC", "TIMER_DELAY_MS"))
"""By which a sender names the time of delivery; any of them makes a message a delayed one."""
DELAY_LEVEL = "DELAY"
"""The same as a number of 1 to 18; 0 is no delay."""
TIMER_OF = "__TIMER_OF"
"""In a delayed message that was delivered, and in a cancellation: the queue offset of its record in the timer topic."""
POP_CHECK = "POP_CK"
"""In a popped message on its way to a remoting client: its receipt handle, where the answer's fields do not give it."""
RETRY_TOPIC = "RETRY_TOPIC"
"""In a message that a consumer gave back: the topic that it was first sent to."""
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
"""The same for the offset message id of its first record."""
TRANSACTION = "TRAN_MSG"
"""`true` in a message that waits for the end of its transaction."""
TRANSACTION_ID = "__transactionId__"
"""In a message whose transaction was committed: by what its producer knew it."""
INNER_NUMBER = "INNER_NUM"
"""Messages in a record of a batch queue."""
INNER_BASE = "INNER_BASE"
"""The queue offset of the first of them."""
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
"""The light queues that have the record, set by the broker alone; see `model/light_queue.py`."""
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
"""Behind it: the record's queue offset in each of them."""
REAL_TOPIC = "REAL_TOPIC"
"""In a message that is stored for another topic: that topic."""
REAL_QUEUE = "REAL_QID"
"""The same for the queue."""
EXPIRES_MS = "__EXPIRES_MS"
"""Our own: when the message expires; see `model/expiry.py`."""
AMQP_KEYS = "__AMQP_KEYS"
"""Our own: further AMQP routing keys of the message; see `model/routing/routes.py`."""

MAX_STORED_BYTES = 32767 - 20
"""Bytes of the text form at most: the record holds its length in a signed int16 and adds a checksum property."""

RESERVED = frozenset(
    """
    KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
    EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME
    TRAN_PREPARED_QUEUE_OFFSET DUP_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME
    CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS
    TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __TIMER_OF __BORNHOST
    BORN_TIMESTAMP
    DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32# __SHARDINGKEY INNER_NUM INNER_BASE
    CHECK_IMMUNITY_TIME_IN_SECONDS __transactionId__ TRANSACTION_CHECK_TIMES INNER_MULTI_DISPATCH TRACE_CONTEXT
    _SYS_MSG_PRIORITY_ __LITE_TOPIC
    __DLQ_REASON __REDRIVE_OF __EXPIRES_MS __AMQP_KEYS
    """.split()
)
"""Names that a user property may not take."""

MAX_PRIORITY = 2_147_483_647
"""The highest priority of a message."""

_PRIORITY_DIGITS = len(str(MAX_PRIORITY))

_END_OF_NAME = "\x01"
_END_OF_VALUE = "\x02"


def put_sorting_properties(
    properties: dict[str, str],
    tag: str | None,
    keys: Sequence[str],
    message_group: str | None,
    priority: int | None,
    lite_topic: str | None,
) -> None:
    """Add by their stored names, in this order, what a sender sorts its message by; nothing of what it left out."""
    if tag is not None:
        properties[TAGS] = tag
    if keys:
        properties[KEYS] = " ".join(keys)
    if message_group is not None:
        properties[MESSAGE_GROUP] = message_group
    if priority is not None:
        properties[PRIORITY] = str(priority)
    if lite_topic is not None:
        properties[LITE_TOPIC] = lite_topic


def decode_priority(text: str) -> int | None:
    """The priority that a stored text says, 0 to `MAX_PRIORITY`; None if it says none."""
    if not text.isascii() or not text.isdecimal() or len(text) > _PRIORITY_DIGITS:
        return None
    priority = int(text)
    return priority if priority <= MAX_PRIORITY else None


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The stored text of `properties`, UTF-8. Names and values must be free of \\x01 and \\x02."""
    return "".join([f"{name}{_END_OF_NAME}{value}{_END_OF_VALUE}" for name, value in properties.items()]).encode()


def decode_properties(text: bytes | memoryview) -> dict[str, str]:
    """The properties of a stored text. A pair without a name mark is passed over; bad UTF-8 is replaced."""
    return parse_properties(str(text, "utf-8", "replace"))


def parse_properties(text: str) -> dict[str, str]:
    """The same of a text that is no longer bytes."""
    return dict([pair.split(_END_OF_NAME, 1) for pair in text.split(_END_OF_VALUE) if _END_OF_NAME in pair])


def has_control_character(text: str) -> bool:
    """Whether `text` has a C0, DEL or C1 control character."""
    return any(character < " " or "\x7f" <= character <= "\x9f" for character in text)
