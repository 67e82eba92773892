"""A bounded sum of bytes that lie in memory for clients: in all, and for each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.model.errors import ConsumeRefused

__all__ = ["Budget", "Share"]


@dataclass(slots=True, eq=False)
class Share:
    """What one piece of work takes of a budget. `give_way` ends that work; None where it cannot be ended."""

    owner: str
    size_bytes: int
    since_s: float
    give_way: Callable[[], object] | None = None


class Budget:
    """At most `total_bytes` at one time, and `owner_bytes` for one owner; `noun` stands in the refusal.

    Where the total is used up, shares that have lasted for `patience_s` give way, the longest first: who does not
    read or write on must not keep out those who do. Times are of the monotonic clock, in seconds.
    """

    def __init__(self, noun: str, *, total_bytes: int, owner_bytes: int, patience_s: float) -> None:
        self._noun = noun
        self._total_bytes = total_bytes
        self._owner_bytes = owner_bytes
        self._patience_s = patience_s
        self._by_owner: dict[str, int] = {}
        # In order of their beginning: the longest is the first.
        self._shares: dict[Share, None] = {}
        self.used_bytes = 0

    def check(self, owner: str, now_s: float) -> None:
        """TOO_MANY_REQUESTS where nothing more would be granted to the owner now."""
        held_bytes = self._by_owner.get(owner, 0)
        if held_bytes >= self._owner_bytes:
            raise self._refusal(f"{held_bytes} bytes of one client's {self._noun}", self._owner_bytes)
        if self.used_bytes < self._total_bytes:
            return
        self._make_room(1, now_s)
        if self.used_bytes >= self._total_bytes:
            raise self._refusal(f"{self.used_bytes} bytes of {self._noun}", self._total_bytes)

    def take(self, owner: str, size_bytes: int, now_s: float, give_way: Callable[[], object] | None = None) -> Share:
        """A share, to be handed to `free` at its end. TOO_MANY_REQUESTS where there is no room and none can be made.

        A single share of any size is granted to an owner who has no other.
        """
        held_bytes = self._by_owner.get(owner, 0)
        if held_bytes and held_bytes + size_bytes > self._owner_bytes:
            raise self._refusal(f"{held_bytes} bytes of one client's {self._noun}", self._owner_bytes)
        if self.used_bytes + size_bytes > self._total_bytes:
            self._make_room(size_bytes, now_s)
            if self.used_bytes and self.used_bytes + size_bytes > self._total_bytes:
                raise self._refusal(f"{self.used_bytes} bytes of {self._noun}", self._total_bytes)
        share = Share(owner, size_bytes, now_s, give_way)
        self._shares[share] = None
        self._by_owner[owner] = held_bytes + size_bytes
        self.used_bytes += size_bytes
        return share

    def free(self, share: Share) -> None:
        """The work has ended; a second time is no error."""
        if self._shares.pop(share, self) is self:
            return
        self.used_bytes -= share.size_bytes
        left_bytes = self._by_owner.pop(share.owner, 0) - share.size_bytes
        if left_bytes > 0:
            self._by_owner[share.owner] = left_bytes

    def _make_room(self, size_bytes: int, now_s: float) -> None:
        while self._shares and self.used_bytes + size_bytes > self._total_bytes:
            longest = next(iter(self._shares))
            if longest.give_way is None or now_s - longest.since_s < self._patience_s:
                return
            self.free(longest)
            longest.give_way()

    def _refusal(self, held: str, limit_bytes: int) -> ConsumeRefused:
        return ConsumeRefused("TOO_MANY_REQUESTS", f"{held} are under way; the limit is {limit_bytes}.")
