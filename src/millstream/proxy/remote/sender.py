"""Sends to all brokers of a topic: a failed send moves to another broker where order allows it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import Final

from millstream.client.failover import was_not_done
from millstream.model import properties
from millstream.model import properties as names
from millstream.model.clock import Clock
from millstream.model.errors import MessageRefused, MillstreamError, NameRefused, Unreachable
from millstream.model.filter import java_hash_code
from millstream.model.handles import RecallHandle
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.model.operations import SendReceipt
from millstream.model.properties import MAX_STORED_BYTES, encode_properties
from millstream.model.topic import MessageType
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand
from millstream.protocol.remoting.fields import TYPED, integer
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.protocol.remoting.messages.sends import BORN_HOST, MESSAGE_TYPE, born_host_text, places_of_batch
from millstream.protocol.remoting.refusals import error_of
from millstream.proxy.backend import RouteQueue
from millstream.proxy.remote.connection_pool import BrokerConnectionPool
from millstream.proxy.remote.routes import KnownRoute, RouteCache

__all__ = [
    "AVOID_S",
    "MAX_TRIES",
    "SLOW_S",
    "BrokerQueueSelector",
    "RemoteSender",
    "receipts_of",
    "send_request",
    "shared_requests",
]


_PLAIN_JSON_BYTES: Final = 8 * 1024
"""Bytes of properties up to which the header is JSON, whose escapes may make them six times as long."""

_WORDS_OF_TYPES: Final = frozenset(
    (names.MESSAGE_GROUP, names.PRIORITY, names.LITE_TOPIC, names.DELIVERY_TIME_MS, names.TRANSACTION)
)
"""Properties that say themselves of which type a message is."""


def shared_requests(messages: Sequence[OutgoingMessage]) -> list[list[int]]:
    """Which of the messages for one queue may share a request, as their positions.

    A batch has one system flag and one type for all, and no transaction can be in one.
    """
    found: dict[object, list[int]] = {}
    for position, message in enumerate(messages):
        alone = position if message.properties.get(names.TRANSACTION) == "true" else None
        found.setdefault((int(message.system_flag), message.message_type, alone), []).append(position)
    return list(found.values())


def send_request(queue: RouteQueue, messages: Sequence[OutgoingMessage], group: str) -> RemotingCommand:
    """The request; several messages are a batch. ILLEGAL_PROPERTY, PROPERTIES_TOO_LARGE for what cannot travel."""
    first = messages[0]
    ext = {
        "a": first.properties.get(names.PRODUCER_GROUP) or group,
        "b": first.topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue.queue_id),
        "f": str(int(first.system_flag)),
        "g": str(first.born_timestamp_ms),
        "h": str(first.flag),
        "j": str(first.reconsume_times),
        "k": "false",
        "m": "true" if len(messages) > 1 else "false",
        "n": queue.broker_name,
        BORN_HOST: born_host_text(first.born_host),
        **TYPED,
    }
    if first.message_type is not MessageType.NORMAL and _WORDS_OF_TYPES.isdisjoint(first.properties):
        ext[MESSAGE_TYPE] = first.message_type.value
    if len(messages) > 1:
        items = [_item(message) for message in messages]
        return RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, ext, b"".join(items))
    if first.properties.get(names.TRANSACTION) == "true":
        ext["f"] = str(int(first.system_flag | SystemFlag.TRANSACTION_PREPARED))
    stored = _encode_stored_properties(first)
    ext["i"] = stored.decode()
    header_type = HeaderType.JSON if len(stored) <= _PLAIN_JSON_BYTES else HeaderType.BINARY
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, first.body, header_type=header_type)


def receipts_of(
    answer: RemotingCommand, queue: RouteQueue, messages: Sequence[OutgoingMessage], now_ms: int
) -> list[SendReceipt]:
    """The receipts, one per message. The store time is `now_ms`: answers do not tell it. MESSAGE_MALFORMED."""
    ext = answer.ext
    places = places_of_batch(ext, integer(ext, "queueId"), integer(ext, "queueOffset"), len(messages))
    ids = ext.get("msgId", "").split(",")
    if len(ids) != len(messages):
        ids = [""] * len(messages)
    handle = ext.get("recallHandle")
    due_ms = RecallHandle.decode(handle).due_ms if handle else None
    return [
        SendReceipt(
            message_id=message.properties.get(names.UNIQUE_KEY, ""),
            offset_message_id=offset_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
            log_offset=int(offset_id[-16:], 16) if offset_id else 0,
            store_timestamp_ms=now_ms,
            broker_name=queue.broker_name,
            due_ms=due_ms or due_of_batch_ms,
        )
        for message, offset_id, (queue_id, queue_offset, due_of_batch_ms) in zip(messages, ids, places, strict=True)
    ]


def _item(message: OutgoingMessage) -> bytes:
    _encode_stored_properties(message)
    return encode_batch_item(message.body, message.properties, flag=message.flag)


def _encode_stored_properties(message: OutgoingMessage) -> bytes:
    """The properties' text, if the broker will read the same properties from it."""
    held = message.properties
    try:
        stored = encode_properties(held)
    except UnicodeEncodeError:
        raise MessageRefused("ILLEGAL_PROPERTY", "A property has text that is not Unicode (half of a pair).") from None
    if stored.count(b"\x01") != len(held) or stored.count(b"\x02") != len(held):
        raise MessageRefused(
            "ILLEGAL_PROPERTY", "A property has one of the characters \\x01 and \\x02, which separate."
        )
    if len(stored) > MAX_STORED_BYTES:
        raise MessageRefused(
            "PROPERTIES_TOO_LARGE", f"The properties have {len(stored)} bytes; the limit is {MAX_STORED_BYTES}."
        )
    return stored


