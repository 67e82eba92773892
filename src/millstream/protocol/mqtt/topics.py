"""Topic names and topic filters (MQTT 5.0, section 4.7), and shared subscriptions (section 4.8.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = [
    "MAX_TOPIC_BYTES",
    "MAX_TOPIC_LEVELS",
    "SharedFilter",
    "check_topic_filter",
    "check_topic_name",
    "filter_matches",
    "parse_shared_filter",
]

MAX_TOPIC_BYTES: Final = 1024
"""Bytes of a topic name or filter at most."""

MAX_TOPIC_LEVELS: Final = 128
"""Levels of a topic name or filter at most."""

_SHARE: Final = "$share/"
_KEPT_PAIRS: Final = 16_384


def check_topic_name(topic: str) -> None:
    """Refuse a name that nothing can be published to: TOPIC_NAME_INVALID."""
    if not topic or "+" in topic or "#" in topic:
        raise PacketRefused(ReasonCode.TOPIC_NAME_INVALID, f"{topic[:200]!r} is no topic name.")
    _check_size(topic, ReasonCode.TOPIC_NAME_INVALID)


def check_topic_filter(topic_filter: str) -> None:
    """Refuse a filter that can match nothing: TOPIC_FILTER_INVALID. `#` stands at the end alone [MQTT-4.7.1-1], and
    each wildcard fills a whole level [MQTT-4.7.1-2]."""
    levels = topic_filter.split("/")
    wrong = any(("+" in level or "#" in level) and len(level) > 1 for level in levels)
    if not topic_filter or wrong or "#" in levels[:-1]:
        raise PacketRefused(ReasonCode.TOPIC_FILTER_INVALID, f"{topic_filter[:200]!r} is no topic filter.")
    _check_size(topic_filter, ReasonCode.TOPIC_FILTER_INVALID)


def _check_size(text: str, reason: ReasonCode) -> None:
    levels, size_bytes = text.count("/") + 1, len(text.encode())
    if levels > MAX_TOPIC_LEVELS or size_bytes > MAX_TOPIC_BYTES:
        words = f"The limits are {MAX_TOPIC_LEVELS} levels and {MAX_TOPIC_BYTES} bytes"
        raise PacketRefused(reason, f"{words}; {text[:80]!r} has {levels} and {size_bytes}.")


@dataclass(frozen=True, slots=True)
class SharedFilter:
    """`$share/GROUP/FILTER`: the messages of the filter are shared among the group's members."""

    group: str
    topic_filter: str


def parse_shared_filter(topic_filter: str) -> SharedFilter | None:
    """The two parts of a shared subscription; None for another filter. TOPIC_FILTER_INVALID [MQTT-4.8.2-1] and
    [MQTT-4.8.2-2]."""
    if not topic_filter.startswith(_SHARE):
        return None
    group, slash, rest = topic_filter.removeprefix(_SHARE).partition("/")
    if not group or "+" in group or "#" in group or not slash or not rest:
        raise PacketRefused(
            ReasonCode.TOPIC_FILTER_INVALID, f"{topic_filter[:200]!r} is not of the form $share/group/filter."
        )
    return SharedFilter(group, rest)


@lru_cache(maxsize=_KEPT_PAIRS)
def filter_matches(topic_filter: str, topic: str) -> bool:
    """Whether the filter matches the name. A wildcard in front does not match names that begin with `$`
    [MQTT-4.7.2-1]."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)
