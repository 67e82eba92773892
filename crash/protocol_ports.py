"""X7, protocol ports: malformed, slow and many clients of MQTT, AMQP and HTTP, beside a good client."""

from __future__ import annotations

import asyncio
from typing import Final

from crash.attack import watch_growth
from crash.attacked_server import AttackedServer
from crash.event_clients import EventClients
from crash.event_inputs import EventInputs
from crash.held_connections import HeldConnections
from crash.measured_attack import measure_attack
from crash.programme import ProgrammeRun
from crash.protocol_inputs import (
    MQTT_CONNECT,
    MQTT_PUBLISH,
    POST,
    ProtocolInputs,
    close_connection,
    open_address,
    open_amqp,
)
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.amqp.basic_methods import BasicConsume, BasicPublish
from millstream.protocol.amqp.content import NO_PROPERTIES
from millstream.protocol.amqp.frames import PROTOCOL_HEADER, content_frames, method_frame
from millstream.protocol.amqp.method_codec import encode_method
from millstream.protocol.amqp.session_methods import ChannelOpen
from millstream.protocol.amqp.topology_methods import ExchangeDeclare, QueueBind, QueueDeclare
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Subscribe, TopicSubscription

__all__ = ["attack_protocol_ports"]

IDLE_CONNECTION_BYTES: Final = 64 * 1024
"""Memory of a connection that says nothing, or too little, at most."""

HALF_REQUEST_BYTES: Final = 640 * 1024 * 1024
"""Memory that messages which do not end may take at the most of an attack: 240 MiB are the limit of the process; beside
them are the connections, what is read and not yet taken, and holes between buffers of all sizes."""

UNREAD_BYTES: Final = 640 * 1024 * 1024
"""The same for messages that nobody reads."""

EVENT_CLIENT_BYTES: Final = 128 * 1024
"""Memory of an open WebSocket or event stream that says nothing, at most."""

FLOOD_BYTES: Final = 2 * 1024 * 1024
"""Memory of a client that floods the port and does not read the answers, at most: what was read, and what it became."""

SUBSCRIPTION_BYTES: Final = 2_048
"""Memory of one filter of a client at most."""

CHANNEL_BYTES: Final = 8_192
"""Memory of one channel at most."""

FILTERS: Final = 1_000
"""Filters of one client in the flood of subscriptions, in packets of 100."""

CHANNELS: Final = 1_000
"""Channels of one connection in the flood of channels."""

_MIB: Final = 1024 * 1024
_LARGE_TOPIC: Final = "large"
_HALF_BYTES: Final = 4 * _MIB
_FRAME_BYTES: Final = 131_072
_EXCHANGE: Final = "amq.topic"


def attack_protocol_ports(run: ProgrammeRun) -> None:
    """X7. 3,000 inputs and 200 slow clients (CI), 100,000 and 2,000 (full), 2 million and 6,000 (soak)."""
    asyncio.run(_run(run))


