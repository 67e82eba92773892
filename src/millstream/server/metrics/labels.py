"""Label values: words for flags, and one common value for names over the limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.broker.queues.topics import RETRY_PREFIX
from millstream.model.group import SYSTEM_GROUP_PREFIX
from millstream.model.topic import is_system_topic

__all__ = ["OTHER", "UNKNOWN", "group_flags", "limit_rows", "topic_flag"]

OTHER: Final = "other"
"""Stands for all names of what is counted together, because there are too many for one each."""

UNKNOWN: Final = "unknown"
"""Stands for what a client did not tell."""


def topic_flag(topic: str) -> str:
    """The label is_system of a topic."""
    return _flag(is_system_topic(topic))


def group_flags(group: str, topic: str) -> tuple[str, str]:
    """The labels is_retry and is_system of a group's part in a topic."""
    return _flag(topic.startswith(RETRY_PREFIX)), _flag(is_system_topic(topic) or group.startswith(SYSTEM_GROUP_PREFIX))


def limit_rows(numbers: Mapping[tuple[str, ...], int], limit: int) -> dict[tuple[str, ...], int]:
    """The first `limit` rows; all others together in one whose labels are `OTHER`."""
    shown = dict(list(numbers.items())[:limit])
    if len(numbers) > limit:
        width = len(next(iter(numbers)))
        shown[(OTHER,) * width] = sum(list(numbers.values())[limit:])
    return shown


def _flag(is_set: bool) -> str:
    return "true" if is_set else "false"
