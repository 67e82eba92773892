"""Users, their policies, and sessions of other users."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mqtt_peer import Peer, connect_to

from access_samples import sample_guard
from millstream.broker.broker import Broker
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Acknowledgement, Auth, Connack, Connect, Disconnect, Publish, Will
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.local import LocalBackend
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.policy import PolicyEntry
from patience import eventually


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return sample_guard(tmp_path / "access")


@pytest.fixture
async def server(broker: Broker, processor: Processor, guard: Guard) -> AsyncIterator[MqttServer]:
    started = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0, guard=guard)
    await started.start()
    yield started
    await started.close()


@pytest.fixture(autouse=True)
def policies(guard: Guard) -> None:
    for user, resource, action, decision in (
        ("ann", "Mqtt:devices/${clientid}/#", "Pub", "Allow"),
        ("ann", "Mqtt:commands/${clientid}/+", "Sub", "Allow"),
        ("ann", "Mqtt:shared/#", "Sub", "Allow"),
        ("bob", "Topic:mqtt", "Sub", "Allow"),
        ("bob", "Mqtt:secret/#", "Sub", "Deny"),
    ):
        guard.book.put_entries(user, [PolicyEntry.read(resource, [action], [], decision)])


async def connect(
    server: MqttServer, user: str, client_id: str, version: ProtocolVersion = ProtocolVersion.V5, **more: Any
) -> tuple[Peer, Connack]:
    peer = await connect_to(server.port, version)
    return peer, await peer.connect(client_id, user=(user, f"secret-of-{user}".encode()), **more)


@pytest.mark.parametrize("user", [None, ("ann", b"wrong"), ("nobody", b"x"), ("", b"")])
async def test_who_has_no_good_password_is_not_let_in(server: MqttServer, user: tuple[str, bytes] | None) -> None:
    for version, reason, code in ((ProtocolVersion.V5, 0x86, 0), (ProtocolVersion.V3_1_1, 0, 4)):
        peer = await connect_to(server.port, version)
        connack = await peer.connect("c", user=user)
        assert (connack.reason, connack.return_code) == (reason, code)
        assert await peer.next_packet() is None


async def test_a_client_may_sign_its_id_instead(server: MqttServer) -> None:
    signed = b64encode(hmac.new(b"secret-of-ann", b"dev1", "sha1").digest())
    peer = await connect_to(server.port)
    assert (await peer.connect("dev1", user=("ann", signed))).reason is ReasonCode.SUCCESS
    other = await connect_to(server.port)
    assert (await other.connect("dev2", user=("ann", signed))).reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD


async def test_a_device_has_its_own_tree_alone(server: MqttServer) -> None:
    peer, _ = await connect(server, "ann", "dev1")
    wanted = ("commands/dev1/x", "commands/dev1/+", "commands/+/x", "commands/dev2/x", "#", "$share/g/shared/x")
    granted, denied = ReasonCode.SUCCESS, ReasonCode.NOT_AUTHORIZED
    assert (await peer.subscribe(*wanted)).reasons == [granted, granted, denied, denied, denied, denied]
    for topic, reason in (("devices/dev1/t", granted), ("devices/dev2/t", denied)):
        peer.send(Publish(topic, b"x", 1, packet_id=1))
        assert (await peer.expect(Acknowledgement)).reason is reason
    older, _ = await connect(server, "ann", "dev3", ProtocolVersion.V3_1_1)
    await older.publish("devices/dev2/t", b"acknowledged and dropped", 1)
    watcher, _ = await connect(server, "root", "watcher")
    await watcher.subscribe("devices/#")
    await older.publish("devices/dev3/t", b"y", 1)
    assert (await watcher.receive()).payload == b"y"


async def test_a_wildcard_does_not_reach_what_is_denied(server: MqttServer) -> None:
    peer, _ = await connect(server, "bob", "c")
    assert (await peer.subscribe("open/#", "secret/x", "#")).reasons == [
        ReasonCode.SUCCESS,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.NOT_AUTHORIZED,
    ]


async def test_the_client_id_of_another_user_is_not_taken_over(server: MqttServer) -> None:
    peer, _ = await connect(server, "ann", "mine", expiry_s=60)
    _, connack = await connect(server, "bob", "mine")
    assert connack.reason is ReasonCode.NOT_AUTHORIZED
    await peer.expect_nothing()
    peer.close()
    _, connack = await connect(server, "bob", "mine")
    assert connack.reason is ReasonCode.NOT_AUTHORIZED


async def test_a_will_is_published_only_if_its_user_may(server: MqttServer) -> None:
    watcher, _ = await connect(server, "root", "watcher")
    await watcher.subscribe("devices/#")
    for topic in ("devices/other/will", "devices/dev1/will"):
        peer, _ = await connect(server, "ann", "dev1", will=Will(topic, b"gone"))
        peer.close()
    assert (await watcher.receive()).topic == "devices/dev1/will"
    await watcher.expect_nothing()


async def test_a_user_that_loses_a_permission_loses_its_connection(server: MqttServer, guard: Guard) -> None:
    peer, _ = await connect(server, "ann", "dev1")
    await peer.subscribe("commands/dev1/x")
    guard.book.put_entries("ann", [PolicyEntry.read("Mqtt:commands/#", ["Sub"], [], "Deny")])
    guard.book.put_entries("ann", [PolicyEntry.read("Mqtt:commands/${clientid}/+", ["Sub"], [], "Deny")])
    assert (await peer.expect(Disconnect)).reason is ReasonCode.NOT_AUTHORIZED


def scram(data: bytes) -> Properties:
    return Properties({PropertyId.AUTHENTICATION_METHOD: "SCRAM-SHA-256", PropertyId.AUTHENTICATION_DATA: data})


async def begin_scram(server: MqttServer, user: str) -> tuple[Peer, str]:
    """Send CONNECT; the server's first message."""
    peer = await connect_to(server.port)
    peer.send(Connect("d1", ProtocolVersion.V5, True, 0, properties=scram(f"n,,n={user},r=abc".encode())))
    answer = await peer.expect(Auth)
    assert answer.reason is ReasonCode.CONTINUE_AUTHENTICATION
    data = answer.properties.values[PropertyId.AUTHENTICATION_DATA]
    assert isinstance(data, bytes)
    return peer, data.decode()


