"""A transaction producer in the frames of RocketMQ's client: half messages, ends, and questions about open ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from broker_bench import SMALL_STORE

from millstream.broker.broker import BrokerOptions
from millstream.broker.delivery.transactions import TransactionOptions
from millstream.model.message import Address, OutgoingMessage, StoredMessage
from millstream.model.operations import PopRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection
from patience import within_patience
from servers import Servers, running_servers

COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"
OPTIONS = BrokerOptions(
    store=SMALL_STORE, transactions=TransactionOptions(first_check_ms=1, check_interval_ms=1, max_checks=1000)
)


class Producer:
    """A client of the producer group `p`."""

    def __init__(self, connection: RemotingConnection, servers: Servers) -> None:
        self.connection = connection
        self.broker = servers.broker
        self.questions: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        connection.listener = self.questions.put_nowait

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
        return await self.connection.request(RemotingCommand(code, ext, body), 5)

    async def join(self, group: str = "p") -> None:
        body = {"clientID": "c1", "producerDataSet": [{"groupName": group}]}
        assert (await self.ask(34, json.dumps(body).encode())).code == 0

    async def send_half(self, message_id: str = "ID1", body: bytes = b"half", **fields: str) -> RemotingCommand:
        properties = f"UNIQ_KEY\x01{message_id}\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02TAGS\x01x\x02"
        ext = {"a": "p", "b": "tx", "c": "TBW102", "d": "4", "e": "1", "f": "4", "g": "1", "h": "0", "i": properties}
        return await self.ask(310, body, **(ext | fields))

    async def end(self, sent: RemotingCommand, how: str, **fields: str) -> RemotingCommand:
        """As RocketMQ's client makes it: the log offset is in the last 16 digits of the offset message id."""
        ext = {
            "producerGroup": "p", "tranStateTableOffset": sent.ext["queueOffset"],
            "commitLogOffset": str(int(sent.ext["msgId"][-16:], 16)), "commitOrRollback": how,
            "fromTransactionCheck": "false", "msgId": "ID1", "transactionId": sent.ext["transactionId"],
        }  # fmt: skip
        return await self.ask(RequestCode.END_TRANSACTION, **(ext | fields))

    async def delivered(self) -> list[StoredMessage]:
        popped = await self.broker.delivery.pop(PopRequest("g", "tx", 60_000))
        return [each.message for each in popped]


@pytest_asyncio.fixture
async def producer(tmp_path: Path) -> AsyncIterator[Producer]:
    async with running_servers(tmp_path, options=OPTIONS) as servers:
        servers.broker.topics.create(TopicConfig("tx", MessageType.TRANSACTION))
        host, _, port = servers.broker_address.rpartition(":")
        opened = await RemotingConnection.open(Address(host, int(port)))
        yield Producer(opened, servers)
        await opened.close()


async def test_a_half_message_is_delivered_once_it_is_committed(producer: Producer) -> None:
    sent = await producer.send_half()
    assert (sent.code, sent.ext["transactionId"]) == (ResponseCode.SUCCESS, "ID1")
    assert await producer.delivered() == []
    assert (await producer.end(sent, UNKNOWN)).code == ResponseCode.SUCCESS
    assert await producer.delivered() == []
    assert (await producer.end(sent, COMMIT)).code == ResponseCode.SUCCESS
    [message] = await producer.delivered()
    assert (message.body, message.queue_id, message.tag) == (b"half", 1, "x")
    assert (await producer.end(sent, COMMIT)).code == ResponseCode.SUCCESS
    assert await producer.delivered() == []


