"""Pop, acknowledgement and change of the invisible time over a real connection, in the frames of RocketMQ's client."""

from __future__ import annotations

import asyncio
import json
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from pop_client import Taken, changed, delivery_fields, pop_fields, taken_of

from millstream.model.group import GroupConfig
from millstream.model.handles import ReceiptHandle
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import AckRequest, PopRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.codes import RequestCode as Code
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.grpc.message_encoder import plain_body
from millstream.transport.remoting_client import RemotingConnection
from patience import eventually
from servers import Servers


class Client:
    """One connection, and the broker for what is done beside it."""

    def __init__(self, connection: RemotingConnection, servers: Servers) -> None:
        self.connection = connection
        self.broker = servers.broker

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
        return await self.connection.request(RemotingCommand(code, ext, body), 20)

    async def pop(self, **more: str) -> list[Taken]:
        answer = await self.ask(Code.POP_MESSAGE, **pop_fields(**more))
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), answer.remark
        return taken_of(answer)

    async def ack(self, taken: Taken, **more: str) -> int:
        return (await self.ask(Code.ACK_MESSAGE, **delivery_fields(taken, **more))).code

    async def change(self, taken: Taken, invisible_ms: int, **more: str) -> RemotingCommand:
        fields = delivery_fields(taken, invisibleTime=str(invisible_ms), **more)
        return await self.ask(Code.CHANGE_MESSAGE_INVISIBLE_TIME, **fields)

    async def send(self, *bodies: str, topic: str = "t", queue_id: int = 0, **held: str) -> None:
        await self.broker.delivery.send(
            [OutgoingMessage(topic, body.encode(), held, queue_id=queue_id) for body in bodies]
        )


@pytest_asyncio.fixture
async def client(servers: Servers) -> AsyncIterator[Client]:
    servers.broker.topics.create(TopicConfig("t", read_queues=2, write_queues=2))
    host, _, port = servers.broker_address.rpartition(":")
    opened = await RemotingConnection.open(Address(host, int(port)))
    yield Client(opened, servers)
    await opened.close()


def bodies(taken: list[Taken]) -> list[str]:
    return [each.body for each in taken]


async def test_what_is_popped_is_out_of_sight_until_it_is_acknowledged_for_good(client: Client) -> None:
    await client.send("a", "b")
    await client.send("c", queue_id=1)
    answer = await client.ask(Code.POP_MESSAGE, **pop_fields())
    taken = taken_of(answer)
    assert sorted(bodies(taken)) == ["a", "b", "c"]
    assert (answer.ext["invisibleTime"], answer.ext["restNum"], answer.ext["reviveQid"]) == ("60000", "0", "0")
    assert await client.pop() == []
    assert [await client.ack(each) for each in taken] == [0, 0, 0]
    assert [progress.in_flight for progress in client.broker.queues.own_progress("g", "t")] == [0, 0]


async def test_nothing_to_pop_is_answered_with_all_the_fields_that_a_client_reads(client: Client) -> None:
    answer = await client.ask(Code.POP_MESSAGE, **pop_fields())
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= answer.ext.keys()


async def test_a_pop_waits_for_what_is_sent_later(client: Client) -> None:
    waiting = asyncio.create_task(client.pop(pollTime="20000"))
    await eventually(lambda: client.broker.delivery.count_waiting_pops("g", "t", None) == 1)
    polling = await client.ask(Code.POLLING_INFO, consumerGroup="g", topic="t", queueId="-1")
    assert polling.ext["pollingNum"] == "1"
    await client.send("late")
    assert bodies(await waiting) == ["late"]


async def test_too_many_that_wait_are_told_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.broker._polls, "_per_key", 0)
    answer = await client.ask(Code.POP_MESSAGE, **pop_fields(pollTime="20000"))
    assert (answer.code, "MS-3206" in (answer.remark or "")) == (ResponseCode.POLLING_FULL, True)
    notice = await client.ask(Code.NOTIFICATION, **pop_fields(pollTime="20000"))
    assert (notice.ext["hasMsg"], notice.ext["pollingFull"]) == ("false", "true")


