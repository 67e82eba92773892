"""Topics: name, type, queues and permission. Names and limits follow RocketMQ 5 (127 bytes, `[%|a-zA-Z0-9_-]+`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum, IntFlag
from functools import lru_cache
from urllib.parse import quote_plus, unquote_plus

from millstream.model.errors import NameRefused

__all__ = [
    "MAX_DECLARED_CHARACTERS",
    "MAX_QUEUES",
    "MAX_TOPIC_CHARACTERS",
    "MESSAGE_TYPE_ATTRIBUTE",
    "RETRY_PREFIX",
    "ColumnAttributes",
    "MessageType",
    "Permission",
    "TopicConfig",
    "check_attribute_name",
    "check_attributes",
    "check_topic_name",
    "copy_attributes",
    "is_system_topic",
]

MAX_TOPIC_CHARACTERS = 127
MAX_QUEUES = 1024
"""Queues of one topic at most."""

MAX_DECLARED_CHARACTERS = 8192
"""Characters of the columns that a topic declares at most, as they are stored."""

MESSAGE_TYPE_ATTRIBUTE = "message.type"
"""The attribute that says what kind of messages a topic takes."""

RETRY_PREFIX = "%RETRY%"
"""Before a group's name: the topic of its messages that are to be delivered again; it goes with the group."""

_LEGAL_TABLE = re.compile(r"[a-zA-Z0-9_-]+")
_LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_SYSTEM_TOPICS = frozenset(
    """
    TBW102 SCHEDULE_TOPIC_XXXX BenchmarkTest RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRACE_TOPIC
    RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC SELF_TEST_TOPIC OFFSET_MOVED_EVENT CHECKPOINT_TOPIC
    """.split()
)
_SYSTEM_PREFIX = "rmq_sys_"

# Names and values are RocketMQ's; times are in hours, the lite topics' in minutes.
_QUEUE_TYPE, _BATCH_QUEUE = "queue.type", "BatchCQ"
_CLEANUP_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"
_RESERVE_TIME = "reserve.time"
_LITE_EXPIRATION = "lite.topic.expiration"
# Attributes of our own.
_COLD_FORMAT, _PARQUET = "cold.format", "parquet"
_COLD_SCHEMA = "cold.schema"
_COLD_BODY_FORMAT = "cold.body.format"
_LEGAL_VALUES = {
    _QUEUE_TYPE: re.compile("SimpleCQ|BatchCQ"),
    _CLEANUP_POLICY: re.compile("DELETE|COMPACTION"),
    _RESERVE_TIME: re.compile("[1-9][0-9]{0,5}"),
    _LITE_EXPIRATION: re.compile("-1|[1-9][0-9]{0,3}|[1-3][0-9]{4}|4[0-2][0-9]{3}|43[01][0-9]{2}|43200"),
    _COLD_FORMAT: re.compile(_PARQUET),
    _COLD_SCHEMA: re.compile(f"[A-Za-z0-9_.+%-]{{1,{MAX_DECLARED_CHARACTERS}}}"),
    _COLD_BODY_FORMAT: re.compile("json|csv|avro|raw"),
}
_WORDS = {
    _QUEUE_TYPE: "SimpleCQ, BatchCQ",
    _CLEANUP_POLICY: "DELETE, COMPACTION",
    _RESERVE_TIME: "1 to 999999, in hours",
    _LITE_EXPIRATION: "-1 for never, 1 to 43200, in minutes",
    _COLD_FORMAT: _PARQUET,
    _COLD_SCHEMA: f"columns as in CREATE TABLE, URL-encoded, of {MAX_DECLARED_CHARACTERS} characters at most",
    _COLD_BODY_FORMAT: "json, csv, avro, raw",
}


class Permission(IntFlag):
    """What clients may do with a topic's queues; the values are RocketMQ's."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4


class MessageType(Enum):
    """The kinds of messages, as the topic attribute `message.type` spells them."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    LITE = "LITE"
    PRIORITY = "PRIORITY"

    # Members are single objects; the hash of enums, by name, runs in Python at each look into a set.
    __hash__ = object.__hash__

    def accepts(self, sent: MessageType) -> bool:
        """Whether a topic of this type takes a message of type `sent`."""
        if sent is self:
            return True
        mixed = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
        return self is MessageType.MIXED and sent in mixed


