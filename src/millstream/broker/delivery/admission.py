"""Checks a message before it is stored: topic, type, body and properties; a refusal names the bad value.

What is stored must also be writable: one message that cannot be encoded would fail everything that shares its write,
so text that is no UTF-8, addresses that are no IP and numbers out of range are refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address

from millstream.model import properties as names
from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.lite import check_lite_topic
from millstream.model.message import MAX_BODY_BYTES, OutgoingMessage, SystemFlag
from millstream.model.operations import RECOVERY_TIME_S
from millstream.model.topic import MessageType, Permission, TopicConfig, is_system_topic
from millstream.protocol.trace import TRACE_TOPIC

__all__ = [
    "MAX_MESSAGE_GROUP_BYTES",
    "MAX_RECOVERY_TIME_S",
    "MAX_SEND_MESSAGES",
    "MAX_USER_PROPERTIES",
    "MAX_USER_PROPERTIES_BYTES",
    "check_again",
    "check_content",
    "check_keys",
    "check_message",
    "check_messages",
    "check_user_properties",
    "is_writable",
    "plain_properties",
    "type_of",
]

MAX_SEND_MESSAGES = 32_768
"""Messages of one send at most."""

MAX_USER_PROPERTIES = 128
"""User properties of one message at most, of those that come over gRPC."""

MAX_USER_PROPERTIES_BYTES = 16 * 1024
"""Bytes of the user properties' names and values, the tag and the keys together at most, of a message that comes over
gRPC."""

MAX_MESSAGE_GROUP_BYTES = 63
"""Bytes of a message group at most; RocketMQ's proxy refuses one of 64."""

MAX_STORED_BYTES = names.MAX_STORED_BYTES - 1024
"""Bytes of all properties as stored at most; the rest is left for what the broker adds, as for a dead letter."""

MAX_RECOVERY_TIME_S = 3600
"""Seconds at most after which a transaction's producer wants to be asked for the first time."""

