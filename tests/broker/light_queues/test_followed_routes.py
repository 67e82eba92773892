"""A replica that becomes the master dispatches by the routes that lie in its copy of the log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from broker_bench import SMALL_STORE, Bench, bodies, open_bench

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.light_queues import dispatcher
from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.protocol.route_records import RouteRecord, decode_route
from millstream.store.message_store import MessageStore
from patience import eventually

STORE = replace(SMALL_STORE, replicated=True)
SESSION, GROUP = "%LMQ%mqtt-a", "CID_MQTT"


def route(key: str, value: object = None) -> OutgoingMessage:
    body = b"" if value is None else json.dumps(value).encode()
    return OutgoingMessage(ROUTES_TOPIC, body, {"KEYS": key})


def routes(count: int) -> list[OutgoingMessage]:
    made = [route("queue/mqtt-a", {"kind": "mqtt", "group": GROUP})]
    return made + [route(f"bind/mqtt-a/{number}", {"topic": "t", "mqtt": f"f/{number}"}) for number in range(count)]


async def test_a_promoted_replica_dispatches_by_the_routes_of_its_log(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_bench(tmp_path, clock=clock) as bench:
        await bench.broker.delivery.store_state(routes(10))
        await bench.send("before", mqtt_topic="f/1")
    store = MessageStore.open(tmp_path / "store", STORE, clock=clock)
    store.confirm(store.written_log_offset)
    broker = Broker(tmp_path, options=BrokerOptions(store=STORE), clock=clock)
    broker.attach(store)
    broker.follow()
    assert broker._dispatcher.table.binding_count == 10
    await broker.start()
    try:
        promoted = Bench(broker, clock)
        sending = promoted.send("after", mqtt_topic="f/9")
        store.on_written.append(lambda: store.confirm(store.written_log_offset))
        await sending
        assert bodies(await promoted.pop(GROUP, topic=SESSION)) == ["before", "after"]
    finally:
        await broker.close()


async def test_a_route_is_read_once_to_be_checked_and_to_be_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def count_reads(key: str, body: bytes) -> RouteRecord:
        reads.append(key)
        return decode_route(key, body)

    monkeypatch.setattr(dispatcher, "decode_route", count_reads)
    async with open_bench(tmp_path) as bench:
        written = routes(3)
        await bench.broker.delivery.store_state(written)
        assert reads == [message.properties["KEYS"] for message in written]
        assert bench.broker._dispatcher.table.binding_count == 3


async def test_routes_that_no_replica_had_count_once_they_are_confirmed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_bench(tmp_path, clock=clock) as bench:
        confirmed = bench.broker.maintenance.store.written_log_offset
        await bench.broker.delivery.store_state(routes(3))
        await bench.send("unconfirmed", mqtt_topic="f/1")
    store = MessageStore.open(tmp_path / "store", STORE, clock=clock)
    store._hide_unconfirmed(store._confirm_mark, confirmed)  # type: ignore[arg-type]
    broker = Broker(tmp_path, options=BrokerOptions(store=STORE), clock=clock)
    broker.attach(store)
    await broker.start()
    try:
        table = broker._dispatcher.table
        assert table.binding_count == 0
        assert SESSION in store.topics
        store.confirm(store.written_log_offset)
        assert table.binding_count == 3
        await broker.maintenance.light_queues.sweep()
        assert bodies(await Bench(broker, clock).pop(GROUP, topic=SESSION)) == ["unconfirmed"]
    finally:
        await broker.close()


async def test_a_queue_that_is_not_declared_goes_once_all_routes_are_confirmed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_bench(tmp_path, clock=clock) as bench:
        await bench.broker.delivery.store_state(routes(1))
        await bench.send("old", mqtt_topic="f/0")
        await bench.pop(GROUP, topic=SESSION)
        bench.broker.maintenance.light_queues.dispatcher.on_removed = lambda name, config, bindings: None
        await bench.broker.delivery.store_state([route("queue/mqtt-a")])
        confirmed = bench.broker.maintenance.store.written_log_offset
        await bench.broker.delivery.store_state([route("queue/mqtt-b", {"kind": "mqtt", "group": GROUP})])
    store = MessageStore.open(tmp_path / "store", STORE, clock=clock)
    store._hide_unconfirmed(store._confirm_mark, confirmed)  # type: ignore[arg-type]
    broker = Broker(tmp_path, options=BrokerOptions(store=STORE), clock=clock)
    broker.attach(store)
    await broker.start()
    try:
        sweep = broker.maintenance.light_queues.sweep
        await sweep()
        assert SESSION in store.topics
        store.on_written.append(lambda: store.confirm(store.written_log_offset))
        store.confirm(store.written_log_offset)
        await sweep()
        await eventually(lambda: SESSION not in store.topics)
        assert broker._offsets.places(GROUP) == []
    finally:
        await broker.close()
