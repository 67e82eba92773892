"""Will messages: published when a client disconnects abnormally, at once or after the will delay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from millstream.model.errors import MillstreamError
from millstream.model.message import Address
from millstream.protocol.mqtt.packets import Publish, Will
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.session_records import StoredSession
from millstream.security.mqtt_pattern import MqttClient

__all__ = ["MAX_DOUBTFUL_WILLS", "WillPublisher"]

MAX_DOUBTFUL_WILLS: Final = 100_000
"""Wills of other proxies' connections that wait until it is known whether those are gone, at most."""

_log = logging.getLogger(__name__)
_NOBODY: Final = Address("127.0.0.1", 0)


class _DoubtfulWill(NamedTuple):
    """A session as another proxy had it, and when it was claimed here."""

    session: StoredSession
    noted_ms: int


class WillPublisher:
    """The wills of one port."""

    def __init__(self, services: MqttServices) -> None:
        self._services = services
        self.on_published: Callable[[str], None] = lambda _client_id: None
        """Called with the client id when a will was published that had to wait."""
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._doubtful: list[_DoubtfulWill] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def publish_later(self, client_id: str, user: str, will: Will, delay_s: float) -> None:
        """Publish the will after the delay, unless it is recalled before."""
        if delay_s <= 0:
            self.publish(client_id, user, will)
            return
        self.recall(client_id)
        loop = asyncio.get_running_loop()
        self._waiting[client_id] = loop.call_later(delay_s, self._due, client_id, user, will)

    def recall(self, client_id: str) -> None:
        """The client is back: its will is not published [MQTT-3.1.3-9]."""
        timer = self._waiting.pop(client_id, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """The wills that wait stay in the store, for the next one who looks after them."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def publish(self, client_id: str, user: str, will: Will) -> None:
        """Publish the will now, if its user still may."""
        services = self._services
        values = dict(will.properties.values)
        values.pop(PropertyId.WILL_DELAY_INTERVAL, None)
        held = Properties(values, will.properties.user) if values or will.properties.user else NO_PROPERTIES
        packet = Publish(will.topic, will.payload, will.qos, will.retain, properties=held)
        try:
            services.access.check_publish(MqttClient(user, client_id), will.topic, _NOBODY)
            services.publish(services.message_of(packet, will.topic, client_id), _NOBODY, _note_stored)
        except MillstreamError as error:
            _note_stored(error)

    def doubt(self, session: StoredSession) -> None:
        """Keep the will of a connection that another proxy served: that one publishes it, if it is still there."""
        if len(self._doubtful) < MAX_DOUBTFUL_WILLS:
            self._doubtful.append(_DoubtfulWill(session, self._services.clock.now_ms()))

    def publish_doubtful(self, proxies: Mapping[str, int], live: Container[str]) -> None:
        """Publish the wills of proxies that turned out to be gone; `proxies` has when each said last that it is
        there."""
        waiting: list[_DoubtfulWill] = []
        for one in self._doubtful:
            if proxies.get(one.session.proxy, 0) > one.noted_ms:
                continue
            if one.session.proxy in live:
                waiting.append(one)
            elif one.session.will is not None:
                self.publish(one.session.client_id, one.session.user, one.session.will.will())
        self._doubtful = waiting

    def _due(self, client_id: str, user: str, will: Will) -> None:
        del self._waiting[client_id]
        self.publish(client_id, user, will)
        self.on_published(client_id)


def _note_stored(error: MillstreamError | None) -> None:
    if error is not None:
        _log.warning("The will of a client could not be published: %s", error)
