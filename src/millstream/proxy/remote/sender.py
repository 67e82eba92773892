"""Sends over all brokers of a topic: what fails at one goes to another, as far as order allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import MessageRefused, MillstreamError, Unreachable
from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.protocol.remoting.refusals import error_of
from millstream.proxy.backend import RouteQueue
from millstream.proxy.remote.known_route import KnownRoute
from millstream.proxy.remote.lanes import Lanes
from millstream.proxy.remote.placement import Placement
from millstream.proxy.remote.routes import Routes
from millstream.proxy.remote.send_request import receipts_of, send_request, shared_requests

__all__ = ["MAX_TRIES", "SLOW_S", "Sender"]

_log = logging.getLogger(__name__)

MAX_TRIES: Final = 3
"""Times that a message is sent at most, as by RocketMQ's producers."""

SLOW_S: Final = 1.0
"""Seconds without an answer after which the next calls avoid a broker whose caller has given up."""

_GROUP: Final = "MILLSTREAM_PROXY"

_STALE: Final = frozenset(("TOPIC_NOT_FOUND", "QUEUE_NOT_FOUND", "FORBIDDEN"))
"""Refusals that may only mean that the route has changed."""

_FAILED: Final = frozenset(("STORE_FAILED", "DISK_FULL", "FILE_NOT_OPENED", "UNREACHABLE"))
"""Failures of one broker, which says nothing of the others."""


class Sender:
    """Answers the sends of one proxy."""

    def __init__(self, lanes: Lanes, routes: Routes, clock: Clock) -> None:
        self._lanes = lanes
        self._routes = routes
        self._clock = clock
        self.placement = Placement()

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """Store messages of one topic; all or none of those that share a request: a queue, a type, the encoding.

        A broker that cannot be reached or cannot store is tried no further: messages that are bound to no queue go to
        another one, so one may be stored twice where a connection broke after it was sent.
        """
        if not messages:
            raise MessageRefused("MESSAGE_MALFORMED", "A send has no message.")
        topic = messages[0].topic
        if any(message.topic != topic for message in messages):
            raise MessageRefused("MESSAGE_MALFORMED", f"A send to {topic[:200]!r} has messages for other topics.")
        known = await self._routes.get(topic)
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

        return await self._routes.following(known.route.topic, store)

    async def _store(
        self, known: KnownRoute, queue: RouteQueue, messages: Sequence[OutgoingMessage]
    ) -> list[SendReceipt]:
        tries = 1
        while True:
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
                if tries >= MAX_TRIES or error.name not in _STALE | _FAILED:
                    raise
                failure = error
            tries += 1
            known, queue = await self._elsewhere(known, queue, messages, failure)

    async def _elsewhere(
        self, known: KnownRoute, queue: RouteQueue, messages: Sequence[OutgoingMessage], failure: MillstreamError
    ) -> tuple[KnownRoute, RouteQueue]:
        """Where the messages may go after a failure, which is raised where there is no such place."""
        now_s = self._clock.monotonic_s()
        if failure.name in _FAILED:
            self.placement.avoid(queue.broker_name, now_s)
        self._routes.doubt(known.route.topic, failure)
        try:
            fresh = await self._routes.refresh(known.route.topic)
        except Unreachable:
            fresh = known
        bound = self.placement.bound(fresh, messages[0])
        chosen = bound or self.placement.next(fresh, now_s)
        went_nowhere = chosen.broker_name == queue.broker_name and fresh.addresses == known.addresses
        if went_nowhere and (failure.name in _FAILED or chosen.queue_id == queue.queue_id):
            raise failure
        _log.info("A send to %s goes to %s now: %s", known.route.topic, chosen.broker_name, failure)
        return fresh, chosen