async def _run(run: ProgrammeRun) -> None:
    clients = run.by_size(200, 2_000, 6_000)
    with AttackedServer(run) as server:
        inputs = run.by_size(3_000, 100_000, 2_000_000)
        kinds = [*ProtocolInputs(run, server).kinds, *EventInputs(run, server).kinds]
        await watch_growth(run, server, kinds, inputs, first_inputs=inputs // 2)
        held = HeldConnections(server)
        slow, events = _SlowClients(run, server, held, clients), EventClients(run, server, held, clients)
        some = max(clients // 100, 2)
        for name, attack, limit_bytes in (
            ("silent", slow.silent, 3 * clients * IDLE_CONNECTION_BYTES),
            ("byte_by_byte", slow.byte_by_byte, 3 * clients * IDLE_CONNECTION_BYTES),
            ("half_messages", slow.half_messages, HALF_REQUEST_BYTES),
            ("connects", slow.connects, clients * IDLE_CONNECTION_BYTES),
            ("subscriptions", slow.subscriptions, some * FILTERS * SUBSCRIPTION_BYTES + 16 * _MIB),
            ("channels", slow.channels, some * CHANNELS * CHANNEL_BYTES + 16 * _MIB),
            ("unread", slow.unread, UNREAD_BYTES),
            ("event_idle", events.idle, 2 * clients * EVENT_CLIENT_BYTES),
            ("event_halves", events.halves, HALF_REQUEST_BYTES),
            ("event_floods", events.floods, clients * FLOOD_BYTES),
            ("event_unread", events.unread, UNREAD_BYTES),
        ):
            await measure_attack(run, server, f"ports_{name}", attack, held.let_go, limit_bytes)


class _SlowClients:
    """Each attack leaves its connections open until they are let go."""

    def __init__(self, run: ProgrammeRun, server: AttackedServer, held: HeldConnections, clients: int) -> None:
        self._run = run
        self._server = server
        self._clients = clients
        self._some = max(clients // 100, 2)
        self._connect = held.connect

    async def silent(self) -> None:
        """Connections without a byte."""
        for address in self._addresses():
            for _ in range(self._clients):
                await self._connect(address)
        await asyncio.sleep(1)

    async def byte_by_byte(self) -> None:
        """A slow loris: CONNECT, the handshake and the head of a request a byte at a time, without an end."""
        heads = (MQTT_CONNECT, PROTOCOL_HEADER, POST + b"x: y" * 100)
        writers = []
        for address, head in zip(self._addresses(), heads, strict=True):
            writers += [(await self._connect(address), head) for _ in range(self._clients)]
        for place in range(8):
            for writer, head in writers:
                if not writer.is_closing():
                    writer.write(head[place : place + 1])
            await asyncio.sleep(0.3)

    async def half_messages(self) -> None:
        """Messages that announce 4 MiB and stop after one, by every protocol: more than a process may hold of them."""
        body = bytes(_MIB)
        packet = bytes((MQTT_PUBLISH,)) + _mqtt_length(_HALF_BYTES) + b"\x00\x01a\x00" + body
        method = encode_method(BasicPublish(exchange=_EXCHANGE, routing_key="a"))
        whole = content_frames(1, method, NO_PROPERTIES, bytes(_HALF_BYTES), _FRAME_BYTES)
        post = POST + b"content-length: %d\r\n\r\n" % _HALF_BYTES + body
        said = (packet, whole[: _MIB + _FRAME_BYTES], post)
        for _ in range(max(self._clients, 200)):
            for address, data in zip(self._addresses(), said, strict=True):
                writer = await self._connect(address, is_open=True)
                writer.write(data)
        await asyncio.sleep(self._run.by_size(3, 8, 8))

    async def connects(self) -> None:
        """Clients that come, say who they are, and are gone."""
        for _ in range(self._clients):
            for address in (self._server.mqtt, self._server.amqp):
                _, writer = await (open_amqp(address) if address == self._server.amqp else open_address(address))
                writer.write(MQTT_CONNECT if address == self._server.mqtt else b"")
                await close_connection(writer, reset=self._run.random.random() < 0.5)
                self._run.count("connects")
        await asyncio.sleep(1)

    async def subscriptions(self) -> None:
        """Clients of MQTT with a thousand filters each."""
        for number in range(self._some):
            writer = await self._connect(self._server.mqtt, reads=True)
            writer.write(MQTT_CONNECT)
            for first in range(0, FILTERS, 100):
                wishes = [TopicSubscription(f"a/{number}/{each}/+/#") for each in range(first, first + 100)]
                writer.write(encode_packet(Subscribe(first + 1, wishes), ProtocolVersion.V5))
        await asyncio.sleep(self._run.by_size(2, 5, 5))

    async def channels(self) -> None:
        """Connections of AMQP with a thousand channels each."""
        for _ in range(self._some):
            writer = await self._connect(self._server.amqp, reads=True, is_open=True)
            writer.write(b"".join(method_frame(number, ChannelOpen()) for number in range(2, CHANNELS + 1)))
        await asyncio.sleep(self._run.by_size(2, 5, 5))

    async def unread(self) -> None:
        """Subscribers, consumers and streams of a backlog of large messages that read none of it."""
        await asyncio.to_thread(self._make_topic)
        filters = [TopicSubscription(f"{_LARGE_TOPIC}/#"), TopicSubscription("#")]
        for number in range(self._some * 5):
            writer = await self._connect(self._server.mqtt)
            writer.write(MQTT_CONNECT + encode_packet(Subscribe(1, filters), ProtocolVersion.V5))
            queue = f"unread-{number % 4}"
            writer = await self._connect(self._server.amqp, is_open=True)
            writer.write(
                method_frame(1, ExchangeDeclare(exchange=_LARGE_TOPIC, kind="topic"))
                + method_frame(1, QueueDeclare(queue=queue))
                + method_frame(1, QueueBind(queue=queue, exchange=_LARGE_TOPIC, routing_key="#"))
                + method_frame(1, BasicConsume(queue=queue, consumer_tag="c", no_ack=True))
            )
            writer = await self._connect(self._server.http)
            writer.write(b"GET /v1/topics/large/stream?from=earliest HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(1)
        await asyncio.to_thread(self._fill_topic, self._run.by_size(64, 256, 256))
        await asyncio.sleep(4)

    def _make_topic(self) -> None:
        with BlockingClient(self._server.nameserver, timeout_s=20.0) as client:
            client.create_topic(TopicConfig(_LARGE_TOPIC))
            client.create_topic(TopicConfig("mqtt", read_queues=1, write_queues=1))

    def _fill_topic(self, by_mib: int) -> None:
        with BlockingClient(self._server.nameserver, timeout_s=20.0) as client:
            for number in range(by_mib):
                client.send(Message(("mqtt", _LARGE_TOPIC)[number % 2], bytes(_MIB)))

    def _addresses(self) -> tuple[str, str, str]:
        return self._server.mqtt, self._server.amqp, self._server.http


def _mqtt_length(value: int) -> bytes:
    found = bytearray()
    while True:
        value, low = divmod(value, 128)
        found.append(low | (0x80 if value else 0))
        if not value:
            return bytes(found)
