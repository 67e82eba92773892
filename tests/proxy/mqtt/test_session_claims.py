"""Sessions whose clients come while something of them is under way: at this proxy, or at the one that they left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mqtt_peer import Peer, connect_to

from millstream.broker.broker import Broker
from millstream.model.clock import ManualClock, SystemClock
from millstream.model.errors import ConsumeRefused, Unreachable
from millstream.model.state_topics import MQTT_SESSIONS_TOPIC
from millstream.protocol.mqtt.packets import Connack, Connect, Disconnect, Subscribe, TopicSubscription
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.local import LocalBackend
from millstream.proxy.mqtt import session_store
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.mqtt.session_records import StoredSession, decode_session, encode_record
from millstream.proxy.mqtt.session_store import SessionStore
from millstream.proxy.mqtt.subscriptions import SessionSubscription
from millstream.proxy.state_topics import StateTopic
from patience import eventually

FILTERS = ["a", "$share/g/b", "c"]


async def come(server: MqttServer) -> tuple[Peer, Connack]:
    peer = await connect_to(server.port)
    return peer, await peer.connect("c", clean_start=False, expiry_s=60)


async def leave(server: MqttServer, peer: Peer) -> None:
    peer.send(Disconnect(properties=Properties({PropertyId.SESSION_EXPIRY_INTERVAL: 60})))
    assert await peer.next_packet() is None
    await server.sessions.settle()


async def send_to_all(server: MqttServer, topics: list[str]) -> None:
    sender = await connect_to(server.port)
    await sender.connect()
    for name in topics:
        await sender.publish(name, name.encode(), 1)


async def received(peer: Peer, count: int) -> set[bytes]:
    return {(await peer.receive()).payload for _ in range(count)}


async def last_record(broker: Broker) -> StoredSession:
    """The last record of the session, which is all that a compaction leaves."""
    topic, last = StateTopic(LocalBackend(broker), MQTT_SESSIONS_TOPIC), dict[str, bytes | None]()
    topic.listen(lambda key, value, _offset: last.update({key: value}))
    await topic.start()
    await topic.ready()
    await topic.close()
    value = last["c"]
    assert value is not None
    return decode_session(value)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_session_that_was_restored_in_part_has_all_of_its_subscriptions_for_the_next_connection(
    broker: Broker, server: MqttServer, other: MqttServer, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    peer, _ = await come(server)
    for name in FILTERS:
        await peer.subscribe(name, qos=1)
    await leave(server, peer)
    subscriptions, added = other.services.subscriptions, list[str]()
    add = subscriptions.add

    async def stop_at_the_second(made: SessionSubscription) -> None:
        added.append(made.topic_filter)
        if len(added) < 2:
            await add(made)
        elif is_refused:
            raise ConsumeRefused("TOO_MANY_REQUESTS", "No more of them.")
        else:
            await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(subscriptions, "add", stop_at_the_second)
        peer = await connect_to(other.port)
        if is_refused:
            assert (await peer.connect("c", clean_start=False, expiry_s=60)).reason is ReasonCode.SERVER_UNAVAILABLE
        else:
            expiry = Properties({PropertyId.SESSION_EXPIRY_INTERVAL: 60})
            peer.send(Connect("c", clean_start=False, properties=expiry))
            await eventually(lambda: len(added) == 2)
            peer.close()
        await eventually(lambda: not len(other.sessions))
    await other.sessions.settle()
    assert not len(other._shares)
    assert not (await last_record(broker)).claim
    peer, connack = await come(other)
    assert connack.session_present
    await send_to_all(server, ["a", "b", "c"])
    assert await received(peer, 3) == {b"a", b"b", b"c"}
    assert [one.topic_filter for one in (await last_record(broker)).subscriptions] == FILTERS


@pytest.mark.parametrize("comes", ["while it is claimed", "later"])
async def test_a_subscribe_of_a_connection_that_lost_the_session_does_not_take_it_back(
    broker: Broker, server: MqttServer, other: MqttServer, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    peer, _ = await come(server)
    await peer.subscribe("a", qos=1)
    backend, new_put = server.services.backend, other.sessions.store._topic.put
    store_state = backend.store_state
    is_under_way, may_go_on, is_stored = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def store_late(broker_name: str, messages: Any) -> Any:
        is_session = messages[0].topic == MQTT_SESSIONS_TOPIC and messages[0].properties["KEYS"] == "c"
        if is_session:
            is_under_way.set()
            await may_go_on.wait()
        receipts = await store_state(broker_name, messages)
        if is_session:
            await other.sessions.store._topic.reach(receipts[-1].queue_offset)
            is_stored.set()
        return receipts

    async def claim(key: str, value: bytes) -> int:
        offset = await new_put(key, value)
        if comes != "later" and not is_stored.is_set():
            may_go_on.set()
            await is_stored.wait()
        return offset

    monkeypatch.setattr(backend, "store_state", store_late)
    monkeypatch.setattr(other.sessions.store._topic, "put", claim)
    peer.send(Subscribe(7, [TopicSubscription("b", 1)]))
    await is_under_way.wait()
    peer, connack = await come(other)
    assert connack.session_present
    may_go_on.set()
    await is_stored.wait()
    await eventually(lambda: not len(server.sessions))
    await other.sessions.settle()
    last = await last_record(broker)
    assert other.sessions.store.has("c", last.claim)
    assert [one.topic_filter for one in last.subscriptions] == ["a"]
    await peer.subscribe("c", qos=1)
    await send_to_all(other, ["a", "c"])
    assert await received(peer, 2) == {b"a", b"c"}


async def test_only_the_last_claims_that_were_lost_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_store, "MAX_SUPERSEDED", 2)
    changes, late = list[str](), list[str]()
    backend: Any = None
    store = SessionStore(
        backend,
        ManualClock(SystemClock().now_ms()),
        lambda _key, claim: changes.append(claim),
        lambda _key, claim: late.append(claim),
    )

    def take(claim: str) -> None:
        store._apply("c", encode_record(StoredSession("c", claim=claim)), 0)

    for claim in ("1", "2", "3"):
        take(claim)
    take("1")
    take("2")
    assert (changes, late) == (["1", "2", "3"], ["3", "3"])
    take("4")
    take("1")
    assert changes == ["1", "2", "3", "4", "1"]
    # One that left the session to nobody did not lose it: another may have taken it for over.
    take("")
    take("1")
    assert changes[-2:] == ["", "1"]


async def test_what_fails_after_a_client_left_is_said_once(
    server: MqttServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise Unreachable("The broker is away.")

    server.sessions._run(fail(), "c")
    await server.sessions.settle()
    assert [one.getMessage() for one in caplog.records if "'c'" in one.getMessage()] == [
        f"The session of 'c' could not be stored: {Unreachable('The broker is away.')}"
    ]
