"""The ways to the port: TLS, WebSockets, both."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mqtt_peer import Dial, connect_to

from certificates import identity_in, trusting
from millstream.broker.broker import Broker
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import Connect, Ping
from millstream.proxy.local import LocalBackend
from millstream.proxy.mqtt import server as server_module
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.processor import Processor
from millstream.security.tls import TlsFiles, TlsMode
from patience import within_patience

HANDSHAKE = (
    b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture
async def secure(broker: Broker, processor: Processor, tmp_path: Path) -> AsyncIterator[tuple[MqttServer, TlsFiles]]:
    identity, files = identity_in(tmp_path)
    started = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0, tls=(identity, TlsMode.PERMISSIVE))
    await started.start()
    yield started, files
    await started.close()


async def test_clients_come_with_tls_and_without_to_one_port(secure: tuple[MqttServer, TlsFiles]) -> None:
    server, files = secure
    plain, hidden = await connect_to(server.port), await connect_to(server.port, tls=trusting(files))
    await plain.connect()
    await hidden.connect()
    await hidden.subscribe("a")
    await plain.publish("a", b"x" * 100_000, 1)
    assert (await hidden.receive()).payload == b"x" * 100_000


async def test_plaintext_is_cut_off_where_tls_is_required(broker: Broker, processor: Processor, tmp_path: Path) -> None:
    identity, _ = identity_in(tmp_path)
    server = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0, tls=(identity, TlsMode.REQUIRED))
    peer = await connect_to(await server.start())
    peer.send(Connect("c"))
    assert await peer.next_packet() is None
    await server.close()


def frame(data: bytes, opcode: int = 2) -> bytes:
    mask = os.urandom(4)
    return bytes((0x80 | opcode, 0x80 | len(data))) + mask + bytes(b ^ mask[n % 4] for n, b in enumerate(data))


async def test_a_websocket_carries_packets_however_they_are_cut_into_frames(server: MqttServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    connect = encode_packet(Connect("c", ProtocolVersion.V3_1_1), ProtocolVersion.V3_1_1)
    ping = encode_packet(Ping(PacketType.PINGREQ), ProtocolVersion.V3_1_1)
    writer.write(HANDSHAKE + frame(connect[:5]) + frame(connect[5:] + ping) + frame(b"hi", 9))
    head = await within_patience(reader.readuntil(b"\r\n\r\n"))
    assert head.startswith(b"HTTP/1.1 101 ")
    assert await within_patience(reader.readexactly(4)) == b"\x8a\x02hi"
    found = await within_patience(reader.readexactly(8))
    assert found == b"\x82\x06\x20\x02\x00\x00\xd0\x00"
    writer.write(frame(b"\x03\xe8", 8))
    assert await within_patience(reader.read()) == b"\x88\x02\x03\xe8"
    writer.close()


@pytest.mark.filterwarnings("error")
async def test_a_websocket_that_ends_behind_a_connect_leaves_nothing_undone(server: MqttServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    connect = encode_packet(Connect("c", ProtocolVersion.V3_1_1), ProtocolVersion.V3_1_1)
    writer.write(HANDSHAKE + frame(connect) + frame(b"\x03\xe8", 8))
    assert (await within_patience(reader.read())).endswith(b"\x88\x02\x03\xe8")
    gc.collect()
    writer.close()


@pytest.mark.parametrize(
    ("origin", "may"),
    [
        ("", True),
        ("http://h", True),
        ("https://Shop.example", True),
        ("http://shop.example", False),
        ("null", False),
        ("http://h:1883", False),
    ],
)
async def test_pages_of_the_ports_own_origin_and_of_those_told_open_websockets_and_others_do_not(
    broker: Broker, processor: Processor, origin: str, may: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0, http_origins=["https://shop.example"])
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    writer.write(HANDSHAKE.replace(b"Host: h", f"Host: h\r\nOrigin: {origin}".encode()) if origin else HANDSHAKE)
    head = await within_patience(reader.readuntil(b"\r\n\r\n"))
    assert head.startswith(b"HTTP/1.1 101 " if may else b"HTTP/1.1 403 ")
    if not may:
        assert json.loads(await within_patience(reader.read()))["code"] == "MS-5106"
        assert f"Refusing a WebSocket: A page of {origin!r}" in caplog.text
    writer.close()
    await server.close()


async def test_another_request_of_http_gets_an_answer_of_http(server: MqttServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (await within_patience(reader.read())).startswith(b"HTTP/1.1 404 ")
    writer.close()


async def test_connections_over_the_limit_are_closed_and_those_that_are_there_go_on(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await dial()
    await first.connect()
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 1)
    assert await (await dial()).next_packet() is None
    first.send(Ping(PacketType.PINGREQ))
    await first.expect(Ping)


async def test_what_a_connection_was_to_do_is_closed_where_it_ends_before_that_begins(
    dial: Dial, server: MqttServer
) -> None:
    peer = await dial()
    await peer.connect()
    [connection] = server._connections
    work = peer.expect(Ping)
    connection.run(work)
    connection.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
