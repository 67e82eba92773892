"""Lite topics: many small ordered topics below one topic of type LITE (the bind topic), created by their first message.

Each is stored as a queue of its own under a name that no topic of a user can have: `%LMQ%$BIND$LITE`. Names, lengths
and the attribute `lite.topic.expiration` follow RocketMQ 5.4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from millstream.model.errors import MessageRefused

__all__ = [
    "LITE_PREFIX",
    "MAX_LITE_SUBSCRIPTIONS",
    "MAX_LITE_TOPIC_CHARACTERS",
    "LiteAction",
    "LiteStart",
    "LiteStartKind",
    "LiteSync",
    "bind_topic_of",
    "check_lite_topic",
    "lite_queue",
    "lite_topic_of",
]

MAX_LITE_TOPIC_CHARACTERS = 64
"""Characters of a lite topic's name at most."""

MAX_LITE_SUBSCRIPTIONS = 1200
"""Lite topics that one client may subscribe to at one time."""

LITE_PREFIX = "%LMQ%$"
"""What the stored names of all lite topics begin with."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_SEPARATOR = "$"


class LiteAction(Enum):
    """What a client wants with the lite topics that it names; COMPLETE ones stand for all that it has."""

    PARTIAL_ADD = 0
    PARTIAL_REMOVE = 1
    COMPLETE_ADD = 2
    COMPLETE_REMOVE = 3


class LiteStartKind(Enum):
    """Where a group is to begin in a lite topic."""

    LAST = "last"
    MIN = "min"
    MAX = "max"
    OFFSET = "offset"
    TAIL = "tail"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class LiteStart:
    """Where to begin. `value` is an offset, a number of messages before the end, or milliseconds since 1970."""

    kind: LiteStartKind = LiteStartKind.LAST
    value: int = 0


@dataclass(frozen=True, slots=True)
class LiteSync:
    """One client says which lite topics of a bind topic it reads as a member of a group."""

    client_id: str
    group: str
    topic: str
    action: LiteAction
    lite_topics: tuple[str, ...] = ()
    start: LiteStart = LiteStart()


def check_lite_topic(name: str) -> None:
    """Refuse a name that is empty, too long, or has other characters than letters, digits, `_` and `-`."""
    if len(name) > MAX_LITE_TOPIC_CHARACTERS or not _LEGAL_NAME.fullmatch(name):
        raise MessageRefused("ILLEGAL_LITE_TOPIC", f"{name[:200]!r} is no name of a lite topic.")


def lite_queue(bind_topic: str, lite_topic: str) -> str:
    """The name under which a lite topic is stored."""
    return f"{LITE_PREFIX}{bind_topic}{_SEPARATOR}{lite_topic}"


def bind_topic_of(name: str) -> str:
    """The topic that a stored name belongs to: a lite topic's bind topic, any other name itself."""
    return name[len(LITE_PREFIX) :].rpartition(_SEPARATOR)[0] if name.startswith(LITE_PREFIX) else name


def lite_topic_of(name: str) -> str:
    """The lite topic of a stored name; blank where it is none."""
    return name.rpartition(_SEPARATOR)[2] if name.startswith(LITE_PREFIX) else ""
