"""A client of MQTT 3.1.1 that publishes with QoS 1 and gets the messages of one filter, over the product's codec."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from millstream.protocol.mqtt.decoding import decode_packet
from millstream.protocol.mqtt.encoding import encode_acknowledgement, encode_packet, encode_publish
from millstream.protocol.mqtt.frames import PacketFrames
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Publish,
    Suback,
    Subscribe,
    TopicSubscription,
)

__all__ = ["MAX_UNDER_WAY", "Connection", "ConnectionEnded"]

_VERSION = ProtocolVersion.V3_1_1
_MAX_PACKET_BYTES = 1 << 20

MAX_UNDER_WAY = 32
"""Messages of a connection that may wait for their acknowledgement."""


class ConnectionEnded(Exception):
    """The server closed the connection, or refused it."""


class Connection(asyncio.Protocol):
    """One connection. `acknowledged` counts the messages that the server has stored."""

    def __init__(self, client_id: str, on_message: Callable[[Publish], None] | None = None) -> None:
        self._client_id = client_id
        self._on_message = on_message
        self._decoder = PacketFrames(_MAX_PACKET_BYTES)
        self._answer: asyncio.Future[object] | None = None
        self._room = asyncio.Semaphore(MAX_UNDER_WAY)
        self._end: Exception | None = None
        self._last_id = 0
        self.acknowledged = 0

    @classmethod
    async def open(
        cls, address: str, client_id: str, on_message: Callable[[Publish], None] | None = None
    ) -> Connection:
        """A connection that the server at `host:port` has let in; raises ConnectionEnded.

        With `on_message` its session lasts, so that messages which come faster than they are read wait in the store.
        """
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(client_id, on_message), host, int(port))
        wanted = Connect(client_id, _VERSION, clean_start=on_message is None)
        answer = await connection._ask(encode_packet(wanted, _VERSION))
        if not isinstance(answer, Connack) or answer.return_code:
            raise ConnectionEnded(f"The server refused the client {client_id}: {answer}.")
        return connection

    async def subscribe(self, topic_filter: str) -> None:
        """Have the messages of a filter come to `on_message`."""
        wanted = Subscribe(1, [TopicSubscription(topic_filter, 1)])
        answer = await self._ask(encode_packet(wanted, _VERSION))
        if not isinstance(answer, Suback) or answer.reasons[0] >= 0x80:
            raise ConnectionEnded(f"The server refused the filter {topic_filter}: {answer}.")

    def check(self) -> None:
        """Raise ConnectionEnded if the server has closed the connection."""
        if self._end is not None:
            raise self._end

    async def publish(self, topic: str, payload: bytes) -> None:
        """Send a message of QoS 1; waits only where too many are not acknowledged yet."""
        await self._room.acquire()
        self.check()
        # A packet identifier is free again long before it comes round: few are under way, in their order.
        self._last_id = self._last_id % 0xFFFF + 1
        self._transport.write(encode_publish(Publish(topic, payload, 1, packet_id=self._last_id), _VERSION))

    async def finish(self) -> None:
        """Return when all that was published is acknowledged, and close."""
        for _ in range(MAX_UNDER_WAY):
            await self._room.acquire()
        self.check()
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end = ConnectionEnded(f"The server closed the connection of {self._client_id}: {exc or 'no reason'}.")
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._end)
        for _ in range(MAX_UNDER_WAY):
            self._room.release()

    def data_received(self, data: bytes) -> None:
        acknowledgements = []
        for first, body in self._decoder.feed(data):
            packet = decode_packet(first, body, _VERSION)
            match packet:
                case Publish():
                    if packet.qos:
                        done = Acknowledgement(PacketType.PUBACK, packet.packet_id)
                        acknowledgements.append(encode_acknowledgement(done, _VERSION))
                    if self._on_message is not None:
                        self._on_message(packet)
                case Acknowledgement():
                    self.acknowledged += 1
                    self._room.release()
                case _ if self._answer is not None and not self._answer.done():
                    self._answer.set_result(packet)
        if acknowledgements:
            self._transport.write(b"".join(acknowledgements))

    async def _ask(self, data: bytes) -> object:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return await self._answer