AVOID_S: Final = 10.0
"""Seconds for which a broker that failed gets no message that may go elsewhere; other brokers permitting."""


class BrokerQueueSelector:
    """One instance for a proxy, so that the turn goes on from send to send."""

    def __init__(self) -> None:
        self._turn = 0
        self._avoided: dict[str, float] = {}

    def avoid(self, broker_name: str, now_s: float) -> None:
        """The broker failed."""
        self._avoided[broker_name] = now_s + AVOID_S

    def is_avoided(self, broker_name: str, now_s: float) -> bool:
        """Whether the broker failed a short while ago."""
        until_s = self._avoided.get(broker_name)
        if until_s is not None and until_s <= now_s:
            del self._avoided[broker_name]
            return False
        return until_s is not None

    def places(
        self, known: KnownRoute, messages: Sequence[OutgoingMessage], now_s: float
    ) -> list[tuple[RouteQueue, list[int]]]:
        """Where each of the messages goes, by queue, as their positions. FORBIDDEN where nothing is writable.

        Messages that are bound to no queue share one.
        """
        shared: RouteQueue | None = None
        found: dict[RouteQueue, list[int]] = {}
        for position, message in enumerate(messages):
            queue = self.find_bound(known, message)
            if queue is None:
                queue = shared = shared or self.next(known, now_s)
            found.setdefault(queue, []).append(position)
        return list(found.items())

    def find_bound(self, known: KnownRoute, message: OutgoingMessage) -> RouteQueue | None:
        """The queue of a message that must keep its place; None for one that may go anywhere."""
        held = message.properties
        group, lite_topic = held.get(properties.MESSAGE_GROUP), held.get(properties.LITE_TOPIC)
        if message.queue_id is not None:
            fitting = [queue for queue in known.writable if queue.queue_id == message.queue_id]
            return fitting[0] if fitting else None
        if group is not None:
            return _queue_by_hash(group, _writable(known))
        if lite_topic is not None and known.route.message_type is MessageType.LITE:
            return _queue_by_hash(lite_topic, [queue for queue in _writable(known) if queue.queue_id == 0])
        return None

    def next(self, known: KnownRoute, now_s: float) -> RouteQueue:
        """The next queue in turn, of a broker that did not fail of late if there is one. FORBIDDEN."""
        queues = _writable(known)
        self._turn += 1
        for number in range(len(queues) if self._avoided else 1):
            queue = queues[(self._turn + number) % len(queues)]
            if not self.is_avoided(queue.broker_name, now_s):
                return queue
        return queues[self._turn % len(queues)]


def _queue_by_hash(text: str, queues: Sequence[RouteQueue]) -> RouteQueue | None:
    return queues[java_hash_code(text) % len(queues)] if queues else None


def _writable(known: KnownRoute) -> tuple[RouteQueue, ...]:
    if not known.writable:
        raise NameRefused("FORBIDDEN", f"The topic {known.route.topic[:200]!r} has no writable queue.")
    return known.writable


_log = logging.getLogger(__name__)

MAX_TRIES: Final = 3
"""Times that a message is sent at most, as by RocketMQ's producers."""

SLOW_S: Final = 1.0
"""Seconds without an answer after which the next calls avoid a broker whose caller has given up."""

_GROUP: Final = "MILLSTREAM_PROXY"

_STALE: Final = frozenset(("TOPIC_NOT_FOUND", "QUEUE_NOT_FOUND", "FORBIDDEN"))
"""Refusals that may only mean that the route has changed."""

_FAILED: Final = frozenset(
    ("STORE_FAILED", "DISK_FULL", "FILE_NOT_OPENED", "UNREACHABLE", "NOT_MASTER", "TOO_FEW_REPLICAS")
)
"""Failures of one broker, which says nothing of the others."""


