"""How far an upload or a merge has come: who comes forward is not given up, and what it reads is counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.tiered.cold_map import ColdObject

__all__ = ["WorkProgress"]


@dataclass(slots=True)
class WorkProgress:
    """Added to by who does the work, in whatever thread; read by who waits for it, at any time."""

    objects: list[ColdObject] = field(default_factory=list)
    """Those that it has put so far."""
    requests: int = 0
    """Requests to read, and not to put."""
    bytes_read: int = 0

    def add_object(self, one: ColdObject) -> None:
        """One more object is in the store."""
        self.objects.append(one)

    def add_read(self, requests: int, bytes_read: int) -> None:
        """Something was read of the store."""
        self.requests += requests
        self.bytes_read += bytes_read
