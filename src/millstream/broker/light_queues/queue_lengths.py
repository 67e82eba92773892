"""Keeps light queues within the lengths that they were declared with, whoever sends.

Counted is what is ready: neither consumed nor with a consumer. A queue that drops lets go of its oldest ready messages
in the turn in which newer ones become visible. A queue that rejects is left out of what a new message goes to while it
is full: its topic and other queues have the message, and its sender hears nothing. Who sends by AMQP was asked before,
and has been told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from millstream.broker.queues.offsets import OffsetTable
from millstream.model.clock import Clock
from millstream.model.light_queue import LIGHT_PREFIX, LIGHT_QUEUE_NUMBER
from millstream.model.routing.routes import AMQP_EXCHANGE, REJECT, LightQueueConfig
from millstream.model.routing.routing_table import RoutingTable
from millstream.store.message_store import MessageStore

__all__ = ["QueueLengths"]


class QueueLengths:
    """Of one broker; all from one event loop. `dropped` and `rejected` count messages."""

    def __init__(self, table: RoutingTable, store: MessageStore, offsets: OffsetTable, clock: Clock) -> None:
        self.dropped = 0
        self.rejected = 0
        self._bounded = table.bounded
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._coming: dict[str, int] = {}
        """Messages of the write that is being made, by queue: no queue has them yet."""

    def leave_out_full(self, light_queues: tuple[str, ...], properties: Mapping[str, str]) -> tuple[str, ...]:
        """The light queues of a new message without those that are full and reject it."""
        bounded = self._bounded
        if bounded.keys().isdisjoint(light_queues) or AMQP_EXCHANGE in properties:
            return light_queues
        taken = []
        for name in light_queues:
            config = bounded.get(name)
            if config is not None and config.overflow == REJECT and not self._take(name, config):
                self.rejected += 1
                continue
            taken.append(name)
        return tuple(taken)

    def drop_excess(self, places: Iterable[tuple[str, int]]) -> None:
        """Let go of the oldest ready messages of those queues among these that drop and have too many."""
        bounded = self._bounded
        if not bounded:
            return
        for name, _ in places:
            config = bounded.get(name) if name.startswith(LIGHT_PREFIX) else None
            if config is not None and config.max_length is not None and config.overflow != REJECT:
                excess = self._ready(name, config, self._store.max_offset(name, LIGHT_QUEUE_NUMBER)) - config.max_length
                if excess > 0:
                    self._drop(name, config, excess)
                    self.dropped += excess

    def _take(self, name: str, config: LightQueueConfig) -> bool:
        """Whether the queue has room for one message more, which is coming from now on."""
        coming = self._coming.get(name, 0)
        written = self._store.written_offset(name, LIGHT_QUEUE_NUMBER)
        if self._ready(name, config, written) + coming >= (config.max_length or 0):
            return False
        if not self._coming:
            # They are written in this turn, or not at all.
            asyncio.get_running_loop().call_soon(self._coming.clear)
        self._coming[name] = coming + 1
        return True

    def _ready(self, name: str, config: LightQueueConfig, end: int) -> int:
        """Messages up to an offset that wait for a consumer."""
        ledger = self._offsets.ledger(config.group, name, LIGHT_QUEUE_NUMBER)
        first = self._store.min_offset(name, LIGHT_QUEUE_NUMBER)
        if ledger is None:
            committed = self._offsets.committed_offset(config.group, name, LIGHT_QUEUE_NUMBER) or 0
            return end - max(committed, first)
        new = end - max(ledger.cursor, first)
        now_ms = self._clock.now_ms()
        due_ms = ledger.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return new
        return new + sum(1 for one in ledger.in_flight if one.visible_ms <= now_ms)

    def _drop(self, name: str, config: LightQueueConfig, excess: int) -> None:
        ledger = self._offsets.ledger(config.group, name, LIGHT_QUEUE_NUMBER)
        first = self._store.min_offset(name, LIGHT_QUEUE_NUMBER)
        if ledger is None:
            committed = self._offsets.committed_offset(config.group, name, LIGHT_QUEUE_NUMBER) or 0
            self._offsets.commit(config.group, name, LIGHT_QUEUE_NUMBER, max(committed, first) + excess)
            return
        now_ms = self._clock.now_ms()
        while excess and (returned := ledger.peek_due(now_ms)) is not None:
            ledger.settle(returned.queue_offset)
            excess -= 1
        if excess:
            ledger.pass_over(max(ledger.cursor, first) + excess)
