"""Clients that come back: what waits while they are let in, what is read for them, and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from mqtt_peer import Dial, Peer

from millstream.model.errors import Unreachable
from millstream.model.operations import PullRequest
from millstream.model.state_topics import MQTT_SESSIONS_TOPIC
from millstream.protocol.mqtt.packet_types import PacketType
from millstream.protocol.mqtt.packets import Acknowledgement, Connack, Connect, Disconnect, Ping, Publish, Will
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.mqtt.session import MqttSession
from millstream.proxy.mqtt.session_store import MAX_KEPT_BYTES
from patience import eventually

READ_BYTES = 256 * 1024
"""Bytes that asyncio reads at once."""


@pytest.fixture
def gate(server: MqttServer, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Clients are let in once it is set."""
    opened, claim = asyncio.Event(), server.sessions.claim

    async def claim_later(*words: Any) -> Any:
        await opened.wait()
        return await claim(*words)

    monkeypatch.setattr(server.sessions, "claim", claim_later)
    return opened


@pytest.fixture
def no_look_for_cycles() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def come(dial: Dial, *, will: Will | None = None) -> tuple[Peer, bool]:
    peer = await dial()
    connack = await peer.connect("again", clean_start=False, expiry_s=3600, will=will)
    assert connack.reason is ReasonCode.SUCCESS
    return peer, connack.session_present


async def go(peer: Peer, server: MqttServer) -> None:
    peer.close()
    await eventually(lambda: not server.connections)
    await server.sessions.settle()


async def test_a_packet_larger_than_connect_may_be_is_taken_behind_it(
    dial: Dial, server: MqttServer, gate: asyncio.Event
) -> None:
    peer = await dial()
    peer.send(Connect("early", clean_start=True))
    await eventually(lambda: server.services.statistics.bytes_received > 0)
    peer.send(Publish("a", b"x" * 100_000, qos=1, packet_id=7))
    await eventually(lambda: server.services.statistics.bytes_received > 100_000)
    gate.set()
    assert (await peer.expect(Connack)).reason is ReasonCode.SUCCESS
    answer = await peer.expect(Acknowledgement)
    assert (answer.packet_id, answer.reason) == (7, ReasonCode.SUCCESS)


async def test_little_is_read_behind_a_packet_that_waits_and_nothing_is_lost(
    dial: Dial, server: MqttServer, gate: asyncio.Event
) -> None:
    peer = await dial()
    peer.send(Connect("early", clean_start=True))
    await eventually(lambda: server.services.statistics.bytes_received > 0)
    for _ in range(40):
        peer.send(Publish("a", b"x" * 50_000))
    peer.send(Ping(PacketType.PINGREQ))
    begin = server.services.statistics.bytes_received
    await eventually(lambda: server.services.statistics.bytes_received > begin)
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert server.services.statistics.bytes_received - begin <= READ_BYTES
    gate.set()
    await peer.expect(Connack)
    await peer.next_packet()
    assert server.services.statistics.bytes_received > 40 * 50_000
    assert server.services.traffic.messages_in == 40


