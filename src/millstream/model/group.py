"""Consumer groups and their redelivery policy. Names and defaults follow RocketMQ 5 (120 characters, 16 retries)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from millstream.model.errors import NameRefused

__all__ = [
    "DEFAULT_BACKOFF_S",
    "DEFAULT_MAX_ATTEMPTS",
    "MAX_ATTRIBUTE_CHARACTERS",
    "MAX_BACKOFF_STEPS",
    "MAX_GROUP_ATTEMPTS",
    "MAX_GROUP_ATTRIBUTES",
    "MAX_GROUP_CHARACTERS",
    "MAX_STEP_MS",
    "SYSTEM_GROUP_PREFIX",
    "ExponentialBackoff",
    "FirstPosition",
    "GroupConfig",
    "check_group",
    "check_group_name",
    "is_tool_group",
]

MAX_GROUP_CHARACTERS = 120
DEFAULT_MAX_ATTEMPTS = 17
"""Deliveries of one message at most: the first one and 16 retries."""

MAX_GROUP_ATTEMPTS = 1_000
"""Deliveries of one message that a group may ask for at most."""

MAX_BACKOFF_STEPS = 100
"""Steps of a group's backoff at most."""

MAX_GROUP_ATTRIBUTES = 64
"""Attributes of a group at most."""

MAX_ATTRIBUTE_CHARACTERS = 4096
"""Characters of one attribute's name and value at most."""

MAX_STEP_MS = 12 * 3600 * 1000
"""Milliseconds of one step at most: longer than a delivery may be out of sight, nothing could wait."""

DEFAULT_BACKOFF_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds before each redelivery; the last step repeats."""

_LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_TOOL_GROUPS = frozenset(
    """
    TOOLS_CONSUMER FILTERSRV_CONSUMER SELF_TEST_C_GROUP CID_ONS-HTTP-PROXY CID_ONSAPI_PULL CID_ONSAPI_PERMISSION
    CID_ONSAPI_OWNER MILLSTREAM_CLIENT millstream-cli
    """.split()
)


class FirstPosition(Enum):
    """Where a group begins in a queue that it has no position in."""

    FIRST = "first"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """The wait before the first redelivery, by how much each further one is longer, and the longest one."""

    initial_ms: int = 5_000
    longest_ms: int = 7_200_000
    multiplier: float = 2.0

    def after_ms(self, attempt: int) -> int:
        """The wait after delivery number `attempt` (1 is the first)."""
        if not self.initial_ms:
            return 0
        if self.multiplier > 1:
            reached = math.log(self.longest_ms / self.initial_ms, self.multiplier)
            if attempt - 1 >= reached:
                return self.longest_ms
        return min(int(self.initial_ms * self.multiplier ** (attempt - 1)), self.longest_ms)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One consumer group. `fifo` groups receive the messages of a message group one after another.

    `exponential` replaces the steps of `backoff_s` where it is set. A group that is not `enabled` receives nothing.
    `first_time_ms` (since 1970) goes with FirstPosition.TIME.
    """

    name: str
    fifo: bool = False
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff_s: tuple[int, ...] = DEFAULT_BACKOFF_S
    exponential: ExponentialBackoff | None = None
    enabled: bool = True
    first_position: FirstPosition = FirstPosition.FIRST
    first_time_ms: int = 0
    lite_exclusive: bool = False
    """Whether a lite topic has one reader of the group at a time."""
    attributes: dict[str, str] = field(default_factory=dict)
    """What tools keep with a group, and what RocketMQ's settings say that have no effect here; told as it came."""

    def backoff_ms(self, attempt: int) -> int:
        """Milliseconds between delivery number `attempt` (1 is the first) that failed and the next one."""
        if self.exponential is not None:
            return self.exponential.after_ms(max(attempt, 1))
        return self.backoff_s[min(max(attempt, 1), len(self.backoff_s)) - 1] * 1000


def is_tool_group(name: str) -> bool:
    """Whether the name is one under which tools look at messages: such a group is never kept or listed."""
    return name in _TOOL_GROUPS


@lru_cache(maxsize=4096)
def check_group_name(name: str) -> None:
    """Refuse a name that is empty, too long, or has other characters than RocketMQ allows."""
    if not name or len(name) > MAX_GROUP_CHARACTERS or not _LEGAL_NAME.fullmatch(name):
        raise NameRefused("ILLEGAL_GROUP", f"{name[:200]!r} is not a legal consumer group name.")


def check_group(group: GroupConfig) -> None:
    """Refuse a group that cannot be kept: ILLEGAL_GROUP (name, the system's own) or ILLEGAL_GROUP_SETTING."""
    check_group_name(group.name)
    if group.name.startswith(SYSTEM_GROUP_PREFIX) or is_tool_group(group.name):
        raise NameRefused("ILLEGAL_GROUP", f"The group name {group.name!r} is the system's own.")
    if not 1 <= group.max_attempts <= MAX_GROUP_ATTEMPTS:
        raise _illegal(group, f"{group.max_attempts} attempts", f"Ask for 1 to {MAX_GROUP_ATTEMPTS} attempts.")
    steps = group.backoff_s
    if not 1 <= len(steps) <= MAX_BACKOFF_STEPS or not all(0 <= step * 1000 <= MAX_STEP_MS for step in steps):
        words = f"the backoff {steps[:20]} s" if len(steps) <= MAX_BACKOFF_STEPS else f"{len(steps)} backoff steps"
        remedy = f"Ask for 1 to {MAX_BACKOFF_STEPS} steps of 0 to {MAX_STEP_MS // 1000} s."
        raise _illegal(group, words, remedy)
    curve = group.exponential
    if curve is not None and not (0 <= curve.initial_ms <= curve.longest_ms <= MAX_STEP_MS and curve.multiplier >= 1):
        raise _illegal(
            group,
            f"a backoff from {curve.initial_ms} ms by {curve.multiplier:g} to {curve.longest_ms} ms",
            f"Let it grow (factor 1 or more) from 0 ms or more to {MAX_STEP_MS} ms at most.",
        )
    longest = max((len(key) + len(value) for key, value in group.attributes.items()), default=0)
    if len(group.attributes) > MAX_GROUP_ATTRIBUTES or longest > MAX_ATTRIBUTE_CHARACTERS:
        words = f"{len(group.attributes)} attributes, the longest of {longest} characters"
        remedy = f"Keep to {MAX_GROUP_ATTRIBUTES} of {MAX_ATTRIBUTE_CHARACTERS} characters each."
        raise _illegal(group, words, remedy)
    if group.first_time_ms < 0:
        raise _illegal(group, f"to begin at {group.first_time_ms} ms", "Name a time since 1970.")


def _illegal(group: GroupConfig, words: str, remedy: str) -> NameRefused:
    return NameRefused("ILLEGAL_GROUP_SETTING", f"The group {group.name!r} asks for {words}.", remedy=remedy)
