"""One topic, a message of each protocol in it, and what a client of each protocol receives of them.

Every receiver tells of a message by plain names: `body`, `key`, `tag`, `group`, `content type`, `correlation`,
`reply to`, `expires`, `trace`, and `event NAME` and `user NAME` for attributes and user properties. It says only what
its protocol has a place for. Beside that stands which delivery it is, in the protocol's own words.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc.aio
import httpx
import pika

from millstream.client.blocking import BlockingClient
from millstream.client.group_operations import DeadLetterOperations
from millstream.model.group import GroupConfig
from millstream.model.message import Message, StoredMessage
from millstream.model.operations import DeadLetterQuery
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.protocol.mqtt.packets import Acknowledgement, Publish
from millstream.protocol.mqtt.properties import Properties, PropertyId
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.all_in_one import AllInOne, AllInOneOptions
from millstream.server.protocol_ports import WantedPort, amqp_port, http_port, mqtt_port
from patience import PATIENCE_S
from proxy.mqtt.mqtt_peer import Peer, connect_to

__all__ = ["BODIES", "ROUNDS", "SQL_ROUNDS", "Arrivals", "Seen", "exchange_messages"]

Seen = dict[str, str]

TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BODIES: Final = {
    name: b'{"from": "%s"}' % name.encode()
    for name in ("grpc", "remoting", "http", "http-event", "mqtt", "mqtt-event", "amqp", "amqp-event", "sql")
}
"""The body of each sender's message, by which it is known."""

ROUNDS: Final = ("at first", "delivered again", "redriven")
"""A message comes once as it was sent, once more because its receiver gave it back, and as a new one after a group made
it a dead letter that was sent again."""

SQL_ROUNDS: Final = ("at first", "redriven")
"""Who reads a topic for itself gives nothing back."""

_AGAIN: Final = ROUNDS.index("delivered again") + 1

_SENDERS: Final = {body: name for name, body in BODIES.items()}
_CLIENT: Final = (("x-mq-client-id", "pairs@1"),)
_EXPIRY_MS: Final = 3_600_000
_GROUP: Final = "gives-up"
_REMOTING_GROUP: Final = "by-remoting"
_RETRY_TOPIC: Final = f"%RETRY%{_REMOTING_GROUP}"
_HTTP_PLACE: Final = "/v1/groups/by-http/topics/orders"


@dataclass
class Arrivals:
    """Of each receiver and sender, what came: one message for each round."""

    seen: dict[tuple[str, str], list[Seen]] = field(default_factory=dict)

    def note(self, receiver: str, body: bytes, told: Seen) -> None:
        """Note a message; one of nobody counts as of its body."""
        sender = _SENDERS.get(body, repr(body))
        self.seen.setdefault((receiver, sender), []).append({"body": body.decode(), **told})

    def missing(self, receiver: str, senders: tuple[str, ...], times: int) -> list[str]:
        """The senders of which fewer messages came to the receiver."""
        return [sender for sender in senders if len(self.seen.get((receiver, sender), ())) < times]


async def exchange_messages(directory: Path, *, with_sql: bool) -> Arrivals:
    """Send by all protocols into one topic and receive by all, once each round; SQL takes part where it is asked."""
    async with AsyncExitStack() as stack:
        wanted = (
            WantedPort("http", 0, http_port),
            WantedPort("amqp", 0, amqp_port),
            WantedPort("mqtt", 0, partial(mqtt_port, rules=["orders/#=orders"])),
        )
        server = AllInOne(AllInOneOptions(directory, grpc_port=0, remoting_port=0, nameserver_port=0, protocols=wanted))
        endpoints = await server.start()
        stack.push_async_callback(server.close)
        nameserver = f"{endpoints.nameserver.host}:{endpoints.nameserver.port}"
        base_url = f"http://127.0.0.1:{endpoints.protocols['http'].port}"
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S))
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{endpoints.grpc.port}", options)
        await stack.enter_async_context(channel)
        ends = _Ends(nameserver, channel, http)
        await asyncio.to_thread(ends.create_topic)
        await ends.open_mqtt(endpoints.protocols["mqtt"].port)
        stack.callback(ends.close_mqtt)
        await asyncio.to_thread(ends.open_amqp, endpoints.protocols["amqp"].port)
        stack.push_async_callback(asyncio.to_thread, ends.amqp.connection.close)
        senders = tuple(name for name in BODIES if with_sql or name != "sql")
        await ends.send_all()
        if with_sql:
            await ends.insert()
        for times in range(1, len(ROUNDS) + 1):
            if times == _AGAIN:
                await ends.give_back()
            elif times > 1:
                await ends.give_up(len(senders))
                await ends.redrive()
            await ends.receive_all(senders, times)
        if with_sql:
            await ends.select()
        return ends.arrivals


