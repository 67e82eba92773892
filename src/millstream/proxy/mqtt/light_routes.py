"""Creates light queues and bindings at all brokers, by records of their route topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import MillstreamError
from millstream.model.escaped_names import hash_name
from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.model.properties import KEYS
from millstream.model.routing.routes import LightQueueConfig, RouteBinding
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.protocol.route_records import binding_key, encode_binding, encode_queue, queue_key
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.state_writes import StateWrites

__all__ = ["BROKERS_LIFE_S", "SESSION_GROUP", "LightRoutes", "session_queue_name", "share_queue_name"]

SESSION_GROUP: Final = "CID_MQTT"
"""The group that reads the light queues of all sessions."""

BROKERS_LIFE_S: Final = 1.0
"""Seconds for which it is taken as known which brokers there are: thousands of clients that come at a time do not ask a
nameserver each."""

_QUEUE: Final = 0


def session_queue_name(client_id: str) -> str:
    """The name of the light queue of a client's session."""
    return f"mqtt-{hash_name(client_id)}"


def share_queue_name(group: str, topic_filter: str) -> str:
    """The name of the light queue that a shared subscription's members have together."""
    return f"mqtts-{hash_name(group, topic_filter)}"


class LightRoutes:
    """Writes the routes of one backend. All methods return when the brokers have stored and taken them."""

    def __init__(self, backend: BrokerBackend, clock: Clock | None = None) -> None:
        self._backend = backend
        self._clock = clock or SystemClock()
        self._brokers: list[str] = []
        self._asked_s = 0.0
        self._writes = StateWrites(ROUTES_TOPIC, self._store_all)

    async def declare(self, name: str, config: LightQueueConfig, bindings: Sequence[tuple[str, str]] = ()) -> None:
        """Have a light queue, with bindings of pairs of a topic and a filter. Raises LIGHT_QUEUE_QUOTA_EXCEEDED."""
        records = {queue_key(name): encode_queue(config)}
        for topic, topic_filter in bindings:
            records[_key(name, topic, topic_filter)] = encode_binding(RouteBinding(topic, mqtt=topic_filter))
        await self._store(records)

    async def bind(self, name: str, topics: Sequence[str], topic_filter: str) -> None:
        """Let a light queue have the messages of the topics that the filter matches."""
        await self._store(
            {
                _key(name, topic, topic_filter): encode_binding(RouteBinding(topic, mqtt=topic_filter))
                for topic in topics
            }
        )

    async def unbind(self, name: str, topics: Sequence[str], topic_filter: str) -> None:
        """Take that back."""
        await self._store({_key(name, topic, topic_filter): b"" for topic in topics})

    async def remove(self, name: str) -> None:
        """Have the light queue no more, nor its messages."""
        await self._store({queue_key(name): b""})

    async def brokers(self) -> list[str]:
        """The brokers that have the light queues, sorted; as they were up to `BROKERS_LIFE_S` ago."""
        now_s = self._clock.monotonic_s()
        if not self._brokers or now_s - self._asked_s >= BROKERS_LIFE_S:
            # Before the answer: who comes meanwhile goes by what was known.
            self._asked_s = now_s
            self._brokers = await self._backend.brokers()
        return self._brokers

    async def _store(self, records: dict[str, bytes]) -> None:
        await self._writes.put(
            [OutgoingMessage(ROUTES_TOPIC, body, {KEYS: key}, queue_id=_QUEUE) for key, body in records.items()]
        )

    async def _store_all(self, messages: Sequence[OutgoingMessage]) -> Sequence[SendReceipt]:
        """The receipts of the first broker; all have the records."""
        brokers = await self.brokers()
        try:
            stored = await asyncio.gather(*(self._backend.store_state(broker, messages) for broker in brokers))
        except MillstreamError:
            # One of them may be there no more.
            self._brokers = []
            raise
        return stored[0] if stored else ()


def _key(name: str, topic: str, topic_filter: str) -> str:
    return binding_key(name, hash_name(topic, topic_filter))
