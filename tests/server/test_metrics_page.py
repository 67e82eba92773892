"""What /metrics tells after real traffic, over sockets and through the official client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from millstream.broker import statistics
from millstream.client.blocking import BlockingClient
from millstream.model.clock import ManualClock
from millstream.model.errors import StartRefused
from millstream.model.message import Address, Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.all_in_one import AllInOne, AllInOneOptions, Endpoints
from millstream.server.metrics.page import watermarks
from millstream.telemetry.metrics import METRICS, NODE_LABELS
from millstream.transport.remoting_client import RemotingConnection
from scrape import Scraped, get, get_json, parse, value

NORMAL = {"topic": "orders", "message_type": "normal", "is_system": "false"}


def options(directory: Path, **changes: object) -> AllInOneOptions:
    free = {"grpc_port": 0, "remoting_port": 0, "nameserver_port": 0, "metrics_port": 0}
    return AllInOneOptions(directory, **{**free, **changes})  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Endpoints]:
    running = AllInOne(options(tmp_path / "data"))
    yield await running.start()
    await running.close()


def at(address: Address | None) -> str:
    assert address is not None
    return f"{address.host}:{address.port}"


async def scrape(server: Endpoints) -> Scraped:
    status, text = await asyncio.to_thread(get, at(server.metrics), "/metrics")
    assert status == 200
    return parse(text)


def traffic(nameserver: str) -> None:
    with BlockingClient(nameserver, group="readers") as client:
        client.create_topic(TopicConfig("orders"))
        client.send_many([Message("orders", b"x" * 2000) for _ in range(10)])
        for item in client.queue_ranges("orders"):
            for batch in client.read(item.queue, item.range.min_offset, item.range.max_offset):
                assert batch.messages()
        for queue in client.queues("orders")[:1]:
            client.commit_offset("readers", queue, 0)


async def test_what_was_sent_and_read_over_remoting_is_counted(server: Endpoints) -> None:
    own_topics = value(await scrape(server), "rocketmq_topic_number")
    assert own_topics is not None
    await asyncio.to_thread(traffic, at(server.nameserver))
    found = await scrape(server)
    assert value(found, "rocketmq_messages_in_total", **NORMAL) == 10
    bytes_in = value(found, "rocketmq_throughput_in_total", **NORMAL)
    assert bytes_in is not None
    assert 20_000 < bytes_in < 24_000
    stored_bytes = value(found, "rocketmq_storage_size_bytes")
    assert stored_bytes is not None
    # The broker's own state is in the log as well.
    assert bytes_in <= stored_bytes < bytes_in + 10_000
    assert value(found, "rocketmq_message_size_bucket", le="1024", **NORMAL) == 0
    assert value(found, "rocketmq_message_size_bucket", le="4096", **NORMAL) == 10
    assert value(found, "rocketmq_message_size_sum", **NORMAL) == bytes_in
    read = {"topic": "orders", "consumer_group": "readers", "is_retry": "false", "is_system": "false"}
    assert value(found, "rocketmq_messages_out_total", **read) == 10
    assert value(found, "rocketmq_throughput_out_total", **read) == bytes_in
    assert value(found, "rocketmq_consumer_inflight_messages", **read) is None
    lag = value(found, "rocketmq_consumer_lag_messages", **read)
    assert lag is not None
    assert lag > 0
    send = {"protocol_type": "remoting", "response_code": "success", "node_type": "broker"}
    created = value(found, "rocketmq_rpc_latency_milliseconds_count", request_code="update_and_create_topic", **send)
    assert created == 1
    assert value(found, "rocketmq_topic_number") == own_topics + 1


async def test_clients_of_the_remoting_port_are_counted_while_they_are_there(server: Endpoints) -> None:
    connection = await RemotingConnection.open(server.broker)
    consumer = {"groupName": "readers", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": []}
    body = {"clientID": "c", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": [consumer]}
    beat = RemotingCommand(34, {}, json.dumps(body).encode(), language="JAVA", version=401)
    assert (await connection.request(beat, 5)).code == 0
    found = await scrape(server)
    told = {"language": "java", "version": "401", "protocol_type": "remoting"}
    assert value(found, "rocketmq_producer_connections", **told) == 1
    assert value(found, "rocketmq_consumer_connections", consumer_group="readers", **told) == 1
    leave = RemotingCommand(35, {"clientID": "c", "producerGroup": "p", "consumerGroup": "readers"})
    assert (await connection.request(leave, 5)).code == 0
    assert value(await scrape(server), "rocketmq_producer_connections", **told) is None
    await connection.close()


async def test_every_name_and_label_on_the_page_is_in_the_table(server: Endpoints) -> None:
    await asyncio.to_thread(traffic, at(server.nameserver))
    for name, samples in (await scrape(server)).items():
        metric = METRICS.get(name) or METRICS[name.rpartition("_")[0]]
        for labels, _ in samples:
            assert labels.keys() - {"le"} == {*NODE_LABELS, *metric.labels}, name


async def test_topics_over_the_limit_are_counted_together_as_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "MAX_COUNTED_TOPICS", 2)
    running = AllInOne(options(tmp_path / "data"))
    server = await running.start()

    def send() -> None:
        with BlockingClient(at(server.nameserver)) as client:
            for name in ("a", "b", "c", "d"):
                client.create_topic(TopicConfig(name, read_queues=1, write_queues=1))
                client.send_many([Message(name, b"x")])

    try:
        await asyncio.to_thread(send)
        found = await scrape(server)
    finally:
        await running.close()
    counted = {labels["topic"]: number for labels, number in found["rocketmq_messages_in_total"]}
    assert counted == {"a": 1, "b": 1, "other": 2}


async def test_what_the_broker_allows_and_what_waits_for_answers_is_told(server: Endpoints) -> None:
    found = await scrape(server)
    assert value(found, "rocketmq_broker_permission") == 6
    kinds = {labels["processor"]: number for labels, number in found["rocketmq_processor_watermark"]}
    assert {"send", "ack", "admin", "transaction"} <= kinds.keys()
    assert not {"pull", "lite_pull"} & kinds.keys(), "what waits for messages is no sign of load"
    assert set(kinds.values()) == {0}


def test_requests_count_by_the_kinds_that_rocketmq_names() -> None:
    unanswered = {RequestCode.SEND_MESSAGE_V2: 3, RequestCode.SEND_MESSAGE: 1, RequestCode.PULL_MESSAGE: 9, 9999: 2}
    found = watermarks(unanswered)
    assert (found["send"], found["admin"], sum(found.values())) == (4, 2, 6)


async def test_without_a_port_there_are_no_pages(tmp_path: Path) -> None:
    running = AllInOne(options(tmp_path / "data", metrics_port=None))
    assert (await running.start()).metrics is None
    await running.close()


async def test_a_metrics_port_in_use_is_refused_before_any_file_is_made(tmp_path: Path, server: Endpoints) -> None:
    assert server.metrics is not None
    other = AllInOne(options(tmp_path / "other", metrics_port=server.metrics.port))
    with pytest.raises(StartRefused, match="--metrics-port") as refused:
        await other.start()
    assert refused.value.name == "PORT_IN_USE"
    assert not (tmp_path / "other").exists()


async def test_a_server_that_serves_is_healthy_and_ready(server: Endpoints) -> None:
    for path in ("/healthz", "/readyz"):
        status, told = await asyncio.to_thread(get_json, at(server.metrics), path)
        assert (status, told["ok"], told["state"], told["reasons"]) == (200, True, "serving", [])
        assert told["log"]["written"] >= told["log"]["flushed"]


async def test_age_of_the_lag_is_told_by_the_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    running = AllInOne(options(tmp_path / "data"), clock=clock)
    server = await running.start()
    try:
        await asyncio.to_thread(traffic, at(server.nameserver))
        clock.advance_ms(7000)
        found = await scrape(server)
        assert value(found, "rocketmq_consumer_lag_latency_milliseconds", topic="orders") == 7000
        assert value(found, "rocketmq_storage_message_reserve_time_milliseconds") == 7000
    finally:
        await running.close()