async def test_a_message_made_visible_again_comes_with_its_count_and_its_old_handle_is_dead(client: Client) -> None:
    await client.send("a")
    [first] = await client.pop()
    answer = await client.change(first, 0)
    assert answer.code == ResponseCode.SUCCESS
    [second] = await client.pop()
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert await client.ack(first) == ResponseCode.NO_MESSAGE
    assert await client.ack(second) == ResponseCode.SUCCESS


async def test_a_change_of_the_invisible_time_gives_the_parts_of_the_new_handle(client: Client) -> None:
    await client.send("a")
    [taken] = await client.pop()
    renewed = changed(taken, await client.change(taken, 120_000))
    assert await client.ack(taken) == ResponseCode.NO_MESSAGE
    assert await client.ack(renewed) == ResponseCode.SUCCESS
    gone = await client.change(renewed, 1000)
    assert (gone.code, "MS-3201" in (gone.remark or "")) == (ResponseCode.NO_MESSAGE, True)
    beyond = await client.change(renewed, -1)
    assert beyond.code == ResponseCode.INVALID_PARAMETER


async def test_a_handle_is_good_on_every_port(client: Client) -> None:
    await client.send("a", "b")
    [taken] = await client.pop(maxMsgNums="1")
    client.broker.delivery.ack(AckRequest("g", "t", ReceiptHandle.decode(taken.extra_info)))
    [popped] = await client.broker.delivery.pop(PopRequest("g", "t", 60_000))
    other = Taken("b", popped.handle.encode(), popped.handle.queue_id, popped.handle.queue_offset, 0)
    assert await client.ack(other) == ResponseCode.SUCCESS
    assert [progress.committed for progress in client.broker.queues.own_progress("g", "t")] == [2, 0]


async def test_many_deliveries_are_acknowledged_at_once_and_the_dead_ones_counted(client: Client) -> None:
    await client.send(*"abcde")
    taken = await client.pop()
    words = taken[0].extra_info.split(" ")
    bits = b64encode(bytes([0b100101])).decode()
    entry = {"c": "g", "t": "t", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": int(words[1]), "it": 60000, "b": bits}
    body = json.dumps({"brokerName": "broker-a", "acks": [entry]}).encode()
    answer = await client.ask(Code.BATCH_ACK_MESSAGE, body)
    assert (answer.code, answer.ext["missed"]) == (ResponseCode.SUCCESS, "1")
    [progress, _] = client.broker.queues.own_progress("g", "t")
    assert (progress.committed, progress.in_flight) == (1, 3)


async def test_only_what_the_filter_wants_is_taken(client: Client) -> None:
    await client.send("a", TAGS="x")
    await client.send("b", TAGS="y", price="7")
    await client.send("c", TAGS="z", price="9")
    assert bodies(await client.pop(group="by-tag", expType="TAG", exp="x||z")) == ["a", "c"]
    assert bodies(await client.pop(group="by-sql", expType="SQL92", exp="price > 8")) == ["c"]
    refused = await client.ask(Code.POP_MESSAGE, **pop_fields(expType="SQL92", exp="price >"))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_group_that_keeps_order_waits_for_its_acknowledgements_and_repeats_for_the_same_attempt(
    client: Client,
) -> None:
    client.broker.groups.create(GroupConfig("g", fifo=True))
    await client.send("a", "b", "c")
    first = await client.pop(order="true", attemptId="one", maxMsgNums="2")
    assert bodies(first) == ["a", "b"]
    assert first[0].extra_info.split(" ")[3] == "999"
    assert await client.pop(order="true", attemptId="two") == []
    assert await client.pop(order="true", attemptId="one", maxMsgNums="2") == first
    for each in first:
        assert await client.ack(each) == ResponseCode.SUCCESS
    assert bodies(await client.pop(order="true", attemptId="three")) == ["c"]


async def test_a_pop_that_asks_for_order_gets_it_in_a_group_that_keeps_none(client: Client) -> None:
    await client.send("a", "b", "c", "d")
    first, second, third = await client.pop(order="true", maxMsgNums="3")
    assert await client.ack(second) == 0
    assert await client.pop(order="true") == []
    for waiting in (first, third):
        assert (await client.change(waiting, 0)).code == 0
    again = await client.pop(order="true")
    assert [(one.body, one.reconsume_times) for one in again] == [("a", 1), ("c", 1), ("d", 0)]


async def test_order_by_request_is_that_of_the_whole_queue(client: Client) -> None:
    client.broker.topics.create(TopicConfig("m", MessageType.MIXED, read_queues=1, write_queues=1))
    await client.send("a", topic="m", __SHARDINGKEY="one")
    await client.send("b", topic="m", __SHARDINGKEY="two")
    [first] = await client.pop(topic="m", order="true", maxMsgNums="1")
    assert await client.pop(topic="m", order="true") == []
    assert await client.ack(first, topic="m") == 0
    assert bodies(await client.pop(topic="m", order="true")) == ["b"]


@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_reset_drops_what_is_in_flight_and_old_acknowledgements_change_nothing(
    client: Client, order: str
) -> None:
    await client.send("0", "1", "2", "3", "4")
    taken = await client.pop(order=order)
    reset = {"topic": "t", "group": "g", "timestamp": "0", "isForce": "false", "queueId": "0", "offset": "2"}
    assert (await client.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, **reset)).code == 0
    again = await client.pop(order=order)
    assert bodies(again) == ["2", "3", "4"]
    assert [await client.ack(one) for one in taken] == [0] * 5
    assert [held.in_flight for held in client.broker.queues.own_progress("g", "t")] == [3, 0]
    assert client.broker.queues.committed_offset("g", "t", 0) == 2
    assert await client.ack(taken[3], inTime="true") == ResponseCode.NO_MESSAGE
    assert [await client.ack(one) for one in again] == [0] * 3
    assert client.broker.queues.committed_offset("g", "t", 0) == 5


