"""Malformed input for the MQTT, AMQP and HTTP ports: conversations of good clients with faults in them, lengths that
lie, tables in tables, and bodies that grow."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import struct
from contextlib import suppress
from typing import Final

from crash.attack import InputKind
from crash.attacked_server import AttackedServer
from crash.malformed_input import mutated
from crash.programme import ProgrammeRun
from millstream.protocol.amqp.basic_methods import BasicConsume, BasicGet, BasicPublish
from millstream.protocol.amqp.content import NO_PROPERTIES, ContentProperties, encode_properties
from millstream.protocol.amqp.field_table import join_table
from millstream.protocol.amqp.frames import PROTOCOL_HEADER, content_frames, method_frame
from millstream.protocol.amqp.method_codec import encode_method
from millstream.protocol.amqp.session_methods import ChannelOpen, ConnectionOpen, ConnectionStartOk, ConnectionTuneOk
from millstream.protocol.amqp.topology_methods import QueueBind, QueueDeclare
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import Connect, Ping, Publish, Subscribe, TopicSubscription
from millstream.protocol.mqtt.properties import Properties, PropertyId

__all__ = [
    "MQTT_CONNECT",
    "MQTT_PUBLISH",
    "POST",
    "ProtocolInputs",
    "close_connection",
    "open_address",
    "open_amqp",
    "open_mqtt",
]

ANSWER_TIMEOUT_S: Final = 30.0

_V5: Final = ProtocolVersion.V5

MQTT_CONNECT: Final = encode_packet(Connect("", _V5, True, 60), _V5)
"""Lets in a client without a name, whose session ends with its connection."""

MQTT_PUBLISH: Final = PacketType.PUBLISH << 4
"""The first byte of a message of QoS 0."""

_STEPS: Final = (
    PROTOCOL_HEADER,
    method_frame(0, ConnectionStartOk(response=b"\0guest\0guest")),
    method_frame(0, ConnectionTuneOk(0, 0, 60)) + method_frame(0, ConnectionOpen("/")),
    method_frame(1, ChannelOpen()),
)
_HTTP_PROBE: Final = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"

POST: Final = b"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: x\r\n"
_UPGRADE: Final = (
    b"GET /mqtt HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: mqtt\r\n\r\n"
)
_EVENT: Final = b'{"specversion":"1.0","id":"1","source":"/x","type":"t","data":{"a":1}}'
_PACKETS: Final = tuple(
    encode_packet(packet, _V5)
    for packet in (
        Subscribe(1, [TopicSubscription("orders/+/#", 1)]),
        Subscribe(2, [TopicSubscription("$share/g/orders/#", 1)]),
        Publish("orders/1", b"x", 1, packet_id=3, properties=Properties({PropertyId.CONTENT_TYPE: "a"}, [("a", "b")])),
        Publish("orders/2", b"", 2, True, packet_id=4),
        Publish("orders/2", b"y", 0, properties=Properties({PropertyId.TOPIC_ALIAS: 1})),
        Ping(PacketType.PINGREQ),
    )
)
_DEEP_TABLE: Final = 200


def _nested(depth: int) -> bytes:
    """A table in a table, and so on."""
    table = join_table([("a", b"t\x01")])
    for _ in range(depth):
        table = join_table([("a", b"F" + table)])
    return table


_TABLES: Final = tuple(_nested(depth) for depth in (1, 5, _DEEP_TABLE))
_PUBLISH: Final = encode_method(BasicPublish(exchange="amq.topic", routing_key="a.b"))
_FRAMES: Final = (
    method_frame(1, QueueDeclare(queue="x7")),
    method_frame(1, QueueBind(queue="x7", exchange="amq.topic", routing_key="a.#")),
    method_frame(1, BasicConsume(queue="x7", consumer_tag="c1")),
    method_frame(1, BasicGet(queue="x7")),
    *(
        content_frames(
            1, encode_method(BasicPublish(exchange="amq.topic", routing_key="a.b")), properties, b"body", 131_072
        )
        for properties in (
            NO_PROPERTIES,
            *(encode_properties(ContentProperties(headers=table, message_id="m")) for table in _TABLES),
        )
    ),
)
_BODIES: Final = (
    (b"application/cloudevents+json", _EVENT),
    (b"application/cloudevents-batch+json", b"[" + b",".join([_EVENT] * 5) + b"]"),
    (b"application/cloudevents-batch+json", b"[" * 100_000),
    (b"application/cloudevents+json", b'{"data":' + b'{"a":' * 50_000),
    (b"text/plain", b"x"),
)
_BOMB: Final = gzip.compress(bytes(1 << 20))


class ProtocolInputs:
    """The kinds of inputs; behind each conversation a good client is served by the same port."""

    def __init__(self, run: ProgrammeRun, server: AttackedServer) -> None:
        self._run = run
        self._server = server
        self.kinds: list[InputKind] = [
            self._mqtt,
            self._amqp,
            self._http,
            self._websocket,
            self._lying_lengths,
        ]

    async def _mqtt(self, rng: random.Random) -> None:
        """Packets with faults, before CONNECT or behind it."""
        said = [MQTT_CONNECT] if rng.random() < 0.9 else []
        said += [mutated(rng, rng.choice(_PACKETS)) for _ in range(rng.randrange(1, 30))]
        await self._say(rng, self._server.mqtt, said, probe=MQTT_CONNECT)

    async def _amqp(self, rng: random.Random) -> None:
        """Methods, headers and bodies with faults; tables in tables."""
        said = [
            rng.choice(_FRAMES) if rng.random() < 0.5 else mutated(rng, rng.choice(_FRAMES))
            for _ in range(rng.randrange(1, 30))
        ]
        await self._say(rng, self._server.amqp, said, probe=PROTOCOL_HEADER, is_open=rng.random() < 0.9)

    async def _http(self, rng: random.Random) -> None:
        """Posts with faults, bodies that nest or grow, and requests that say two lengths."""
        said = []
        for _ in range(rng.randrange(1, 10)):
            kind, body = rng.choice(_BODIES)
            more = rng.choice(
                [
                    b"",
                    b"transfer-encoding: chunked\r\n",
                    b"content-length: 5\r\n",
                    b"expect: 100-continue\r\n",
                    b"x: " + b"y" * 9000 + b"\r\n",
                    b"ce-id: \xff\r\n",
                ]
            )
            if rng.random() < 0.1:
                body, more = _BOMB, b"content-encoding: gzip\r\n"
            head = POST + b"content-type: %b\r\ncontent-length: %d\r\n" % (kind, len(body)) + more + b"\r\n"
            said.append(mutated(rng, head) + body if rng.random() < 0.5 else head + body)
        await self._say(rng, self._server.http, said, probe=_HTTP_PROBE)

    async def _websocket(self, rng: random.Random) -> None:
        """Frames of a WebSocket with lengths, masks, kinds and pieces that are wrong."""
        said = [_UPGRADE]
        for _ in range(rng.randrange(1, 20)):
            payload = mutated(rng, rng.choice((MQTT_CONNECT, *_PACKETS)))
            first = rng.choice([0x82, 0x82, 0x82, 0x02, 0x00, 0x80, 0x81, 0x88, 0x89, 0x8A, 0xF2, 0x83])
            said.append(_websocket_frame(rng, first, payload))
        await self._say(rng, self._server.mqtt, said, probe=MQTT_CONNECT)

    async def _lying_lengths(self, rng: random.Random) -> None:
        """Lengths of gigabytes, with next to nothing behind them."""
        big = rng.choice([1 << 20, 8 << 20, (8 << 20) + 1, 1 << 28, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62])
        match rng.randrange(4):
            case 0:
                head = MQTT_CONNECT + bytes((MQTT_PUBLISH, 0xFF, 0xFF, 0xFF, rng.choice([0x7F, 0xFF])))
                await self._say(rng, self._server.mqtt, [head + rng.randbytes(100)], probe=MQTT_CONNECT)
            case 1:
                frame = struct.pack(">BHI", rng.choice([1, 2, 3, 8]), 1, big & 0xFFFFFFFF)
                header = struct.pack(">BHIHHQ", 2, 1, 14, 60, 0, big)
                publish = method_frame(1, BasicPublish(exchange="amq.topic", routing_key="a"))
                said = [rng.choice([frame, publish + header + NO_PROPERTIES + b"\xce"])]
                await self._say(rng, self._server.amqp, said, probe=PROTOCOL_HEADER, is_open=True)
            case 2:
                said = [
                    POST
                    + rng.choice(
                        [b"content-length: %d\r\n\r\n" % big, b"transfer-encoding: chunked\r\n\r\n%x\r\n" % big]
                    )
                ]
                await self._say(rng, self._server.http, said, probe=_HTTP_PROBE)
            case _:
                frame = bytes((0x82, 0xFF)) + struct.pack(">Q", big) + bytes(4) + rng.randbytes(50)
                await self._say(rng, self._server.mqtt, [_UPGRADE, frame], probe=MQTT_CONNECT)

    async def _say(
        self, rng: random.Random, address: str, said: list[bytes], *, probe: bytes, is_open: bool = False
    ) -> None:
        """Say it in pieces, read what comes for a moment, and see that the port answers others. `is_open` is for a
        connection of AMQP that was opened before as it should be."""
        reader, writer = await (open_amqp(address) if is_open else open_address(address))
        for data in said:
            if writer.is_closing():
                break
            place = rng.randrange(len(data) + 1)
            writer.write(data[:place])
            if rng.random() < 0.2:
                await asyncio.sleep(0)
            writer.write(data[place:])
        self._run.count("inputs", len(said))
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.02):
                while await reader.read(1 << 16):
                    pass
        await close_connection(writer, reset=rng.random() < 0.5)
        if rng.random() < 0.1:
            await self._probe(address, probe)

    async def _probe(self, address: str, probe: bytes) -> None:
        reader, writer = await open_address(address)
        writer.write(probe)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if not await reader.read(1):
                    self._run.fail(f"the port {address} closed the connection of a good client")
        except TimeoutError:
            self._run.fail(f"the port {address} did not answer a good client for {ANSWER_TIMEOUT_S:g} s")
        self._run.count("probes")
        await close_connection(writer, reset=False)


def _websocket_frame(rng: random.Random, first: int, payload: bytes) -> bytes:
    """With a mask, most of the time, of zeros, which changes nothing."""
    mask = 0x80 if rng.random() < 0.9 else 0
    size = len(payload) if rng.random() < 0.9 else rng.choice([0, 126, 65_536, 1 << 31, (1 << 63) + 5])
    if size < 126:
        head = bytes((first, mask | size))
    elif size < 1 << 16:
        head = bytes((first, mask | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, mask | 127)) + size.to_bytes(8, "big")
    return head + (bytes(4) if mask else b"") + payload


async def open_address(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to `host:port`."""
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def open_mqtt(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """An MQTT connection that was let in."""
    reader, writer = await open_address(address)
    writer.write(MQTT_CONNECT)
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        await reader.read(1 << 16)
    return reader, writer


async def open_amqp(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """An AMQP connection with one open channel."""
    reader, writer = await open_address(address)
    for step in _STEPS:
        writer.write(step)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await reader.read(1 << 16)
    return reader, writer


async def close_connection(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """Close it, or cut it off."""
    if reset:
        linger = struct.pack("ii", 1, 0)
        # One that the server has cut off is closed here, too.
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
