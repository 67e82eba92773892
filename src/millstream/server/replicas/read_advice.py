"""Advises readers where to pull next: from the master, or from a replica for old messages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

__all__ = ["MASTER_ID", "ReadAdvice"]

MASTER_ID: Final = 0
"""The broker id of a master in routes."""

_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class ReadAdvice:
    """RocketMQ's rule (accessMessageInMemoryMaxRatio): a reader that is farther behind than `percent` of the machine's
    `memory_bytes` reads from the disk, where it would hold up those who read and write what is new."""

    memory_bytes: int
    percent: int

    def choose(self, replicas: Collection[int], queue_id: int, backlog_bytes: int) -> int:
        """The id of one of the replicas, always the same for a queue; the master's where the reader is near the end, or
        there is no replica."""
        if not replicas or backlog_bytes * _PERCENT <= self.memory_bytes * self.percent:
            return MASTER_ID
        return sorted(replicas)[queue_id % len(replicas)]
