"""Limits the file descriptors of connections, so that files can always be opened. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_RESERVED_DESCRIPTORS", "DescriptorBudget", "reserved_descriptors"]

MAX_RESERVED_DESCRIPTORS: Final = 4_096
"""Descriptors that are kept for files, pages and sockets of the process's own: half of the limit, and no more than
this."""


def reserved_descriptors(limit: int) -> int:
    """What connections may not take of so many descriptors."""
    return min(limit // 2, MAX_RESERVED_DESCRIPTORS)


class DescriptorBudget:
    """What connections take of the `room` that they share; `of_limit` makes one for all ports of a process."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.used = 0

    @classmethod
    def of_limit(cls, limit: int) -> DescriptorBudget:
        """What a process has for connections that may have so many descriptors open."""
        return cls(limit - reserved_descriptors(limit))

    def take(self, count: int = 1) -> bool:
        """Take so many if they are there; whether they were."""
        if self.used + count > self.room:
            return False
        self.used += count
        return True

    def note(self, count: int = 1) -> None:
        """Count descriptors that are open already, whether there is room or not."""
        self.used += count

    def free(self, count: int = 1) -> None:
        """Give back what was taken or noted."""
        self.used -= count

    def set_aside(self, most: int) -> int:
        """Take, for good, what a server needs that counts its connections itself: `most`, but no more than half of the
        room. How many it got."""
        share = min(most, self.room // 2)
        self.used += share
        return share
