"""The queues in use at this proxy: their consumers, and the settlement of deliveries."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.protocol.amqp.reply_codes import AmqpFailure, ChannelFailure, ReplyCode
from millstream.proxy.amqp.dead_letters import AmqpDeadLetters
from millstream.proxy.amqp.declarations import AmqpQueue
from millstream.proxy.amqp.queue_reader import (
    MAX_POP_MESSAGES,
    AmqpConsumer,
    AmqpDelivery,
    AmqpQueueReader,
    QueueAccess,
)
from millstream.proxy.amqp.topology import Topology
from millstream.proxy.amqp.virtual_host import VirtualHost
from millstream.proxy.backend import BrokerBackend

__all__ = ["ProxyQueues"]

_log = logging.getLogger(__name__)

_Key = tuple[str, str]


class ProxyQueues:
    """One for a proxy; all from one event loop."""

    def __init__(self, backend: BrokerBackend, topology: Topology, dead_letters: AmqpDeadLetters, clock: Clock) -> None:
        self.used_s: dict[_Key, float] = {}
        """When a queue was last used, by the monotonic clock."""
        self._backend = backend
        self._topology = topology
        self._dead_letters = dead_letters
        self._clock = clock
        self._accesses: dict[_Key, QueueAccess] = {}
        self._readers: dict[_Key, AmqpQueueReader] = {}
        self._reader_of: dict[AmqpConsumer, AmqpQueueReader] = {}
        self._acks: defaultdict[QueueAccess, list[AmqpDelivery]] = defaultdict(list)
        self._acks_are_due = False
        self._tasks: set[asyncio.Task[None]] = set()
        topology.on_queue_gone.append(self._forget)

    async def close(self) -> None:
        """Read no more, and finish what is under way."""
        for reader in self._readers.values():
            self.run(reader.access.put_back(reader.stop(), uncounted=True))
        self._flush_acks()
        # What readers have under way they give back in the next turn.
        await asyncio.sleep(0)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def access_of(self, virtual_host: str, name: str) -> QueueAccess:
        """What can be done with a queue."""
        key = virtual_host, name
        known = self._accesses.get(key)
        if known is None:
            host = self._topology.hosts[virtual_host]
            known = QueueAccess(self._backend, self._clock, virtual_host, name, lambda: host.queues.get(name))
            known.on_expired = lambda expired: self.dead_letter(host, expired, "expired")
            self._accesses[key] = known
        return known

    def note_use(self, virtual_host: str, name: str) -> None:
        """A client does something with a queue."""
        self.used_s[virtual_host, name] = self._clock.monotonic_s()

    # consumers

    def consumers_of(self, virtual_host: str, name: str) -> int:
        """Consumers at this proxy."""
        reader = self._readers.get((virtual_host, name))
        return 0 if reader is None else len(reader.consumers)

    def add_consumer(self, virtual_host: str, queue: AmqpQueue, consumer: AmqpConsumer) -> None:
        """Serve a consumer. ACCESS_REFUSED where one of them wants the queue for itself."""
        key = virtual_host, queue.name
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = AmqpQueueReader(self._backend, self.access_of(*key), queue, self.run)
        if reader.consumers and (consumer.is_exclusive or any(one.is_exclusive for one in reader.consumers)):
            words = f"queue '{queue.name}' in vhost '{virtual_host}' in exclusive use"
            raise ChannelFailure(ReplyCode.ACCESS_REFUSED, words)
        self.note_use(*key)
        if queue.auto_delete and not reader.consumers:
            self.run(self._topology.note_consumers(*key, are_there=True))
        self._reader_of[consumer] = reader
        reader.add(consumer)

    def reader_of(self, consumer: AmqpConsumer) -> AmqpQueueReader:
        """Who serves a consumer."""
        return self._reader_of[consumer]

    def remove_consumer(self, host: VirtualHost, consumer: AmqpConsumer) -> None:
        """Serve a consumer no more. A queue that deletes itself goes with its last one."""
        reader = self._reader_of.pop(consumer, None)
        if reader is None:
            return
        held = reader.remove(consumer)
        if held:
            self.run(reader.access.put_back(held, uncounted=True))
        name = reader.access.name
        self.note_use(host.name, name)
        if reader.consumers:
            return
        self._readers.pop((host.name, name), None)
        queue = host.queues.get(name)
        if queue is not None and queue.auto_delete:
            self.run(self._leave(host, queue))

    async def _leave(self, host: VirtualHost, queue: AmqpQueue) -> None:
        """The last consumer here of a queue that deletes itself has gone; of two proxies the later sees no other."""
        await self._topology.note_consumers(host.name, queue.name, are_there=False)
        if not self._topology.is_consumed_elsewhere(host.name, queue.name):
            await self.delete(host, queue)

    async def delete(self, host: VirtualHost, queue: AmqpQueue) -> None:
        """Delete a queue for its owner's sake, unless it has consumers again."""
        if not self.consumers_of(host.name, queue.name):
            await self._topology.remove(host, lambda: host.delete_queue(queue.name, queue.owner))

    def _forget(self, virtual_host: str, name: str) -> None:
        """A queue is gone, whoever deleted it."""
        self.used_s.pop((virtual_host, name), None)
        self._accesses.pop((virtual_host, name), None)
        reader = self._readers.pop((virtual_host, name), None)
        if reader is None:
            return
        reader.stop()
        for consumer in reader.consumers:
            self._reader_of.pop(consumer, None)
            consumer.channel.cancel_consumer(consumer)
            consumer.channel.session.flush_soon()

    def list_held(self) -> list[AmqpDelivery]:
        """What readers hold for consumers that have no room."""
        return [delivery for reader in self._readers.values() for delivery in reader.list_held()]

    # deliveries

    def ack_soon(self, delivery: AmqpDelivery) -> None:
        """Acknowledge a delivery with the others of this turn."""
        self._acks[delivery.queue].append(delivery)
        if not self._acks_are_due:
            self._acks_are_due = True
            asyncio.get_running_loop().call_soon(self._flush_acks)

    def put_back(self, host: VirtualHost, deliveries: Sequence[AmqpDelivery]) -> None:
        """Let deliveries be delivered again, those that have been too often to the dead ones."""
        kept: defaultdict[QueueAccess, list[AmqpDelivery]] = defaultdict(list)
        dead = []
        for delivery in deliveries:
            queue = host.queues.get(delivery.queue.name)
            limit = None if queue is None else queue.delivery_limit
            if limit is not None and delivery.attempt > limit:
                dead.append(delivery)
            else:
                kept[delivery.queue].append(delivery)
        for access, some in kept.items():
            self.run(access.put_back(some))
        self.dead_letter(host, dead, "delivery_limit")

    def dead_letter(self, host: VirtualHost, deliveries: Sequence[AmqpDelivery], reason: str) -> None:
        """Take deliveries out of their queue, to its dead-letter exchange if it has one."""
        if deliveries:
            self.run(self._bury(host, deliveries, reason))

    async def enforce_length(self, host: VirtualHost, queue: AmqpQueue) -> None:
        """Drop the oldest messages of a queue that has more, or more bytes of them, than it may have."""
        access = self.access_of(host.name, queue.name)
        async with access.dropping:
            await self._drop_excess(host, queue, access)

    async def _drop_excess(self, host: VirtualHost, queue: AmqpQueue, access: QueueAccess) -> None:
        with_bytes = queue.max_length_bytes is not None
        ready = await access.measure(with_bytes=with_bytes)
        while excess := ready.excess(queue):
            found = await access.pop_any(min(excess, MAX_POP_MESSAGES))
            if not found:
                return
            kept: list[AmqpDelivery] = []
            for delivery in found:
                if not ready.excess(queue):
                    kept.append(delivery)
                    continue
                ready = ready.without(delivery.body_bytes)
                await self._bury(host, (delivery,), "maxlen")
            if kept:
                # They were larger than others. Who measured while these were out of sight has dropped too little.
                await access.put_back(kept, uncounted=True)
                ready = await access.measure(with_bytes=with_bytes)

    async def _bury(self, host: VirtualHost, deliveries: Iterable[AmqpDelivery], reason: str) -> None:
        for delivery in deliveries:
            queue = host.queues.get(delivery.queue.name)
            # First there, then gone from here: a crash between the two leaves it twice and never nowhere.
            message = None
            if queue is not None and queue.dead_letter_exchange is not None:
                message = await delivery.queue.read(delivery)
            if queue is None or message is None or await self._dead_letters.send(host, queue, message, reason):
                await delivery.queue.ack((delivery,))
            else:
                await delivery.queue.put_back((delivery,))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(_log_failure(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _flush_acks(self) -> None:
        self._acks_are_due = False
        acks, self._acks = self._acks, defaultdict(list)
        for access, deliveries in acks.items():
            self.run(access.ack(deliveries))


async def _log_failure(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (MillstreamError, AmqpFailure) as error:
        _log.warning("something was not done for an AMQP client: %s", error)
