"""Who a client is and what it may publish and subscribe to; everything without access control."""

from __future__ import annotations

from typing import Final

from millstream.model.message import Address
from millstream.protocol.mqtt.packets import Connect
from millstream.proxy.mqtt.topic_rules import TopicRules
from millstream.security.guard import Guard
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource

__all__ = ["MqttAccess"]

_PUBLISH: Final = "MQTT PUBLISH"
_SUBSCRIBE: Final = "MQTT SUBSCRIBE"
_SHARE: Final = "MQTT SUBSCRIBE $share"


class MqttAccess:
    """Asks the guard of a port; None lets everybody do everything."""

    def __init__(self, guard: Guard | None, rules: TopicRules) -> None:
        self._guard = guard
        self._rules = rules

    def user_of(self, connect: Connect, peer: Address) -> str:
        """The user of a CONNECT, blank without access control; UNAUTHORIZED."""
        if self._guard is None:
            return ""
        return connect.user_name or ""

    def check_publish(self, user: str, topic: str, peer: Address) -> None:
        """Return if the client may publish to the MQTT topic; ACCESS_DENIED, UNAUTHORIZED."""
        if self._guard is not None:
            wish = RequiredAccess(Resource.topic(self._rules.topic_of(topic)), (Action.PUB,))
            self._guard.allow(user, (wish,), peer=peer.host, action=_PUBLISH)

    def check_subscribe(self, user: str, topic_filter: str, peer: Address) -> None:
        """Return if the client may have all messages that the filter matches; ACCESS_DENIED, UNAUTHORIZED."""
        if self._guard is not None:
            wishes = [
                RequiredAccess(Resource.topic(topic), (Action.SUB,)) for topic in self._rules.topics_for(topic_filter)
            ]
            self._guard.allow(user, wishes, peer=peer.host, action=_SUBSCRIBE)

    def check_share(self, user: str, group: str, topic_filter: str, peer: Address) -> None:
        """The same for a shared subscription, which is the group's."""
        self.check_subscribe(user, topic_filter, peer)
        if self._guard is not None:
            wish = RequiredAccess(Resource.group(group), (Action.SUB,))
            self._guard.allow(user, (wish,), peer=peer.host, action=_SHARE)
