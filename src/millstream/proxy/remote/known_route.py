"""A topic's route as the proxy keeps it: what clients are told, and where the proxy itself goes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.client.logic_queues import logic_queues
from millstream.model.errors import NameRefused
from millstream.model.topic import MessageType, Permission
from millstream.protocol.remoting.bodies import QueueData, TopicRouteData
from millstream.proxy.backend import RouteQueue, TopicRoute

__all__ = ["KnownRoute", "known_route", "master_addresses"]

MASTER_ID = 0
"""The broker id of masters; others are their replicas, which take no messages and no acknowledgements."""


@dataclass(frozen=True, slots=True)
class KnownRoute:
    """A route, and the addresses (`host:port`) of its masters by name. `writable` are queues to choose from.

    `data` is what the nameserver told.
    """

    route: TopicRoute
    addresses: dict[str, str]
    writable: tuple[RouteQueue, ...]
    data: TopicRouteData
    is_static: bool = False
    """Whether the queues move between brokers, each under its number."""

    def address(self, broker_name: str, queue_id: int | None = None) -> str:
        """Where the broker is; blank for the only one. QUEUE_NOT_FOUND where it has nothing of the topic.

        Of a static topic it is where the queue is now, whichever broker stored it when a client asked.
        """
        broker_name = self.holder(broker_name, queue_id)
        if not broker_name and len(self.addresses) == 1:
            broker_name = next(iter(self.addresses))
        found = self.addresses.get(broker_name)
        if found is None:
            raise NameRefused(
                "QUEUE_NOT_FOUND",
                f"There is no broker {broker_name[:80]!r} with queues of the topic {self.route.topic!r} behind this "
                "proxy.",
            )
        return found

    def holder(self, broker_name: str, queue_id: int | None) -> str:
        """The broker that is meant by a client who names a broker, and may name a queue."""
        if not self.is_static:
            return broker_name
        queues = self.route.queues
        if queue_id is not None:
            return next((queue.broker_name for queue in queues if queue.queue_id == queue_id), broker_name)
        names = dict.fromkeys(queue.broker_name for queue in queues)
        return broker_name if broker_name in names else next(iter(names))


def master_addresses(data: TopicRouteData) -> dict[str, str]:
    """The masters of a route by name."""
    return {
        broker.broker_name: broker.broker_addrs[MASTER_ID]
        for broker in data.broker_datas
        if MASTER_ID in broker.broker_addrs
    }


def known_route(topic: str, data: TopicRouteData, message_type: MessageType) -> KnownRoute:
    """The route of a nameserver's answer; TOPIC_NOT_FOUND where no master holds a queue of the topic."""
    masters = master_addresses(data)
    logic = logic_queues(topic, data)
    if logic:
        names = {address: name for name, address in masters.items()}
        both = Permission.READ | Permission.WRITE
        queues = tuple(RouteQueue(names[queue.broker_address], queue.queue_id, both) for queue in logic)
        return KnownRoute(TopicRoute(topic, message_type, queues), masters, queues, data, is_static=True)
    held = sorted((one for one in data.queue_datas if one.broker_name in masters), key=lambda one: one.broker_name)
    queues = tuple(queue for one in held for queue in _queues(one))
    if not queues:
        raise NameRefused("TOPIC_NOT_FOUND", f"The topic {topic[:200]!r} has no queue on any master.")
    addresses = {name: masters[name] for name in dict.fromkeys(queue.broker_name for queue in queues)}
    writable = tuple(queue for queue in queues if queue.permission & Permission.WRITE)
    return KnownRoute(TopicRoute(topic, message_type, queues), addresses, writable, data)


def _queues(data: QueueData) -> Iterable[RouteQueue]:
    """Queues beyond the readable ones can only be written, and the other way round."""
    for queue_id in range(max(data.read_queue_nums, data.write_queue_nums)):
        permission = Permission(data.perm & int(Permission.READ | Permission.WRITE))
        if queue_id >= data.read_queue_nums:
            permission &= ~Permission.READ
        if queue_id >= data.write_queue_nums:
            permission &= ~Permission.WRITE
        yield RouteQueue(data.broker_name, queue_id, permission)