def last_message(user: str, secret: str, first: str) -> tuple[bytes, bytes]:
    """What a client sends that knows the secret, and what it expects."""
    fields = dict(field.split("=", 1) for field in first.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", secret.encode(), b64decode(fields["s"]), int(fields["i"]))
    bare = f"c=biws,r={fields['r']}"
    signed = f"n={user},r=abc,{first},{bare}".encode()
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
    return f"{bare},p={b64encode(proof).decode()}".encode(), b"v=" + b64encode(expected)


async def test_scram_lets_in_who_knows_the_secret_and_shows_that_the_server_does(server: MqttServer) -> None:
    peer, first = await begin_scram(server, "ann")
    data, expected = last_message("ann", "secret-of-ann", first)
    peer.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, scram(data)))
    answer = await peer.expect(Connack)
    assert answer.reason is ReasonCode.SUCCESS
    assert answer.properties.values[PropertyId.AUTHENTICATION_DATA] == expected
    assert answer.properties.values[PropertyId.AUTHENTICATION_METHOD] == "SCRAM-SHA-256"
    peer.send(Publish("devices/d1/x", b"x", 1, packet_id=1))
    assert (await peer.expect(Acknowledgement)).reason is ReasonCode.SUCCESS


@pytest.mark.parametrize(("user", "secret"), [("ann", "wrong"), ("nobody", "x")])
async def test_scram_refuses_who_does_not_know_the_secret(server: MqttServer, user: str, secret: str) -> None:
    peer, first = await begin_scram(server, user)
    peer.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, scram(last_message(user, secret, first)[0])))
    assert (await peer.expect(Connack)).reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert await peer.next_packet() is None


async def test_scram_takes_nothing_but_its_next_step(server: MqttServer) -> None:
    peer, _ = await begin_scram(server, "ann")
    peer.send(Auth(ReasonCode.REAUTHENTICATE, scram(b"x")))
    assert (await peer.expect(Connack)).reason is ReasonCode.PROTOCOL_ERROR
    peer, _ = await begin_scram(server, "ann")
    peer.send(Publish("devices/d1/x", b"x", 0))
    assert await peer.next_packet() is None
    peer = await connect_to(server.port)
    peer.send(Connect("d1", ProtocolVersion.V5, True, 0, properties=scram(b"no scram")))
    assert (await peer.expect(Connack)).reason is ReasonCode.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize("is_parked", [True, False], ids=["cut a moment ago", "away"])
@pytest.mark.parametrize("topic_filter", ["news", "$share/g/news"])
async def test_a_client_that_comes_back_gets_no_more_what_its_user_may_not_have_now(
    server: MqttServer, guard: Guard, is_parked: bool, topic_filter: str
) -> None:
    peer, _ = await connect(server, "bob", "dev1", clean_start=False, expiry_s=3600)
    guard.book.put_entries("bob", [PolicyEntry.read("Group:g", ["Sub"], [], "Allow")])
    granted = await peer.subscribe(topic_filter, "weather", qos=1)
    assert granted.reasons == [ReasonCode.GRANTED_QOS_1] * 2
    if is_parked:
        peer.close()
    else:
        peer.send(Disconnect())
        assert await peer.next_packet() is None
    await eventually(lambda: not server.connections)
    await server.sessions.settle()
    sender, _ = await connect(server, "root", "sender")
    await sender.publish("news", b"before", 1)
    guard.book.put_entries("bob", [PolicyEntry.read("Mqtt:news", ["Sub"], [], "Deny")])
    await sender.publish("news", b"secret", 1)
    await sender.publish("weather", b"sunny", 1)
    for _ in range(2):
        peer, connack = await connect(server, "bob", "dev1", clean_start=False, expiry_s=3600)
        assert connack.session_present
        assert (await peer.receive()).payload == b"sunny"
        await sender.publish("news", b"secret", 1)
        await peer.expect_nothing()
        peer.close()
        await eventually(lambda: server.connections == 1)
        await sender.publish("weather", b"sunny", 1)
    record = await server.sessions.store.load("dev1")
    assert record is not None
    assert [one.topic_filter for one in record.subscriptions] == ["weather"]
