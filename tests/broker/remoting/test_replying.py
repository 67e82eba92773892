"""Request and reply in the frames of RocketMQ's clients: one asks, one answers, the broker hands the answer over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from millstream.broker.queues.topics import own_topics
from millstream.broker.remoting import client_requests
from millstream.model.message import Address
from millstream.model.operations import PopRequest
from millstream.model.properties import decode_properties
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from servers import Servers

SEND = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
REPLY = "MSG_TYPE\x01reply\x02CORRELATION_ID\x01c7\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000\x02"


class Client:
    """A connection that answers every request of the server by `answering`, or not at all."""

    def __init__(self, connection: RemotingConnection) -> None:
        self.connection = connection
        self.pushed: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self.answering: Callable[[RemotingCommand], RemotingCommand | None] = RemotingCommand.response
        connection.listener = self._hear

    def _hear(self, command: RemotingCommand) -> None:
        self.pushed.put_nowait(command)
        answer = self.answering(command)
        if answer is not None:
            self.connection.notify(answer)

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
        return await self.connection.request(RemotingCommand(code, ext, body), 20)

    async def join(self, client_id: str) -> None:
        body = {"clientID": client_id, "producerDataSet": [{"groupName": "p"}]}
        assert (await self.ask(34, json.dumps(body).encode())).code == 0


@pytest_asyncio.fixture
async def clients(servers: Servers) -> AsyncIterator[tuple[Client, Client]]:
    """The one that asks, known as `asker`, and the one that answers."""
    servers.broker.topics.create(TopicConfig("t"))
    servers.broker.topics.offer(own_topics(servers.broker.name, servers.broker.cluster))
    host, _, port = servers.broker_address.rpartition(":")
    async with AsyncExitStack() as opened:
        both = []
        for _ in range(2):
            connection = await RemotingConnection.open(Address(host, int(port)))
            opened.push_async_callback(connection.close)
            both.append(Client(connection))
        await both[0].join("asker")
        yield both[0], both[1]


def reply_fields(servers: Servers, **more: str) -> dict[str, str]:
    return SEND | {"b": f"{servers.broker.cluster}_REPLY_TOPIC", "f": "1", "h": "5", "i": REPLY} | more


async def test_a_message_that_wants_a_reply_says_in_which_cluster(
    servers: Servers, clients: tuple[Client, Client]
) -> None:
    held = "REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x01c7\x02"
    assert (await clients[0].ask(310, b"question", **SEND, i=held)).code == 0
    assert (await clients[0].ask(310, b"other", **SEND)).code == 0
    question, other = [each.message for each in await servers.broker.delivery.pop(PopRequest("g", "t", 60_000))]
    assert question.properties["CLUSTER"] == servers.broker.cluster
    assert "CLUSTER" not in other.properties


async def test_a_reply_reaches_the_client_that_waits_before_its_sender_is_answered(
    servers: Servers, clients: tuple[Client, Client]
) -> None:
    asker, answerer = clients
    answer = await answerer.ask(RequestCode.SEND_REPLY_MESSAGE_V2, b"reply", **reply_fields(servers))
    assert (answer.code, answer.ext["MSG_REGION"]) == (ResponseCode.SUCCESS, "DefaultRegion")
    pushed = asker.pushed.get_nowait()
    assert (pushed.code, pushed.body, pushed.is_oneway) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"reply", False)
    held = decode_properties(pushed.ext["properties"].encode())
    assert (held["CORRELATION_ID"], held["PUSH_REPLY_TIME"].isdecimal()) == ("c7", True)
    assert (pushed.ext["sysFlag"], pushed.ext["flag"], pushed.ext["producerGroup"]) == ("1", "5", "p")
    assert {"bornHost", "storeHost", "storeTimestamp", "bornTimestamp", "queueId", "topic"} <= pushed.ext.keys()
    [kept] = servers.broker.queues.ranges(f"{servers.broker.cluster}_REPLY_TOPIC")
    assert (kept.max_offset, answer.ext["queueOffset"], len(answer.ext["msgId"])) == (1, "0", 32)


async def test_the_long_names_of_older_clients_are_taken(servers: Servers, clients: tuple[Client, Client]) -> None:
    fields = {
        "producerGroup": "p", "topic": f"{servers.broker.cluster}_REPLY_TOPIC", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
        "properties": REPLY,
    }  # fmt: skip
    assert (await clients[1].ask(RequestCode.SEND_REPLY_MESSAGE, b"reply", **fields)).code == ResponseCode.SUCCESS
    assert clients[0].pushed.get_nowait().body == b"reply"


async def test_a_reply_that_nobody_waits_for_is_refused_and_kept(
    servers: Servers, clients: tuple[Client, Client]
) -> None:
    fields = reply_fields(servers, i=REPLY.replace("asker", "stranger"))
    answer = await clients[1].ask(RequestCode.SEND_REPLY_MESSAGE_V2, b"reply", **fields)
    assert (answer.code, "MS-3018" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    [kept] = servers.broker.queues.ranges(fields["b"])
    assert kept.max_offset == 1


async def test_a_client_that_refuses_a_reply_or_says_nothing_makes_it_fail(
    servers: Servers, clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, answerer = clients
    asker.answering = lambda command: command.response(1, remark="not mine")
    answer = await answerer.ask(RequestCode.SEND_REPLY_MESSAGE_V2, b"reply", **reply_fields(servers))
    assert (answer.code, "not mine" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    monkeypatch.setattr(client_requests, "REPLY_TIMEOUT_S", 0.01)
    asker.answering = lambda command: None
    answer = await answerer.ask(RequestCode.SEND_REPLY_MESSAGE_V2, b"reply", **reply_fields(servers))
    assert (answer.code, "MS-5002" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [({"b": "none"}, ResponseCode.TOPIC_NOT_EXIST), ({"i": "MSG_TYPE\x01reply\x02"}, ResponseCode.MESSAGE_ILLEGAL)],
)
async def test_what_is_no_reply_is_refused(
    servers: Servers, clients: tuple[Client, Client], wrong: dict[str, str], code: int
) -> None:
    answer = await clients[1].ask(RequestCode.SEND_REPLY_MESSAGE_V2, b"reply", **reply_fields(servers, **wrong))
    assert answer.code == code
    assert clients[0].pushed.empty()
