"""Which queue a message goes to when many brokers hold its topic. Pure: time is handed in.

Messages with a message group have one queue, by RocketMQ's rule (Java hash of the group modulo all writable queues);
those of a lite topic have one broker, by the same hash; the others take all queues in turn. A broker that failed is
passed over for a while by those that may go anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.model import properties
from millstream.model.errors import NameRefused
from millstream.model.filter import java_hash_code
from millstream.model.message import OutgoingMessage
from millstream.model.topic import MessageType
from millstream.proxy.backend import RouteQueue
from millstream.proxy.remote.known_route import KnownRoute

__all__ = ["AVOID_S", "Placement"]

AVOID_S: Final = 10.0
"""Seconds for which a broker that failed gets no message that may go elsewhere; other brokers permitting."""


class Placement:
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
            queue = self.bound(known, message)
            if queue is None:
                queue = shared = shared or self.next(known, now_s)
            found.setdefault(queue, []).append(position)
        return list(found.items())

    def bound(self, known: KnownRoute, message: OutgoingMessage) -> RouteQueue | None:
        """The queue of a message that must keep its place; None for one that may go anywhere."""
        held = message.properties
        group, lite_topic = held.get(properties.MESSAGE_GROUP), held.get(properties.LITE_TOPIC)
        if message.queue_id is not None:
            fitting = [queue for queue in known.writable if queue.queue_id == message.queue_id]
            return fitting[0] if fitting else None
        if group is not None:
            return _hashed(group, _writable(known))
        if lite_topic is not None and known.route.message_type is MessageType.LITE:
            return _hashed(lite_topic, [queue for queue in _writable(known) if queue.queue_id == 0])
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


def _hashed(text: str, queues: Sequence[RouteQueue]) -> RouteQueue | None:
    return queues[java_hash_code(text) % len(queues)] if queues else None


def _writable(known: KnownRoute) -> tuple[RouteQueue, ...]:
    if not known.writable:
        raise NameRefused("FORBIDDEN", f"The topic {known.route.topic[:200]!r} has no writable queue.")
    return known.writable
