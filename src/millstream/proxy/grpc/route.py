"""Routes for clients: QueryRoute and QueryAssignment, with addresses that clients can dial."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from millstream.model.errors import NameRefused
from millstream.model.message import Address
from millstream.model.topic import MessageType, Permission
from millstream.protocol.grpc import messages as m
from millstream.proxy.backend import RouteQueue
from millstream.proxy.grpc.call import GrpcCall
from millstream.proxy.grpc.message_conversion import MESSAGE_TYPES
from millstream.proxy.grpc.status import ok
from millstream.proxy.processor import Processor

__all__ = ["ALL_QUEUES", "MASTER_ID", "MAX_ADDRESSES", "Advertised", "GrpcRouteHandlers", "endpoints_of"]


MAX_ADDRESSES = 32
"""Addresses of one access point at most: every queue of a route may repeat them."""

MAX_HOST_CHARACTERS = 255
"""Characters of a host's name at most."""


@dataclass(frozen=True, slots=True)
class Advertised:
    """The address of this service for clients. `as_reached` prefers the one by which each client says it came: a
    server that listens on all addresses does not know which of them its clients can dial."""

    address: Address
    as_reached: bool = False

    def to(self, reached: m.Endpoints) -> m.Endpoints:
        """What to tell a client whose access point is `reached`; ILLEGAL_ACCESS_POINT where that is none."""
        if len(reached.addresses) > MAX_ADDRESSES or any(map(_is_illegal, reached.addresses)):
            raise NameRefused(
                "ILLEGAL_ACCESS_POINT", f"The access point of {len(reached.addresses)} addresses cannot be dialled."
            )
        return reached if self.as_reached and reached.addresses else endpoints_of(self.address)


def _is_illegal(address: m.Address) -> bool:
    return not 0 < len(address.host) <= MAX_HOST_CHARACTERS or not 0 < address.port < 65_536


def endpoints_of(address: Address) -> m.Endpoints:
    """One address with the scheme that fits its host: IPv4, IPv6 or a domain name."""
    try:
        scheme = m.IPv6 if ip_address(address.host).version == 6 else m.IPv4
    except ValueError:
        scheme = m.DOMAIN_NAME
    return m.Endpoints(scheme=scheme, addresses=[m.Address(host=address.host, port=address.port)])


MASTER_ID = 0
"""Broker id of masters; clients pass over all others."""

ALL_QUEUES = -1
"""Queue id of an assignment that stands for all queues of its broker."""

_PERMISSIONS = {
    Permission.READ | Permission.WRITE: m.READ_WRITE,
    Permission.READ: m.READ,
    Permission.WRITE: m.WRITE,
}


class GrpcRouteHandlers:
    """Both answers name this service itself as the place of every broker."""

    def __init__(self, processor: Processor, advertised: Advertised) -> None:
        self._processor = processor
        self._advertised = advertised

    async def query_route(self, call: GrpcCall, request: m.QueryRouteRequest) -> m.QueryRouteResponse:
        """Every queue of the topic, with the topic's name as it was asked."""
        route = await self._processor.route(request.topic.name)
        endpoints = self._advertised.to(request.endpoints)
        accepted = MESSAGE_TYPES[route.message_type]
        return m.QueryRouteResponse(
            status=ok(),
            message_queues=[
                m.MessageQueue(
                    topic=request.topic,
                    id=queue.queue_id,
                    permission=_permission(queue),
                    broker=m.Broker(name=queue.broker_name, id=MASTER_ID, endpoints=endpoints),
                    accept_message_types=accepted,
                )
                for queue in route.queues
            ],
        )

    async def query_assignment(self, call: GrpcCall, request: m.QueryAssignmentRequest) -> m.QueryAssignmentResponse:
        """What a push consumer polls: all queues of a broker at once, or each queue of it for FIFO groups.

        The answer is the same at every call as long as the route is: clients drop what they hold when it differs.
        """
        group = await self._processor.group(request.group.name)
        route = await self._processor.route(request.topic.name)
        readable = [queue for queue in route.queues if queue.permission & Permission.READ]
        if not readable:
            raise NameRefused("FORBIDDEN", f"The topic {request.topic.name} has no readable queue.")
        # A lite consumer polls once for all its lite topics: they are no queues of the route.
        if group.fifo and route.message_type is not MessageType.LITE:
            polled = [(queue.broker_name, queue.queue_id, _permission(queue)) for queue in readable]
        else:
            brokers = dict.fromkeys(queue.broker_name for queue in readable)
            polled = [(name, ALL_QUEUES, m.READ_WRITE) for name in brokers]
        endpoints = self._advertised.to(request.endpoints)
        return m.QueryAssignmentResponse(
            status=ok(),
            assignments=[
                m.Assignment(
                    message_queue=m.MessageQueue(
                        topic=request.topic,
                        id=queue_id,
                        permission=permission,
                        broker=m.Broker(name=broker_name, id=MASTER_ID, endpoints=endpoints),
                    )
                )
                for broker_name, queue_id, permission in polled
            ],
        )


def _permission(queue: RouteQueue) -> m.Permission:
    return _PERMISSIONS.get(queue.permission & (Permission.READ | Permission.WRITE), m.NONE)