@dataclass(frozen=True, slots=True)
class ColumnAttributes:
    """The columns that a topic's messages have in its copy, as between the brackets of CREATE TABLE, and the format of
    the bodies that they are read from: json, csv, avro, raw."""

    columns: str
    body_format: str


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic as the broker knows it. Queue numbers run from 0; `attributes` holds what has no field of its own."""

    name: str
    message_type: MessageType = MessageType.NORMAL
    read_queues: int = 4
    write_queues: int = 4
    permission: Permission = Permission.READ | Permission.WRITE
    attributes: dict[str, str] = field(default_factory=dict)
    ordered: bool = False
    """Whether tools said that its messages are in order; told to the caller, and without effect here."""

    @property
    def is_template(self) -> bool:
        """Whether it is one of those by whose names tools find a cluster or broker; nobody needs to list it."""
        return Permission.INHERIT in self.permission

    @property
    def holds_batches(self) -> bool:
        """Whether its queues take batches: several messages in one record."""
        return self.attributes.get(_QUEUE_TYPE) == _BATCH_QUEUE

    @property
    def is_compacted(self) -> bool:
        """Whether of each key the last message alone is kept."""
        return self.attributes.get(_CLEANUP_POLICY) == _COMPACTION

    @property
    def time_to_live_ms(self) -> int | None:
        """How long its messages are kept; None where the broker's own time holds."""
        hours = self.attributes.get(_RESERVE_TIME)
        return int(hours) * 3_600_000 if hours else None

    @property
    def lite_expiry_ms(self) -> int | None:
        """How long after its last message a lite topic of this topic goes; None for as long as it holds messages."""
        minutes = int(self.attributes.get(_LITE_EXPIRATION, "-1"))
        return minutes * 60_000 if minutes > 0 else None

    @property
    def column_copy(self) -> ColumnAttributes | None:
        """What its cold messages are copied as into a table; None where they are not."""
        if self.attributes.get(_COLD_FORMAT) != _PARQUET:
            return None
        columns = unquote_plus(self.attributes.get(_COLD_SCHEMA, ""))
        return ColumnAttributes(columns, self.attributes.get(_COLD_BODY_FORMAT, "json"))

    @property
    def queues(self) -> int:
        """Queues that exist: the larger of the readable and the writable ones."""
        return max(self.read_queues, self.write_queues)


def copy_attributes(copy: ColumnAttributes) -> dict[str, str]:
    """The attributes of a topic with such a copy. Columns are URL-encoded: RocketMQ's tools cut attributes at commas,
    equals signs and spaces."""
    return {_COLD_FORMAT: _PARQUET, _COLD_SCHEMA: quote_plus(copy.columns), _COLD_BODY_FORMAT: copy.body_format}


def check_attribute_name(topic: str, name: str) -> None:
    """Refuse an attribute that there is not, before it is set: ILLEGAL_TOPIC. Topics that have some keep them."""
    known = (MESSAGE_TYPE_ATTRIBUTE, *_LEGAL_VALUES)
    if name in known:
        return
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise NameRefused(
        "ILLEGAL_TOPIC",
        f"The topic {topic[:200]!r} cannot have the attribute {name[:80]!r}: there is none of that name.{hint}",
        remedy=f"Attributes are {', '.join(known)}.",
    )


def check_attributes(topic: TopicConfig) -> None:
    """Refuse attributes whose values mean nothing: ILLEGAL_TOPIC. Attributes of other names are kept as they are."""
    for name, legal in _LEGAL_VALUES.items():
        value = topic.attributes.get(name)
        if value is not None and not legal.fullmatch(value):
            raise NameRefused(
                "ILLEGAL_TOPIC",
                f"The topic {topic.name!r} has the attribute {name}={value[:80]!r}.",
                remedy=f"{name} is one of: {_WORDS[name]}.",
            )
    if topic.message_type is MessageType.LITE and (topic.holds_batches or topic.is_compacted):
        raise NameRefused(
            "ILLEGAL_TOPIC",
            f"The topic {topic.name!r} would be of type LITE and compacted or of batches.",
            remedy="Choose one of these.",
        )
    _check_copy(topic)
    if topic.holds_batches and topic.is_compacted:
        raise NameRefused(
            "ILLEGAL_TOPIC",
            f"The topic {topic.name!r} would be compacted and hold batches.",
            remedy="Choose one of the two.",
        )


def _check_copy(topic: TopicConfig) -> None:
    copy = topic.column_copy
    if copy is None:
        return
    words, remedy = "", "Choose one of the two."
    if not copy.columns.strip():
        words, remedy = f"declares no columns for its copy in {_COLD_FORMAT}={_PARQUET}", f"Set {_COLD_SCHEMA} as well."
    elif topic.is_compacted or topic.message_type is MessageType.LITE:
        words = "would be of type LITE or compacted, which never goes into an object store, and have a copy of there"
    elif not _LEGAL_TABLE.fullmatch(topic.name):
        words, remedy = (
            "would be a table, whose name has letters, digits, - and _ alone",
            "Copy a topic of another name.",
        )
    if words:
        raise NameRefused("ILLEGAL_TOPIC", f"The topic {topic.name!r} {words}.", remedy=remedy)


def is_system_topic(name: str) -> bool:
    """Whether the name is the system's own, so that clients may not create or write it."""
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIX)


@lru_cache(maxsize=4096)
def check_topic_name(name: str) -> None:
    """Refuse a name that is empty, too long, or has other characters than RocketMQ allows."""
    if not name or len(name) > MAX_TOPIC_CHARACTERS or not _LEGAL_NAME.fullmatch(name):
        raise NameRefused("ILLEGAL_TOPIC", f"{name[:200]!r} is not a legal topic name.")
