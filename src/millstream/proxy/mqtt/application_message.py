"""An MQTT application message, and its PUBLISH for many subscribers: the common part is encoded once."""

from __future__ import annotations

from typing import Final

from millstream.protocol.mqtt.encoding import encode_publish, encode_publish_head
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Publish
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId, encode_properties
from millstream.protocol.mqtt.topic_aliases import OutgoingAliases

__all__ = ["ApplicationMessage"]

_V5: Final = ProtocolVersion.V5
_LONGEST_EXPIRY_S: Final = 0xFFFFFFFF


class ApplicationMessage:
    """A message of a topic. `publisher` is the id of the client that published it, blank if that is not known.

    `expires_ms` is when it expires, since 1970. `properties` has neither that nor a topic alias.
    """

    __slots__ = ("_encoded", "expires_ms", "mark", "payload", "properties", "publisher", "qos", "retain", "topic")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        *,
        retain: bool = False,
        publisher: str = "",
        expires_ms: int | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.publisher = publisher
        self.expires_ms = expires_ms
        self.properties = properties
        self.mark = ""
        """What tells a message of QoS 2 from all others on its way into the store."""
        self._encoded: dict[int, tuple[bytes, bytes]] = {}

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def encode(
        self,
        version: ProtocolVersion,
        qos: int,
        packet_id: int,
        now_ms: int,
        *,
        retain: bool,
        dup: bool = False,
        subscription_ids: tuple[int, ...] = (),
        aliases: OutgoingAliases | None = None,
    ) -> bytes:
        """The PUBLISH for one subscriber. What remains of its time is said to those of MQTT 5.0 [MQTT-3.3.2-6]."""
        has_own = dup or (
            version is _V5
            and (subscription_ids or self.expires_ms is not None or (aliases is not None and aliases.limit))
        )
        if has_own:
            return self._encode_own(version, qos, packet_id, now_ms, retain, dup, subscription_ids, aliases)
        key = version << 3 | qos << 1 | retain
        parts = self._encoded.get(key)
        if parts is None:
            parts = self._encoded[key] = self._encode_shared(version, qos, retain)
        if not qos:
            return parts[0]
        return parts[0] + packet_id.to_bytes(2, "big") + parts[1]

    def _encode_shared(self, version: ProtocolVersion, qos: int, retain: bool) -> tuple[bytes, bytes]:
        """What stands before the packet identifier, and behind it."""
        rest = self.payload
        if version is _V5:
            rest = (b"\0" if self.properties is NO_PROPERTIES else encode_properties(self.properties)) + rest
        head = encode_publish_head(self.topic, len(rest), qos, retain=retain)
        return (head, rest) if qos else (head + rest, b"")

    def _encode_own(
        self,
        version: ProtocolVersion,
        qos: int,
        packet_id: int,
        now_ms: int,
        retain: bool,
        dup: bool,
        subscription_ids: tuple[int, ...],
        aliases: OutgoingAliases | None,
    ) -> bytes:
        topic, properties = self.topic, NO_PROPERTIES
        if version is _V5:
            values = dict(self.properties.values)
            if self.expires_ms is not None:
                left_s = max((self.expires_ms - now_ms) // 1000, 0)
                values[PropertyId.MESSAGE_EXPIRY_INTERVAL] = min(left_s, _LONGEST_EXPIRY_S)
            if aliases is not None and aliases.limit:
                topic, alias = aliases.assign(self.topic)
                if alias is not None:
                    values[PropertyId.TOPIC_ALIAS] = alias
            properties = Properties(values, self.properties.user, list(subscription_ids))
        return encode_publish(Publish(topic, self.payload, qos, retain, dup, packet_id, properties), version)
