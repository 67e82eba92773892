"""Which of a broker's request codes a proxy answers, and why it does not answer the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract_ground import outgoing, running_site
from front_ground import ANNOUNCED, Front, Peer, bodies, running_front

from millstream.broker.remoting import broker_handlers
from millstream.model.clock import ManualClock
from millstream.model.handles import NO_LOG_OFFSET, ReceiptHandle
from millstream.model.message import StoredMessage
from millstream.model.operations import AckRequest
from millstream.model.properties import encode_properties
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.administration.assignment import AssignmentBody, AssignmentQuery
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.popping import encode_batch_ack

TOOLS = "tools administer brokers one by one, by the addresses that nameservers tell"
OF_ONE_BROKER = "the answer is about one broker, whose address a tool has"
ACCESS = "users are those of each server's own directory; a proxy's are administered there"
PROXIES = "proxies themselves ask brokers for it"
BROKERS = "brokers ask each other for it"
BULK = "batches go straight to brokers; one more hop would cost what they save"

ABSENT = {
    **dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_TOPIC_CONFIG,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP_LIST,
            RequestCode.DELETE_SUBSCRIPTION_GROUP,
            RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG,
            RequestCode.GET_SUBSCRIPTION_GROUP_CONFIG,
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.CLONE_GROUP_OFFSET,
            RequestCode.QUERY_CORRECTION_OFFSET,
            RequestCode.LIST_DEAD_LETTERS,
            RequestCode.REDRIVE_DEAD_LETTERS,
        ),
        TOOLS,
    ),
    **dict.fromkeys(
        (
            RequestCode.UPDATE_BROKER_CONFIG,
            RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            RequestCode.GET_BROKER_HA_STATUS,
            RequestCode.RESET_MASTER_FLUSH_OFFSET,
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
            RequestCode.SET_COMMITLOG_READ_MODE,
            RequestCode.POP_ROLLBACK,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.VIEW_BROKER_STATS_DATA,
            RequestCode.GET_BROKER_CONSUME_STATS,
            RequestCode.GET_BROKER_REPORT,
            RequestCode.PUT_BROKER_PERMISSION,
            RequestCode.GET_COLD_STATUS,
            RequestCode.VERIFY_COLD_OBJECTS,
            RequestCode.COLLECT_ORPHANS,
            RequestCode.CLEAN_EXPIRED_CONSUME_QUEUE,
            RequestCode.DELETE_EXPIRED_COMMIT_LOG,
            RequestCode.CLEAN_UNUSED_TOPIC,
            RequestCode.QUERY_CONSUME_QUEUE,
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            RequestCode.GET_TOPIC_STATS_INFO,
            RequestCode.GET_CONSUME_STATS,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            RequestCode.GET_ALL_PRODUCER_INFO,
        ),
        OF_ONE_BROKER,
    ),
    **dict.fromkeys((code for code in RequestCode if code.name.startswith("AUTH_")), ACCESS),
    **dict.fromkeys(
        (
            RequestCode.END_TRANSACTION_BY_ID,
            RequestCode.BURY_DELIVERY,
            RequestCode.SYNC_LITE_SUBSCRIPTION,
            RequestCode.LEAVE_LITE_TOPICS,
            RequestCode.STORE_STATE,
            RequestCode.RELEASE_DELIVERIES,
            RequestCode.GET_ACCESS_RULES,
        ),
        PROXIES,
    ),
    RequestCode.SEGMENT_POP: BROKERS,
    RequestCode.BULK_PUT: BULK,
    RequestCode.BULK_FETCH: BULK,
    RequestCode.COLD_RANGES: OF_ONE_BROKER,
}


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    clock = ManualClock()
    async with running_site(tmp_path, clock, 2) as site:
        site.create(TopicConfig("orders", read_queues=2, write_queues=2))
        async with running_front(site, clock) as opened:
            yield opened


def found(answer: RemotingCommand) -> list[StoredMessage]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [decode_record(record) for record in iterate_records(answer.body)]


async def test_a_proxy_answers_every_code_of_a_broker_but_those_that_are_named_with_a_reason(front: Front) -> None:
    brokers, proxys = set(broker_handlers(front.site.brokers[0])), set(front.remoting.handlers(ANNOUNCED))
    assert {RequestCode(code).name for code in brokers - proxys} == {code.name for code in ABSENT}
    assert {RequestCode(code).name for code in proxys - brokers} == {"GET_ROUTE_BY_TOPIC"}


async def test_a_key_is_searched_at_all_brokers(front: Front) -> None:
    for broker, body in zip(front.site.brokers, (b"a", b"b"), strict=True):
        await broker.delivery.send([outgoing("orders", body, KEYS="k")])
    peer = await front.connect("p")
    times = {"beginTimestamp": 0, "endTimestamp": 1 << 60}
    answer = await peer.ask(RequestCode.QUERY_MESSAGE, topic="orders", key="k", maxNum=10, **times)
    assert sorted(bodies(found(answer))) == [b"a", b"b"]
    one = await peer.ask(RequestCode.QUERY_MESSAGE, topic="orders", key="k", maxNum=10, bname="broker-b", **times)
    assert bodies(found(one)) == [b"b"]
    none = await peer.ask(RequestCode.QUERY_MESSAGE, topic="orders", key="x", maxNum=10, **times)
    assert none.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_message_is_seen_by_its_place_at_the_broker_that_is_named(front: Front) -> None:
    (receipt,) = await front.site.brokers[1].delivery.send([outgoing("orders", b"here")])
    peer = await front.connect("p")
    for more in ({}, {"topic": "orders"}):
        where = {"offset": receipt.log_offset, "bname": "broker-b", **more}
        assert bodies(found(await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, **where))) == [b"here"]
    unnamed = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=receipt.log_offset)
    assert unnamed.code == ResponseCode.VERSION_NOT_SUPPORTED


async def test_the_age_of_a_queue_is_its_brokers(front: Front) -> None:
    await front.send(b"1")
    peer = await front.connect("p")
    answer = await peer.ask(RequestCode.GET_EARLIEST_MSG_STORE_TIME, topic="orders", queueId=0, bname="broker-a")
    assert int(answer.ext["timestamp"]) == front.clock.now_ms()


async def test_what_waits_for_a_pop_is_looked_at_through_the_proxy_and_acknowledged_by_the_batch(front: Front) -> None:
    await front.send(b"1", b"2")
    peer = await front.connect("p")
    where = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "bname": "broker-a"}
    assert bodies(found(await peer.ask(RequestCode.PEEK_MESSAGE, maxMsgNums=10, **where))) == [b"1", b"2"]
    now_ms = front.clock.now_ms()
    news = await peer.ask(RequestCode.NOTIFICATION, pollTime=0, bornTime=now_ms, **where)
    assert news.ext["hasMsg"] == "true"
    assert (await peer.ask(RequestCode.POLLING_INFO, **where)).ext["pollingNum"] == "0"
    popped = await peer.ask(
        RequestCode.POP_MESSAGE, maxMsgNums=2, invisibleTime=30_000, pollTime=0, bornTime=now_ms, initMode=0,
        expType="TAG", exp="*", order="false", **where,
    )  # fmt: skip
    handles = [
        ReceiptHandle(
            0, int(popped.ext["popTime"]), 30_000, int(popped.ext["reviveQid"]), 0, "broker-a", 0, offset, NO_LOG_OFFSET
        )
        for offset in (0, 1)
    ]
    body = encode_batch_ack("broker-a", [AckRequest("g", "orders", handle) for handle in handles])
    assert (await peer.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == ResponseCode.SUCCESS
    assert front.site.brokers[0].queues.committed_offset("g", "orders", 0) == 2


async def test_who_leaves_the_sharing_to_the_server_gets_all_queues_unless_the_group_keeps_order(front: Front) -> None:
    one, other = await front.connect("c1"), await front.connect("c2")

    async def queues(peer: Peer, topic: str = "orders") -> set[tuple[str, int]] | None:
        body = encode_body(AssignmentQuery(topic, "g", peer.client_id))
        answer = decode_body(AssignmentBody, (await peer.ask(RequestCode.QUERY_ASSIGNMENT, body)).body)
        assigned = answer.message_queue_assignments
        return None if assigned is None else {(a.message_queue.broker_name, a.message_queue.queue_id) for a in assigned}

    for peer in (one, other):
        await peer.join("g", "orders")
    everything = {(name, number) for name in ("broker-a", "broker-b") for number in (0, 1)}
    assert await queues(one) == await queues(other) == everything
    assert await queues(one, "missing") is None
    await one.lock("g")
    first, second = await queues(one), await queues(other)
    assert first is not None
    assert second is not None
    assert first | second == everything
    assert first & second == set()


async def test_a_reply_reaches_the_client_that_waits_at_another_proxy(front: Front) -> None:
    front.site.create(TopicConfig("replies", read_queues=1, write_queues=1))
    async with running_front(front.site, front.clock) as elsewhere:
        asking, answering = await front.connect("asker"), await elsewhere.connect("answerer")

        def listen(command: RemotingCommand) -> RemotingCommand:
            asking.heard.append(command)
            return command.response()

        asking.connection.listener = listen
        await asking.join("unrelated")
        held = {"UNIQ_KEY": "q", "REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "7"}
        fields = {"c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0, "k": "false", "m": "false"}
        sent = await asking.ask(
            RequestCode.SEND_MESSAGE_V2, b"question", a="makers", b="orders", n="broker-a",
            i=encode_properties(held).decode(), **fields,
        )  # fmt: skip
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        replied = await answering.ask(
            RequestCode.SEND_REPLY_MESSAGE_V2, b"answer", a="repliers", b="replies", n="broker-b",
            i=encode_properties(held).decode(), **fields,
        )  # fmt: skip
        assert replied.code == ResponseCode.SUCCESS, replied.remark
        (push,) = [one for one in asking.heard if one.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT]
        assert push.body == b"answer"
        assert "CORRELATION_ID\x017" in push.ext["properties"]