async def test_a_half_message_that_is_rolled_back_never_comes(producer: Producer) -> None:
    sent = await producer.send_half()
    assert (await producer.end(sent, ROLLBACK)).code == ResponseCode.SUCCESS
    late = await producer.end(sent, COMMIT)
    assert (late.code, "MS-3016" in (late.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert (await producer.delivered(), producer.broker.maintenance.open_transactions) == ([], 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"producerGroup": "stranger"},
        {"topic": "other"},
        {"commitLogOffset": "1"},
        {"tranStateTableOffset": "7"},
        {"tranStateTableOffset": "-1"},
    ],
)
async def test_only_the_producer_group_ends_its_transaction_and_by_its_right_place(
    producer: Producer, wrong: dict[str, str]
) -> None:
    sent = await producer.send_half()
    refused = await producer.end(sent, COMMIT, **wrong)
    assert (refused.code, "MS-3014" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert producer.broker.maintenance.open_transactions == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("commitOrRollback", "3"),
        ("commitOrRollback", ""),
        ("producerGroup", ""),
        ("tranStateTableOffset", ""),
        ("commitLogOffset", "x"),
    ],
)
async def test_an_end_that_cannot_be_read_is_refused_with_the_field(producer: Producer, field: str, value: str) -> None:
    sent = await producer.send_half()
    refused = await producer.end(sent, COMMIT, **{field: value})
    assert (refused.code, field in (refused.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert producer.broker.maintenance.open_transactions == 1


async def test_a_producer_of_the_group_is_asked_with_all_that_it_needs_to_answer(producer: Producer) -> None:
    sent = await producer.send_half()
    await producer.join()
    question = await within_patience(producer.questions.get())
    assert (question.code, question.is_oneway) == (RequestCode.CHECK_TRANSACTION_STATE, True)
    message = decode_record(question.body)
    assert (message.topic, message.queue_id, message.body) == ("tx", 1, b"half")
    assert (message.properties["PGROUP"], message.message_id) == ("p", "ID1")
    ext = question.ext
    assert (ext["offsetMsgId"], ext["msgId"], ext["transactionId"]) == (sent.ext["msgId"], "ID1", "ID1")
    fields = {name: ext[name] for name in ("tranStateTableOffset", "commitLogOffset", "topic")}
    answer = await producer.end(sent, COMMIT, fromTransactionCheck="true", **fields)
    assert answer.code == ResponseCode.SUCCESS
    assert len(await producer.delivered()) == 1


async def test_a_producer_of_another_group_is_not_asked(producer: Producer) -> None:
    await producer.join("other")
    await producer.send_half()
    asked = asyncio.Event()
    producer.broker.delivery.watch_transactions(lambda question: bool(asked.set()))
    await within_patience(asked.wait())
    assert producer.questions.empty()


async def test_a_message_of_a_grpc_producer_is_asked_of_those_that_joined_for_its_topic(producer: Producer) -> None:
    await producer.join("tx")
    held = {"UNIQ_KEY": "ID7", "TRAN_MSG": "true", "PGROUP": "tx"}
    await producer.broker.delivery.send([OutgoingMessage("tx", b"half", held)])
    question = await within_patience(producer.questions.get())
    assert question.ext["transactionId"] == "ID7"


async def test_a_half_message_without_a_group_belongs_to_its_senders(producer: Producer) -> None:
    sent = await producer.send_half(i="UNIQ_KEY\x01ID1\x02TRAN_MSG\x01true\x02")
    assert (await producer.end(sent, COMMIT)).code == ResponseCode.SUCCESS
    assert len(await producer.delivered()) == 1


async def test_an_old_client_s_transaction_may_be_of_a_normal_topic(producer: Producer) -> None:
    producer.broker.topics.create(TopicConfig("plain"))
    assert (await producer.send_half(b="plain")).code == ResponseCode.SUCCESS
    assert producer.broker.maintenance.open_transactions == 1
    assert producer.broker.maintenance.store.max_offset("plain", 0) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"f": "8"},
        {"f": "12"},
        {"f": "4", "i": "UNIQ_KEY\x01ID1\x02"},
        {"f": "12", "i": "UNIQ_KEY\x01ID1\x02"},
        {"i": "TRAN_MSG\x01true\x02"},
        {"b": "plain", "typed": "true"},
    ],
)
async def test_what_is_no_half_message_is_refused(producer: Producer, fields: dict[str, str]) -> None:
    producer.broker.topics.create(TopicConfig("plain"))
    answer = await producer.send_half(**fields)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert producer.broker.maintenance.open_transactions == 0
