"""What the broker has consumers do and say: over their own connections, and for others who ask for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from millstream.broker.remoting import client_requests
from millstream.model.message import Address, OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.protocol.remoting.administration.consumption import decode_consumer_status
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import read_fastjson
from millstream.transport.remoting_client import RemotingConnection
from patience import within_patience
from servers import Servers

STATUS = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:%d}}'


class Client:
    """A client with a connection of its own that keeps what the broker asks, and answers what it is told to."""

    def __init__(self, name: str, connection: RemotingConnection) -> None:
        self.name = name
        self.connection = connection
        self.heard: list[RemotingCommand] = []
        self.body = b""
        self.code = 0
        self.answers = True
        self.was_asked = asyncio.Event()
        connection.listener = self.hear

    def hear(self, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return None
        self.heard.append(command)
        self.was_asked.set()
        return command.response(self.code, body=self.body, remark="said") if self.answers else None

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
        return await self.connection.request(RemotingCommand(code, ext, body), 5)

    async def beat(self, language: str = "JAVA", group: str = "g") -> None:
        subscription = {"topic": "t", "subString": "*", "subVersion": 1}
        consumer = {"groupName": group, "subscriptionDataSet": [subscription]}
        body = {"clientID": self.name, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": f"p-{group}"}]}
        command = RemotingCommand(34, {}, json.dumps(body).encode(), language=language, version=401)
        assert (await self.connection.request(command, 5)).code == 0


Open = Callable[[str], Awaitable[Client]]


@pytest_asyncio.fixture
async def client(servers: Servers) -> AsyncIterator[Open]:
    servers.broker.topics.create(TopicConfig("t", read_queues=1, write_queues=1))
    opened: list[RemotingConnection] = []
    host, _, port = servers.broker_address.rpartition(":")

    async def open_client(name: str) -> Client:
        opened.append(await RemotingConnection.open(Address(host, int(port))))
        return Client(name, opened[-1])

    yield open_client
    for connection in opened:
        await connection.close()


async def test_a_reset_tells_each_consumer_that_is_there_in_the_form_that_it_reads(
    client: Open, servers: Servers
) -> None:
    java, other, admin = await client("java"), await client("cpp"), await client("admin")
    await java.beat("JAVA")
    await other.beat("CPP")
    await servers.broker.delivery.send([OutgoingMessage("t", b"%d" % number, {}, queue_id=0) for number in range(3)])
    await java.ask(15, consumerGroup="g", topic="t", queueId="0", commitOffset="3")
    answer = await admin.ask(222, topic="t", group="g", timestamp="0", isForce="true")
    # What was sent to the two before this answer arrives before theirs.
    await asyncio.gather(java.ask(38, consumerGroup="g"), other.ask(38, consumerGroup="g"))
    [told], [listed] = java.heard, other.heard
    assert (told.code, told.is_oneway) == (220, True)
    assert told.ext == {"topic": "t", "group": "g", "timestamp": "0", "isForce": "true"}
    assert told.body == answer.body
    assert read_fastjson(told.body)["offsetTable"] == {(("brokerName", "broker-a"), ("queueId", 0), ("topic", "t")): 0}
    expected = [{"brokerName": "broker-a", "queueId": 0, "topic": "t", "offset": 0}]
    assert json.loads(listed.body) == {"offsetTable": expected}
    await admin.ask(222, topic="t", group="g", timestamp="0", isForce="false", offset="0", queueId="0")
    assert admin.heard == []


async def test_where_consumers_say_they_are_is_told_of_all_or_of_one(client: Open) -> None:
    first, second, admin = await client("c1"), await client("c2"), await client("admin")
    assert (await admin.ask(223, topic="t", group="g")).code == ResponseCode.CONSUMER_NOT_ONLINE
    await first.beat()
    await second.beat()
    first.body, second.body = STATUS % 4, STATUS % 5
    told = read_fastjson((await admin.ask(223, topic="t", group="g")).body)["consumerTable"]
    queue = (("brokerName", "broker-a"), ("queueId", 0), ("topic", "t"))
    assert told == {"c1": {queue: 4}, "c2": {queue: 5}}
    assert (first.heard[0].code, first.heard[0].ext) == (221, {"topic": "t", "group": "g", "clientId": "c1"})
    one = read_fastjson((await admin.ask(223, topic="t", group="g", clientAddr="c2")).body)["consumerTable"]
    assert one.keys() == {"c2"}
    assert (await admin.ask(223, topic="t", group="g", clientAddr="c3")).code == ResponseCode.CONSUMER_NOT_ONLINE
    first.code = 1
    assert read_fastjson((await admin.ask(223, topic="t", group="g")).body)["consumerTable"].keys() == {"c2"}
    second.code = 1
    assert (await admin.ask(223, topic="t", group="g")).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("body", [b"", b"[]", b'{"messageQueueTable":{{"topic":"t"}:1}}', b'{"messageQueueTable":1}'])
async def test_a_consumers_offsets_that_cannot_be_read_are_refused(client: Open, body: bytes) -> None:
    consumer, admin = await client("c"), await client("admin")
    await consumer.beat()
    consumer.body = body
    assert (await admin.ask(223, topic="t", group="g")).code == ResponseCode.MESSAGE_ILLEGAL


def test_a_consumer_without_offsets_is_read_as_such() -> None:
    assert decode_consumer_status(b"{}") == {}


async def test_what_a_consumer_runs_is_asked_of_it_and_passed_on(client: Open) -> None:
    consumer, admin = await client("c"), await client("admin")
    await consumer.beat()
    consumer.body = b'{"properties":{}}'
    answer = await admin.ask(307, consumerGroup="g", clientId="c", jstackEnable="true", AccessKey="k", Signature="s")
    assert (answer.code, answer.body, answer.remark) == (0, b'{"properties":{}}', "said")
    assert consumer.heard[0].ext == {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"}
    consumer.code = 1
    assert (await admin.ask(307, consumerGroup="g", clientId="c")).code == 1


async def test_a_consumer_that_is_not_there_leaves_or_says_nothing_is_told_as_such(
    client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, admin = await client("c"), await client("admin")
    assert (await admin.ask(307, consumerGroup="g", clientId="c")).code == ResponseCode.CONSUMER_NOT_ONLINE
    await consumer.beat()
    consumer.answers = False
    monkeypatch.setattr(client_requests, "ANSWER_LIMIT_S", 0.05)
    answer = await admin.ask(307, consumerGroup="g", clientId="c")
    assert (answer.code, "did not answer" in (answer.remark or "")) == (ResponseCode.CONSUME_MSG_TIMEOUT, True)
    monkeypatch.setattr(client_requests, "ANSWER_LIMIT_S", 5)
    consumer.was_asked.clear()
    waiting = asyncio.create_task(admin.ask(307, consumerGroup="g", clientId="c"))
    await within_patience(consumer.was_asked.wait())
    await consumer.connection.close()
    assert (await waiting).code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_a_consumer_consumes_one_message_now(client: Open, servers: Servers) -> None:
    consumer, admin = await client("c"), await client("admin")
    await consumer.beat()
    consumer.body = b'{"consumeResult":"CR_SUCCESS"}'
    [receipt] = await servers.broker.delivery.send([OutgoingMessage("t", b"again", {}, queue_id=0)])
    wanted = {"consumerGroup": "g", "clientId": "c", "msgId": receipt.offset_message_id, "brokerName": "broker-a"}
    answer = await admin.ask(309, **wanted, topic="t")
    assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
    [question] = consumer.heard
    assert question.code == 309
    assert question.ext == {**wanted, "topic": "t"}
    assert decode_record(question.body).body == b"again"
    assert servers.broker.queues.committed_offset("g", "t", 0) is None


async def test_a_consumer_is_given_nothing_that_its_group_does_not_read(client: Open, servers: Servers) -> None:
    consumer, admin = await client("c"), await client("admin")
    await consumer.beat()
    servers.broker.topics.create(TopicConfig("secret"))
    [receipt] = await servers.broker.delivery.send([OutgoingMessage("secret", b"x", {}, queue_id=0)])
    for message_id in (receipt.offset_message_id, receipt.offset_message_id[:-1] + "1", "7F", "nonsense" * 4):
        answer = await admin.ask(309, consumerGroup="g", clientId="c", msgId=message_id)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
    named = await admin.ask(309, consumerGroup="g", clientId="c", msgId=receipt.offset_message_id, topic="secret")
    assert named.code == 0


async def test_producers_are_told_by_group_and_all_together(client: Open, servers: Servers) -> None:
    one, other = await client("one"), await client("other")
    assert (await one.ask(204, producerGroup="p-g")).code == ResponseCode.SYSTEM_ERROR
    await one.beat()
    await other.beat(group="h")
    [member] = json.loads((await one.ask(204, producerGroup="p-g")).body)["connectionSet"]
    assert (member["clientId"], member["language"], member["version"]) == ("one", "JAVA", 401)
    table = json.loads((await one.ask(328)).body)["data"]
    assert {group: [told["clientId"] for told in members] for group, members in table.items()} == {
        "p-g": ["one"],
        "p-h": ["other"],
    }
    assert table["p-g"][0]["remoteIP"].startswith("127.0.0.1:")
    assert 0 <= servers.broker.clock.now_ms() - table["p-g"][0]["lastUpdateTimestamp"] < 60_000
    await other.connection.close()
    while len(json.loads((await one.ask(328)).body)["data"]) > 1:
        pass
    await one.ask(35, clientID="one", producerGroup="p-g")
    assert json.loads((await one.ask(328)).body) == {"data": {}}
