"""Shared subscriptions over two proxies before one broker, one of which is killed or loses a member to the other."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mqtt_peer import Peer, connect_to

from millstream.broker.broker import Broker
from millstream.model.clock import ManualClock
from millstream.model.errors import ConnectionFailed
from millstream.protocol.mqtt.packets import Disconnect, Publish
from millstream.protocol.mqtt.properties import PropertyId
from millstream.proxy.local import LocalBackend
from millstream.proxy.mqtt.light_queue_reader import INVISIBLE_MS
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.mqtt.session_records import StoredPacketIds
from millstream.proxy.mqtt.unattended_sessions import PROXY_LIFE_MS
from millstream.proxy.processor import Processor
from patience import eventually

_FILTER = "$share/g/a/#"


class MortalBackend:
    """A proxy's way to the broker, which a kill cuts: what the proxy does from then on, nobody sees."""

    def __init__(self, broker: Broker) -> None:
        self._backend = LocalBackend(broker)
        self.is_cut = False
        self.cut_at = ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if name not in ("ack", "change_invisible", "pop", "pull", "release_deliveries", "send", "store_state"):
            return found

        async def call(*arguments: Any) -> Any:
            self.is_cut = self.is_cut or name == self.cut_at
            if self.is_cut:
                raise ConnectionFailed("UNREACHABLE", "The proxy was killed.")
            value = found(*arguments)
            return await value if inspect.isawaitable(value) else value

        return call


