"""Consumer groups and their redelivery policy. Names and defaults follow RocketMQ 5 (120 characters, 16 retries)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.model.errors import NameRefused

__all__ = ["DEFAULT_BACKOFF_S", "DEFAULT_MAX_ATTEMPTS", "MAX_GROUP_CHARACTERS", "GroupConfig", "check_group_name"]

MAX_GROUP_CHARACTERS = 120
DEFAULT_MAX_ATTEMPTS = 17
"""Deliveries of one message at most: the first one and 16 retries."""

DEFAULT_BACKOFF_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds before each redelivery; the last step repeats."""

_LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One consumer group. `fifo` groups receive the messages of a message group one after another."""

    name: str
    fifo: bool = False
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff_s: tuple[int, ...] = DEFAULT_BACKOFF_S
    lite_exclusive: bool = False
    """Whether a lite topic has one reader of the group at a time."""


def check_group_name(name: str) -> None:
    """Refuse a name that is empty, too long, or has other characters than RocketMQ allows."""
    if not name or len(name) > MAX_GROUP_CHARACTERS or not _LEGAL_NAME.fullmatch(name):
        raise NameRefused("ILLEGAL_GROUP", f"{name[:200]!r} is not a legal consumer group name.")
