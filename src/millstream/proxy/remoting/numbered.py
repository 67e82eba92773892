"""Queues of several brokers as clients see them that name no brokers in their requests, as those before RocketMQ 4.9.4.

They are told of one broker that holds all queues, numbered through (`queue_numbers` says how). A number stays its
queue's while its broker is away: it cannot be read then, and what is sent to it goes to another queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.model.errors import NameRefused
from millstream.model.topic import Permission
from millstream.protocol.remoting.bodies import BrokerData, QueueData, TopicRouteData
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.fields import integer
from millstream.proxy.backend import RouteQueue
from millstream.proxy.remote.known_route import MASTER_ID, KnownRoute

__all__ = ["FIRST_NAMING_VERSION", "ONLY_BROKER", "QUEUE_FIELDS", "NumberedQueues", "QueueFields"]

FIRST_NAMING_VERSION: Final = 401
"""RocketMQ 4.9.4, the first version whose clients name the broker in every request."""

ONLY_BROKER: Final = "proxy"
"""What the one broker is called of which such clients know."""


class QueueFields(NamedTuple):
    """The fields of a request that name its queue, and what the queue is for."""

    topic: str
    queue_id: str
    broker: str
    permission: Permission


_SENDING: Final = QueueFields("b", "e", "n", Permission.WRITE)
_READING: Final = QueueFields("topic", "queueId", "bname", Permission.READ)

QUEUE_FIELDS: Final[dict[int, QueueFields]] = {
    RequestCode.SEND_MESSAGE: QueueFields("topic", "queueId", "bname", Permission.WRITE),
    RequestCode.SEND_MESSAGE_V2: _SENDING,
    RequestCode.SEND_BATCH_MESSAGE: _SENDING,
    RequestCode.SEND_REPLY_MESSAGE: QueueFields("topic", "queueId", "bname", Permission.WRITE),
    RequestCode.SEND_REPLY_MESSAGE_V2: _SENDING,
    RequestCode.PULL_MESSAGE: _READING,
    RequestCode.LITE_PULL_MESSAGE: _READING,
    RequestCode.QUERY_CONSUMER_OFFSET: _READING,
    RequestCode.UPDATE_CONSUMER_OFFSET: _READING,
    RequestCode.GET_MAX_OFFSET: _READING,
    RequestCode.GET_MIN_OFFSET: _READING,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _READING,
    RequestCode.GET_EARLIEST_MSG_STORE_TIME: _READING,
}
"""By request code."""


@dataclass(frozen=True, slots=True)
class NumberedQueues:
    """The queues of one route."""

    known: KnownRoute
    places: tuple[tuple[str, int], ...]
    """Broker and own number of each queue by its number; some may not be there now."""

    def route(self, address: str) -> TopicRouteData:
        """What such a client is told: `address` is where it finds the one broker."""
        permission = Permission(0)
        for queue in self.known.route.queues:
            permission |= queue.permission
        cluster = next((broker.cluster for broker in self.known.data.broker_datas), "")
        readable, writable = (
            len(self.places) if permission & one else 0 for one in (Permission.READ, Permission.WRITE)
        )
        return TopicRouteData(
            [BrokerData(ONLY_BROKER, {MASTER_ID: address}, cluster)],
            [QueueData(ONLY_BROKER, readable, writable, int(permission))],
        )

    def locate(self, ext: dict[str, str], fields: QueueFields) -> None:
        """Put the broker and its own number of the queue into a request. MESSAGE_MALFORMED, QUEUE_NOT_FOUND."""
        number = integer(ext, fields.queue_id)
        queue = self.place(max(number, 0), fields.permission)
        ext[fields.broker] = queue.broker_name
        if number >= 0:
            ext[fields.queue_id] = str(queue.queue_id)

    def place(self, number: int, permission: Permission) -> RouteQueue:
        """The queue of a number, or one to write to in its place; QUEUE_NOT_FOUND."""
        if 0 <= number < len(self.places):
            for queue in self.known.route.queues:
                if (queue.broker_name, queue.queue_id) == self.places[number] and queue.permission & permission:
                    return queue
            if permission is Permission.WRITE and self.known.writable:
                return self.known.writable[number % len(self.known.writable)]
        words = (
            f"The topic {self.known.route.topic[:200]!r} has {len(self.places)} queues; number {number} is none of "
            "them, or not to be had now."
        )
        raise NameRefused("QUEUE_NOT_FOUND", words)

    def number(self, broker_name: str, queue_id: int) -> int:
        """The number of a queue."""
        place = (broker_name, queue_id)
        return self.places.index(place) if place in self.places else queue_id
