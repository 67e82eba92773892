"""Sessions that wait as they are for clients whose connections were cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mqtt_peer import Peer, connect_to

from millstream.broker.broker import Broker
from millstream.model.clock import ManualClock, SystemClock
from millstream.model.errors import Unreachable
from millstream.model.state_topics import MQTT_SESSIONS_TOPIC, ROUTES_TOPIC
from millstream.protocol.mqtt.packets import Connack, Connect, Disconnect, Publish, Will
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.local import LocalBackend
from millstream.proxy.mqtt import parked_sessions
from millstream.proxy.mqtt.parked_sessions import MAX_PARKED_ENDED, PARK_S, ParkedSessions
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.mqtt.session_records import StoredSession
from millstream.proxy.processor import Processor
from patience import eventually

AWAY_MS = SystemClock().now_ms()
"""Brokers go by their own clock."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AWAY_MS)


async def served(broker: Broker, clock: ManualClock | None = None) -> AsyncIterator[MqttServer]:
    processor = Processor(LocalBackend(broker))
    await processor.start()
    started = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0, clock=clock)
    await started.start()
    yield started
    await started.close()
    await processor.close()


@pytest.fixture
async def server(broker: Broker, clock: ManualClock) -> AsyncIterator[MqttServer]:
    async for started in served(broker, clock):
        yield started


@pytest.fixture
async def other(broker: Broker, clock: ManualClock) -> AsyncIterator[MqttServer]:
    async for started in served(broker, clock):
        yield started


