"""Request 370 over a real connection: delayed messages that are taken back."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest_asyncio

from millstream.model.handles import RecallHandle
from millstream.model.message import Address
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from servers import Servers

SEND = {"a": "g", "b": "later", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0"}


@pytest_asyncio.fixture
async def connection(servers: Servers) -> AsyncIterator[RemotingConnection]:
    servers.broker.topics.create(TopicConfig("later", MessageType.DELAY))
    servers.broker.topics.create(TopicConfig("other", MessageType.DELAY))
    host, _, port = servers.broker_address.rpartition(":")
    opened = await RemotingConnection.open(Address(host, int(port)))
    yield opened
    await opened.close()


async def sent_handle(connection: RemotingConnection) -> str:
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    properties = f"UNIQ_KEY\x01ID1\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
    answer = await connection.request(RemotingCommand(310, {**SEND, "i": properties}, b"body"), 5)
    return answer.ext["recallHandle"]


async def recall(connection: RemotingConnection, topic: str, handle: str) -> RemotingCommand:
    return await connection.request(RemotingCommand(370, {"topic": topic, "recallHandle": handle}), 5)


async def test_a_recall_answers_the_message_id_and_takes_the_message_back(
    connection: RemotingConnection, servers: Servers
) -> None:
    handle = await sent_handle(connection)
    answer = await recall(connection, "later", handle)
    assert (answer.code, answer.ext["msgId"]) == (ResponseCode.SUCCESS, "ID1")
    assert servers.broker.maintenance.timers.pending == 0
    again = await recall(connection, "later", handle)
    assert (again.code, "MS-3012" in (again.remark or "")) == (ResponseCode.QUERY_NOT_FOUND, True)


async def test_a_handle_of_another_topic_or_broker_or_none_recalls_nothing(
    connection: RemotingConnection, servers: Servers
) -> None:
    handle = await sent_handle(connection)
    stranger = RecallHandle("later", "broker-z", 1, "ID1").encode()
    for topic, text in (("other", handle), ("later", stranger), ("later", "no handle")):
        answer = await recall(connection, topic, text)
        assert (answer.code, "MS-3013" in (answer.remark or "")) == (ResponseCode.ILLEGAL_OPERATION, True)
    assert (await recall(connection, "later", "")).code == ResponseCode.MESSAGE_ILLEGAL
    assert servers.broker.maintenance.timers.pending == 1