MAX_BATCH_MESSAGES = 32_767
"""Messages of one record at most."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]").search
_SEPARATOR = re.compile("[\x01\x02]").search
_TRANSACTION_FLAGS = int(SystemFlag.TRANSACTION_PREPARED | SystemFlag.TRANSACTION_COMMIT)
_BATCH_FLAGS = int(SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP | SystemFlag.ARROW_BATCH)
_PLACES = frozenset((names.INNER_NUMBER, names.INNER_BASE))
_WRITE = int(Permission.WRITE)
_STORABLE = frozenset(MessageType) - {MessageType.MIXED}
_TYPED = frozenset(
    (names.TRANSACTION, names.DELAY_LEVEL, *names.DELAYS, names.MESSAGE_GROUP, names.PRIORITY, names.LITE_TOPIC)
)
"""Properties that give a message its type."""
_ACTED_UPON = (
    _TYPED
    | _PLACES
    | {
        names.TIMER_OF,
        names.REPLY_TO_CLIENT,
        names.MULTI_DISPATCH,
        names.MULTI_QUEUE_OFFSET,
    }
)
"""Properties for which a message gets more than a place in the log."""
# At hand, because in Python 3.11 the way from an enum's class to a member runs in Python.
_FIFO, _TRANSACTION = MessageType.FIFO, MessageType.TRANSACTION
_PRIORITY, _LITE = MessageType.PRIORITY, MessageType.LITE
_INT32, _INT64 = 1 << 31, 1 << 63
_MAX_DIGITS = 9

_WHAT_MAKES_IT = {
    MessageType.FIFO: "Give it a message group (produce --group)",
    MessageType.DELAY: "Give it a delivery time (produce --delay or --at)",
    MessageType.PRIORITY: "Give it a priority (produce --priority)",
    MessageType.TRANSACTION: "Send it in a transaction of a RocketMQ 5 client",
    MessageType.LITE: "Give it a lite topic (RocketMQ 5 clients)",
}
"""What a message without a type of its own lacks for a topic of that type."""


def type_of(message: OutgoingMessage) -> MessageType:
    """The message's type as its properties say; where they say nothing, what its sender called it.

    Source: RocketMQ 5.4 decides by TRAN_MSG, then delay properties, message group, priority and lite topic.
    """
    held = message.properties
    if _TYPED.isdisjoint(held) and not int(message.system_flag) & _TRANSACTION_FLAGS:
        return message.message_type
    if held.get(names.TRANSACTION) == "true" or int(message.system_flag) & _TRANSACTION_FLAGS:
        return MessageType.TRANSACTION
    if held.get(names.DELAY_LEVEL, "0") != "0" or not names.DELAYS.isdisjoint(held):
        return MessageType.DELAY
    if names.MESSAGE_GROUP in held:
        return MessageType.FIFO
    if names.PRIORITY in held:
        return MessageType.PRIORITY
    if names.LITE_TOPIC in held:
        return MessageType.LITE
    return message.message_type


def check_messages(messages: Sequence[OutgoingMessage], topic: TopicConfig, *, typed: bool = True) -> None:
    """Refuse a send that is empty, too long or of several topics, or of which one message is not acceptable.

    `typed`: the messages have to be of the topic's type, too.
    """
    if not 1 <= len(messages) <= MAX_SEND_MESSAGES:
        raise MessageRefused(
            "MESSAGE_MALFORMED", f"A send has {len(messages)} messages; 1 to {MAX_SEND_MESSAGES} are allowed."
        )
    _check_writable(topic)
    for message in messages:
        check_message(message, topic, typed=typed)


def check_again(message: OutgoingMessage, topic: TopicConfig) -> None:
    """Refuse a message that was admitted before, where its topic cannot take it (any more)."""
    _check_writable(topic)
    if topic.is_compacted:
        _check_key(message, topic)


def is_writable(topic: TopicConfig) -> bool:
    """Whether clients may write to the topic at all."""
    try:
        _check_writable(topic)
    except NameRefused:
        return False
    return True


def _check_writable(topic: TopicConfig) -> None:
    if is_system_topic(topic.name) and topic.name != TRACE_TOPIC:
        raise NameRefused("ILLEGAL_TOPIC", f"The topic {topic.name!r} is the system's own; clients may not write it.")
    if not int(topic.permission) & _WRITE or topic.write_queues < 1:
        raise NameRefused("FORBIDDEN", f"The topic {topic.name!r} has no writable queue.")


def check_message(message: OutgoingMessage, topic: TopicConfig, *, typed: bool = True) -> None:
    """Refuse one message: body, properties, type or queue; see `check_messages`."""
    held = message.properties
    if message.topic != topic.name:
        raise MessageRefused(
            "MESSAGE_MALFORMED", f"A message for the topic {message.topic[:200]!r} is in a send to {topic.name!r}."
        )
    if topic.is_compacted:
        _check_key(message, topic)
    elif not message.body:
        raise MessageRefused("BODY_EMPTY", f"A message for the topic {topic.name!r} has an empty body.")
    _check_size(message)
    _check_properties(held)
    if message.system_flag or message.message_count != 1 or not _PLACES.isdisjoint(held):
        _check_batch(message, topic)
    _check_type(message, topic, typed=typed)
    if message.queue_id is not None and not 0 <= message.queue_id < topic.write_queues:
        raise NameRefused(
            "QUEUE_NOT_FOUND",
            f"The topic {topic.name!r} has {topic.write_queues} writable queues; {message.queue_id} is none of them.",
        )
    _check_storable(message)


def check_content(message: OutgoingMessage) -> None:
    """Refuse a copy of a message that was admitted once, as consumers send it, where it cannot be stored."""
    _check_size(message)
    _check_properties(message.properties)
    _check_storable(message)


def _check_size(message: OutgoingMessage) -> None:
    size_bytes = len(message.body)
    if size_bytes > MAX_BODY_BYTES:
        raise MessageRefused("BODY_TOO_LARGE", f"The body has {size_bytes} bytes; the limit is {MAX_BODY_BYTES}.")


def check_user_properties(user: Mapping[str, str], tag: str | None = None, keys: Iterable[str] = ()) -> None:
    """Refuse user properties, before they are joined with the reserved ones: number, names and characters; and what a
    sender gave in all, with the tag and the keys. These are the limits of RocketMQ's proxy; its broker takes more."""
    _check_user_bytes(user, tag or "", keys)
    if not user:
        return
    if len(user) > MAX_USER_PROPERTIES:
        raise MessageRefused(
            "PROPERTIES_TOO_LARGE", f"The message has {len(user)} user properties; the limit is {MAX_USER_PROPERTIES}."
        )
    _check_user_names(user)
    _check_user_text(user)


def _check_user_names(user: Iterable[str]) -> None:
    for name in user:
        if name in names.RESERVED or not name.strip():
            raise MessageRefused("ILLEGAL_PROPERTY", f"{name[:200]!r} is no name for a user property.")


def _check_user_bytes(user: Mapping[str, str], tag: str, keys: Iterable[str]) -> None:
    user_bytes = _size_bytes((*user, *user.values(), tag, *keys))
    if user_bytes > MAX_USER_PROPERTIES_BYTES:
        raise MessageRefused(
            "PROPERTIES_TOO_LARGE",
            f"User properties, tag and keys have {user_bytes} bytes; the limit is {MAX_USER_PROPERTIES_BYTES}.",
        )


