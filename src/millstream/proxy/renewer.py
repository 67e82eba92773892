"""Renews tracked deliveries at the brokers, and hands them back when their client goes: the edge of `RenewalTable`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.model.operations import ChangeInvisibleRequest
from millstream.model.receipt import ReceiptHandle
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.renewal import RENEW_FOR_MS, Key, RenewalTable, TrackedDelivery

__all__ = ["RELEASE_MS", "Renewer"]

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

    async def release_client(self, client_id: str, group: str | None = None) -> None:
        """Let a client's deliveries (those of one group) be received by others in RELEASE_MS."""
        entries = self.table.remove_client(client_id, group)
        await self.release((entry.group, entry.topic, entry.handle) for entry in entries)

    async def release(self, deliveries: Iterable[tuple[str, str, ReceiptHandle]]) -> None:
        """Let deliveries, given as group, topic and handle, be received again in RELEASE_MS."""
        for group, topic, handle in deliveries:
            request = ChangeInvisibleRequest(group, topic, handle, RELEASE_MS)
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