async def test_a_look_takes_nothing(client: Client) -> None:
    empty = await client.ask(Code.PEEK_MESSAGE, **pop_fields())
    assert empty.code == ResponseCode.PULL_NOT_FOUND
    await client.send("a", "b", "c")
    for _ in range(2):
        answer = await client.ask(Code.PEEK_MESSAGE, **pop_fields(maxMsgNums="2"))
        assert [decode_record(record).body for record in iterate_records(answer.body)] == [b"a", b"b"]
        assert answer.ext["restNum"] == "3"
    [taken] = await client.pop(maxMsgNums="1")
    answer = await client.ask(Code.PEEK_MESSAGE, **pop_fields())
    assert [decode_record(record).body for record in iterate_records(answer.body)] == [b"b", b"c"]
    await client.change(taken, 0)
    answer = await client.ask(Code.PEEK_MESSAGE, **pop_fields(maxMsgNums="1"))
    assert [decode_record(record).body for record in iterate_records(answer.body)] == [b"a"]


async def test_a_notification_tells_of_messages_and_leaves_them_to_whoever_pops(client: Client) -> None:
    nothing = await client.ask(Code.NOTIFICATION, **pop_fields())
    assert (nothing.ext["hasMsg"], nothing.ext["pollingFull"]) == ("false", "false")
    waiting = asyncio.create_task(client.ask(Code.NOTIFICATION, **pop_fields(pollTime="20000")))
    await eventually(lambda: client.broker.delivery.count_waiting_pops("g", "t", None) == 1)
    popping = asyncio.create_task(client.pop(pollTime="20000"))
    await eventually(lambda: client.broker.delivery.count_waiting_pops("g", "t", None) == 2)
    await client.send("a")
    assert bodies(await popping) == ["a"]
    assert (await waiting).ext["hasMsg"] == "true"


