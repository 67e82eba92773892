"""Inner batches (code 320) and the bulk lane (9101, 9102) over a real connection; what lies is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from zlib import crc32

import pyarrow as pa
import pytest_asyncio

from millstream.model.message import Address, SystemFlag
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.transport.remoting_client import RemotingConnection
from servers import Servers

PUT = {"topic": "b", "queueId": "0", "bornTimestamp": "1700000000000"}
FETCH = {"consumerGroup": "g", "topic": "b", "queueId": "0", "queueOffset": "0", "maxBytes": "1000000"}
SEND = {"a": "g", "b": "b", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "m": "true"}
PULL = {
    "consumerGroup": "g", "topic": "b", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
}  # fmt: skip


@pytest_asyncio.fixture
async def connection(servers: Servers) -> AsyncIterator[RemotingConnection]:
    servers.broker.topics.create(TopicConfig("b", attributes={"queue.type": "BatchCQ"}))
    servers.broker.topics.create(TopicConfig("plain"))
    host, _, port = servers.broker_address.rpartition(":")
    opened = await RemotingConnection.open(Address(host, int(port)))
    yield opened
    await opened.close()


def batch(count: int) -> bytes:
    rows = pa.record_batch({"body": pa.array([b"m%d" % number for number in range(count)], pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


async def ask(connection: RemotingConnection, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
    return await connection.request(RemotingCommand(code, ext, body), 5)


async def put(connection: RemotingConnection, body: bytes, rows: int, **changed: str) -> RemotingCommand:
    ext = {**PUT, "rows": str(rows), "crc32": str(crc32(body)), **changed}
    return await ask(connection, 9101, ext, body)


async def test_what_is_put_is_fetched_whole_and_pulled_as_messages(connection: RemotingConnection) -> None:
    body = batch(500)
    answers = [await put(connection, body, 500) for _ in range(2)]
    assert [(answer.code, answer.ext["queueOffset"], answer.ext["rows"]) for answer in answers] == [
        (0, "0", "500"),
        (0, "500", "500"),
    ]
    fetched = await ask(connection, 9102, FETCH)
    assert fetched.ext["nextBeginOffset"] == "1000"
    first, second = (decode_record(record) for record in iterate_records(fetched.body))
    assert first.body == second.body == body
    assert first.system_flag & SystemFlag.ARROW_BATCH
    assert (second.queue_offset, second.properties) == (500, {"INNER_NUM": "500", "INNER_BASE": "500"})
    assert (first.born_timestamp_ms, first.born_host.host) == (1_700_000_000_000, "127.0.0.1")
    pulled = await ask(connection, 11, {**PULL, "queueOffset": "498"})
    messages = [decode_record(record) for record in iterate_records(pulled.body)]
    assert [message.body for message in messages[:3]] == [b"m498", b"m499", b"m0"]
    assert not messages[0].system_flag & SystemFlag.ARROW_BATCH


async def test_lies_are_refused_and_nothing_is_stored_and_the_connection_lives(
    connection: RemotingConnection, servers: Servers
) -> None:
    body = batch(10)
    refusals = [
        await put(connection, body, 11),
        await put(connection, body, 10, crc32="12345"),
        await put(connection, body[:-30], 10),
        await put(connection, b"no arrow at all", 1),
        await put(connection, b"", 0),
        await put(connection, body, 10, topic="plain"),
        await put(connection, batch(32_768), 32_768),
        await put(connection, body, 10, crc32="x"),
        await put(connection, body, 10, queueId="77"),
    ]
    assert all(answer.code != 0 and answer.remark for answer in refusals), [answer.remark for answer in refusals]
    assert [answer.code for answer in refusals[:3]] == [13, 13, 13]
    assert (
        servers.broker.maintenance.store.max_offset("b", 0)
        == servers.broker.maintenance.store.max_offset("plain", 0)
        == 0
    )
    assert (await put(connection, body, 10)).code == 0


async def test_a_batch_with_an_id_of_its_own_is_stored_as_one_record(
    connection: RemotingConnection, servers: Servers
) -> None:
    body = b"".join(encode_batch_item(b"m%d" % number, {"TAGS": "t"}) for number in range(5))
    answer = await ask(connection, 320, {**SEND, "i": "UNIQ_KEY\x01BATCH1\x02"}, body)
    assert (answer.code, answer.ext["batchUniqId"], answer.ext["queueOffset"]) == (0, "BATCH1", "0")
    assert "," not in answer.ext["msgId"]
    assert len(servers.broker.maintenance.store.entries("b", 0, 0, 10)) == 1
    pulled = await ask(connection, 11, PULL)
    [record] = iterate_records(pulled.body)
    stored = decode_record(record)
    assert stored.body == body
    assert stored.properties == {"UNIQ_KEY": "BATCH1", "INNER_NUM": "5", "INNER_BASE": "0"}
    assert int(stored.system_flag) & 0xC0 == 0xC0


async def test_a_batch_without_an_id_is_expanded_even_there(connection: RemotingConnection, servers: Servers) -> None:
    body = b"".join(encode_batch_item(b"m%d" % number, {}) for number in range(3))
    answer = await ask(connection, 320, SEND, body)
    assert answer.ext["msgId"].count(",") == 2
    assert len(servers.broker.maintenance.store.entries("b", 0, 0, 10)) == 3
    pulled = await ask(connection, 11, PULL)
    assert [decode_record(record).body for record in iterate_records(pulled.body)] == [b"m0", b"m1", b"m2"]


async def test_nobody_calls_a_message_a_batch_but_the_broker(connection: RemotingConnection) -> None:
    for flag in (0x40, 0x80, 0x1000):
        answer = await ask(connection, 310, {**SEND, "f": str(flag), "m": "false"}, b"x")
        assert answer.code == 13
