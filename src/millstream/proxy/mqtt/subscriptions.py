"""The subscriptions of all sessions here, and the feeds of the topics that they need."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused
from millstream.model.message import StoredMessage
from millstream.model.routing.mqtt_filters import MqttFilters
from millstream.proxy.feed import FeedPlace, TopicFeed
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.light_queue_reader import LightQueueReader
from millstream.proxy.mqtt.records import application_message_of, mqtt_topic_of
from millstream.proxy.mqtt.topic_rules import TopicRules

__all__ = ["MAX_SUBSCRIPTIONS", "SessionSubscription", "SubscribedSession", "SubscriptionTable"]

_log = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 1_000_000
"""Subscriptions of all sessions of a port at most."""


class SubscribedSession(Protocol):
    """The session that has a subscription, as `MqttSession` is one; see there."""

    client_id: str
    expiry_s: int
    queue: LightQueueReader | None

    def offer(self, message: ApplicationMessage, subscriptions: Sequence[SessionSubscription]) -> None: ...

    def offer_own(self, message: ApplicationMessage, subscription: SessionSubscription) -> None: ...


@dataclass(slots=True, eq=False)
class SessionSubscription:
    """One subscription of a session. `subscription_id` 0 is none."""

    session: SubscribedSession
    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    subscription_id: int = 0
    share: LightQueueReader | None = None
    """What reads the messages of a shared subscription for this member."""

    @property
    def reader(self) -> LightQueueReader | None:
        """The reader of the light queue from which its messages come, if they come from one."""
        return self.share if self.share is not None else self.session.queue if self.qos else None

    def wake(self) -> bool:
        """Have a light queue read, if that is where the messages come from; whether it is."""
        reader = self.reader
        if reader is not None:
            reader.wake()
        return reader is not None


@dataclass(slots=True, eq=False)
class _Followed:
    """A topic that is followed for so many subscriptions."""

    subscriptions: int = 0
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    end: Callable[[], None] | None = None


class SubscriptionTable:
    """Takes records of the feed and hands each to the sessions that have a filter for it, once [MQTT-3.3.5-1]."""

    def __init__(
        self,
        feed: TopicFeed,
        rules: TopicRules,
        clock: Clock,
        find: Callable[[str], Awaitable[object]],
    ) -> None:
        """`find` makes sure that a topic is there."""
        self._find = find
        self._feed = feed
        self._rules = rules
        self._clock = clock
        self._filters: MqttFilters[SessionSubscription] = MqttFilters()
        self._followed: dict[str, _Followed] = {}
        self.on_delivered: Callable[[], None] = _nothing
        """Called after records were handed over, in the same turn."""
        self.gaps = 0
        """Records that the feed passed over."""

    def __len__(self) -> int:
        return len(self._filters)

    async def add(self, subscription: SessionSubscription) -> None:
        """Hand over what is stored from now on. Raises TOO_MANY_REQUESTS, and what keeps the brokers from answering."""
        if len(self._filters) >= MAX_SUBSCRIPTIONS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"{MAX_SUBSCRIPTIONS} subscriptions are the limit of a proxy.")
        topics = self._rules.topics_for(subscription.topic_filter)
        done: list[str] = []
        try:
            for topic in topics:
                await self._follow(topic)
                done.append(topic)
        except BaseException:
            for topic in done:
                self._leave(topic)
            raise
        self._filters.add(subscription.topic_filter, subscription)

    def replace(self, old: SessionSubscription, new: SessionSubscription) -> None:
        """Let other options hold for the same filter, without a gap."""
        self._filters.remove(old.topic_filter, old)
        self._filters.add(new.topic_filter, new)

    def remove(self, subscription: SessionSubscription) -> None:
        """Hand over nothing more."""
        if self._filters.remove(subscription.topic_filter, subscription):
            for topic in self._rules.topics_for(subscription.topic_filter):
                self._leave(topic)

    def wants_body(self, topic: str, record: StoredMessage) -> bool:
        """Whether `deliver` reads the body of a record; not where its only reader is a light queue's."""
        found = [*self._filters.match(mqtt_topic_of(topic, record.properties))]
        return len(found) > 1 or (len(found) == 1 and found[0].reader is None)

    def deliver(self, topic: str, messages: Sequence[StoredMessage], place: FeedPlace) -> None:
        """See `FeedListener`."""
        now_ms = self._clock.now_ms()
        for record in messages:
            found = self._filters.match(mqtt_topic_of(topic, record.properties))
            if not found:
                continue
            if len(found) == 1:
                (subscription,) = found
                if subscription.wake():
                    continue
                message = application_message_of(record)
                if not message.is_expired(now_ms):
                    subscription.session.offer(message, (subscription,))
                continue
            message = application_message_of(record)
            if message.is_expired(now_ms):
                continue
            by_session: dict[SubscribedSession, list[SessionSubscription]] = {}
            for subscription in found:
                by_session.setdefault(subscription.session, []).append(subscription)
            for session, subscriptions in by_session.items():
                session.offer(message, subscriptions)
        self.on_delivered()

    def spread(self, message: ApplicationMessage) -> None:
        """Hand a message that is in no topic to the sessions that have a filter for it."""
        for subscription in self._filters.match(message.topic):
            subscription.session.offer_own(message, subscription)

    def note_gap(self, topic: str, lost: int, place: FeedPlace) -> None:
        """See `FeedListener`."""
        self.gaps += lost

    async def _follow(self, topic: str) -> None:
        followed = self._followed.get(topic)
        if followed is None:
            followed = self._followed[topic] = _Followed()
        followed.subscriptions += 1
        try:
            async with followed.opening:
                if followed.end is None:
                    await self._find(topic)
                    followed.end = (await self._feed.follow(topic, self, self.wants_body)).end
        except BaseException:
            self._leave(topic)
            raise

    def _leave(self, topic: str) -> None:
        followed = self._followed[topic]
        followed.subscriptions -= 1
        if not followed.subscriptions:
            del self._followed[topic]
            if followed.end is not None:
                followed.end()


def _nothing() -> None:
    """Stands for whoever is not there yet."""