def plain_properties(text: str) -> dict[str, str] | None:
    """The properties of a stored text if they are acceptable and none of them makes the message more than an ordinary
    one; None where somebody has to look closer."""
    if not text.isascii():
        return None
    held = names.parse_properties(text)
    if not _ACTED_UPON.isdisjoint(held):
        return None
    try:
        _check_properties(held)
    except MessageRefused:
        return None
    return held


def is_plain(held: Mapping[str, str], user_properties: int) -> bool:
    """Whether properties are acceptable and none of them makes the message more than an ordinary one; False where
    somebody has to look closer. The last `user_properties` of them are a user's."""
    text = "".join(held) + "".join(held.values())
    if not text.isascii() or not text.isprintable() or len(text) > MAX_USER_PROPERTIES_BYTES:
        return False
    if not _ACTED_UPON.isdisjoint(held) or "" in held or names.KEYS in held or names.TAGS in held:
        return _is_plain_apart(held, user_properties)
    return not user_properties or _is_plain_apart(held, user_properties)


def _is_plain_apart(held: Mapping[str, str], user_properties: int) -> bool:
    if not _ACTED_UPON.isdisjoint(held) or len(held) > MAX_USER_PROPERTIES:
        return False
    user = [*held][len(held) - user_properties :] if user_properties else []
    try:
        _check_user_names(user)
        _check_properties(held)
    except MessageRefused:
        return False
    # Of keys that were joined here none may hold the blank that parts them.
    return True


def check_keys(keys: Iterable[str]) -> None:
    """Refuse a key that is blank or has control characters or blanks, by which stored keys are separated."""
    for key in keys:
        if not key or _CONTROL(key) or " " in key:
            raise MessageRefused("ILLEGAL_KEY", f"{key[:200]!r} is no message key.")


def _check_user_text(user: Mapping[str, str]) -> None:
    # One search over everything: the ordinary message pays for one call, the refused one for finding the culprit.
    if not _CONTROL("".join(user)) and not _CONTROL("".join(user.values())):
        return
    for name, value in user.items():
        if _CONTROL(name) or _CONTROL(value):
            raise MessageRefused(
                "ILLEGAL_PROPERTY", f"The user property {name[:200]!r} has a control character in its name or value."
            )


def _check_properties(held: Mapping[str, str]) -> None:
    # The ordinary message passes by one look at all its text; only what is unusual is taken apart.
    name_text = "".join(held)
    text = name_text + "".join(held.values())
    is_plain = text.isascii() and text.isprintable()
    if not is_plain or len(held) > MAX_USER_PROPERTIES or len(text) > MAX_USER_PROPERTIES_BYTES:
        _check_unusual_properties(held)
    elif "" in held or (" " in name_text and any(map(str.isspace, held))):
        raise MessageRefused("ILLEGAL_PROPERTY", "A user property has a blank name.")
    tag, keys = held.get(names.TAGS), held.get(names.KEYS)
    if tag is not None and (not tag.strip() or "|" in tag or _CONTROL(tag)):
        raise MessageRefused("ILLEGAL_TAG", f"{tag[:200]!r} is no tag.")
    if keys is not None and (not keys.strip() or _CONTROL(keys)):
        raise MessageRefused("ILLEGAL_KEY", f"{keys[:200]!r} are no message keys.")


def _check_unusual_properties(held: Mapping[str, str]) -> None:
    user = {name: value for name, value in held.items() if name not in names.RESERVED}
    _check_user_names(user)
    _check_user_text(user)
    stored_bytes = _size_bytes((*held, *held.values())) + 2 * len(held)
    if stored_bytes > MAX_STORED_BYTES:
        raise MessageRefused(
            "PROPERTIES_TOO_LARGE", f"The properties have {stored_bytes} bytes; the limit is {MAX_STORED_BYTES}."
        )
    if _SEPARATOR("".join(held)) or _SEPARATOR("".join(held.values())):
        raise MessageRefused(
            "ILLEGAL_PROPERTY", "A property has one of the characters \\x01 and \\x02, which separate."
        )


def _size_bytes(texts: Iterable[str]) -> int:
    """UTF-8 bytes of the texts together. Refuses text that has no UTF-8 form."""
    text = "".join(texts)
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise MessageRefused("ILLEGAL_PROPERTY", "A property has text that is not Unicode (half of a pair).") from None


