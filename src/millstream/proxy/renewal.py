"""Deliveries whose invisible time the proxy prolongs while their consumer lives: a bounded table, moved by time alone.

A push consumer acknowledges with the handle that it received, long after the proxy replaced that handle at the
broker. The table maps the handle of the delivery (its text, within the group) to the latest one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

from millstream.model.receipt import ReceiptHandle

__all__ = [
    "MAX_TRACKED",
    "MAX_TRIES",
    "RENEW_AHEAD_MS",
    "RENEW_FOR_MS",
    "RENEW_LIMIT_MS",
    "Key",
    "RenewalTable",
    "TrackedDelivery",
]

RENEW_FOR_MS = 60_000
"""Invisible duration of a delivery and of each renewal: short, so that a crash of the proxy costs a minute only."""

RENEW_AHEAD_MS = 10_000
"""A delivery is renewed when less than this is left."""

RENEW_LIMIT_MS = 3 * 60 * 60 * 1000
"""From then on a delivery counts as failed: it is delivered again by the group's policy."""

MAX_TRIES = 3
"""Failed renewals in a row before a delivery is let go."""

MAX_TRACKED = 200_000
"""Deliveries in the table at most."""

Key = tuple[str, str]
"""Group and the text of the handle as the client received it."""


@dataclass(frozen=True, slots=True)
class TrackedDelivery:
    """One delivery under renewal: whose it is, and the handle that the broker takes now."""

    client_id: str
    group: str
    topic: str
    original: str
    handle: ReceiptHandle
    delivery_attempt: int
    first_ms: int
    failed_tries: int = 0

    @property
    def key(self) -> Key:
        """What finds it again."""
        return self.group, self.original

    @property
    def place(self) -> tuple[str, str, int]:
        """The message as its group sees it; a later delivery of it has the same place and another key."""
        return self.group, self.handle.broker_name, self.handle.log_offset

    def overdue(self, now_ms: int) -> bool:
        """Whether it was renewed for as long as is allowed."""
        return now_ms - self.first_ms >= RENEW_LIMIT_MS


class RenewalTable:
    """Knows what is due; renews nothing itself. An entry is due once, until `renewed` or `failed` plans it again."""

    def __init__(self, capacity: int = MAX_TRACKED) -> None:
        self._capacity = capacity
        self._entries: dict[Key, TrackedDelivery] = {}
        self._by_client: dict[str, set[Key]] = {}
        self._by_place: dict[tuple[str, str, int], Key] = {}
        # A row is stale once its entry is gone or has another handle or count of tries.
        self._schedule: list[tuple[int, int, TrackedDelivery]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._entries)

    def has_room(self, amount: int) -> bool:
        """Whether `amount` more deliveries fit."""
        return len(self._entries) + amount <= self._capacity

    def add(self, entry: TrackedDelivery, left_ms: int | None = None) -> None:
        """Begin to track; an entry of the same message and group ends, because its handle is no longer valid.

        The delivery is out of sight for `left_ms` more, or for all of its handle's invisible time.
        """
        former = self._by_place.get(entry.place)
        if former is not None:
            self.remove(former)
        self._by_place[entry.place] = entry.key
        self._entries[entry.key] = entry
        self._by_client.setdefault(entry.client_id, set()).add(entry.key)
        left_ms = entry.handle.invisible_ms if left_ms is None else left_ms
        self._plan(entry, entry.first_ms + left_ms - RENEW_AHEAD_MS)

    def find(self, key: Key) -> TrackedDelivery | None:
        """The entry of a key, or None."""
        return self._entries.get(key)

    def remove(self, key: Key) -> TrackedDelivery | None:
        """Stop tracking; the entry that was there, or None."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._by_place[entry.place]
            keys = self._by_client[entry.client_id]
            keys.discard(key)
            if not keys:
                del self._by_client[entry.client_id]
        return entry

    def remove_client(self, client_id: str, group: str | None = None) -> list[TrackedDelivery]:
        """Stop tracking all of a client's deliveries, or those of one group of it; what was tracked."""
        keys = [key for key in self._by_client.get(client_id, ()) if group is None or key[0] == group]
        return [entry for key in keys if (entry := self.remove(key)) is not None]

    def next_due(self, now_ms: int) -> TrackedDelivery | None:
        """An entry whose time of renewal has come, or None."""
        while self._schedule and self._schedule[0][0] <= now_ms:
            entry = heapq.heappop(self._schedule)[2]
            if self._entries.get(entry.key) is entry:
                return entry
        return None

    def note_renewal(self, entry: TrackedDelivery, handle: ReceiptHandle, now_ms: int) -> None:
        """The broker took the renewal; without effect if the entry is no longer tracked."""
        if self._entries.get(entry.key) is entry:
            due_ms = now_ms + handle.invisible_ms - RENEW_AHEAD_MS
            self._replace(replace(entry, handle=handle, failed_tries=0), due_ms)

    def note_failure(self, entry: TrackedDelivery, now_ms: int) -> None:
        """The broker did not answer: try once more soon, or let go after MAX_TRIES."""
        if self._entries.get(entry.key) is not entry:
            return
        if entry.failed_tries + 1 >= MAX_TRIES:
            self.remove(entry.key)
        else:
            retry_ms = now_ms + RENEW_AHEAD_MS // (MAX_TRIES + 1)
            self._replace(replace(entry, failed_tries=entry.failed_tries + 1), retry_ms)

    def _replace(self, entry: TrackedDelivery, due_ms: int) -> None:
        self._entries[entry.key] = entry
        self._plan(entry, due_ms)

    def _plan(self, entry: TrackedDelivery, due_ms: int) -> None:
        self._sequence += 1
        heapq.heappush(self._schedule, (due_ms, self._sequence, entry))
        if len(self._schedule) > 2 * len(self._entries) + 1024:
            self._schedule = [row for row in self._schedule if self._entries.get(row[2].key) is row[2]]
            heapq.heapify(self._schedule)
