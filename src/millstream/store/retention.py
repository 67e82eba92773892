"""Retention policy: which log segments may be deleted, by age or because the disk is full.

The active segment stays, and so does what lies behind the last checkpoint or is still needed by a derived file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["DiskState", "RetentionPolicy", "SegmentAge", "expired_segments"]

_HOUR_MS = 3_600_000
_GIB = 1024**3

MAX_SEGMENTS_A_ROUND = 10
"""Segments that one round removes at most, so that the disk is not kept busy by removing alone."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long messages are kept, and what the disk must have left. Defaults: RocketMQ's 72 h, 85 % and 90 %.

    A ratio alone would refuse messages on a large disk that has plenty of room, so each of the two limits holds only
    where less than its bytes are free as well.
    """

    keep_ms: int = 72 * _HOUR_MS
    scarce_used_ratio: float = 0.85
    scarce_free_bytes: int = 16 * _GIB
    """Beyond both the oldest segments go, whatever their age."""
    full_used_ratio: float = 0.90
    full_free_bytes: int = 4 * _GIB
    """Beyond both no message is taken any more."""


class DiskState(NamedTuple):
    """The size of a disk and what is free of it for this process."""

    size_bytes: int
    free_bytes: int

    def is_beyond(self, used_ratio: float, free_bytes: int) -> bool:
        """Whether more than the ratio is used and less than the bytes are free."""
        used = 1 - self.free_bytes / self.size_bytes if self.size_bytes else 0.0
        return used > used_ratio and self.free_bytes < free_bytes


class SegmentAge(NamedTuple):
    """A segment that is not written any more, and when its last record was stored."""

    size_bytes: int
    last_store_timestamp_ms: int


def expired_segments(segments: Sequence[SegmentAge], now_ms: int, disk: DiskState, policy: RetentionPolicy) -> int:
    """How many of the segments, oldest first, may go now; at most 10."""
    expired = 0
    for segment in segments[:MAX_SEGMENTS_A_ROUND]:
        is_old = segment.last_store_timestamp_ms + policy.keep_ms < now_ms
        if not is_old and not disk.is_beyond(policy.scarce_used_ratio, policy.scarce_free_bytes):
            break
        disk = disk._replace(free_bytes=disk.free_bytes + segment.size_bytes)
        expired += 1
    return expired