def _check_type(message: OutgoingMessage, topic: TopicConfig, *, typed: bool) -> None:
    kind, takes = type_of(message), topic.message_type
    # Without what makes them, messages have no place in a topic of such a type, and lite ones in no other.
    is_bound = typed or _LITE in (kind, takes) or takes is _PRIORITY
    if is_bound and kind is not takes and not takes.accepts(kind):
        raise MessageRefused(
            "MESSAGE_TYPE_MISMATCH",
            f"The topic {topic.name!r} takes {takes.value} messages; this one is {kind.value}.",
            remedy=_remedy(kind, takes),
        )
    if kind not in _STORABLE:
        raise MessageRefused("UNSUPPORTED_FEATURE", f"Messages of type {kind.value} cannot be sent.")
    if kind is _TRANSACTION:
        _check_transaction(message)
    if kind is _PRIORITY or names.PRIORITY in message.properties:
        _check_priority(message.properties.get(names.PRIORITY, ""))
    if kind is _LITE:
        check_lite_topic(message.properties.get(names.LITE_TOPIC, ""))
    if kind is not _FIFO or not typed:
        return
    group = message.properties.get(names.MESSAGE_GROUP, "")
    if not group.strip() or _CONTROL(group) or _size_bytes((group,)) > MAX_MESSAGE_GROUP_BYTES:
        raise MessageRefused("ILLEGAL_MESSAGE_GROUP", f"{group[:200]!r} is no message group.")


def _remedy(kind: MessageType, taken: MessageType) -> str:
    """What to do with a message of one type that a topic of another one refuses."""
    other = f"a topic for its type: millstream topic create NAME --type {kind.value.lower()}"
    if kind is MessageType.NORMAL and taken in _WHAT_MAKES_IT:
        return f"{_WHAT_MAKES_IT[taken]}, or send to {other}."
    return f"Send it to {other}."


def _check_transaction(message: OutgoingMessage) -> None:
    """A transaction is found by its message's id, ends before the message is delivered, and holds one message."""
    held = message.properties
    if not held.get(names.UNIQUE_KEY, "").strip():
        raise MessageRefused(
            "ILLEGAL_MESSAGE_ID", "A transactional message has no id by which its producer can end it."
        )
    if held.get(names.DELAY_LEVEL, "0") != "0" or not names.DELAYS.isdisjoint(held):
        raise MessageRefused("MESSAGE_TYPE_MISMATCH", "A TRANSACTION message cannot be delayed as well.")
    if message.message_count != 1:
        raise MessageRefused("MESSAGE_MALFORMED", "A batch that is one record cannot be transactional.")
    seconds = held.get(RECOVERY_TIME_S, "0")
    if not seconds.isdecimal() or len(seconds) > _MAX_DIGITS or int(seconds) > MAX_RECOVERY_TIME_S:
        raise MessageRefused(
            "ILLEGAL_RECOVERY_TIME",
            f"The producer wants to be asked after {seconds[:40]!r} s; {MAX_RECOVERY_TIME_S} s is the limit.",
        )


def _check_priority(text: str) -> None:
    if names.decode_priority(text) is None:
        raise MessageRefused("ILLEGAL_PRIORITY", f"{text[:40]!r} is no priority.")


def _check_key(message: OutgoingMessage, topic: TopicConfig) -> None:
    """A compacted topic keeps the last message of each key; one with an empty body deletes its key."""
    if not message.properties.get(names.KEYS, "").strip():
        raise MessageRefused(
            "ILLEGAL_KEY",
            f"The topic {topic.name!r} is compacted; a message without a key has no place in it.",
            remedy="Give the message a key.",
        )


def _check_batch(message: OutgoingMessage, topic: TopicConfig) -> None:
    is_batch = int(message.system_flag) & _BATCH_FLAGS
    if not is_batch and message.message_count == 1 and _PLACES.isdisjoint(message.properties):
        return
    if not topic.holds_batches:
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"The topic {topic.name!r} takes no batches that are stored as one record.",
            remedy="Create it with millstream topic create NAME --batches (the attribute queue.type=BatchCQ).",
        )
    if not is_batch or not 1 <= message.message_count <= MAX_BATCH_MESSAGES:
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"The batch says that it has {message.message_count} messages; 1 to {MAX_BATCH_MESSAGES} are allowed.",
        )
    if not _PLACES.isdisjoint(message.properties):
        raise MessageRefused("ILLEGAL_PROPERTY", "INNER_NUM and INNER_BASE are set by the broker alone.")


def _check_storable(message: OutgoingMessage) -> None:
    if not _is_ip(message.born_host.host):
        raise MessageRefused("MESSAGE_MALFORMED", f"The born host {message.born_host.host[:80]!r} is no IP address.")
    if not (
        -_INT32 <= message.flag < _INT32
        and 0 <= message.reconsume_times < _INT32
        and -_INT32 <= message.born_host.port < _INT32
        and -_INT64 <= message.born_timestamp_ms < _INT64
    ):
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"A number is out of its range: flag {message.flag}, reconsume times {message.reconsume_times}, "
            f"born port {message.born_host.port}, born timestamp {message.born_timestamp_ms}.",
        )


@lru_cache(maxsize=4096)
def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host
