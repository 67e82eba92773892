"""Two proxies before one broker: what one keeps the other goes on with."""

from __future__ import annotations

import pytest
from mqtt_peer import Peer, connect_to

from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, light_queue
from millstream.model.operations import PopRequest
from millstream.protocol.mqtt.packet_types import PacketType
from millstream.protocol.mqtt.packets import Acknowledgement, Disconnect, Will
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.mqtt.light_queue_reader import LightQueueReader
from millstream.proxy.mqtt.light_routes import SESSION_GROUP, session_queue_name
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.mqtt.session_records import StoredPacketIds, StoredSession, StoredSubscription, StoredWill
from millstream.proxy.mqtt.unattended_sessions import PROXY_LIFE_MS
from patience import eventually


async def client(server: MqttServer, client_id: str = "", *, expiry_s: int = 0) -> tuple[Peer, bool]:
    peer = await connect_to(server.port)
    connack = await peer.connect(client_id, clean_start=not expiry_s, expiry_s=expiry_s)
    return peer, connack.session_present


async def test_a_message_for_one_proxy_reaches_the_clients_of_the_other(server: MqttServer, other: MqttServer) -> None:
    reader, _ = await client(other)
    await reader.subscribe("a/#", qos=1)
    sender, _ = await client(server)
    await sender.publish("a/b", b"x", 1, retain=True)
    assert (await reader.receive()).payload == b"x"
    await eventually(lambda: len(other.services.retained) == 1)
    late, _ = await client(other)
    await late.subscribe("a/+")
    assert (await late.receive()).retain


async def test_a_client_goes_on_at_another_proxy_where_it_was(server: MqttServer, other: MqttServer) -> None:
    first, present = await client(server, "c", expiry_s=60)
    assert not present
    await first.subscribe("a", qos=1)
    sender, _ = await client(server)
    for body in (b"0", b"1", b"2"):
        await sender.publish("a", body, 1)
    assert (await first.receive()).payload == b"0"
    second, present = await client(other, "c", expiry_s=60)
    assert present
    while not isinstance(told := await first.next_packet(), Disconnect):
        assert told is not None
    assert told.reason is ReasonCode.SESSION_TAKEN_OVER
    await sender.publish("a", b"3", 1)
    found = [await second.receive() for _ in range(3)]
    assert {one.payload for one in found} == {b"1", b"2", b"3"}


async def leave_to_a_dead_proxy(server: MqttServer, other: MqttServer, *, qos: int) -> None:
    """Have the session `c` with two messages that a proxy had sent when it was killed."""
    peer, _ = await client(server, "c", expiry_s=60)
    await peer.subscribe("a", qos=qos)
    peer.send(Disconnect(properties=Properties({PropertyId.SESSION_EXPIRY_INTERVAL: 60})))
    assert await peer.next_packet() is None
    await server.sessions.settle()
    sender, _ = await client(server)
    for number in (0, 1):
        await sender.publish("a", b"%d" % number, qos, packet_id=1 + number)
    held = await other.sessions.store.load("c")
    assert held is not None
    held.claim, held.proxy = "dead-1", "dead"
    await other.sessions.store.put(held)
    (broker,) = await other.services.routes.brokers()
    request = PopRequest(SESSION_GROUP, light_queue(session_queue_name("c")), 60_000, LIGHT_QUEUE_NUMBER)
    lost = await other.services.backend.pop(broker, request)
    assert [one.message.body for one in lost] == [b"0", b"1"]


