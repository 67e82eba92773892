"""What the metrics tell of the official client's traffic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from official import drain, message, producer, simple_consumer

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from scrape import get, parse, value

pytestmark = pytest.mark.official


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as running:
        yield running


def test_messages_deliveries_calls_and_clients_are_counted(server: ServerProcess) -> None:
    with BlockingClient(server.addresses.nameserver) as client:
        client.create_topic(TopicConfig("orders", read_queues=1, write_queues=1))
    port = int(server.addresses.grpc.rpartition(":")[2])
    with producer(port, "orders") as sender:
        for _ in range(10):
            sender.send(message("orders", b"x" * 100))
        with simple_consumer(port, "takers", "orders") as consumer:
            taken = drain(consumer, 5, ack=False)
            for one in taken[:3]:
                consumer.ack(one)
            assert server.addresses.metrics is not None
            found = parse(get(server.addresses.metrics, "/metrics")[1])
    assert value(found, "rocketmq_messages_in_total", topic="orders", message_type="normal") == 10
    labels = {"topic": "orders", "consumer_group": "takers"}
    assert value(found, "rocketmq_messages_out_total", **labels) == len(taken)
    assert value(found, "rocketmq_throughput_out_total", **labels) == len(taken) * 100
    assert value(found, "rocketmq_consumer_inflight_messages", **labels) == len(taken) - 3
    assert value(found, "rocketmq_consumer_ready_messages", **labels) == 10 - len(taken)
    assert value(found, "rocketmq_consumer_lag_messages", **labels) == 7
    call = {"protocol_type": "grpc", "node_type": "proxy", "response_code": "ok", "result": "success"}
    assert value(found, "rocketmq_rpc_latency_milliseconds_count", request_code="SendMessage", **call) == 10
    assert value(found, "rocketmq_rpc_latency_milliseconds_count", request_code="AckMessage", **call) == 3
    assert value(found, "rocketmq_producer_connections", protocol_type="grpc", language="python") == 1
    mode = {"consumer_group": "takers", "consume_mode": "pop", "language": "python"}
    assert value(found, "rocketmq_consumer_connections", **mode) == 1