async def test_a_group_that_begins_at_the_end_gets_the_last_message_where_older_ones_are_gone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.send("a", "b", "c")
    assert bodies(await client.pop(group="young", initMode="1")) == ["a", "b", "c"]
    store, min_offset = client.broker.maintenance.store, client.broker.maintenance.store.min_offset
    monkeypatch.setattr(
        store, "min_offset", lambda topic, queue: 1 if (topic, queue) == ("t", 0) else min_offset(topic, queue)
    )
    assert bodies(await client.pop(group="old-end", initMode="1")) == ["c"]
    assert bodies(await client.pop(group="old-start", initMode="0")) == ["b", "c"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "7"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a b"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"maxMsgNums": "many"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_a_pop_that_means_nothing_is_refused(client: Client, wrong: dict[str, str], code: int) -> None:
    assert (await client.ask(Code.POP_MESSAGE, **(pop_fields() | wrong))).code == code


async def test_messages_of_a_batch_are_delivered_one_by_one(client: Client) -> None:
    attributes = {"queue.type": "BatchCQ"}
    client.broker.topics.create(TopicConfig("batches", read_queues=1, write_queues=1, attributes=attributes))
    items = b"".join(
        (22 + 1).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + body + bytes(2) for body in (b"x", b"y")
    )
    send = {"a": "p", "b": "batches", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "m": "true"}
    sent = await client.ask(Code.SEND_BATCH_MESSAGE, items, **send, i="UNIQ_KEY\x01ID1\x02")
    assert sent.code == ResponseCode.SUCCESS
    taken = await client.pop(topic="batches", maxMsgNums="1")
    taken += await client.pop(topic="batches")
    assert bodies(taken) == ["x", "y"]
    assert [await client.ack(each, topic="batches") for each in taken] == [0, 0]


async def test_what_a_pulling_consumer_gave_back_is_told_of_popped_and_acknowledged_as_any_other(
    client: Client,
) -> None:
    await client.send("a", "b")
    for each in await client.pop():
        await client.ack(each)
    client.broker.groups.update(GroupConfig("g", backoff_s=(0,)))
    [[entry]] = [client.broker.maintenance.store.entries("t", 0, 1, 1)]
    fields = {"offset": str(entry.log_offset), "group": "g", "delayLevel": "0", "originTopic": "t"}
    assert (await client.ask(Code.CONSUMER_SEND_MSG_BACK, **fields)).code == ResponseCode.SUCCESS
    notice = await client.ask(Code.NOTIFICATION, **pop_fields(pollTime="20000"))
    assert notice.ext["hasMsg"] == "true"
    looked = await client.ask(Code.PEEK_MESSAGE, **pop_fields())
    assert [decode_record(record).topic for record in iterate_records(looked.body)] == ["t"]
    [again] = await client.pop()
    assert (again.body, again.reconsume_times, again.extra_info.split(" ")[4]) == ("b", 1, "1")
    # RocketMQ's client names the retry topic of the group and the topic where the handle is of that kind.
    assert await client.ack(again, topic="%RETRY%g_t") == ResponseCode.SUCCESS
    assert await client.pop() == []
    assert await client.ack(again, topic="%RETRY%g_t") == ResponseCode.SUCCESS
    assert (await client.change(again, 0, topic="%RETRY%g_t")).code == ResponseCode.NO_MESSAGE


async def test_a_compressed_body_reaches_consumers_of_either_protocol(client: Client) -> None:
    packed = zlib.compress(b"plain" * 50)
    send = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "1", "g": "1", "h": "0", "i": ""}
    assert (await client.ask(Code.SEND_MESSAGE_V2, packed, **send)).code == ResponseCode.SUCCESS
    answer = await client.ask(Code.POP_MESSAGE, **pop_fields())
    [record] = iterate_records(answer.body)
    assert (decode_record(record).body, int(decode_record(record).system_flag) & 1) == (packed, 1)
    [popped] = await client.broker.delivery.pop(PopRequest("other", "t", 60_000))
    assert plain_body(popped.message) == b"plain" * 50
