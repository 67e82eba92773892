"""Two consumers that keep order, by their own requests: who has which queue, and what becomes of a dead one's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from millstream.model.message import Address, OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from patience import within_patience
from servers import Servers


class Consumer:
    """A client of the group `g` on the topic `t`, with a connection of its own."""

    def __init__(self, name: str, connection: RemotingConnection) -> None:
        self.name = name
        self.connection = connection
        self.rebalances = asyncio.Event()
        connection.listener = self.hear

    def hear(self, command: RemotingCommand) -> None:
        assert (command.code, command.is_oneway) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, True)
        self.rebalances.set()

    async def ask(self, code: int, body: object = None, **ext: str) -> RemotingCommand:
        sent = b"" if body is None else json.dumps(body).encode()
        return await self.connection.request(RemotingCommand(code, ext, sent), 5)

    async def beat(self) -> None:
        subscription = {"topic": "t", "subString": "*", "subVersion": 1, "expressionType": "TAG"}
        consumer = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": [subscription]}
        assert (await self.ask(34, {"clientID": self.name, "consumerDataSet": [consumer]})).code == 0

    def _body(self, queues: tuple[int, ...]) -> dict[str, Any]:
        named = [{"topic": "t", "brokerName": "broker-a", "queueId": number} for number in queues]
        return {"consumerGroup": "g", "clientId": self.name, "onlyThisBroker": False, "mqSet": named}

    async def lock(self, *queues: int) -> list[int]:
        answer = await self.ask(41, self._body(queues))
        assert answer.code == 0
        locked = json.loads(answer.body)["lockOKMQSet"]
        assert all(item["topic"] == "t" and item["brokerName"] == "broker-a" for item in locked)
        return [item["queueId"] for item in locked]

    async def unlock(self, *queues: int) -> None:
        assert (await self.ask(42, self._body(queues))).code == 0

    async def consume(self, queue_id: int, offset: int) -> list[str]:
        ext = {"consumerGroup": "g", "topic": "t", "queueId": str(queue_id), "queueOffset": str(offset)}
        pulled = await self.ask(11, **ext, maxMsgNums="32", sysFlag="0")
        return [decode_record(record).body.decode() for record in iterate_records(pulled.body)]


@pytest_asyncio.fixture
async def pair(servers: Servers) -> AsyncIterator[tuple[Consumer, Consumer]]:
    servers.broker.topics.create(TopicConfig("t", read_queues=2, write_queues=2))
    host, _, port = servers.broker_address.rpartition(":")
    connections = [await RemotingConnection.open(Address(host, int(port))) for _ in range(2)]
    first, second = (Consumer(f"c{n}", connection) for n, connection in enumerate(connections))
    await first.beat()
    await second.beat()
    yield first, second
    for connection in connections:
        await connection.close()


async def test_when_an_ordered_consumer_dies_the_other_goes_on_where_it_was(
    servers: Servers, pair: tuple[Consumer, Consumer]
) -> None:
    first, second = pair
    await servers.broker.delivery.send([OutgoingMessage("t", body, {}, queue_id=0) for body in (b"1", b"2", b"3")])
    assert await first.lock(0) == [0]
    assert await second.lock(0, 1) == [1]
    assert (await first.consume(0, 0))[0] == "1"
    await first.ask(15, consumerGroup="g", topic="t", queueId="0", commitOffset="1")

    second.rebalances.clear()
    await first.connection.close()
    await within_patience(second.rebalances.wait())
    assert json.loads((await second.ask(38, consumerGroup="g")).body) == {"consumerIdList": ["c1"]}
    assert await second.lock(0, 1) == [0, 1]
    begin = int((await second.ask(14, consumerGroup="g", topic="t", queueId="0")).ext["offset"])
    assert await second.consume(0, begin) == ["2", "3"]


async def test_a_queue_that_is_given_up_is_free_at_once_and_others_cannot_give_it_up(
    pair: tuple[Consumer, Consumer],
) -> None:
    first, second = pair
    assert await first.lock(0, 1) == [0, 1]
    await second.unlock(0, 1)
    assert await second.lock(0, 1) == []
    await first.unlock(1)
    assert await second.lock(0, 1) == [1]
    await first.ask(35, clientID="c0", consumerGroup="g")
    assert await second.lock(0, 1) == [0, 1]


async def test_a_queue_of_a_topic_that_is_not_here_is_not_locked(pair: tuple[Consumer, Consumer]) -> None:
    body = {"consumerGroup": "g", "clientId": "c0", "mqSet": [{"topic": "no", "brokerName": "b", "queueId": 0}]}
    assert json.loads((await pair[0].ask(41, body)).body) == {"lockOKMQSet": []}


async def test_too_many_queues_and_endless_names_are_refused(pair: tuple[Consumer, Consumer]) -> None:
    queue = {"topic": "t", "brokerName": "b", "queueId": 0}
    body = {"consumerGroup": "g", "clientId": "c0", "mqSet": [queue] * 4097}
    assert (await pair[0].ask(41, body)).code == 2
    assert (await pair[0].ask(41, {**body, "mqSet": [{**queue, "brokerName": "b" * 513}]})).code == 2
    assert (await pair[0].ask(41, {**body, "mqSet": [queue], "clientId": "c" * 513})).code == 2