@pytest.mark.parametrize("reads", [True, False], ids=["that reads at once", "that is gone before it reads"])
async def test_what_a_dead_proxy_sent_and_was_not_acknowledged_comes_to_the_next_connection_at_once(
    server: MqttServer, other: MqttServer, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    await leave_to_a_dead_proxy(server, other, qos=1)
    if not reads:
        with monkeypatch.context() as patch:
            patch.setattr(LightQueueReader, "wake", lambda reader: None)
            peer, present = await client(other, "c", expiry_s=60)
            assert present
            peer.close()
            await eventually(lambda: not other.connections)
            await other.sessions.settle()
    peer, present = await client(other, "c", expiry_s=60)
    assert present
    again = [await peer.receive() for _ in range(2)]
    assert [(one.payload, one.dup) for one in again] == [(b"0", True), (b"1", True)]


@pytest.mark.parametrize("way", ["at once", "after a connection that reads nothing", "after nobody came for long"])
async def test_a_message_of_qos_2_that_a_dead_proxy_released_does_not_come_again(
    server: MqttServer, other: MqttServer, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    await leave_to_a_dead_proxy(server, other, qos=2)
    store = other.sessions.store
    await store.put_packet_ids("c", StoredPacketIds(released=[1], claim="dead-1"))
    if way == "after a connection that reads nothing":
        with monkeypatch.context() as patch:
            patch.setattr(LightQueueReader, "wake", lambda reader: None)
            peer, _ = await client(other, "c", expiry_s=60)
            release = await peer.expect(Acknowledgement)
            assert (release.packet_type, release.packet_id) == (PacketType.PUBREL, 1)
            peer.send(Acknowledgement(PacketType.PUBCOMP, 1))
            await peer.expect_nothing()
            peer.close()
            await eventually(lambda: not other.connections)
            await other.sessions.settle()
    if way == "after nobody came for long":
        await other.sessions.unattended.end("c")
    peer, present = await client(other, "c", expiry_s=60)
    assert present
    release = await peer.expect(Acknowledgement)
    assert (release.packet_type, release.packet_id) == (PacketType.PUBREL, 1)
    peer.send(Acknowledgement(PacketType.PUBCOMP, 1))
    assert (await peer.receive()).payload == b"1"
    await peer.expect_nothing()
    while (await store.load_packet_ids("c")).released:
        await peer.expect_nothing()


async def test_a_client_id_is_one_for_all_proxies_without_lasting_sessions_too(
    server: MqttServer, other: MqttServer
) -> None:
    first, _ = await client(server, "c")
    await client(other, "c")
    assert (await first.expect(Disconnect)).reason is ReasonCode.SESSION_TAKEN_OVER


async def test_the_wills_of_a_proxy_that_is_gone_are_published_and_its_sessions_wait(server: MqttServer) -> None:
    watcher, _ = await client(server)
    await watcher.subscribe("wills/#", qos=1)
    later = Will("wills/later", b"x", properties=Properties({PropertyId.WILL_DELAY_INTERVAL: 50}))
    lasting = StoredSession("lasting", "", "gone-1", "gone", 60, will=StoredWill.of(later))
    lasting.subscriptions = [StoredSubscription("a", 0)]
    store = server.sessions.store
    await store.put(lasting)
    await store.put(StoredSession("clean", "", "gone-2", "gone", will=StoredWill.of(Will("wills/now", b"x"))))
    keys = sorted(store.find_unattended(server.sessions.unattended.live_proxies(), 0, 0))
    while keys != ["clean", "lasting"]:
        await watcher.expect_nothing()
        keys = sorted(store.find_unattended(server.sessions.unattended.live_proxies(), 0))
    for key in keys:
        await server.sessions.unattended.end(key)
    assert (await watcher.receive()).topic == "wills/now"
    _, present = await client(server, "clean", expiry_s=5)
    assert not present
    _, present = await client(server, "lasting", expiry_s=60)
    assert present
    await watcher.expect_nothing()


async def test_the_will_of_a_connection_that_a_dead_proxy_served_is_published_though_its_client_is_back(
    server: MqttServer,
) -> None:
    watcher, _ = await client(server)
    await watcher.subscribe("wills/#", qos=1)
    sessions, now_ms = server.sessions, server.clock.now_ms()
    for proxy, said_ms in (("dead", now_ms - PROXY_LIFE_MS - 1), ("alive", now_ms + 60_000)):
        await sessions.store.put_proxy(proxy, said_ms)
        will = StoredWill.of(Will(f"wills/{proxy}", b"x"))
        await sessions.store.put(StoredSession(proxy, "", f"{proxy}-1", proxy, 60, will=will))
    for client_id in ("dead", "alive"):
        await client(server, client_id, expiry_s=60)
    await sessions.unattended.look_after()
    assert (await watcher.receive()).topic == "wills/dead"
    await watcher.expect_nothing()


async def test_a_session_whose_time_is_over_is_removed_unless_its_client_is_back(server: MqttServer) -> None:
    store = server.sessions.store
    over = StoredSession("over", expiry_s=1, away_ms=1)
    await store.put(over)
    peer, present = await client(server, "over", expiry_s=60)
    assert not present
    await server.sessions.unattended.end("over")
    assert await store.load("over") is not None
    peer.send(Disconnect(properties=Properties({PropertyId.SESSION_EXPIRY_INTERVAL: 60})))
    assert await peer.next_packet() is None
    await server.sessions.settle()
    await store.put(over)
    await server.sessions.unattended.end("over")
    assert await store.load("over") is None


async def test_a_session_that_was_removed_by_mistake_is_brought_back(server: MqttServer) -> None:
    peer, _ = await client(server, "c", expiry_s=60)
    await peer.subscribe("a", qos=1)
    await server.sessions.store.delete("c")
    while await server.sessions.store.load("c") is None:
        await peer.expect_nothing()
    peer.close()
    peer, present = await client(server, "c", expiry_s=60)
    assert present
