"""Stored sessions, as JSON records of the session topic.

Two keys a client id: its escaped form has the session, and with `/2` behind it the packet identifiers of QoS 2 that are
under way, which change much more often.
"""

from __future__ import annotations

from typing import Final

import msgspec

from millstream.model.errors import StoreError
from millstream.model.escaped_names import escape_name
from millstream.protocol.mqtt.packet_types import PacketType
from millstream.protocol.mqtt.packets import Will
from millstream.protocol.mqtt.properties import NO_PROPERTIES, PropertyId, decode_properties, encode_properties
from millstream.protocol.mqtt.wire import FieldReader

__all__ = [
    "StoredDelivery",
    "StoredPacketIds",
    "StoredSession",
    "StoredSubscription",
    "StoredWill",
    "decode_claim",
    "decode_packet_ids",
    "decode_session",
    "encode_record",
    "packet_ids_key",
    "session_key",
]

_PACKET_IDS: Final = "/2"


class StoredSubscription(msgspec.Struct, frozen=True, array_like=True):
    """One subscription; the filter may begin with `$share/`."""

    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    subscription_id: int = 0


class StoredDelivery(msgspec.Struct, frozen=True, array_like=True):
    """A message of QoS 2 of a shared subscription that is the client's alone, which has not said that it has it: with
    which packet identifier, where it stands in the light queue of the subscription at a broker, and the text of the
    receipt handle by which it was taken there."""

    packet_id: int
    topic_filter: str
    broker_name: str
    queue_offset: int
    handle: str = ""


class StoredWill(msgspec.Struct, frozen=True, omit_defaults=True):
    """A will; `properties` has the bytes that its properties have in CONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes = b""

    @classmethod
    def of(cls, will: Will) -> StoredWill:
        """The will as it is stored."""
        held = b"" if will.properties is NO_PROPERTIES else encode_properties(will.properties)
        return cls(will.topic, will.payload, will.qos, will.retain, held)

    def delay_s(self, expiry_s: int) -> int:
        """Seconds after which it is due: at the latest with the session's end [MQTT-3.1.3-9]."""
        return min(self.will().properties.number(PropertyId.WILL_DELAY_INTERVAL, 0), expiry_s)

    def will(self) -> Will:
        """The will as it was."""
        held = decode_properties(FieldReader(self.properties), PacketType.WILL) if self.properties else NO_PROPERTIES
        return Will(self.topic, self.payload, self.qos, self.retain, held)


class StoredSession(msgspec.Struct, omit_defaults=True):
    """A session. `claim` names the connection that has it, blank while the client is away; `proxy` is the proxy of that
    connection. `away_ms` is since when the client is away, and `has_queue` says whether it has a light queue.
    `unfinished` stands in records of earlier versions alone: it is what `StoredPacketIds.shared` is."""

    client_id: str
    user: str = ""
    claim: str = ""
    proxy: str = ""
    expiry_s: int = 0
    away_ms: int = 0
    has_queue: bool = False
    subscriptions: list[StoredSubscription] = []
    will: StoredWill | None = None
    unfinished: list[StoredDelivery] = []

    @property
    def will_ms(self) -> int | None:
        """When the will of a client that is away is due; None where there is none."""
        return None if self.claim or self.will is None else self.away_ms + self.will.delay_s(self.expiry_s) * 1000

    @property
    def expires_ms(self) -> int | None:
        """When it ends by itself; None while its client is here."""
        return None if self.claim else self.away_ms + self.expiry_s * 1000


class StoredPacketIds(msgspec.Struct, omit_defaults=True):
    """Identifiers of QoS 2: `received` came from the client and were not released, each with the time at which that was
    noted; `released` were sent to the client, which has their messages. What is `shared` goes on with this client alone
    [MQTT-4.8.2-4]. `claim` is that of the connection that says so: where another one has the session, it does not
    count."""

    received: dict[int, int] = {}
    released: list[int] = []
    shared: list[StoredDelivery] = []
    claim: str = ""


class _Claimed(msgspec.Struct):
    claim: str = ""


_encode = msgspec.json.Encoder().encode
_decode_session = msgspec.json.Decoder(StoredSession).decode
_decode_claim = msgspec.json.Decoder(_Claimed).decode
_decode_packet_ids = msgspec.json.Decoder(StoredPacketIds).decode


def session_key(client_id: str) -> str:
    """The key of a client id's session."""
    return escape_name(client_id)


def packet_ids_key(key: str) -> str:
    """The key of the packet identifiers, of the session's key."""
    return key + _PACKET_IDS


def encode_record(value: StoredSession | StoredPacketIds) -> bytes:
    """The value as bytes."""
    return _encode(value)


def decode_session(data: bytes) -> StoredSession:
    """A session of its bytes; RECORD_DAMAGED."""
    try:
        return _decode_session(data)
    except msgspec.DecodeError as error:
        raise StoreError("RECORD_DAMAGED", f"The record of an MQTT session cannot be read: {error}.") from None


def decode_packet_ids(data: bytes) -> StoredPacketIds:
    """Packet identifiers of their bytes; RECORD_DAMAGED."""
    try:
        return _decode_packet_ids(data)
    except msgspec.DecodeError as error:
        raise StoreError("RECORD_DAMAGED", f"Packet identifiers of an MQTT session cannot be read: {error}.") from None


def decode_claim(data: bytes) -> str:
    """The claim alone of packet identifiers; RECORD_DAMAGED."""
    try:
        return _decode_claim(data).claim
    except msgspec.DecodeError as error:
        raise StoreError("RECORD_DAMAGED", f"Packet identifiers of an MQTT session cannot be read: {error}.") from None
