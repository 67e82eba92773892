"""Renews the invisible time of deliveries while their consumer lives.

`RenewalTable` is the pure and bounded part, moved by time alone; `Renewer` renews at the brokers.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.model.handles import ReceiptHandle
from millstream.model.operations import ChangeInvisibleRequest
from millstream.proxy.backend import BrokerBackend

__all__ = [
    "MAX_TRACKED",
    "MAX_TRIES",
    "RELEASE_MS",
    "RENEW_AHEAD_MS",
    "RENEW_FOR_MS",
    "RENEW_LIMIT_MS",
    "Key",
    "RenewalTable",
    "Renewer",
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


_log = logging.getLogger(__name__)

RELEASE_MS = 1000
"""Invisible time that a delivery keeps when its client is gone, as in RocketMQ's proxy."""


class Renewer:
    """Keeps tracked deliveries out of sight. `sweep` is called every second or so."""

    def __init__(self, backend: BrokerBackend, clock: Clock, table: RenewalTable) -> None:
        self.table = table
        self._backend = backend
        self._clock = clock
        self._under_way: dict[Key, asyncio.Event] = {}

    def now_ms(self) -> int:
        """The milliseconds by which the table goes: not the wall clock's, which may be put forward or back."""
        return int(self._clock.monotonic_s() * 1000)

    def track(self, entry: TrackedDelivery) -> None:
        """Begin to renew what was just received, for a client that knows nothing of it."""
        # A repeated delivery has less than its whole time left. What does not fit comes from a clock that is not ours.
        left_ms = entry.handle.expires_ms - self._clock.now_ms()
        invisible_ms = entry.handle.invisible_ms
        self.table.add(entry, left_ms if 0 < left_ms <= invisible_ms else invisible_ms)

    async def sweep(self) -> None:
        """Renew what is due now; deliveries that were renewed for too long go back by their group's policy."""
        while (entry := self.table.next_due(self.now_ms())) is not None:
            settled = self._under_way[entry.key] = asyncio.Event()
            try:
                await self._renew(entry)
            except BaseException:
                self.table.note_failure(entry, self.now_ms())
                raise
            finally:
                del self._under_way[entry.key]
                settled.set()

    async def take(self, group: str, original: str) -> TrackedDelivery | None:
        """Stop renewing a delivery; its entry with the latest handle, or None if it was not tracked.

        Waits for a renewal that is under way: its answer replaces the handle.
        """
        key = (group, original)
        while (settled := self._under_way.get(key)) is not None:
            await settled.wait()
        return self.table.remove(key)

    def is_renewing(self, group: str, originals: Iterable[str]) -> bool:
        """Whether the renewal of one of the group's deliveries is under way, so that `take` would wait."""
        under_way = self._under_way
        return bool(under_way) and any((group, original) in under_way for original in originals)

    @property
    def is_idle(self) -> bool:
        """Whether no delivery is tracked and no renewal is under way."""
        return not len(self.table) and not self._under_way

    def is_tracking(self, group: str, originals: Iterable[str]) -> bool:
        """Whether one of the group's deliveries is tracked, or its renewal is under way."""
        if self.is_idle:
            return False
        table, under_way = self.table, self._under_way
        keys = [(group, original) for original in originals]
        return any(key in under_way or table.find(key) is not None for key in keys)

    async def release_client(self, client_id: str, group: str | None = None) -> None:
        """Let a client's deliveries (those of one group) be received by others in RELEASE_MS."""
        entries = self.table.remove_client(client_id, group)
        await self.release((entry.group, entry.topic, entry.handle) for entry in entries)

    async def release(self, deliveries: Iterable[tuple[str, str, ReceiptHandle]], *, uncounted: bool = False) -> None:
        """Let deliveries, given as group, topic and handle, be received again in RELEASE_MS. `uncounted`: they were no
        attempts."""
        for group, topic, handle in deliveries:
            request = ChangeInvisibleRequest(group, topic, handle, RELEASE_MS, suspend=uncounted)
            try:
                await self._backend.change_invisible(request)
            except MillstreamError as error:
                # Nothing is lost: the message becomes visible when its invisible time ends.
                _log.info("a delivery of %s to %s was not released: %s", topic, group, error)

    async def _renew(self, entry: TrackedDelivery) -> None:
        now_ms = self.now_ms()
        overdue = entry.overdue(now_ms)
        try:
            invisible_ms = await self._backoff_ms(entry) if overdue else RENEW_FOR_MS
            request = ChangeInvisibleRequest(entry.group, entry.topic, entry.handle, invisible_ms, renewal=not overdue)
            handle = await self._backend.change_invisible(request)
        except ConsumeRefused as error:
            _log.info("a delivery of %s to %s is not renewed any more: %s", entry.topic, entry.group, error)
            self.table.remove(entry.key)
        except MillstreamError as error:
            _log.warning("renewing a delivery of %s to %s failed: %s", entry.topic, entry.group, error)
            self.table.note_failure(entry, now_ms)
        else:
            if overdue:
                self.table.remove(entry.key)
            else:
                self.table.note_renewal(entry, handle, now_ms)

    async def _backoff_ms(self, entry: TrackedDelivery) -> int:
        return (await self._backend.group(entry.group)).backoff_ms(entry.delivery_attempt)
