"""Who sends by one protocol and who receives by another: HTTP, gRPC, remoting, MQTT and AMQP over one broker.

HTTP is served by the proxy of the broker's process, and by a proxy that reaches the broker over the network.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.http.server import HttpServer
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend
from millstream.server.all_in_one import AllInOne, AllInOneOptions
from millstream.server.protocol_ports import WantedPort, amqp_port, http_port, mqtt_port
from proxy.mqtt.mqtt_peer import connect_to

EVENT = {
    "ce-specversion": "1.0",
    "ce-id": "A1",
    "ce-source": "/shop/%C3%A9",
    "ce-type": "order.created",
    "ce-tenant": "t1",
    "content-type": "application/json",
}
BODY = b'{"total": 5}'
CLIENT_ID = (("x-mq-client-id", "a@1"),)


@dataclass
class Protocols:
    """The ends of one server."""

    http: httpx.AsyncClient
    channel: Any
    nameserver: str
    mqtt_port: int
    amqp_port: int

    async def receive_http(self, group: str) -> dict[str, Any]:
        answer = await self.http.post(f"/v1/groups/{group}/topics/orders/receive", params={"wait": "20s"})
        [found] = answer.json()["messages"]
        settled = await self.http.post(f"/v1/groups/{group}/topics/orders/ack", json={"handles": [found["handle"]]})
        assert settled.status_code == 200
        event: dict[str, Any] = found["event"]
        return event

    async def receive_grpc(self, group: str) -> Any:
        request = m.ReceiveMessageRequest(
            group=m.Resource(name=group),
            message_queue=m.MessageQueue(topic=m.Resource(name="orders"), id=-1),
            filter_expression=m.FilterExpression(type=m.TAG, expression="*"),
            batch_size=1,
            invisible_duration=m.Duration(seconds=30),
            long_polling_timeout=m.Duration(seconds=20),
        )
        async for frame in METHODS["ReceiveMessage"].stub(self.channel)(request, metadata=CLIENT_ID, timeout=60):
            if frame.HasField("message"):
                return frame.message
        raise AssertionError("nothing came")

    async def read_remoting(self) -> Any:
        def read() -> Any:
            with BlockingClient(self.nameserver, timeout_s=60.0) as client:
                for item in client.queue_ranges("orders"):
                    found = client.pull(item.queue, item.range.min_offset).messages()
                    if found:
                        return found[0]
            raise AssertionError("nothing came")

        return await asyncio.to_thread(read)


@pytest.fixture(params=["local", "remote"])
async def ends(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Protocols]:
    async with AsyncExitStack() as stack:
        server = AllInOne(
            AllInOneOptions(
                tmp_path,
                grpc_port=0,
                remoting_port=0,
                nameserver_port=0,
                protocols=(
                    WantedPort("http", 0, http_port),
                    WantedPort("amqp", 0, amqp_port),
                    WantedPort("mqtt", 0, partial(mqtt_port, rules=["orders/#=orders"])),
                ),
            ),
        )
        endpoints = await server.start()
        stack.push_async_callback(server.close)
        nameserver = f"{endpoints.nameserver.host}:{endpoints.nameserver.port}"
        await asyncio.to_thread(_create_topic, nameserver)
        assert "http" in endpoints.protocols
        port = endpoints.protocols["http"].port
        if request.param == "remote":
            backend = RemoteBackend(nameserver)
            await backend.start()
            stack.push_async_callback(backend.close)
            processor = Processor(backend)
            await processor.start()
            stack.push_async_callback(processor.close)
            other = HttpServer(processor, backend, "127.0.0.1", 0)
            port = await other.start()
            stack.push_async_callback(other.close)
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(f"127.0.0.1:{endpoints.grpc.port}", [("grpc.use_local_subchannel_pool", 1)])
        )
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60.0))
        yield Protocols(http, channel, nameserver, endpoints.protocols["mqtt"].port, endpoints.protocols["amqp"].port)


def _create_topic(nameserver: str) -> None:
    with BlockingClient(nameserver, timeout_s=60.0) as client:
        client.create_topic(TopicConfig("orders", read_queues=2, write_queues=2))


async def test_an_event_over_http_is_a_message_for_grpc_and_remoting_and_the_same_event_for_http(
    ends: Protocols,
) -> None:
    sent = await ends.http.post("/v1/topics/orders/messages", headers=EVENT, params={"tag": "new"}, content=BODY)
    assert sent.status_code == 200, sent.text
    properties = {
        "CE_specversion": "1.0",
        "CE_id": "A1",
        "CE_source": "/shop/é",
        "CE_type": "order.created",
        "CE_tenant": "t1",
        "CE_datacontenttype": "application/json",
    }
    over_grpc = await ends.receive_grpc("by-grpc")
    assert over_grpc.body == BODY
    assert dict(over_grpc.user_properties) == properties
    assert (over_grpc.system_properties.tag, list(over_grpc.system_properties.keys)) == ("new", ["A1"])
    assert over_grpc.system_properties.message_id == sent.json()["messages"][0]["id"]
    read = await ends.read_remoting()
    assert (read.body, read.tag, read.keys, read.user_properties) == (BODY, "new", ("A1",), properties)
    event = await ends.receive_http("by-http")
    assert event == {
        "specversion": "1.0",
        "id": "A1",
        "source": "/shop/é",
        "type": "order.created",
        "tenant": "t1",
        "datacontenttype": "application/json",
        "data": {"total": 5},
    }


async def test_messages_over_grpc_and_remoting_are_events_over_http(ends: Protocols) -> None:
    message = m.Message(
        topic=m.Resource(name="orders"),
        body=b"hello",
        user_properties={"user": "anna", "Level": "3"},
        system_properties=m.SystemProperties(
            message_id="01ABC", body_encoding=m.IDENTITY, tag="note", keys=["k1"], born_host="x"
        ),
    )
    stub = METHODS["SendMessage"].stub(ends.channel)
    await stub(m.SendMessageRequest(messages=[message]), metadata=CLIENT_ID, timeout=60)
    event = await ends.receive_http("g")
    assert event.pop("time")
    assert event.pop("source").startswith("/millstream/orders/")
    assert event == {
        "specversion": "1.0",
        "id": "01ABC",
        "type": "note",
        "subject": "k1",
        "datacontenttype": "application/octet-stream",
        "user": "anna",
        "millstreamprops": json.dumps({"Level": "3"}, separators=(",", ":")),
        "data_base64": "aGVsbG8=",
    }

    def send() -> None:
        with BlockingClient(ends.nameserver, timeout_s=60.0) as client:
            client.send(Message("orders", b"hi", tag="t", keys=("k2",), user_properties={"a": "b"}))

    await asyncio.to_thread(send)
    event = await ends.receive_http("g")
    assert (event["type"], event["subject"], event["a"], event["data_base64"]) == ("t", "k2", "b", "aGk=")


async def test_an_event_over_http_comes_to_mqtt_and_a_message_of_mqtt_is_an_event_over_http(ends: Protocols) -> None:
    peer = await connect_to(ends.mqtt_port)
    await peer.connect("device")
    await peer.subscribe("orders/new", qos=1)
    await ends.http.post("/v1/topics/orders/messages", headers=EVENT, params={"tag": "new"}, content=BODY)
    found = await peer.receive()
    assert (found.topic, found.payload) == ("orders/new", BODY)
    assert ("id", "A1") in found.properties.user
    await ends.receive_http("g")
    await peer.publish("orders/1/x", b"21.5", 1)
    event = await ends.receive_http("g")
    assert event["data_base64"] == "MjEuNQ=="
    assert json.loads(event["millstreamprops"])["mqtt_topic"] == "orders/1/x"
    peer.close()


async def test_an_event_over_http_comes_to_amqp_and_a_message_of_amqp_is_an_event_over_http(ends: Protocols) -> None:
    pika = pytest.importorskip("pika", reason="the package pika is not installed: no client of AMQP")

    def opened() -> tuple[Any, Any]:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ends.amqp_port))
        channel = connection.channel()
        channel.exchange_declare("orders", "topic")
        channel.queue_declare("inbox")
        channel.queue_bind("inbox", "orders", "new")
        return connection, channel

    def get(channel: Any) -> tuple[Any, bytes]:
        for _, properties, body in channel.consume("inbox", auto_ack=True, inactivity_timeout=60):
            assert properties is not None, "nothing came"
            return properties, body
        raise AssertionError

    connection, channel = await asyncio.to_thread(opened)
    await ends.http.post("/v1/topics/orders/messages", headers=EVENT, params={"tag": "new"}, content=BODY)
    properties, body = await asyncio.to_thread(get, channel)
    assert (body, properties.headers["cloudEvents:id"]) == (BODY, "A1")
    await ends.receive_http("g")
    sent = pika.BasicProperties(content_type="text/plain", headers={"user": "anna"})
    await asyncio.to_thread(channel.basic_publish, "orders", "paid", b"hello", sent)
    event = await ends.receive_http("g")
    assert (event["datacontenttype"], event["data"], event["user"]) == ("text/plain", "hello", "anna")
    await asyncio.to_thread(connection.close)


@pytest.mark.spark
async def test_an_event_over_http_is_a_row_of_sql_with_its_attributes(ends: Protocols) -> None:
    await ends.http.post("/v1/topics/orders/messages", headers=EVENT, params={"tag": "new"}, content=BODY)
    statement = (
        "CREATE TABLE orders (total INT, properties MAP<STRING, STRING> METADATA VIRTUAL) WITH "
        "('connector' = 'rocketmq', 'topic' = 'orders', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'); "
        "SELECT total, properties['CE_id'] AS id, properties['CE_source'] AS source FROM orders"
    )
    words = ["sql", "--bounded", "--nameserver", ends.nameserver, "-e", statement]
    shell = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "millstream", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await shell.communicate()
    assert shell.returncode == 0, out
    assert [word for word in ("5", "A1", "/shop/é") if word not in out.decode()] == [], out
