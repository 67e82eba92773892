"""Sends, pulls and offsets over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from millstream.model.errors import StoreError
from millstream.model.message import Address
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.bodies import decode_topic_statistics
from millstream.protocol.remoting.command import FLAG_ONEWAY, HeaderType, RemotingCommand
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.transport.remoting_client import RemotingConnection
from patience import within_patience
from servers import Servers

SHORT = {"a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0"}
PULL = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
}
QUEUE = {"topic": "t", "queueId": "0"}
GROUP = {**QUEUE, "consumerGroup": "g"}


@pytest_asyncio.fixture
async def connection(servers: Servers) -> AsyncIterator[RemotingConnection]:
    servers.broker.topics.create(TopicConfig("t"))
    host, _, port = servers.broker_address.rpartition(":")
    opened = await RemotingConnection.open(Address(host, int(port)))
    yield opened
    await opened.close()


async def ask(
    connection: RemotingConnection, code: int, ext: dict[str, str], body: bytes = b"", timeout_s: float = 5
) -> RemotingCommand:
    return await connection.request(RemotingCommand(code, ext, body), timeout_s)


async def bodies(connection: RemotingConnection, **changed: str) -> list[bytes]:
    answer = await ask(connection, 11, {**PULL, **changed})
    return [decode_record(record).body for record in iterate_records(answer.body)]


@pytest.mark.parametrize("kind", list(HeaderType))
async def test_a_message_sent_with_310_is_pulled_as_it_was_sent(
    connection: RemotingConnection, servers: Servers, kind: HeaderType
) -> None:
    ext = {**SHORT, "i": "TAGS\x01blue\x02UNIQ_KEY\x01ID7\x02mine\x01ä\x02", "h": "5"}
    answer = await connection.request(RemotingCommand(310, ext, b"hello", header_type=kind), 5)
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "0", "0")
    assert answer.ext["transactionId"] == "ID7"
    assert len(answer.ext["msgId"]) == 32
    assert {"MSG_REGION", "TRACE_ON"} <= answer.ext.keys()
    pulled = await ask(connection, 11, PULL)
    assert pulled.ext.items() >= {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}.items()
    assert pulled.ext["suggestWhichBrokerId"] == "0"
    [record] = iterate_records(pulled.body)
    message = decode_record(record)
    assert (message.body, message.tag, message.message_id, message.flag) == (b"hello", "blue", "ID7", 5)
    assert (message.user_properties, message.born_timestamp_ms) == ({"mine": "ä"}, 1700000000000)
    assert message.born_host.host == "127.0.0.1"


async def test_an_empty_tag_counts_as_none(connection: RemotingConnection) -> None:
    assert (await ask(connection, 310, {**SHORT, "i": "TAGS\x01\x02own\x01value\x02"}, b"hello")).code == 0
    pulled = await ask(connection, 11, PULL)
    [record] = iterate_records(pulled.body)
    assert decode_record(record).properties == {"own": "value"}


async def test_code_10_takes_the_long_names(connection: RemotingConnection) -> None:
    ext = {
        "producerGroup": "g", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "TAGS\x01a\x02", "reconsumeTimes": "3",
    }  # fmt: skip
    assert (await ask(connection, 10, ext, b"old")).code == 0
    [record] = iterate_records((await ask(connection, 11, PULL)).body)
    assert (decode_record(record).body, decode_record(record).reconsume_times) == (b"old", 3)


@pytest.mark.parametrize(("attributes", "properties"), [({}, ""), ({"queue.type": "BatchCQ"}, "UNIQ_KEY\x01B\x02")])
async def test_a_transaction_within_a_batch_is_refused_with_the_batch(
    connection: RemotingConnection, servers: Servers, attributes: dict[str, str], properties: str
) -> None:
    servers.broker.topics.create(TopicConfig("mixed", MessageType.MIXED, attributes=attributes))
    items = [{"UNIQ_KEY": "K0"}, {"UNIQ_KEY": "K1", "TRAN_MSG": "true"}]
    body = b"".join(encode_batch_item(b"x", item) for item in items)
    answer = await ask(connection, 320, {**SHORT, "b": "mixed", "m": "true", "i": properties}, body)
    assert "MS-3009" in answer.remark
    assert servers.broker.maintenance.open_transactions == 0
    assert all(not held.max_offset for held in servers.broker.queues.ranges("mixed"))


async def test_queue_minus_one_lets_the_broker_choose_in_turn(connection: RemotingConnection) -> None:
    answers = [await ask(connection, 310, {**SHORT, "e": "-1"}, b"x") for _ in range(4)]
    assert sorted(answer.ext["queueId"] for answer in answers) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("code", [320, 310])
async def test_a_batch_becomes_one_record_per_message_with_consecutive_offsets(
    connection: RemotingConnection, code: int
) -> None:
    body = b"".join(encode_batch_item(b"m%d" % n, {"UNIQ_KEY": f"K{n}"}, flag=n) for n in range(5))
    answer = await ask(connection, code, {**SHORT, "m": "true"}, body)
    assert (answer.code, answer.ext["queueOffset"]) == (0, "0")
    assert len(answer.ext["msgId"].split(",")) == 5
    records = [decode_record(record) for record in iterate_records((await ask(connection, 11, PULL)).body)]
    assert [(r.body, r.queue_offset, r.message_id, r.flag) for r in records] == [
        (b"m%d" % n, n, f"K{n}", n) for n in range(5)
    ]
    assert len({record.store_timestamp_ms for record in records}) == 1


@pytest.mark.parametrize(
    ("changed", "body", "code"),
    [
        ({"b": "nowhere"}, b"x", 17),
        ({"b": ""}, b"x", 13),
        ({"e": "99"}, b"x", 29),
        ({"e": "first"}, b"x", 13),
        ({}, b"", 13),
        ({"f": str(2**40)}, b"x", 13),
        ({"f": "-1"}, b"x", 13),
        ({"g": "9" * 30}, b"x", 13),
        ({"i": "TAGS\x01a|b\x02"}, b"x", 13),
        ({"b": "reading"}, b"x", 16),
        ({"i": "DELAY\x013\x02", "typed": "true"}, b"x", 13),
        ({"b": "fifo", "typed": "true"}, b"x", 13),
        ({"m": "true"}, b"no batch", 13),
        ({"m": "true"}, b"", 13),
    ],
)
async def test_a_send_that_is_not_acceptable_is_refused_and_stores_nothing(
    connection: RemotingConnection, servers: Servers, changed: dict[str, str], body: bytes, code: int
) -> None:
    servers.broker.topics.create(TopicConfig("reading", permission=Permission.READ))
    servers.broker.topics.create(TopicConfig("fifo", MessageType.FIFO))
    answer = await ask(connection, 310, {**SHORT, **changed}, body)
    assert answer.code == code
    assert "[MS-" in str(answer.remark)
    assert await bodies(connection) == []


@pytest.mark.parametrize(
    "properties", ["", "__SHARDINGKEY\x01" + "g" * 64 + "\x02", "colour\x01" + "r" * 30_700 + "\x02"]
)
@pytest.mark.parametrize("kind", [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION])
async def test_an_old_client_s_message_is_taken_whatever_the_topic_s_type(
    connection: RemotingConnection, servers: Servers, kind: MessageType, properties: str
) -> None:
    servers.broker.topics.create(TopicConfig("typed", kind, read_queues=1, write_queues=1))
    answer = await ask(connection, 310, {**SHORT, "b": "typed", "e": "0", "i": properties}, b"x")
    assert (answer.code, answer.remark) == (0, None)
    assert await bodies(connection, topic="typed") == [b"x"]


async def test_a_level_delays_a_message_in_a_topic_of_any_type(
    connection: RemotingConnection, servers: Servers
) -> None:
    answer = await ask(connection, 310, {**SHORT, "i": "DELAY\x013\x02UNIQ_KEY\x01K1\x02"}, b"late")
    assert (answer.code, "recallHandle" in answer.ext) == (0, True)
    assert await bodies(connection) == []
    assert servers.broker.maintenance.store.max_offset("rmq_sys_wheel_timer", 0) == 1


async def test_a_pull_of_a_rocketmq_client_gives_32_messages_and_256_kib_at_most(
    connection: RemotingConnection,
) -> None:
    for size in [10] * 40 + [100_000] * 5:
        await ask(connection, 310, dict(SHORT), b"x" * size)
    assert len(await bodies(connection, maxMsgNums="100")) == 32
    assert len(await bodies(connection, maxMsgNums="100", queueOffset="40", maxMsgBytes="9000000")) == 2
    assert len(await bodies(connection, maxMsgNums="100", maxMsgBytes="9000000", uncapped="true")) == 45


async def test_a_topic_that_is_unknown_is_not_created_by_sending(
    connection: RemotingConnection, servers: Servers
) -> None:
    await ask(connection, 310, {**SHORT, "b": "unknown"}, b"x")
    assert servers.broker.topics.find("unknown") is None


async def test_pipelined_sends_keep_their_order(connection: RemotingConnection) -> None:
    requests = [RemotingCommand(310, dict(SHORT), b"%d" % n) for n in range(300)]
    answers = await asyncio.gather(*(connection.request(request, 5) for request in requests))
    assert [answer.ext["queueOffset"] for answer in answers] == [str(n) for n in range(300)]
    assert await bodies(connection, maxMsgNums="1000", uncapped="true") == [b"%d" % n for n in range(300)]


async def test_a_refused_send_among_others_of_its_turn_is_refused_alone(connection: RemotingConnection) -> None:
    sends = [b"0", b"1", b"", b"3", b"4"]
    requests = [RemotingCommand(310, dict(SHORT), body) for body in sends]
    answers = await asyncio.gather(*(connection.request(request, 5) for request in requests))
    assert [answer.code for answer in answers] == [0, 0, 13, 0, 0]
    assert await bodies(connection) == [b"0", b"1", b"3", b"4"]


async def test_single_sends_and_batches_of_one_turn_are_stored_in_the_order_of_arrival(
    connection: RemotingConnection,
) -> None:
    batch = encode_batch_item(b"2", {}) + encode_batch_item(b"3", {})
    requests = [
        RemotingCommand(310, dict(SHORT), b"0"),
        RemotingCommand(310, dict(SHORT), b"1"),
        RemotingCommand(320, {**SHORT, "m": "true"}, batch),
        RemotingCommand(310, dict(SHORT), b"4"),
        RemotingCommand(310, {**SHORT, "b": "nowhere"}, b"x"),
        RemotingCommand(310, dict(SHORT), b"5"),
    ]
    answers = await asyncio.gather(*(connection.request(request, 5) for request in requests))
    assert [answer.ext.get("queueOffset") for answer in answers] == ["0", "1", "2", "4", None, "5"]
    assert await bodies(connection) == [b"%d" % n for n in range(6)]


async def test_a_failure_of_the_store_is_told_to_every_sender(
    connection: RemotingConnection, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(records: object) -> None:
        raise StoreError("STORE_FAILED", "The disk is gone.")

    monkeypatch.setattr(servers.broker.maintenance.store, "put", fail)
    requests = [RemotingCommand(310, dict(SHORT), b"x") for _ in range(5)]
    answers = await asyncio.gather(*(connection.request(request, 5) for request in requests))
    assert [answer.code for answer in answers] == [14] * 5


async def test_a_oneway_send_is_stored(connection: RemotingConnection) -> None:
    connection.submit(RemotingCommand(310, dict(SHORT), b"unheard", flag=FLAG_ONEWAY), 0.01).cancel()
    await ask(connection, 310, SHORT, b"heard")
    assert await bodies(connection) == [b"unheard", b"heard"]


async def test_a_pull_filters_by_tag_and_says_where_to_go_on(connection: RemotingConnection) -> None:
    for tag in ("a", "b", "a"):
        await ask(connection, 310, {**SHORT, "i": f"TAGS\x01{tag}\x02"}, tag.encode())
    assert await bodies(connection, subscription="a") == [b"a", b"a"]
    answer = await ask(connection, 11, {**PULL, "subscription": "none"})
    assert (answer.code, answer.ext["nextBeginOffset"], answer.body) == (20, "3", b"")


async def test_a_pull_filters_by_condition_and_says_where_to_go_on(connection: RemotingConnection) -> None:
    for price in ("5", "15", "25"):
        await ask(connection, 310, {**SHORT, "i": f"price\x01{price}\x02"}, price.encode())
    sql = {"expressionType": "SQL92"}
    assert await bodies(connection, **sql, subscription="price > 10 AND price <> 25") == [b"15"]
    answer = await ask(connection, 11, {**PULL, **sql, "subscription": "price > 100"})
    assert (answer.code, answer.ext["nextBeginOffset"], answer.body) == (20, "3", b"")


async def test_a_refused_condition_says_the_position_and_what_was_expected(connection: RemotingConnection) -> None:
    answer = await ask(connection, 11, {**PULL, "expressionType": "SQL92", "subscription": "price > "})
    assert (answer.code, "at character 9: expected a property, a value or (" in (answer.remark or "")) == (23, True)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, 19),
        ({"queueOffset": "1"}, 21),
        ({"queueOffset": "-5"}, 21),
        ({"queueId": "77"}, 29),
        ({"topic": "nowhere"}, 17),
        ({"subscription": "||"}, 23),
        ({"expressionType": "SQL92", "subscription": "a > 5"}, 19),
        ({"expressionType": "SQL92", "subscription": "a >"}, 23),
        ({"expressionType": "LUA", "subscription": "*"}, 23),
        ({"sysFlag": "0"}, 24),
        ({"maxMsgNums": "all"}, 13),
        ({"consumerGroup": ""}, 13),
    ],
)
async def test_a_pull_without_messages_says_why(
    connection: RemotingConnection, changed: dict[str, str], code: int
) -> None:
    assert (await ask(connection, 11, {**PULL, **changed})).code == code


async def test_a_long_poll_is_answered_as_soon_as_a_message_arrives(connection: RemotingConnection) -> None:
    ext = {**PULL, "sysFlag": "6", "suspendTimeoutMillis": "30000"}
    polling = asyncio.ensure_future(ask(connection, 11, ext, timeout_s=35))
    assert (await ask(connection, 30, QUEUE)).ext == {"offset": "0"}
    assert not polling.done()
    await ask(connection, 310, SHORT, b"fresh")
    answer = await within_patience(polling)
    assert [decode_record(record).body for record in iterate_records(answer.body)] == [b"fresh"]


async def test_a_long_poll_ends_empty_after_its_time(connection: RemotingConnection) -> None:
    assert (await ask(connection, 361, {**PULL, "sysFlag": "6", "suspendTimeoutMillis": "20"})).code == 19


async def test_a_pull_is_bounded_by_messages_and_bytes_but_never_empty(connection: RemotingConnection) -> None:
    for _ in range(4):
        await ask(connection, 310, SHORT, bytes(1000))
    assert len(await bodies(connection, maxMsgNums="3")) == 3
    assert len(await bodies(connection, maxMsgBytes="2500")) == 2
    assert len(await bodies(connection, maxMsgBytes="1")) == 1


async def test_offsets_of_queues_are_told(connection: RemotingConnection) -> None:
    for _ in range(3):
        await ask(connection, 310, SHORT, b"x")
    assert (await ask(connection, 30, QUEUE)).ext == {"offset": "3"}
    assert (await ask(connection, 31, QUEUE)).ext == {"offset": "0"}
    assert (await ask(connection, 30, {**QUEUE, "queueId": "9"})).code == 29
    assert (await ask(connection, 29, {**QUEUE, "timestamp": "0"})).ext == {"offset": "0"}
    assert (await ask(connection, 29, {**QUEUE, "timestamp": str(2**50)})).ext == {"offset": "3"}
    upper = {**QUEUE, "timestamp": str(2**50), "boundaryType": "UPPER"}
    assert (await ask(connection, 29, upper)).ext == {"offset": "2"}


async def test_topic_statistics_tell_every_queue(connection: RemotingConnection) -> None:
    await ask(connection, 310, {**SHORT, "e": "2"}, b"x")
    answer = await ask(connection, 202, {"topic": "t"})
    assert b'{{"brokerName":"broker-a","queueId":0,"topic":"t"}:' in answer.body
    found = decode_topic_statistics(answer.body)
    assert [(item.range.queue_id, item.range.max_offset) for item in found] == [(0, 0), (1, 0), (2, 1), (3, 0)]
    assert found[2].range.last_store_timestamp_ms > 0
    assert (await ask(connection, 202, {"topic": "nowhere"})).code == 17


async def test_a_groups_offset_is_kept_and_negative_ones_are_passed_over(connection: RemotingConnection) -> None:
    await ask(connection, 310, SHORT, b"x")
    assert (await ask(connection, 14, {**GROUP, "setZeroIfNotFound": "false"})).code == 22
    assert (await ask(connection, 14, GROUP)).ext == {"offset": "0"}
    assert (await ask(connection, 15, {**GROUP, "commitOffset": "1"})).code == 0
    assert (await ask(connection, 15, {**GROUP, "commitOffset": "-1"})).code == 0
    assert (await ask(connection, 14, GROUP)).ext == {"offset": "1"}
    assert (await ask(connection, 15, {**GROUP, "topic": "nowhere", "commitOffset": "1"})).code == 17


async def test_a_pull_can_commit_the_offset_that_was_consumed(connection: RemotingConnection) -> None:
    for _ in range(2):
        await ask(connection, 310, SHORT, b"x")
    await ask(connection, 11, {**PULL, "sysFlag": "5", "commitOffset": "2"})
    assert (await ask(connection, 14, GROUP)).ext == {"offset": "2"}


async def test_messages_are_found_by_key_by_unique_key_and_by_offset_message_id(
    connection: RemotingConnection,
) -> None:
    ext = {**SHORT, "i": "KEYS\x01order-1 order-2\x02UNIQ_KEY\x01ID7\x02"}
    sent = await ask(connection, 310, ext, b"hello")
    search = {"topic": "t", "key": "order-2", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    for fields in (search, {**search, "key": "ID7", "_UNIQUE_KEY_QUERY": "true"}):
        answer = await ask(connection, 12, fields)
        assert [decode_record(record).body for record in iterate_records(answer.body)] == [b"hello"]
        assert {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"} <= answer.ext.keys()
    assert (await ask(connection, 12, {**search, "key": "order"})).code == 22
    assert (await ask(connection, 12, {**search, "topic": "none"})).code == 17
    log_offset = int(sent.ext["msgId"][16:], 16)
    viewed = await ask(connection, 33, {"offset": str(log_offset), "topic": "t"})
    assert decode_record(viewed.body).body == b"hello"
    for wrong in (log_offset + 1, -1, 2**60):
        assert (await ask(connection, 33, {"offset": str(wrong)})).code == 1
