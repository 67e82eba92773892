"""Stable queue numbers for clients that name no brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, NameRefused
from millstream.model.topic import Permission
from millstream.protocol.remoting.bodies import BrokerData, QueueData, TopicRouteData
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer
from millstream.proxy.backend import RouteQueue
from millstream.proxy.remote.request_forwarder import RequestForwarder
from millstream.proxy.remote.routes import MASTER_ID, KnownRoute

__all__ = [
    "FIRST_NAMING_VERSION",
    "MAX_NUMBERED_TOPICS",
    "NAMESPACE",
    "ONLY_BROKER",
    "QUEUE_FIELDS",
    "REREAD_S",
    "NumberedQueues",
    "QueueFields",
    "QueueNumbers",
    "extend_blocks",
]


_log = logging.getLogger(__name__)

NAMESPACE: Final = "MILLSTREAM_QUEUE_NUMBERS"
"""Where nameservers keep the lists."""

REREAD_S: Final = 30.0
"""Seconds after which a list is read again when a client asks for the topic's route."""

MAX_NUMBERED_TOPICS: Final = 10_000
"""Topics of which a proxy keeps the list; the oldest is forgotten and read again."""

_MAX_NUMBERS: Final = 65_536

Blocks = tuple[tuple[str, int], ...]
"""Brokers and numbers of queues; a broker's later blocks go on counting where its former ones ended."""


def extend_blocks(blocks: Blocks, queues: Iterable[RouteQueue]) -> Blocks:
    """The list with those queues at its end that have no number yet, by broker."""
    wanted: dict[str, int] = {}
    for queue in queues:
        wanted[queue.broker_name] = max(wanted.get(queue.broker_name, 0), queue.queue_id + 1)
    for name, count in blocks:
        wanted[name] = wanted.get(name, 0) - count
    return blocks + tuple((name, count) for name, count in sorted(wanted.items()) if count > 0)


def _places(blocks: Blocks) -> tuple[tuple[str, int], ...]:
    """Broker and own number of each queue, by the number that clients know."""
    given: dict[str, int] = {}
    found: list[tuple[str, int]] = []
    for name, count in blocks:
        first = given.get(name, 0)
        found += [(name, first + number) for number in range(count)]
        given[name] = first + count
    return tuple(found)


def _text(blocks: Blocks) -> str:
    return ";".join(f"{name}:{count}" for name, count in blocks)


def _read(text: str) -> Blocks:
    """The list of a text; nothing for one that is none, as somebody else may have written there."""
    parts = [item.rpartition(":") for item in text.split(";") if item]
    if not all(mark and count.isascii() and count.isdecimal() and len(count) < 6 for _, mark, count in parts):
        return ()
    blocks = tuple((name, int(count)) for name, _, count in parts)
    return blocks if sum(count for _, count in blocks) <= _MAX_NUMBERS else ()


@dataclass(slots=True)
class _CachedNumbers:
    blocks: Blocks
    read_s: float
    numbered: NumberedQueues


class QueueNumbers:
    """The lists that one proxy knows."""

    def __init__(self, passage: RequestForwarder, clock: Clock) -> None:
        self._passage = passage
        self._clock = clock
        self._kept: dict[str, _CachedNumbers] = {}

    def find(self, known: KnownRoute) -> NumberedQueues | None:
        """The numbers of a route's queues, if they are known."""
        kept = self._kept.get(known.route.topic)
        return kept.numbered if kept is not None and kept.numbered.known is known else None

    async def get(self, known: KnownRoute) -> NumberedQueues:
        """The same; what is not known, or not of late, is asked. Where no nameserver answers, what is known holds."""
        topic, now_s = known.route.topic, self._clock.monotonic_s()
        kept = self._kept.get(topic)
        if known.is_static:
            return NumberedQueues(known, tuple((one.broker_name, one.queue_id) for one in known.route.queues))
        blocks = () if kept is None else kept.blocks
        if kept is None or now_s - kept.read_s >= REREAD_S or extend_blocks(blocks, known.route.queues) != blocks:
            blocks = await self._agree(topic, blocks, known)
        else:
            now_s = kept.read_s
        self._kept.pop(topic, None)
        if len(self._kept) >= MAX_NUMBERED_TOPICS:
            del self._kept[next(iter(self._kept))]
        numbered = NumberedQueues(known, _places(blocks))
        self._kept[topic] = _CachedNumbers(blocks, now_s, numbered)
        return numbered

    async def _agree(self, topic: str, own: Blocks, known: KnownRoute) -> Blocks:
        """The list of the nameservers, with all of the route's queues in it; they are told of one that is longer."""
        place = {"namespace": NAMESPACE, "key": topic}
        all_blocks: list[Blocks] = []
        try:
            answers = await self._passage.to_nameservers(topic, RemotingCommand(RequestCode.GET_KV_CONFIG, place))
            all_blocks = [
                _read(one.ext.get("value", "") if one.code == ResponseCode.SUCCESS else "") for one in answers
            ]
        except ConnectionFailed as error:
            _log.info("The numbers of the queues of %s are not read: %s", topic, error)
        longest = max((own, *all_blocks), key=lambda blocks: (sum(count for _, count in blocks), _text(blocks)))
        blocks = extend_blocks(longest, known.route.queues)
        if any(one != blocks for one in all_blocks):
            ext = {**place, "value": _text(blocks)}
            try:
                await self._passage.to_nameservers(topic, RemotingCommand(RequestCode.PUT_KV_CONFIG, ext))
            except ConnectionFailed as error:
                _log.info("The numbers of the queues of %s are not kept yet: %s", topic, error)
        return blocks


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