class _Ends:
    def __init__(self, nameserver: str, channel: Any, http: httpx.AsyncClient) -> None:
        self.arrivals = Arrivals()
        self._nameserver = nameserver
        self._channel = channel
        self._http = http
        self.mqtt: Peer
        self._mqtt_port = 0
        self._is_given_back = False
        self.amqp: Any
        self._next_offset = self._retry_offset = 0
        # What the receivers have got and may give back.
        self._handles: list[str] = []
        self._http_handles: list[str] = []
        self._pulled: list[StoredMessage] = []

    def create_topic(self) -> None:
        with BlockingClient(self._nameserver, timeout_s=PATIENCE_S) as client:
            client.create_group(GroupConfig(_REMOTING_GROUP, backoff_s=(0,)))
            attributes = {"message.type": "MIXED"}
            client.create_topic(TopicConfig("orders", read_queues=1, write_queues=1, attributes=attributes))

    async def open_mqtt(self, port: int) -> None:
        self._mqtt_port = port
        self.mqtt = await connect_to(port)
        await self.mqtt.connect("pairs", expiry_s=600)
        await self.mqtt.subscribe("orders/#", qos=1)

    def close_mqtt(self) -> None:
        self.mqtt.close()

    def open_amqp(self, port: int) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
        self.amqp = connection.channel()
        self.amqp.exchange_declare("orders", "topic")
        self.amqp.queue_declare("inbox")
        self.amqp.queue_bind("inbox", "orders", "#")

    # senders

    async def send_all(self) -> None:
        system = m.SystemProperties(
            message_id="01GRPC",
            body_encoding=m.IDENTITY,
            tag="red",
            keys=["k1", "k2"],
            born_host="x",
            trace_context=TRACE,
        )
        user = {"colour": "blue", "Level": "3"}
        message = m.Message(
            topic=m.Resource(name="orders"), body=BODIES["grpc"], user_properties=user, system_properties=system
        )
        stub = METHODS["SendMessage"].stub(self._channel)
        answer = await stub(m.SendMessageRequest(messages=[message]), metadata=_CLIENT, timeout=PATIENCE_S)
        assert answer.status.code == m.OK, answer
        await asyncio.to_thread(self._send_remoting)
        await self._post(
            {"content-type": "text/plain", "traceparent": TRACE},
            {"tag": "red", "key": "k1", "group": "g1", "property.colour": "blue"},
            BODIES["http"],
        )
        event = {f"ce-{name}": value for name, value in EVENT.items()}
        expiry = {"ce-expirytime": "2999-01-01T00:00:00Z", "ce-partitionkey": "g1", "ce-traceparent": TRACE}
        await self._post({"content-type": "application/json", **event, **expiry}, {"tag": "red"}, BODIES["http-event"])
        await self._publish_mqtt()
        await asyncio.to_thread(self._publish_amqp)

    def _send_remoting(self) -> None:
        with BlockingClient(self._nameserver, timeout_s=PATIENCE_S) as client:
            user = {"colour": "blue", "Level": "3"}
            client.send(Message("orders", BODIES["remoting"], "red", ("k1",), "g1", user_properties=user))

    async def _post(self, headers: Mapping[str, str], query: Mapping[str, str], body: bytes) -> None:
        answer = await self._http.post("/v1/topics/orders/messages", headers=headers, params=query, content=body)
        assert answer.status_code == 200, answer.text

    async def _publish_mqtt(self) -> None:
        sender = await connect_to(self._mqtt_port)
        await sender.connect("sender")
        values: dict[PropertyId, int | str | bytes] = {
            PropertyId.CONTENT_TYPE: "text/plain",
            PropertyId.CORRELATION_DATA: b"c1",
            PropertyId.RESPONSE_TOPIC: "answers/1",
            PropertyId.MESSAGE_EXPIRY_INTERVAL: _EXPIRY_MS // 1000,
        }
        user = [("colour", "blue"), ("odd", "|41\x02"), ("colour", "green"), ("KEYS", "mine"), ("traceparent", TRACE)]
        plain = Publish("orders/red", BODIES["mqtt"], 1, packet_id=1, properties=Properties(values, user))
        held = Properties({PropertyId.CONTENT_TYPE: "application/json"}, [*EVENT.items()])
        sender.send(plain, Publish("orders/red", BODIES["mqtt-event"], 1, packet_id=2, properties=held))
        for _ in range(2):
            await sender.expect(Acknowledgement)
        sender.close()

    def _publish_amqp(self) -> None:
        properties = pika.BasicProperties(
            content_type="text/plain",
            headers={"colour": "blue", "table": {"a": 1}, "traceparent": TRACE},
            correlation_id="c1",
            reply_to="answers/1",
            message_id="k1",
            expiration=str(_EXPIRY_MS),
            priority=4,
        )
        self.amqp.basic_publish("orders", "red", BODIES["amqp"], properties)
        headers = {f"cloudEvents:{name}": value for name, value in EVENT.items()}
        properties = pika.BasicProperties(content_type="application/json", headers=headers, message_id="A1")
        self.amqp.basic_publish("orders", "red", BODIES["amqp-event"], properties)

    async def insert(self) -> None:
        words = "'colour', 'blue', 'content_type', 'text/plain', 'reply_to', 'answers/1', 'amqp_correlation', 'c1'"
        await self._run_sql(
            "CREATE TABLE orders (body STRING, keys STRING METADATA, tag STRING METADATA, "
            "properties MAP<STRING, STRING> METADATA) WITH ('connector' = 'rocketmq', 'topic' = 'orders', "
            "'format' = 'raw'); "
            f"INSERT INTO orders SELECT '{BODIES['sql'].decode()}', 'k1', 'red', MAP[{words}] "
            "FROM (VALUES (1)) AS t (x)",
            "--bounded",
        )

    # receivers

    async def receive_all(self, senders: tuple[str, ...], times: int) -> None:
        """Receive until one message more of each sender has come to every receiver."""
        readers: dict[str, Callable[[], Any]] = {
            "grpc": self._receive_grpc,
            "http": self._receive_http,
            "remoting": self._pull,
            "mqtt": self._receive_mqtt,
            "amqp": self._receive_amqp,
        }
        for receiver, read in readers.items():
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while self.arrivals.missing(receiver, senders, times):
                        await read()
            except TimeoutError:
                came = {pair: len(seen) for pair, seen in self.arrivals.seen.items() if pair[0] == receiver}
                raise AssertionError(f"{receiver} has {came} after round {times}") from None

    async def _pop(self, group: str) -> list[Any]:
        request = m.ReceiveMessageRequest(
            group=m.Resource(name=group),
            message_queue=m.MessageQueue(topic=m.Resource(name="orders"), id=-1),
            filter_expression=m.FilterExpression(type=m.TAG, expression="*"),
            batch_size=32,
            invisible_duration=m.Duration(seconds=60),
            long_polling_timeout=m.Duration(seconds=20),
        )
        stub = METHODS["ReceiveMessage"].stub(self._channel)
        return [
            frame.message
            async for frame in stub(request, metadata=_CLIENT, timeout=PATIENCE_S)
            if frame.HasField("message")
        ]

    async def _receive_grpc(self) -> None:
        for message in await self._pop("by-grpc"):
            system = message.system_properties
            told = {f"user {name}": value for name, value in message.user_properties.items()}
            told |= {"key": " ".join(system.keys), "tag": system.tag, "group": system.message_group}
            told |= {"trace": system.trace_context, "attempt": str(system.delivery_attempt)}
            self._handles.append(system.receipt_handle)
            self.arrivals.note("grpc", message.body, told)

    async def _receive_http(self) -> None:
        answer = await self._http.post(f"{_HTTP_PLACE}/receive", params={"max": "32", "wait": "20s"})
        for found in answer.json()["messages"]:
            self._http_handles.append(found["handle"])
            event = found["event"]
            body = base64.b64decode(event.pop("data_base64", ""))
            if "data" in event:
                data = event.pop("data")
                body = data.encode() if isinstance(data, str) else json.dumps(data).encode()
            told = {f"event {name}": value for name, value in event.items()}
            told |= {f"user {name}": value for name, value in json.loads(event.get("millstreamprops", "{}")).items()}
            self.arrivals.note("http", body, told | {"attempt": str(found["attempt"])})

    async def _pull(self) -> None:
        def read() -> list[StoredMessage]:
            with BlockingClient(self._nameserver, timeout_s=PATIENCE_S) as client:
                [queue] = client.queues("orders")
                found = client.pull(queue, self._next_offset).messages()
                if found:
                    self._next_offset = found[-1].queue_offset + 1
                # What the group gave back is in a topic of its own.
                for retries in client.queues(_RETRY_TOPIC) if self._is_given_back else ():
                    again = client.pull(retries, self._retry_offset).messages()
                    self._retry_offset += len(again)
                    found += again
                return found

        for message in await asyncio.to_thread(read):
            if not self._is_given_back:
                self._pulled.append(message)
            told = {f"user {name}": value for name, value in message.user_properties.items()}
            told |= {"key": " ".join(message.keys), "tag": message.tag or ""}
            told |= {"group": message.properties.get("__SHARDINGKEY", "")}
            told |= {"trace": message.properties.get("TRACE_CONTEXT", "")}
            told |= {"reconsume times": str(message.reconsume_times)}
            self.arrivals.note("remoting", message.body, told)

    async def _receive_mqtt(self) -> None:
        # What is not acknowledged comes again with the next connection.
        found = await (self.mqtt.receive() if self._is_given_back else self.mqtt.expect(Publish))
        told = {f"user {name}": value for name, value in reversed(found.properties.user)}
        told["users"] = json.dumps(found.properties.user)
        told["topic"] = found.topic
        told["dup"] = str(found.dup)
        values = found.properties.values
        if PropertyId.MESSAGE_EXPIRY_INTERVAL in values:
            told["expires"] = "yes"
        for name, field_id in _MQTT_FIELDS.items():
            if field_id in values:
                value = values[field_id]
                told[name] = value.decode() if isinstance(value, bytes) else str(value)
        self.arrivals.note("mqtt", found.payload, told)

    async def _receive_amqp(self) -> None:
        method, properties, body = await asyncio.to_thread(self.amqp.basic_get, "inbox")
        if method is None:
            return
        told = {f"user {name}": str(value) for name, value in (properties.headers or {}).items()}
        told |= {"exchange": method.exchange, "tag": method.routing_key, "redelivered": str(method.redelivered)}
        if properties.expiration is not None:
            told["expires"] = "yes"
        for name, attribute in _AMQP_FIELDS.items():
            if getattr(properties, attribute) is not None:
                told[name] = str(getattr(properties, attribute))
        self.arrivals.note("amqp", body, told)

    async def select(self) -> None:
        out = await self._run_sql(
            "CREATE TABLE orders (body STRING, keys STRING METADATA VIRTUAL, tag STRING METADATA VIRTUAL, "
            "properties MAP<STRING, STRING> METADATA VIRTUAL) WITH ('connector' = 'rocketmq', 'topic' = 'orders', "
            "'format' = 'raw', 'scan.startup.mode' = 'earliest-offset'); "
            "SELECT body, keys, tag, properties FROM orders",
            "--bounded",
            "--output",
            "json",
        )
        rows = [json.loads(line)["row"] for line in out.splitlines() if line.startswith('{"sink"')]
        assert rows, out
        for row in rows:
            told = {f"user {name}": value for name, value in dict(row["properties"]).items()}
            self.arrivals.note("sql", row["body"].encode(), told | {"key": row["keys"], "tag": row["tag"]})

    # what happens in between

    async def give_back(self) -> None:
        """Have every receiver get again what it has got."""
        stub = METHODS["ChangeInvisibleDuration"].stub(self._channel)
        for handle in self._handles:
            request = m.ChangeInvisibleDurationRequest(
                group=m.Resource(name="by-grpc"),
                topic=m.Resource(name="orders"),
                receipt_handle=handle,
                invisible_duration=m.Duration(),
            )
            answer = await stub(request, metadata=_CLIENT, timeout=PATIENCE_S)
            assert answer.status.code == m.OK, answer
        nacked = await self._http.post(f"{_HTTP_PLACE}/nack", json={"handles": self._http_handles})
        assert nacked.status_code == 200, nacked.text
        await asyncio.to_thread(self._send_back)
        self.mqtt.close()
        self.mqtt = await connect_to(self._mqtt_port)
        await self.mqtt.connect("pairs", clean_start=False, expiry_s=600)
        self._is_given_back = True
        await asyncio.to_thread(self.amqp.basic_nack, 0, True, True)

    def _send_back(self) -> None:
        with BlockingClient(self._nameserver, timeout_s=PATIENCE_S) as client:
            [address] = client.run(client.conversations.masters())
            for message in self._pulled:
                ext = {"group": _REMOTING_GROUP, "offset": str(message.log_offset), "delayLevel": "0"}
                command = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, {**ext, "originTopic": "orders"})
                client.run(client.conversations.ask(address, command))

    async def give_up(self, messages: int) -> None:
        """Make all messages dead letters of a group."""
        stub = METHODS["ForwardMessageToDeadLetterQueue"].stub(self._channel)
        while messages > 0:
            for message in await self._pop(_GROUP):
                request = m.ForwardMessageToDeadLetterQueueRequest(
                    group=m.Resource(name=_GROUP),
                    topic=m.Resource(name="orders"),
                    receipt_handle=message.system_properties.receipt_handle,
                    message_id=message.system_properties.message_id,
                    delivery_attempt=1,
                    max_delivery_attempts=1,
                )
                answer = await stub(request, metadata=_CLIENT, timeout=PATIENCE_S)
                assert answer.status.code == m.OK, answer
                messages -= 1

    async def redrive(self) -> None:
        """Send the dead letters of the group to the topic again."""

        def redrive() -> None:
            query = DeadLetterQuery(_GROUP, max_letters=len(BODIES))
            with BlockingClient(self._nameserver, timeout_s=PATIENCE_S) as client:
                operations = DeadLetterOperations(client.conversations)
                for address in client.run(operations.brokers()):
                    client.run(operations.redrive(address, query, None))

        await asyncio.to_thread(redrive)

    async def _run_sql(self, statement: str, *options: str) -> str:
        words = ("sql", *options, "--nameserver", self._nameserver, "-e", statement)
        shell = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "millstream", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await shell.communicate()
        assert shell.returncode == 0, out.decode()
        return out.decode()


EVENT: Final = {
    "specversion": "1.0",
    "id": "A1",
    "source": "/shop",
    "type": "order.created",
    "tenant": "t1",
}

_MQTT_FIELDS: Final = {
    "content type": PropertyId.CONTENT_TYPE,
    "correlation": PropertyId.CORRELATION_DATA,
    "reply to": PropertyId.RESPONSE_TOPIC,
}
_AMQP_FIELDS: Final = {
    "content type": "content_type",
    "correlation": "correlation_id",
    "reply to": "reply_to",
    "key": "message_id",
    "priority": "priority",
}