async def test_so_many_clients_are_let_in_at_a_time_and_the_others_after_them(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, gate = server.sessions, asyncio.Event()
    monkeypatch.setattr(sessions, "_claiming", asyncio.Semaphore(2))
    claim, begun = sessions.store.claim, []

    async def claim_later(client_id: str, *words: Any) -> Any:
        begun.append(client_id)
        await gate.wait()
        return await claim(client_id, *words)

    monkeypatch.setattr(sessions.store, "claim", claim_later)
    peers = [await dial() for _ in range(5)]
    for number, peer in enumerate(peers):
        peer.send(Connect(f"c{number}", clean_start=True))
    await eventually(lambda: server.services.statistics.bytes_received >= 5 * len(b"c0") and len(begun) >= 2)
    await asyncio.sleep(0.01)
    assert len(begun) == 2
    gate.set()
    for peer in peers:
        assert (await peer.expect(Connack)).reason is ReasonCode.SUCCESS
    assert len(begun) == 5


@pytest.mark.parametrize(
    ("where", "is_lasting"), [("claim", True), ("restore", True), ("end", True), ("claim", False), ("end", False)]
)
async def test_a_client_that_is_gone_before_it_is_let_in_leaves_nothing_that_nobody_ends(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch, where: str, is_lasting: bool
) -> None:
    sessions, held = server.sessions, asyncio.Event()
    expiry_s = 3600 if is_lasting else 0
    if is_lasting:
        peer, _ = await come(dial)
        await peer.subscribe("a", qos=1)
        peer.send(Disconnect())
        assert await peer.next_packet() is None
        await sessions.settle()
    if where == "end":
        claim = sessions.claim

        async def close_then(connect: Connect, user: str, connection: Any) -> Any:
            found = await claim(connect, user, connection)
            connection.close()
            held.set()
            return found

        monkeypatch.setattr(sessions, "claim", close_then)
    else:
        name = "claim" if where == "claim" else "load_packet_ids"
        before = getattr(sessions.store, name)

        async def wait_behind(*words: Any) -> Any:
            await before(*words)
            held.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(sessions.store, name, wait_behind)
    peer = await dial()
    properties = Properties({PropertyId.SESSION_EXPIRY_INTERVAL: expiry_s} if expiry_s else {})
    will = Will("wills", b"x", qos=1)
    peer.send(Connect("again", clean_start=not is_lasting, will=will, properties=properties))
    await held.wait()
    peer.close()
    await eventually(lambda: not server.connections)
    monkeypatch.undo()
    await sessions.settle()
    await eventually(lambda: not len(sessions))
    record = await sessions.store.load("again")
    if not is_lasting:
        assert record is None
        return
    assert record is not None
    assert (record.claim, record.will, len(record.subscriptions)) == ("", None, 1)
    peer, present = await come(dial)
    assert present


async def test_a_claim_that_cannot_be_restored_is_given_back(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, _ = await come(dial)
    await peer.subscribe("a", qos=1)
    peer.send(Disconnect())
    assert await peer.next_packet() is None
    await server.sessions.settle()

    async def fail(*words: Any, **more: Any) -> None:
        raise Unreachable("The broker is away.")

    with monkeypatch.context() as patch:
        patch.setattr(server.services.routes, "declare", fail)
        peer = await dial()
        refused = await peer.connect("again", clean_start=False, expiry_s=3600)
        assert refused.reason is ReasonCode.SERVER_UNAVAILABLE
        await eventually(lambda: not server.connections)
        await server.sessions.settle()
    record = await server.sessions.store.load("again")
    assert record is not None
    assert record.claim == ""
    _, present = await come(dial)
    assert present


async def test_the_record_of_a_usual_session_is_not_read_again(
    dial: Dial, server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = server.services.backend
    pull, read = backend.pull, []

    async def note(broker: str, request: PullRequest) -> Any:
        if request.topic == MQTT_SESSIONS_TOPIC and request.max_messages == 1:
            read.append(request.offset)
        return await pull(broker, request)

    monkeypatch.setattr(backend, "pull", note)
    peer, _ = await come(dial)
    await peer.subscribe("a/#", qos=1)
    await go(peer, server)
    peer, present = await come(dial)
    assert present
    assert not read
    await go(peer, server)


async def test_a_session_with_a_large_record_comes_back_whole(dial: Dial, server: MqttServer) -> None:
    watcher = await dial()
    await watcher.connect()
    await watcher.subscribe("w", qos=1)
    delayed = Properties({PropertyId.WILL_DELAY_INTERVAL: 3000})
    words = b"w" * 2 * MAX_KEPT_BYTES
    peer, _ = await come(dial, will=Will("w", words, 1, False, delayed))
    await peer.subscribe("a/#", qos=1)
    peer.close()
    await eventually(lambda: server.connections == 1)
    await server.sessions.settle()
    peer, present = await come(dial)
    assert present
    await watcher.publish("a/1", b"here", 1)
    assert (await peer.receive()).payload == b"here"


async def test_a_session_that_ends_is_freed_without_a_look_for_cycles(
    dial: Dial, server: MqttServer, no_look_for_cycles: None
) -> None:
    peer, _ = await come(dial)
    await peer.subscribe("a/#", qos=1)
    await peer.subscribe("$share/g/b", qos=1)
    peer.send(Disconnect())
    await go(peer, server)
    await asyncio.sleep(0)
    assert not [one for one in gc.get_objects() if isinstance(one, MqttSession)]
