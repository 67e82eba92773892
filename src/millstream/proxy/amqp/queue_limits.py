"""Lets go of what is past its time in queues without readers: messages at their heads, and queues that are unused."""

from __future__ import annotations

from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import NameRefused
from millstream.proxy.amqp.declarations import AmqpQueue
from millstream.proxy.amqp.queue_reader import MAX_POP_MESSAGES
from millstream.proxy.amqp.queues import ProxyQueues
from millstream.proxy.amqp.topology import Topology
from millstream.proxy.amqp.virtual_host import VirtualHost
from millstream.proxy.backend import BrokerBackend

__all__ = ["LOOK_INTERVAL_S", "SWEEP_INTERVAL_S", "QueueLimits"]

SWEEP_INTERVAL_S: Final = 0.25
"""How often heads of queues that may be past their time are looked for."""

LOOK_INTERVAL_S: Final = 1.0
"""Seconds between two looks at the head of a queue, where it is not known to be due earlier."""


class QueueLimits:
    """One for a proxy."""

    def __init__(self, backend: BrokerBackend, topology: Topology, queues: ProxyQueues, clock: Clock) -> None:
        self._backend = backend
        self._topology = topology
        self._queues = queues
        self._clock = clock
        # When the head of a queue is looked at next.
        self._looks_s: dict[tuple[str, str], float] = {}

    async def sweep(self) -> None:
        """Let go of what is due now."""
        for host in self._topology.hosts.values():
            for queue in list(host.limited.values()):
                now_s = self._clock.monotonic_s()
                if self._is_unused(host, queue, now_s):
                    await self._queues.delete(host, queue)
                    self._looks_s.pop((host.name, queue.name), None)
                elif self._looks_s.get((host.name, queue.name), 0.0) <= now_s:
                    wait_s = await self._look(host, queue)
                    self._looks_s[host.name, queue.name] = self._clock.monotonic_s() + wait_s

    def _is_unused(self, host: VirtualHost, queue: AmqpQueue, now_s: float) -> bool:
        """Whether the queue goes because nobody has used it for as long as it said."""
        if queue.expires_ms is None:
            return False
        if self._queues.consumers_of(host.name, queue.name):
            self._queues.note_use(host.name, queue.name)
            return False
        used_s = self._queues.used_s.setdefault((host.name, queue.name), now_s)
        return now_s - used_s >= queue.expires_ms / 1000

    async def _look(self, host: VirtualHost, queue: AmqpQueue) -> float:
        """Let go of what is past its time at the head; seconds until the next look."""
        if queue.message_ttl_ms is None and queue.dead_letter_exchange is None:
            return LOOK_INTERVAL_S
        access = self._queues.access_of(host.name, queue.name)
        wait_s = LOOK_INTERVAL_S
        for broker in await self._backend.brokers():
            try:
                head = await access.head(broker)
                due_ms = None if head is None else access.due_ms(head)
                if due_ms is None:
                    continue
                left_ms = due_ms - self._clock.now_ms()
                if left_ms > 0:
                    wait_s = min(wait_s, left_ms / 1000)
                    continue
                # What is past its time is taken out on the way; the others have not been seen by anybody.
                fresh = await access.pop(broker, MAX_POP_MESSAGES, 0)
                await access.put_back(fresh, uncounted=True)
                wait_s = LOOK_INTERVAL_S if fresh else 0.0
            except NameRefused:
                continue
        return wait_s
