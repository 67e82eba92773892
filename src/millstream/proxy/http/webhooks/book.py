"""All subscriptions, as records of a state topic that every proxy follows, with their deliveries here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError, Refused
from millstream.model.state_topics import HTTP_SUBSCRIPTIONS_TOPIC
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.http.webhooks.delivery import WebhookDelivery
from millstream.proxy.http.webhooks.sink import Sink
from millstream.proxy.http.webhooks.subscription import WebhookSubscription
from millstream.proxy.processor import Processor
from millstream.proxy.state_topics import StateTopic
from millstream.security.guard import Guard
from millstream.security.policy import RequiredAccess

__all__ = ["MAX_SUBSCRIPTIONS", "SubscriptionBook"]

_log = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 1_000
"""Subscriptions at most: each proxy waits for the messages of all of them."""

_LOCAL_PEER: Final = "127.0.0.1"


@dataclass(slots=True)
class _Entry:
    delivery: WebhookDelivery
    task: asyncio.Task[None]


class SubscriptionBook:
    """Follows the state topic from `start` to `close`."""

    def __init__(
        self, processor: Processor, backend: BrokerBackend, sink: Sink, guard: Guard | None, clock: Clock
    ) -> None:
        self._processor = processor
        self._sink = sink
        self._guard = guard
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._topic = StateTopic(backend, HTTP_SUBSCRIPTIONS_TOPIC, clock=clock)
        self._topic.listen(self._apply, self._forget)

    async def start(self) -> None:
        """Begin to follow and to deliver."""
        await self._topic.start()

    async def close(self) -> None:
        """End the deliveries; what is under way goes back."""
        await self._topic.close()
        tasks = [entry.task for entry in self._entries.values()]
        self._forget()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._entries)

    def all(self) -> Iterator[WebhookDelivery]:
        """All of them, in no order."""
        return iter([entry.delivery for entry in self._entries.values()])

    def find(self, key: str) -> WebhookDelivery:
        """The subscription of that id; SUBSCRIPTION_NOT_FOUND."""
        entry = self._entries.get(key)
        if entry is None:
            raise Refused("SUBSCRIPTION_NOT_FOUND", f"There is no subscription {key[:80]!r}.")
        return entry.delivery

    async def put(self, wanted: WebhookSubscription) -> None:
        """Store a new subscription, or another one of its id; it is known here when this returns."""
        if wanted.id not in self._entries and len(self._entries) >= MAX_SUBSCRIPTIONS:
            raise ConsumeRefused("SUBSCRIPTION_LIMIT", f"There are {len(self._entries)} subscriptions.")
        await self._topic.reach(await self._topic.put(wanted.id, wanted.encode()))

    async def delete(self, key: str) -> None:
        """Have the subscription no more; it is gone here when this returns."""
        await self._topic.reach(await self._topic.delete(key))

    # inside

    def _apply(self, key: str, value: bytes | None, _offset: int) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            old.task.cancel()
        if value is None:
            return
        try:
            wanted = WebhookSubscription.decode(value)
            wanted.message_filter()
        except (ValueError, MillstreamError) as error:
            _log.error("The subscription %s cannot be read and is left out: %s", key, error)
            return
        delivery = WebhookDelivery(
            wanted,
            self._processor,
            self._sink,
            self._clock,
            may=lambda: self._may(wanted),
            end=lambda: self._end(key),
        )
        task = asyncio.get_running_loop().create_task(delivery.run(), name=f"webhook-{key}")
        self._entries[key] = _Entry(delivery, task)

    def _forget(self) -> None:
        for entry in self._entries.values():
            entry.task.cancel()
        self._entries.clear()

    def _may(self, wanted: WebhookSubscription) -> bool:
        if self._guard is None:
            return True
        wishes = (RequiredAccess.consume(wanted.group), RequiredAccess.read(wanted.config.topic))
        return all(self._guard.may(wanted.owner, wish, peer=_LOCAL_PEER) for wish in wishes)

    async def _end(self, key: str) -> None:
        """The sink wants no more events. Stored by a task of its own: the record ends the one that calls this."""
        await self._topic.delete(key)