class RemoteSender:
    """Answers the sends of one proxy."""

    def __init__(self, lanes: BrokerConnectionPool, routes: RouteCache, clock: Clock) -> None:
        self._lanes = lanes
        self._routes = routes
        self._clock = clock
        self.placement = BrokerQueueSelector()

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """Store messages of one topic; all or none of those that share a request: a queue, a type, the encoding.

        Messages that are bound to no queue go to another broker where theirs cannot be reached or cannot store, so one
        may be stored twice where a connection broke after it was sent. The same broker gets them again, wherever its
        master is then, only where the attempt before surely did nothing: no connection, or NOT_MASTER. It ends
        with the caller's deadline, or `FAILOVER_S` after the first failure.
        """
        if not messages:
            raise MessageRefused("MESSAGE_MALFORMED", "A send has no message.")
        topic = messages[0].topic
        if any(message.topic != topic for message in messages):
            raise MessageRefused("MESSAGE_MALFORMED", f"A send to {topic[:200]!r} has messages for other topics.")
        known = await self._routes.following(topic, _itself)
        places = [
            (queue, [positions[one] for one in shared])
            for queue, positions in self.placement.places(known, messages, self._clock.monotonic_s())
            for shared in shared_requests([messages[position] for position in positions])
        ]
        if len(places) == 1:
            return await self._send(known, places[0][0], messages)
        receipts: dict[int, SendReceipt] = {}
        parts = [self._send(known, queue, [messages[one] for one in positions]) for queue, positions in places]
        for (_, positions), done in zip(places, await asyncio.gather(*parts, return_exceptions=True), strict=True):
            if isinstance(done, BaseException):
                raise done
            receipts.update(zip(positions, done, strict=True))
        return [receipts[position] for position in range(len(messages))]

    async def _send(
        self, known: KnownRoute, queue: RouteQueue, messages: Sequence[OutgoingMessage]
    ) -> list[SendReceipt]:
        """Store messages that share a place, wherever that moves meanwhile."""
        bound = queue.queue_id if known.is_static else None

        async def store(fresh: KnownRoute) -> list[SendReceipt]:
            present = next((one for one in fresh.writable if one.queue_id == bound), queue)
            return await self._store(fresh, present, messages)

        return await self._routes.following(known.route.topic, store, was_not_done)

    async def _store(
        self, known: KnownRoute, queue: RouteQueue, messages: Sequence[OutgoingMessage]
    ) -> list[SendReceipt]:
        unclear: dict[str, MillstreamError] = {}
        for tries in itertools.count(1):
            command = send_request(queue, messages, _GROUP)
            began_s = self._clock.monotonic_s()
            try:
                address = known.address(queue.broker_name)
                answer = await self._lanes.ask(address, command)
                if answer.code == 0:
                    return receipts_of(answer, queue, messages, self._clock.now_ms())
                raise error_of(answer, address)
            except asyncio.CancelledError:
                # The caller's time was over first; whoever comes next is not to wait for the same broker.
                if self._clock.monotonic_s() - began_s >= SLOW_S:
                    self.placement.avoid(queue.broker_name, self._clock.monotonic_s())
                raise
            except MillstreamError as error:
                if error.name == "TIMED_OUT":
                    self.placement.avoid(queue.broker_name, self._clock.monotonic_s())
                failure = error
            if isinstance(failure, Unreachable) and not was_not_done(failure):
                unclear[queue.broker_name] = failure
            # What may be stored already decides what the caller hears, also where another broker did nothing.
            reason = next(iter(unclear.values()), failure)
            if tries >= MAX_TRIES or failure.name not in _STALE | _FAILED:
                raise reason
            chosen = await self._elsewhere(known, queue, messages, failure)
            if chosen is None or chosen[1].broker_name in unclear:
                raise reason
            known, queue = chosen
        raise AssertionError("the last try returns or raises")

    async def _elsewhere(
        self, known: KnownRoute, queue: RouteQueue, messages: Sequence[OutgoingMessage], failure: MillstreamError
    ) -> tuple[KnownRoute, RouteQueue] | None:
        """Where the messages may go after a failure; None where there is no such place."""
        now_s = self._clock.monotonic_s()
        if failure.name in _FAILED:
            self.placement.avoid(queue.broker_name, now_s)
        self._routes.doubt(known.route.topic, failure)
        try:
            fresh = await self._routes.refresh(known.route.topic)
        except Unreachable:
            fresh = known
        bound = self.placement.find_bound(fresh, messages[0])
        chosen = bound or self.placement.next(fresh, now_s)
        went_nowhere = chosen.broker_name == queue.broker_name and fresh.addresses == known.addresses
        if went_nowhere and (failure.name in _FAILED or chosen.queue_id == queue.queue_id):
            return None
        _log.info("A send to %s goes to %s now: %s", known.route.topic, chosen.broker_name, failure)
        return fresh, chosen


async def _itself(known: KnownRoute) -> KnownRoute:
    return known
