"""A client of MQTT that tests speak with: it sends any packet and waits for the next one."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from millstream.protocol.mqtt.decoding import decode_packet
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.frames import PacketFrames
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Packet,
    Ping,
    Publish,
    Suback,
    Subscribe,
    TopicSubscription,
    Will,
)
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from patience import within_patience

__all__ = ["Dial", "Peer", "connect_to"]

_Found = TypeVar("_Found")


class Peer:
    """One connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: ProtocolVersion = ProtocolVersion.V5
    ) -> None:
        self.version = version
        self._reader = reader
        self._writer = writer
        self._decoder = PacketFrames(1 << 26)
        self._packets: deque[Packet] = deque()

    def write(self, data: bytes) -> None:
        """Send any bytes."""
        self._writer.write(data)

    def send(self, *packets: Packet) -> None:
        """Send packets in one write."""
        self.write(b"".join(encode_packet(packet, self.version) for packet in packets))

    async def next_packet(self) -> Packet | None:
        """The next packet; None where the server has closed."""
        while not self._packets:
            chunk = await within_patience(self._read())
            if not chunk:
                return None
            for first, body in self._decoder.feed(chunk):
                self._packets.append(decode_packet(first, body, self.version))
        return self._packets.popleft()

    async def expect(self, kind: type[_Found]) -> _Found:
        """The next packet, which has to be of that kind."""
        packet = await self.next_packet()
        assert isinstance(packet, kind), packet
        return packet

    async def connect(
        self,
        client_id: str = "",
        *,
        clean_start: bool = True,
        expiry_s: int = 0,
        keep_alive_s: int = 0,
        will: Will | None = None,
        user: tuple[str, bytes] | None = None,
        properties: dict[PropertyId, int | str | bytes] | None = None,
    ) -> Connack:
        """Send CONNECT; the answer."""
        values: dict[PropertyId, int | str | bytes] = dict(properties or {})
        if expiry_s:
            values[PropertyId.SESSION_EXPIRY_INTERVAL] = expiry_s
        name, password = user or (None, None)
        held = Properties(values) if values and self.version is ProtocolVersion.V5 else NO_PROPERTIES
        self.send(Connect(client_id, self.version, clean_start, keep_alive_s, name, password, will, held))
        return await self.expect(Connack)

    async def subscribe(self, *filters: str, qos: int = 0, **options: int) -> Suback:
        """Subscribe to filters with the same options; the answer."""
        wishes = [
            TopicSubscription(
                one,
                qos,
                bool(options.get("no_local")),
                bool(options.get("retain_as_published")),
                options.get("retain_handling", 0),
            )
            for one in filters
        ]
        number = options.get("subscription_id")
        held = Properties(subscription_ids=[number]) if number else NO_PROPERTIES
        self.send(Subscribe(1, wishes, held))
        return await self.expect(Suback)

    async def publish(
        self, topic: str, payload: bytes, qos: int = 0, *, packet_id: int = 1, retain: bool = False
    ) -> None:
        """Publish and go through all steps of its QoS."""
        self.send(Publish(topic, payload, qos, retain, packet_id=packet_id if qos else 0))
        if qos == 1:
            assert (await self.expect(Acknowledgement)).packet_type is PacketType.PUBACK
        elif qos == 2:
            assert (await self.expect(Acknowledgement)).packet_type is PacketType.PUBREC
            self.send(Acknowledgement(PacketType.PUBREL, packet_id))
            assert (await self.expect(Acknowledgement)).packet_type is PacketType.PUBCOMP

    async def receive(self) -> Publish:
        """The next message, which is acknowledged through all steps of its QoS."""
        found = await self.expect(Publish)
        if found.qos == 1:
            self.send(Acknowledgement(PacketType.PUBACK, found.packet_id))
        elif found.qos == 2:
            self.send(Acknowledgement(PacketType.PUBREC, found.packet_id))
            assert (await self._next_acknowledgement()).packet_type is PacketType.PUBREL
            self.send(Acknowledgement(PacketType.PUBCOMP, found.packet_id))
        return found

    async def _next_acknowledgement(self) -> Acknowledgement:
        """The next one; messages that come before it stay."""
        passed: list[Packet] = []
        while True:
            packet = await self.next_packet()
            assert isinstance(packet, Acknowledgement | Publish), packet
            if isinstance(packet, Acknowledgement):
                self._packets.extendleft(reversed(passed))
                return packet
            passed.append(packet)

    async def expect_nothing(self) -> None:
        """Nothing comes before the answer to a PINGREQ that is sent now."""
        self.send(Ping(PacketType.PINGREQ))
        assert await self.next_packet() == Ping(PacketType.PINGRESP)

    def close(self) -> None:
        """Cut the connection without a word."""
        self._writer.transport.abort()

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(1 << 16)
        except ConnectionError:
            return b""


Dial = Callable[..., Coroutine[Any, Any, Peer]]
"""Connects one client of a version, MQTT 5.0 where none is said."""


async def connect_to(
    port: int, version: ProtocolVersion = ProtocolVersion.V5, *, tls: ssl.SSLContext | None = None
) -> Peer:
    """A connection on which nothing was said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    return Peer(reader, writer, version)
