"""Enforces limits of queues without readers: expired messages at the head, lengths, and unused queues."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import NameRefused
from millstream.proxy.amqp.declarations import AmqpQueue
from millstream.proxy.amqp.queue_reader import MAX_POP_MESSAGES
from millstream.proxy.amqp.queues import ProxyQueues
from millstream.proxy.amqp.topology import Topology
from millstream.proxy.amqp.virtual_host import VirtualHost
from millstream.proxy.backend import BrokerBackend

__all__ = ["LOOK_INTERVAL_S", "MAX_LOOKS", "SWEEP_INTERVAL_S", "QueueLimits"]

SWEEP_INTERVAL_S: Final = 0.25
"""How often heads of queues that may be past their time are looked for."""

LOOK_INTERVAL_S: Final = 1.0
"""Seconds between two looks at the head of a queue, where it is not known to be due earlier."""

MAX_LOOKS: Final = 100
"""Queues that are looked at in one sweep at most. With many of them messages expire later, and clients are served."""

_TELLS: Final = 3
"""Of a queue that goes when it is unused, so many uses are told within its time."""


class QueueLimits:
    """One for a proxy."""

    def __init__(self, backend: BrokerBackend, topology: Topology, queues: ProxyQueues, clock: Clock) -> None:
        self._backend = backend
        self._topology = topology
        self._queues = queues
        self._clock = clock
        # When queues are looked at next, the earliest first; each of them is in it once.
        self._looks: list[tuple[float, str, str]] = []
        self._scheduled: defaultdict[str, set[str]] = defaultdict(set)

    async def sweep(self) -> None:
        """Let go of what is due now, as far as `MAX_LOOKS` goes; the next sweep goes on."""
        now_s = self._clock.monotonic_s()
        for host in self._topology.hosts.values():
            for queue in self._topology.orphans(host):
                await self._queues.delete(host, queue)
            scheduled = self._scheduled[host.name]
            for name in host.limited.keys() - scheduled:
                scheduled.add(name)
                heappush(self._looks, (now_s, host.name, name))
        for _ in range(MAX_LOOKS):
            if not self._looks or self._looks[0][0] > now_s:
                return
            _, host_name, name = heappop(self._looks)
            host = self._topology.hosts[host_name]
            found = host.limited.get(name)
            wait_s = None if found is None else await self._visit(host, found)
            if wait_s is None:
                self._scheduled[host_name].discard(name)
            else:
                heappush(self._looks, (self._clock.monotonic_s() + wait_s, host_name, name))

    async def _visit(self, host: VirtualHost, queue: AmqpQueue) -> float | None:
        """Let go of what is due of one queue; seconds until the next look, None where the queue has gone."""
        if await self._is_unused(host, queue, self._clock.monotonic_s()):
            await self._queues.delete(host, queue)
            return None
        wait_s = await self._look(host, queue)
        return wait_s if queue.expires_ms is None else min(wait_s, queue.expires_ms / 1000 / _TELLS)

    async def _is_unused(self, host: VirtualHost, queue: AmqpQueue, now_s: float) -> bool:
        """Whether the queue goes because nobody has used it for as long as it said, at any proxy."""
        if queue.expires_ms is None:
            return False
        key, expires_s = (host.name, queue.name), queue.expires_ms / 1000
        if self._queues.consumers_of(*key):
            self._queues.note_use(*key)
        used_s = self._queues.used_s.get(key)
        told_s = self._topology.uses_s.setdefault(key, now_s)
        if used_s is not None and used_s - told_s >= expires_s / _TELLS:
            # Others learn of it in time, and this proxy by the same record.
            await self._topology.note_use(*key)
            return False
        return now_s - max(told_s, used_s or 0.0) >= expires_s

    async def _look(self, host: VirtualHost, queue: AmqpQueue) -> float:
        """Let go of what is past its time at the head, or too much; seconds until the next look."""
        brokers = await self._backend.brokers()
        is_kept = queue.kept_length is not None and queue.max_length_bytes is None and len(brokers) == 1
        if queue.drops_oldest and not is_kept:
            # Others than clients of AMQP may have sent it, and each broker knows its own part alone.
            await self._queues.enforce_length(host, queue)
        if queue.message_ttl_ms is None and queue.dead_letter_exchange is None:
            return LOOK_INTERVAL_S
        access = self._queues.access_of(host.name, queue.name)
        wait_s = LOOK_INTERVAL_S
        for broker in brokers:
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
