"""An MQTT port over a broker in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mqtt_peer import Dial, Peer, connect_to

from millstream.broker.broker import Broker, BrokerOptions
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.proxy.local import LocalBackend
from millstream.proxy.mqtt.server import MqttServer
from millstream.proxy.processor import Processor
from millstream.store.message_store import StoreOptions


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    options = BrokerOptions(store=StoreOptions(segment_bytes=1 << 23, consume_queue_entries=1000))
    started = Broker(tmp_path, options=options)
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def processor(broker: Broker) -> AsyncIterator[Processor]:
    started = Processor(LocalBackend(broker))
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def server(broker: Broker, processor: Processor) -> AsyncIterator[MqttServer]:
    started = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0)
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[MqttServer]:
    """The port of another proxy of the same broker."""
    processor = Processor(LocalBackend(broker))
    await processor.start()
    started = MqttServer(processor, LocalBackend(broker), "127.0.0.1", 0)
    await started.start()
    yield started
    await started.close()
    await processor.close()


@pytest.fixture
async def dial(server: MqttServer) -> AsyncIterator[Dial]:
    """Connects clients of a version, MQTT 5.0 where none is said; they are gone when the test ends."""
    peers: list[Peer] = []

    async def dial_one(version: ProtocolVersion = ProtocolVersion.V5) -> Peer:
        peers.append(await connect_to(server.port, version))
        return peers[-1]

    yield dial_one
    for peer in peers:
        peer.close()
