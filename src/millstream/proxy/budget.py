"""Memory budgets for client data: in total, per client, and for messages being delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused
from millstream.model.operations import PoppedMessage

__all__ = ["ANSWER_PATIENCE_S", "MAX_ANSWER_BYTES", "MAX_ANSWER_BYTES_PER_CLIENT", "Answers", "Budget", "Share"]


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

    def grow(self, share: Share, more_bytes: int) -> None:
        """Let a share have more. TOO_MANY_REQUESTS where there is no room; the share stays as it was."""
        if share not in self._shares:
            return
        held_bytes = self._by_owner[share.owner]
        if held_bytes > share.size_bytes and held_bytes + more_bytes > self._owner_bytes:
            raise self._refusal(f"{held_bytes} bytes of one client's {self._noun}", self._owner_bytes)
        if self.used_bytes > share.size_bytes and self.used_bytes + more_bytes > self._total_bytes:
            raise self._refusal(f"{self.used_bytes} bytes of {self._noun}", self._total_bytes)
        share.size_bytes += more_bytes
        self._by_owner[share.owner] += more_bytes
        self.used_bytes += more_bytes

    def free(self, share: Share) -> None:
        """The work has ended; a second time is no error."""
        if self._shares.pop(share, self) is self:
            return
        # It names the task whose frames hold the share: what they hold besides would wait for the garbage collection.
        share.give_way = None
        self.used_bytes -= share.size_bytes
        left_bytes = self._by_owner.pop(share.owner, 0) - share.size_bytes
        if left_bytes > 0:
            self._by_owner[share.owner] = left_bytes

    def _make_room(self, size_bytes: int, now_s: float) -> None:
        while self._shares and self.used_bytes + size_bytes > self._total_bytes:
            longest = next(iter(self._shares))
            if longest.give_way is None or now_s - longest.since_s < self._patience_s:
                return
            give_way = longest.give_way
            self.free(longest)
            give_way()

    def _refusal(self, held: str, limit_bytes: int) -> ConsumeRefused:
        return ConsumeRefused("TOO_MANY_REQUESTS", f"{held} are under way; the limit is {limit_bytes}.")


MAX_ANSWER_BYTES = 128 * 1024 * 1024
"""Bytes of messages that are on their way to consumers at most; TOO_MANY_REQUESTS refuses further receives. In memory
they take up to four times as much: the messages, the answer made of one, its bytes, and those of the transport."""

MAX_ANSWER_BYTES_PER_CLIENT = 96 * 1024 * 1024
"""The same for one client."""

ANSWER_PATIENCE_S = 2.0
"""At the limit, answers that were not read for so long are given up: their messages go back."""


class Answers:
    """The answers of one proxy; all calls from one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._budget = Budget(
            "messages",
            total_bytes=MAX_ANSWER_BYTES,
            owner_bytes=MAX_ANSWER_BYTES_PER_CLIENT,
            patience_s=ANSWER_PATIENCE_S,
        )

    @property
    def used_bytes(self) -> int:
        """Bytes of messages that are being handed over."""
        return self._budget.used_bytes

    def check(self, client_id: str) -> None:
        """TOO_MANY_REQUESTS where the client could not be handed anything now."""
        self._budget.check(client_id, self._clock.monotonic_s())

    def begin(self, client_id: str, popped: Sequence[PoppedMessage], late_bytes: int = 0) -> Share:
        """Messages are being handed to the client, who may be slow, until `end`. TOO_MANY_REQUESTS over a limit.

        `late_bytes` is what is made of them meanwhile, such as an unpacked body.

        At the limit of all clients the task that hands them over may be cancelled to make room.
        """
        task = asyncio.current_task()
        size_bytes = sum([len(delivery.message.body) for delivery in popped]) + late_bytes
        give_way = None if task is None else task.cancel
        return self._budget.take(client_id, size_bytes, self._clock.monotonic_s(), give_way)

    def grow(self, share: Share, more_bytes: int) -> None:
        """A body was unpacked and is that much larger. TOO_MANY_REQUESTS over a limit."""
        self._budget.grow(share, more_bytes)

    def end(self, share: Share) -> None:
        """They are handed over, or given up."""
        self._budget.free(share)
