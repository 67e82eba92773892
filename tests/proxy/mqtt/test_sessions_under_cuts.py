"""Devices whose connections are cut at any moment and that come back to either of two proxies: nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from mqtt_peer import Peer, connect_to

from millstream.broker.broker import Broker
from millstream.model.clock import ManualClock, SystemClock
from millstream.protocol.mqtt.packet_types import PacketType
from millstream.protocol.mqtt.packets import Acknowledgement, Publish
from millstream.proxy.local import LocalBackend
from millstream.proxy.mqtt.parked_sessions import PARK_S
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.processor import Processor
from patience import eventually

STEPS = 250
DEVICES = 6


class Device:
    """A client that keeps what MQTT demands of a client over its connections; it may be slow to acknowledge."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.topic = f"devices/{number}"
        self.qos = 1 + number % 2
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        self.has_session = False
        self._name = f"device-{number}"
        self._chance = chance
        self._unreleased: set[int] = set()
        self._peer: Peer | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._peer is not None

    async def connect(self, server: MqttServer) -> None:
        if self._reading is not None:
            # Nothing that comes over the connection before is taken any more.
            self._reading.cancel()
        self._peer = peer = await connect_to(server.port)
        connack = await peer.connect(self._name, clean_start=False, expiry_s=3600)
        assert connack.session_present is self.has_session
        if not self.has_session:
            await peer.subscribe(self.topic, qos=self.qos)
            self.has_session = True
        self._reading = asyncio.create_task(self._read(peer))

    async def cut(self) -> None:
        assert self._peer is not None
        assert self._reading is not None
        self._reading.cancel()
        self._peer.close()
        self._peer = None

    async def _read(self, peer: Peer) -> None:
        while (packet := await peer.next_packet()) is not None:
            if self._chance.random() < 0.3:
                await asyncio.sleep(0)
            match packet:
                case Publish(qos=1):
                    self.received.append(packet.payload)
                    peer.send(Acknowledgement(PacketType.PUBACK, packet.packet_id))
                case Publish():
                    if packet.packet_id not in self._unreleased:
                        self._unreleased.add(packet.packet_id)
                        self.received.append(packet.payload)
                    peer.send(Acknowledgement(PacketType.PUBREC, packet.packet_id))
                case Acknowledgement(packet_type=PacketType.PUBREL):
                    self._unreleased.discard(packet.packet_id)
                    peer.send(Acknowledgement(PacketType.PUBCOMP, packet.packet_id))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
async def servers(broker: Broker, clock: ManualClock) -> AsyncIterator[list[MqttServer]]:
    processors = [Processor(LocalBackend(broker)) for _ in range(2)]
    servers = [MqttServer(one, LocalBackend(broker), "127.0.0.1", 0, clock=clock) for one in processors]
    for processor, server in zip(processors, servers, strict=True):
        await processor.start()
        await server.start()
    yield servers
    for processor, server in zip(processors, servers, strict=True):
        await server.close()
        await processor.close()


class Field:
    """Six devices, two proxies, and somebody who sends."""

    def __init__(self, servers: list[MqttServer], clock: ManualClock, chance: random.Random) -> None:
        self.servers = servers
        self.devices = [Device(number, chance) for number in range(DEVICES)]
        self._clock = clock
        self._chance = chance

    async def send(self, sender: Peer, device: Device, number: int) -> None:
        body = b"%d" % number
        device.sent.append(body)
        await sender.publish(device.topic, body, device.qos, packet_id=1 + number)

    async def connect_or_cut(self, device: Device) -> None:
        """A device that is connected may come anew, while the server holds its connection for open."""
        if device.is_connected and self._chance.random() < 0.7:
            await device.cut()
        else:
            await device.connect(self._chance.choice(self.servers))

    async def connect_all(self) -> None:
        for device in self.devices:
            if not device.is_connected:
                await device.connect(self._chance.choice(self.servers))

    def pass_time(self) -> None:
        self._clock.advance_ms(round(self._chance.random() * 0.7 * PARK_S * 1000))
        for server in self.servers:
            server.sessions.end_parking()


@pytest.mark.parametrize("seed", range(12))
async def test_each_message_comes_in_its_order_and_those_of_qos_2_once(
    servers: list[MqttServer], clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    field, has_parked = Field(servers, clock, chance), 0
    sender = await connect_to(servers[0].port)
    await sender.connect("sender")
    await field.connect_all()
    for step in range(STEPS):
        device = chance.choice(field.devices)
        match chance.randrange(6):
            case 0 | 1:
                await field.send(sender, device, step)
            case 2 | 3:
                await field.connect_or_cut(device)
            case 4:
                field.pass_time()
            case _:
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
        has_parked += sum(server.sessions.parked for server in servers)
    assert has_parked
    await field.connect_all()
    await eventually(lambda: all(set(one.received) == set(one.sent) for one in field.devices))
    for device in field.devices:
        assert [*dict.fromkeys(device.received)] == device.sent
        if device.qos == 2:
            assert device.received == device.sent
        await device.cut()