class Proxy:
    """One of the two."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.backend: Any = MortalBackend(broker)
        self.processor = Processor(self.backend)
        self.server = MqttServer(self.processor, self.backend, "127.0.0.1", 0, clock=clock)

    async def start(self) -> None:
        await self.processor.start()
        await self.server.start()

    async def close(self) -> None:
        await self.server.close()
        await self.processor.close()

    async def member(
        self, client_id: str = "", *, qos: int = 2, expiry_s: int = 0, receive_maximum: int = 100
    ) -> tuple[Peer, bool]:
        """A member of the group, and whether its session was there."""
        peer = await connect_to(self.server.port)
        properties: dict[PropertyId, int | str | bytes] = {PropertyId.RECEIVE_MAXIMUM: receive_maximum}
        answer = await peer.connect(client_id, clean_start=not expiry_s, expiry_s=expiry_s, properties=properties)
        present = answer.session_present
        if not present:
            await peer.subscribe(_FILTER, qos=qos)
        return peer, present


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    started = Broker(tmp_path, clock=clock)
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def mortal(broker: Broker, clock: ManualClock) -> AsyncIterator[Proxy]:
    proxy = Proxy(broker, clock)
    await proxy.start()
    yield proxy
    await proxy.close()


@pytest.fixture
async def other(broker: Broker, clock: ManualClock) -> AsyncIterator[Proxy]:
    proxy = Proxy(broker, clock)
    await proxy.start()
    yield proxy
    await proxy.close()


@pytest.fixture
async def sender(other: Proxy) -> Peer:
    peer = await connect_to(other.server.port)
    await peer.connect()
    return peer


def kill(proxy: Proxy, clock: ManualClock) -> None:
    """Let a proxy be gone, for so long that the broker lets others have what its members took."""
    proxy.backend.is_cut = True
    clock.advance_ms(INVISIBLE_MS + 1)


class Inbox:
    """The bodies that a member gets, each acknowledged."""

    def __init__(self, peer: Peer) -> None:
        self.bodies: list[bytes] = []
        self._task = asyncio.create_task(self._receive(peer))

    async def _receive(self, peer: Peer) -> None:
        while True:
            self.bodies.append((await peer.receive()).payload)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_what_a_member_of_a_killed_proxy_did_not_acknowledge_goes_to_others(
    mortal: Proxy, other: Proxy, sender: Peer, clock: ManualClock
) -> None:
    first, _ = await mortal.member(qos=1, receive_maximum=1)
    await sender.publish("a/x", b"one", 1)
    assert (await first.expect(Publish)).payload == b"one"
    second, _ = await other.member(qos=1)
    kill(mortal, clock)
    # Without another message that would make it look.
    assert (await second.receive()).payload == b"one"


async def test_a_message_of_qos_2_goes_on_with_its_member_alone_when_its_proxy_is_killed(
    mortal: Proxy, other: Proxy, sender: Peer, clock: ManualClock
) -> None:
    first, _ = await mortal.member("member", expiry_s=3600)
    await sender.publish("a/x", b"one", 2)
    sent = await first.expect(Publish)
    kill(mortal, clock)
    second, _ = await other.member()
    await sender.publish("a/x", b"two", 2)
    assert (await second.receive()).payload == b"two"
    second.send(Disconnect())
    for _ in range(2):
        # Also over a connection that ends before it is said to be there.
        again, present = await other.member("member", expiry_s=3600)
        assert present
        found = await again.expect(Publish)
        assert (found.payload, found.packet_id, found.dup) == (b"one", sent.packet_id, True)
        again.close()
    again, _ = await other.member("member", expiry_s=3600)
    assert (await again.receive()).payload == b"one"
    clock.advance_ms(INVISIBLE_MS + 1)
    await sender.publish("a/x", b"three", 2)
    assert (await again.receive()).payload == b"three"


async def test_a_message_of_qos_2_goes_to_nobody_else_when_the_session_ended_with_its_proxy(
    mortal: Proxy, other: Proxy, sender: Peer, clock: ManualClock
) -> None:
    first, _ = await mortal.member()
    await sender.publish("a/x", b"one", 2)
    await first.expect(Publish)
    kill(mortal, clock)
    second, _ = await other.member()
    await sender.publish("a/x", b"two", 2)
    assert (await second.receive()).payload == b"two"


async def test_a_message_of_qos_2_is_its_members_though_the_proxy_was_killed_before_it_told_the_broker(
    mortal: Proxy, other: Proxy, sender: Peer, clock: ManualClock
) -> None:
    first, _ = await mortal.member("member", expiry_s=3600)
    mortal.backend.cut_at = "ack"
    await sender.publish("a/x", b"one", 2)
    await eventually(lambda: mortal.backend.is_cut)
    # The proxy is given up before the broker lets others have what it took.
    clock.advance_ms(PROXY_LIFE_MS + 1)
    await other.server.sessions.unattended.look_after()
    clock.advance_ms(INVISIBLE_MS)
    second, _ = await other.member()
    await sender.publish("a/x", b"two", 2)
    assert (await second.receive()).payload == b"two"
    again, _ = await other.member("member", expiry_s=3600)
    assert (await again.receive()).payload == b"one"
    first.close()


async def test_a_message_of_qos_2_that_was_not_noted_before_the_kill_goes_to_others(
    mortal: Proxy, other: Proxy, sender: Peer, clock: ManualClock
) -> None:
    first, _ = await mortal.member("member", expiry_s=3600)
    mortal.backend.cut_at = "store_state"
    await sender.publish("a/x", b"one", 2)
    await eventually(lambda: mortal.backend.is_cut)
    kill(mortal, clock)
    second, _ = await other.member()
    await sender.publish("a/x", b"two", 2)
    assert sorted([(await second.receive()).payload for _ in range(2)]) == [b"one", b"two"]
    first.close()


async def test_a_message_of_qos_2_is_not_sent_to_two_when_another_proxy_takes_its_session_over(
    mortal: Proxy, other: Proxy, sender: Peer, clock: ManualClock
) -> None:
    first, _ = await mortal.member("member", expiry_s=3600)
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        await sender.publish("a/x", body, 2)
    held = [(await first.expect(Publish)).payload]
    second, _ = await other.member()
    others = Inbox(second)
    again, present = await other.member("member", expiry_s=3600)
    assert present
    members = Inbox(again)
    while isinstance(told := await first.next_packet(), Publish):
        held.append(told.payload)
    await mortal.server.sessions.settle()
    clock.advance_ms(INVISIBLE_MS + 1)
    await sender.publish("a/x", b"last", 2)
    await eventually(lambda: len(members.bodies) + len(others.bodies) > len(bodies))
    assert sorted(members.bodies + others.bodies) == sorted([*bodies, b"last"])
    assert set(held) <= set(members.bodies)
    for inbox in (members, others):
        await inbox.close()


async def test_what_a_connection_notes_after_another_has_the_session_does_not_count(
    mortal: Proxy, other: Proxy
) -> None:
    first, _ = await mortal.member("member", expiry_s=3600)
    store = other.server.sessions.store
    await store.put_packet_ids("member", StoredPacketIds(received={8: 1}))
    late = await store.put_packet_ids("member", StoredPacketIds(received={9: 1}, claim="of an earlier connection"))
    await store.has_since("member", "", late)
    assert (await store.load_packet_ids("member")).received == {8: 1}
    first.close()