@pytest.fixture
def stored(server: MqttServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the records of sessions and of light queues that the proxy stores."""
    backend, keys = server.services.backend, list[str]()
    store_state = backend.store_state

    async def note(broker: str, messages: Any) -> Any:
        keys.extend(one.properties["KEYS"] for one in messages if one.topic in (MQTT_SESSIONS_TOPIC, ROUTES_TOPIC))
        return await store_state(broker, messages)

    monkeypatch.setattr(backend, "store_state", note)
    return keys


async def come(server: MqttServer, **options: Any) -> tuple[Peer, Connack]:
    peer = await connect_to(server.port)
    return peer, await peer.connect("c", **{"clean_start": False, "expiry_s": 3600} | options)


async def cut(peer: Peer, server: MqttServer, *, parked: int = 1) -> None:
    before = server.connections
    peer.close()
    await eventually(lambda: server.connections == before - 1)
    assert server.sessions.parked == parked
    if not parked:
        await server.sessions.settle()


async def subscribed(server: MqttServer, qos: int = 1) -> Peer:
    peer, _ = await come(server)
    await peer.subscribe("a", qos=qos)
    return peer


async def send(server: MqttServer, *bodies: bytes) -> None:
    sender = await connect_to(server.port)
    await sender.connect()
    for body in bodies:
        await sender.publish("a", body, 1)
    sender.send(Disconnect())
    assert await sender.next_packet() is None


async def test_a_client_that_comes_right_back_goes_on_and_nothing_is_stored_of_it(
    server: MqttServer, stored: list[str]
) -> None:
    peer = await subscribed(server)
    for _ in range(3):
        stored.clear()
        await cut(peer, server)
        peer, connack = await come(server)
        assert connack.session_present
        assert [key for key in stored if not key.startswith("|proxy-")] == []
        assert (len(server.sessions), server.sessions.parked) == (1, 0)
    await send(server, b"1")
    assert (await peer.receive()).payload == b"1"
    await peer.expect_nothing()


async def test_what_was_sent_meanwhile_comes_once_in_its_order(server: MqttServer) -> None:
    peer = await subscribed(server)
    await cut(peer, server)
    await send(server, b"1", b"2")
    peer, _ = await come(server)
    await send(server, b"3")
    found = [await peer.expect(Publish) for _ in range(3)]
    assert [(one.payload, one.dup) for one in found] == [(b"1", False), (b"2", False), (b"3", False)]
    await peer.expect_nothing()


async def test_a_message_of_qos_0_that_comes_meanwhile_is_none_of_the_clients(server: MqttServer) -> None:
    peer = await subscribed(server, qos=0)
    await cut(peer, server)
    await send(server, b"lost")
    peer, _ = await come(server)
    await peer.expect_nothing()
    await send(server, b"next")
    assert (await peer.receive()).payload == b"next"


async def test_a_client_that_stays_away_is_stored_as_away_since_its_connection_was_cut(
    server: MqttServer, clock: ManualClock
) -> None:
    peer = await subscribed(server)
    await cut(peer, server)
    clock.advance_ms(int(PARK_S * 1000) - 1)
    server.sessions.end_parking()
    assert server.sessions.parked == 1
    clock.advance_ms(1)
    server.sessions.end_parking()
    await server.sessions.settle()
    assert len(server.sessions) == 0
    record = await server.sessions.store.load("c")
    assert record is not None
    assert (record.claim, record.away_ms, record.has_queue) == ("", AWAY_MS, True)
    await send(server, b"1")
    peer, connack = await come(server)
    assert connack.session_present
    assert (await peer.receive()).payload == b"1"


async def test_a_client_may_come_back_to_another_proxy(server: MqttServer, other: MqttServer) -> None:
    peer = await subscribed(server)
    await cut(peer, server)
    await send(server, b"1")
    peer, connack = await come(other)
    assert connack.session_present
    assert (await peer.receive()).payload == b"1"
    await eventually(lambda: len(server.sessions) == 0)
    assert (len(server.services.subscriptions), server.services.statistics.takeovers) == (0, 0)
    await cut(peer, other)
    peer, connack = await come(server)
    assert connack.session_present
    await send(other, b"2")
    assert (await peer.receive()).payload == b"2"
    await peer.expect_nothing()


async def test_of_a_client_that_was_at_another_proxy_meanwhile_nothing_old_goes_on(
    server: MqttServer, other: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await subscribed(server)
    await cut(peer, server)
    confirm = server.sessions.store.confirm

    async def be_late(proxy: str) -> None:
        away, _ = await come(other)
        await away.subscribe("b", qos=1)
        await cut(away, other)
        await confirm(proxy)

    monkeypatch.setattr(server.sessions.store, "confirm", be_late)
    peer, connack = await come(server)
    assert connack.session_present
    sender = await connect_to(server.port)
    await sender.connect()
    await sender.publish("b", b"1", 1)
    assert (await peer.receive()).payload == b"1"


@pytest.mark.parametrize(
    "options",
    [{"clean_start": True}, {"expiry_s": 7200}, {"will": Will("w", b"x")}],
    ids=["clean start", "another expiry", "a will"],
)
async def test_a_client_that_wants_something_else_gets_it(server: MqttServer, options: dict[str, Any]) -> None:
    peer = await subscribed(server)
    await cut(peer, server)
    peer, connack = await come(server, **options)
    assert connack.session_present is not options.get("clean_start", False)
    assert server.sessions.parked == 0
    record = await server.sessions.store.load("c")
    assert record is not None
    assert record.expiry_s == options.get("expiry_s", 3600)
    assert (record.will is not None, len(record.subscriptions)) == ("will" in options, connack.session_present)


@pytest.mark.parametrize("how", ["will", "short", "unacknowledged", "retained", "disconnect", "shared"])
async def test_a_session_with_something_left_to_do_does_not_wait(server: MqttServer, how: str) -> None:
    will = Will("w", b"x", properties=Properties({PropertyId.WILL_DELAY_INTERVAL: 60})) if how == "will" else None
    peer, _ = await come(server, will=will, expiry_s=59 if how == "short" else 3600)
    if how == "retained":
        sender = await connect_to(server.port)
        await sender.connect()
        await sender.publish("a", b"1", 1, retain=True)
        sender.send(Disconnect())
        assert await sender.next_packet() is None
    await peer.subscribe("$share/g/a" if how == "shared" else "a", qos=1)
    if how == "unacknowledged":
        await send(server, b"1")
    if how in ("unacknowledged", "retained"):
        await peer.expect(Publish)
    if how == "disconnect":
        peer.send(Disconnect())
        assert await peer.next_packet() is None
    await cut_or_gone(peer, server)
    record = await server.sessions.store.load("c")
    assert record is not None
    assert record.claim == ""


async def cut_or_gone(peer: Peer, server: MqttServer) -> None:
    peer.close()
    await eventually(lambda: not server.connections)
    assert server.sessions.parked == 0
    await server.sessions.settle()


async def test_more_sessions_than_may_wait_are_stored_at_once(
    server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_sessions, "MAX_PARKED", 1)
    await cut(await subscribed(server), server)
    further = await connect_to(server.port)
    await further.connect("further", clean_start=False, expiry_s=3600)
    await cut(further, server)
    await server.sessions.settle()
    record = await server.sessions.store.load("further")
    assert record is not None
    assert record.claim == ""


async def test_a_session_waits_on_where_the_broker_could_not_be_asked(
    server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await subscribed(server)
    await cut(peer, server)

    async def fail(proxy: str) -> None:
        raise Unreachable("The broker is away.")

    with monkeypatch.context() as patch:
        patch.setattr(server.sessions.store, "confirm", fail)
        _, connack = await come(server)
    assert connack.reason is ReasonCode.SERVER_UNAVAILABLE
    assert server.sessions.parked == 1
    peer, connack = await come(server)
    assert connack.session_present


async def test_a_proxy_that_stops_stores_that_the_clients_are_away(
    server: MqttServer, other: MqttServer, clock: ManualClock
) -> None:
    peer = await subscribed(server)
    await cut(peer, server)
    clock.advance_ms(1)
    await server.close()
    await eventually(lambda: other.sessions.store.has("c", ""))
    record = await other.sessions.store.load("c")
    assert record is not None
    assert record.away_ms == AWAY_MS


async def test_a_record_that_comes_too_late_to_see_a_claim_does_not_refuse_the_client(
    server: MqttServer, other: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await subscribed(server)
    peer.close()
    held = await server.sessions.store.load("c")
    assert held is not None
    put = other.sessions.store._topic.put
    late = [StoredSession("c", "", expiry_s=3600, away_ms=AWAY_MS, has_queue=True, subscriptions=held.subscriptions)]

    async def put_first(key: str, value: bytes) -> int:
        offset = await put(key, value)
        if late and key == "c":
            await server.sessions.store.put(late.pop())
            # Both are seen in one turn.
            await other.sessions.store._topic.reach(offset + 1)
        return offset

    monkeypatch.setattr(other.sessions.store._topic, "put", put_first)
    peer, connack = await come(other)
    assert (connack.reason, connack.session_present) == (ReasonCode.SUCCESS, True)
    await send(server, b"1")
    assert (await peer.receive()).payload == b"1"
    assert not late


async def test_a_client_that_is_gone_before_it_is_let_in_leaves_its_session_waiting(
    server: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:

    peer = await subscribed(server)
    await cut(peer, server)
    reached, confirm = asyncio.Event(), server.sessions.store.confirm

    async def wait_for_ever(proxy: str) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(server.sessions.store, "confirm", wait_for_ever)
        peer = await connect_to(server.port)
        peer.send(Connect("c", clean_start=False, properties=Properties({PropertyId.SESSION_EXPIRY_INTERVAL: 3600})))
        await reached.wait()
        peer.close()
        await eventually(lambda: not server.connections)
        await eventually(lambda: server.sessions.parked == 1)
    assert server.sessions.store.confirm == confirm
    peer, connack = await come(server)
    assert connack.session_present


def test_those_that_waited_for_long_enough_end_some_at_a_time() -> None:
    parked = ParkedSessions()
    for number in range(MAX_PARKED_ENDED + 2):
        parked.add(str(number), float(number == MAX_PARKED_ENDED + 1), number)
    assert parked.pop("0") == 0
    assert parked.pop("0") is None
    due = parked.pop_due(PARK_S)
    assert list(due.values()) == list(range(1, MAX_PARKED_ENDED + 1))
    assert parked.pop_due(PARK_S) == {}
    assert list(parked.pop_due(PARK_S + 1)) == [str(MAX_PARKED_ENDED + 1)]
    parked.add("last", 0.0, 7)
    assert parked.close() == {"last": 7}
    assert not parked.has_room
