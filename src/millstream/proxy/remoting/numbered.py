"""Queues of several brokers as clients see them that name no brokers in their requests, as those before RocketMQ 4.9.4.

They are told of one broker that holds all queues, numbered through by broker and queue. The numbers change where
brokers come or go; these clients hear of it with their next route.
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

    def route(self, address: str) -> TopicRouteData:
        """What such a client is told: `address` is where it finds the one broker."""
        readable, writable = len(self._with(Permission.READ)), len(self._with(Permission.WRITE))
        permission = int(Permission.READ) * bool(readable) | int(Permission.WRITE) * bool(writable)
        cluster = next((broker.cluster for broker in self.known.data.broker_datas), "")
        return TopicRouteData(
            [BrokerData(ONLY_BROKER, {MASTER_ID: address}, cluster)],
            [QueueData(ONLY_BROKER, readable, writable, permission)],
        )

    def locate(self, ext: dict[str, str], fields: QueueFields) -> None:
        """Put the broker and its own number of the queue into a request. MESSAGE_MALFORMED, QUEUE_NOT_FOUND."""
        number = integer(ext, fields.queue_id)
        queue = self.place(max(number, 0), fields.permission)
        ext[fields.broker] = queue.broker_name
        if number >= 0:
            ext[fields.queue_id] = str(queue.queue_id)

    def place(self, number: int, permission: Permission) -> RouteQueue:
        """The queue of a number, among those to read or among those to write; QUEUE_NOT_FOUND."""
        queues = self._with(permission)
        if not 0 <= number < len(queues):
            words = (
                f"The topic {self.known.route.topic[:200]!r} has {len(queues)} such queues; {number} is none of them."
            )
            raise NameRefused("QUEUE_NOT_FOUND", words)
        return queues[number]

    def number(self, broker_name: str, queue_id: int) -> int:
        """The number under which a queue is written."""
        queues = self._with(Permission.WRITE)
        places = ((queue.broker_name, queue.queue_id) for queue in queues)
        return next((number for number, place in enumerate(places) if place == (broker_name, queue_id)), queue_id)

    def _with(self, permission: Permission) -> list[RouteQueue]:
        return [queue for queue in self.known.route.queues if queue.permission & permission]
