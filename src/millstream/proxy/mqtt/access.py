"""Authentication and authorization of MQTT clients; without access control everything is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.model.message import Address
from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.properties import Properties
from millstream.proxy.mqtt.topic_rules import TopicRules
from millstream.security.guard import Guard
from millstream.security.mqtt_pattern import MqttClient
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource
from millstream.security.scram import ScramExchange

__all__ = ["MqttAccess", "PendingAuthentication"]

_CONNECT: Final = "MQTT CONNECT"
_PUBLISH: Final = "MQTT PUBLISH"
_SUBSCRIBE: Final = "MQTT SUBSCRIBE"


@dataclass(frozen=True, slots=True)
class PendingAuthentication:
    """An authentication of a client that takes more than its CONNECT waits for the client's AUTH: its CONNECT, the
    exchange, and what CONNACK is to tell."""

    connect: Connect
    exchange: ScramExchange
    told: Properties


class MqttAccess:
    """Asks the guard of a port; None lets everybody do everything."""

    def __init__(self, guard: Guard | None, rules: TopicRules) -> None:
        self._guard = guard
        self._rules = rules

    @property
    def is_on(self) -> bool:
        """Whether anything is asked at all."""
        return self._guard is not None

    def user_of(self, connect: Connect, peer: Address) -> str:
        """The user of a CONNECT, blank without access control; UNAUTHORIZED."""
        if self._guard is None:
            return ""
        return self._guard.caller_of_secret(
            connect.user_name or "",
            connect.password or b"",
            client_id=connect.client_id,
            peer=peer.host,
            action=_CONNECT,
        )

    def begin_scram(self) -> ScramExchange | None:
        """An authentication by SCRAM-SHA-256; None without access control, when there are no secrets."""
        return None if self._guard is None else self._guard.begin_scram()

    def end_scram(self, exchange: ScramExchange, message: bytes, peer: Address) -> tuple[str, bytes]:
        """The user, and what proves to the client that this is the server; UNAUTHORIZED."""
        assert self._guard is not None
        return self._guard.caller_of_scram(exchange, message, peer=peer.host, action=_CONNECT)

    def check_publish(self, client: MqttClient, topic: str, peer: Address) -> None:
        """Return if the client may publish to the MQTT topic; ACCESS_DENIED, UNAUTHORIZED."""
        if self._guard is not None:
            held = Resource.topic(self._rules.topic_of(topic))
            wish = RequiredAccess(Resource.mqtt(topic, client), (Action.PUB,), within=held)
            self._guard.allow(client.user, (wish,), peer=peer.host, action=_PUBLISH)

    def check_subscribe(self, client: MqttClient, topic_filter: str, peer: Address, group: str | None = None) -> None:
        """Return if the client may have all messages that the filter matches, with the members of the group where it
        is a shared subscription; ACCESS_DENIED, UNAUTHORIZED."""
        if self._guard is None:
            return
        resource = Resource.mqtt(topic_filter, client)
        wishes = [
            RequiredAccess(resource, (Action.SUB,), within=Resource.topic(topic))
            for topic in self._rules.topics_for(topic_filter)
        ]
        if group is not None:
            wishes.append(RequiredAccess(Resource.group(group), (Action.SUB,)))
        self._guard.allow(client.user, wishes, peer=peer.host, action=_SUBSCRIBE)

    def may_receive(self, client: MqttClient, topic_filter: str, peer: Address) -> bool:
        """Whether the client may still have what the filter matches; nothing is audited."""
        if self._guard is None:
            return True
        resource = Resource.mqtt(topic_filter, client)
        return all(
            self._guard.may(
                client.user, RequiredAccess(resource, (Action.SUB,), within=Resource.topic(topic)), peer=peer.host
            )
            for topic in self._rules.topics_for(topic_filter)
        )
