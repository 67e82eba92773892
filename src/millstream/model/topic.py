"""Topics: name, type, queues and permission. Names and limits follow RocketMQ 5 (127 bytes, `[%|a-zA-Z0-9_-]+`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, IntFlag

from millstream.model.errors import NameRefused

__all__ = [
    "MAX_QUEUES",
    "MAX_TOPIC_CHARACTERS",
    "MessageType",
    "Permission",
    "TopicConfig",
    "check_topic_name",
    "is_system_topic",
]

MAX_TOPIC_CHARACTERS = 127
MAX_QUEUES = 1024
"""Queues of one topic at most."""

_LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_SYSTEM_TOPICS = frozenset(
    """
    TBW102 SCHEDULE_TOPIC_XXXX BenchmarkTest RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRACE_TOPIC
    RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC SELF_TEST_TOPIC OFFSET_MOVED_EVENT CHECKPOINT_TOPIC
    """.split()
)
_SYSTEM_PREFIX = "rmq_sys_"


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

    def accepts(self, sent: MessageType) -> bool:
        """Whether a topic of this type takes a message of type `sent`."""
        mixed = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
        return sent is self or (self is MessageType.MIXED and sent in mixed)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic as the broker knows it. Queue numbers run from 0; `attributes` holds what has no field of its own."""

    name: str
    message_type: MessageType = MessageType.NORMAL
    read_queues: int = 4
    write_queues: int = 4
    permission: Permission = Permission.READ | Permission.WRITE
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def queues(self) -> int:
        """Queues that exist: the larger of the readable and the writable ones."""
        return max(self.read_queues, self.write_queues)


def is_system_topic(name: str) -> bool:
    """Whether the name is the system's own, so that clients may not create or write it."""
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIX)


def check_topic_name(name: str) -> None:
    """Refuse a name that is empty, too long, or has other characters than RocketMQ allows."""
    if not name or len(name) > MAX_TOPIC_CHARACTERS or not _LEGAL_NAME.fullmatch(name):
        raise NameRefused("ILLEGAL_TOPIC", f"{name[:200]!r} is not a legal topic name.")
