"""Remoting clients at a proxy whose brokers are behind sockets, as raw frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract_ground import outgoing, running_site
from front_ground import Front, Peer, bodies, running_front

from millstream.model.clock import ManualClock
from millstream.model.handles import RecallHandle
from millstream.model.message import StoredMessage
from millstream.model.operations import PopRequest
from millstream.model.properties import encode_properties
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.bodies import (
    TopicRouteData,
    decode_body,
)
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.throttle import Throttle, ThrottleRule
from patience import PATIENCE_S, eventually


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    clock = ManualClock()
    async with running_site(tmp_path, clock, 2) as site:
        site.create(TopicConfig("orders", read_queues=2, write_queues=2))
        async with running_front(site, clock) as opened:
            yield opened


@pytest.fixture
async def consumer(front: Front) -> Peer:
    peer = await front.connect("c1")
    await peer.join("g", "orders")
    return peer


async def test_every_broker_of_a_route_is_where_the_proxy_is(front: Front) -> None:
    peer = await front.connect("p")
    answer = await peer.ask(RequestCode.GET_ROUTE_BY_TOPIC, topic="orders")
    route = decode_body(TopicRouteData, answer.body)
    assert {broker.broker_name: broker.broker_addrs for broker in route.broker_datas} == {
        "broker-a": {0: "proxy.example:8080"},
        "broker-b": {0: "proxy.example:8080"},
    }
    assert [(queue.broker_name, queue.read_queue_nums) for queue in route.queue_datas] == [
        ("broker-a", 2),
        ("broker-b", 2),
    ]
    assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("DefaultRegion", "true")
    missing = await peer.ask(RequestCode.GET_ROUTE_BY_TOPIC, topic="missing")
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_groups_retry_topic_has_a_route_before_it_is_there(front: Front) -> None:
    peer = await front.connect("p")
    answer = await peer.ask(RequestCode.GET_ROUTE_BY_TOPIC, topic="%RETRY%g")
    names = [queue.broker_name for queue in decode_body(TopicRouteData, answer.body).queue_datas]
    assert names == ["broker-a", "broker-b"]


async def test_a_producer_sends_to_the_broker_and_queue_that_it_names(front: Front) -> None:
    peer = await front.connect("p")
    answer = await peer.ask(
        RequestCode.SEND_MESSAGE_V2, b"body", a="makers", b="orders", c="TBW102", d=4, e=1, f=0, g=1, h=0,
        i=encode_properties({"UNIQ_KEY": "id"}).decode(), j=0, k="false", m="false", n="broker-b",
    )  # fmt: skip
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert (answer.ext["queueId"], answer.ext["queueOffset"], answer.ext["TRACE_ON"]) == ("1", "0", "true")
    assert front.site.brokers[1].maintenance.store.max_offset("orders", 1) == 1


async def test_messages_of_another_type_than_their_topic_s_are_refused_at_a_proxy(front: Front) -> None:
    front.site.create(TopicConfig("ordered", MessageType.FIFO, read_queues=1, write_queues=1))
    peer = await front.connect("p")
    for topic, held in (("orders", {"DELAY": "3"}), ("ordered", {"UNIQ_KEY": "id"})):
        answer = await peer.ask(
            RequestCode.SEND_MESSAGE_V2, b"body", a="makers", b=topic, c="TBW102", d=4, e=0, f=0, g=1, h=0,
            i=encode_properties(held).decode(), j=0, k="false", m="false", n="broker-b",
        )  # fmt: skip
        assert (answer.code, "[MS-3008]" in str(answer.remark)) == (ResponseCode.MESSAGE_ILLEGAL, True)


async def test_a_request_that_names_none_of_several_brokers_is_told_so(front: Front) -> None:
    peer = await front.connect("p")
    answer = await peer.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
    assert answer.code == ResponseCode.VERSION_NOT_SUPPORTED


async def test_offsets_are_the_brokers(front: Front) -> None:
    peer = await front.connect("p")
    await front.send(b"1", b"2")
    where = {"topic": "orders", "queueId": 0, "bname": "broker-a"}
    assert (await peer.ask(RequestCode.GET_MAX_OFFSET, **where)).ext["offset"] == "2"
    assert (await peer.ask(RequestCode.GET_MIN_OFFSET, **where)).ext["offset"] == "0"
    found = await peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **where, timestamp=front.clock.now_ms() + 1)
    assert found.ext["offset"] == "2"
    offset = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, **where, consumerGroup="g", setZeroIfNotFound="false")
    assert offset.code == ResponseCode.QUERY_NOT_FOUND


async def test_what_is_pulled_and_committed_is_consumed_for_the_group(front: Front, consumer: Peer) -> None:
    await front.send(b"1", b"2", b"3")
    found, next_offset = await consumer.pull(0)
    assert [(one.body, one.queue_offset, one.reconsume_times) for one in found] == [
        (b"1", 0, 0),
        (b"2", 1, 0),
        (b"3", 2, 0),
    ]
    assert next_offset == 3
    assert await consumer.pull(3) == ([], 3)
    await consumer.commit(2)
    broker = front.site.brokers[0]
    assert broker.queues.committed_offset("g", "orders", 0) == 2
    await consumer.pull(3, flags=1, commit=3)
    assert broker.queues.committed_offset("g", "orders", 0) == 3


async def test_two_clients_share_a_queue_by_message_and_a_stuck_one_blocks_nothing(
    front: Front, consumer: Peer
) -> None:
    other = await front.connect("c2")
    await other.join("g", "orders")
    assert (await consumer.members("g"), await other.members("g")) == (["c1"], ["c2"])
    await front.send(b"1")
    stuck, _ = await consumer.pull(0)
    await front.send(b"2")
    found, next_offset = await other.pull(0)
    assert (bodies(stuck), bodies(found)) == ([b"1"], [b"2"])
    await other.commit(next_offset)
    broker = front.site.brokers[0]
    assert broker.queues.committed_offset("g", "orders", 0) == 0, "the stuck one holds the first message"
    await consumer.commit(1)
    assert broker.queues.committed_offset("g", "orders", 0) == 2


async def test_what_is_held_stays_out_of_sight_as_long_as_its_client_is_there(front: Front, consumer: Peer) -> None:
    await front.send(b"1")
    await consumer.pull(0)
    other = await front.connect("c2")
    await other.join("g", "orders")
    for _ in range(200):
        front.clock.advance_ms(1000)
        await consumer.pull(1)
        await front.processor.sweep()
    assert await other.pull(0) == ([], 0)
    await consumer.connection.close()
    while front.processor.renewer.table:  # noqa: ASYNC110 - the end of a connection is no event here
        await asyncio.sleep(0.001)
    found: list[StoredMessage] = []
    for _ in range(20):
        # Less than the delivery's own time in all: what was held comes because it was let go.
        front.clock.advance_ms(1000)
        found = found or (await other.pull(0))[0]
    assert [(one.body, one.reconsume_times) for one in found] == [(b"1", 1)]


async def test_a_message_that_is_sent_back_comes_again_behind_what_was_seen(front: Front, consumer: Peer) -> None:
    await front.send(b"bad", b"good")
    found, next_offset = await consumer.pull(0)
    back = {"group": "g", "offset": found[0].log_offset, "originTopic": "orders"}
    answer = await consumer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, delayLevel=3, **back)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await consumer.commit(2)
    assert await consumer.pull(next_offset) == ([], 2)
    front.clock.advance_ms(10_000)
    again, next_offset = await consumer.pull(2)
    assert [(one.body, one.queue_offset, one.reconsume_times) for one in again] == [(b"bad", 2, 1)]
    await consumer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, delayLevel=-1, **back)
    broker = front.site.brokers[0]
    assert broker.maintenance.store.max_offset("%DLQ%g", 0) == 1
    assert broker.queues.committed_offset("g", "orders", 0) == 2


async def test_a_client_that_begins_again_before_what_it_was_given_gets_it_again_uncounted(
    front: Front, consumer: Peer
) -> None:
    await front.send(b"1", b"2")
    await consumer.pull(0)
    await consumer.commit(1)
    found, next_offset = await consumer.pull(1)
    assert [(one.body, one.reconsume_times) for one in found] == [(b"2", 0)]
    await consumer.commit(next_offset)
    assert front.site.brokers[0].queues.committed_offset("g", "orders", 0) == 2


async def test_a_pull_waits_for_what_comes(front: Front, consumer: Peer) -> None:
    pulling = asyncio.create_task(consumer.pull(0, wait_ms=15_000))
    while not front.site.brokers[0].maintenance.waiting_requests:  # noqa: ASYNC110 - the broker has no event
        await asyncio.sleep(0.001)
    await front.send(b"late")
    assert bodies((await pulling)[0]) == [b"late"]


async def test_a_new_group_begins_where_its_first_client_says(front: Front) -> None:
    await front.send(b"old")
    peer = await front.connect("late")
    await peer.join("late", "orders")
    assert await peer.pull(1, group="late") == ([], 1)
    await front.send(b"new")
    found, _ = await peer.pull(1, group="late")
    assert bodies(found) == [b"new"]


async def test_a_pull_of_the_retry_topic_finds_nothing_of_its_own(front: Front, consumer: Peer) -> None:
    assert await consumer.pull(0, topic="%RETRY%g", wait_ms=5) == ([], 0)
    await consumer.commit(-1, topic="%RETRY%g")


async def test_who_keeps_order_is_told_of_others_locks_at_the_brokers_and_pulls_by_offset(front: Front) -> None:
    one, other = await front.connect("o1"), await front.connect("o2")
    await one.join("ordered", "orders")
    await other.join("ordered", "orders")
    assert await one.lock("ordered") == 2
    assert await other.lock("ordered") == 0
    assert await one.members("ordered") == ["o1", "o2"]
    assert RequestCode.NOTIFY_CONSUMER_IDS_CHANGED in [command.code for command in other.heard]
    await front.send(b"1", b"2")
    for _ in range(2):
        found, _ = await one.pull(0, group="ordered")
        assert bodies(found) == [b"1", b"2"]
    await one.commit(1, group="ordered")
    assert front.site.brokers[0].queues.committed_offset("ordered", "orders", 0) == 1


@pytest.mark.parametrize(("kind", "model"), [("CONSUME_ACTIVELY", "CLUSTERING"), ("CONSUME_PASSIVELY", "BROADCASTING")])
async def test_who_reads_by_offset_does_so_as_at_a_broker(front: Front, kind: str, model: str) -> None:
    one, other = await front.connect("a1"), await front.connect("a2")
    for peer in (one, other):
        await peer.join("readers", "orders", kind=kind, model=model)
    assert await one.members("readers") == ["a1", "a2"]
    await front.send(b"1")
    for peer in (one, other):
        found, _ = await peer.pull(0, group="readers", flags=4)
        assert bodies(found) == [b"1"]


async def test_a_producer_at_the_proxy_is_asked_about_its_transaction_and_ends_it(front: Front) -> None:
    front.site.create(TopicConfig("ledger", MessageType.TRANSACTION, read_queues=1, write_queues=1))
    peer = await front.connect("p")
    await peer.join("unrelated")
    await front.backend._heartbeats.beat()
    held = {"UNIQ_KEY": "tx", "TRAN_MSG": "true", "PGROUP": "makers"}
    sent = await peer.ask(
        RequestCode.SEND_MESSAGE_V2, b"body", a="makers", b="ledger", c="TBW102", d=4, e=0, f=4, g=1, h=0,
        i=encode_properties(held).decode(), j=0, k="false", m="false", n="broker-a",
    )  # fmt: skip
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    front.clock.advance_ms(7_000)
    while not any(one.code == RequestCode.CHECK_TRANSACTION_STATE for one in peer.heard):  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.005)
    check = next(one for one in peer.heard if one.code == RequestCode.CHECK_TRANSACTION_STATE)
    assert check.ext["transactionId"] == "tx"
    ended = await peer.ask(
        RequestCode.END_TRANSACTION, topic="ledger", producerGroup="makers", commitOrRollback=8,
        tranStateTableOffset=check.ext["tranStateTableOffset"], commitLogOffset=check.ext["commitLogOffset"],
        fromTransactionCheck="true", msgId="tx", transactionId="tx", bname="broker-a",
    )  # fmt: skip
    assert ended.code == ResponseCode.SUCCESS, ended.remark
    assert len(await front.backend.pop("broker-a", PopRequest("g", "ledger", 30_000))) == 1


async def test_a_transaction_is_ended_without_its_topic_which_older_clients_leave_out(front: Front) -> None:
    front.site.create(TopicConfig("ledger", MessageType.TRANSACTION, read_queues=1, write_queues=1))
    peer = await front.connect("p")
    held = {"UNIQ_KEY": "tx", "TRAN_MSG": "true", "PGROUP": "makers"}
    sent = await peer.ask(
        RequestCode.SEND_MESSAGE_V2, b"body", a="makers", b="ledger", c="TBW102", d=4, e=0, f=4, g=1, h=0,
        i=encode_properties(held).decode(), j=0, k="false", m="false", n="broker-a",
    )  # fmt: skip
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    ending = {
        "producerGroup": "makers", "commitOrRollback": 8, "tranStateTableOffset": sent.ext["queueOffset"],
        "commitLogOffset": int(sent.ext["msgId"][16:], 16), "fromTransactionCheck": "false", "msgId": "tx",
    }  # fmt: skip
    strange = await peer.ask(RequestCode.END_TRANSACTION, **{**ending, "msgId": "other"}, transactionId="other")
    assert "MS-" in (strange.remark or "")
    assert (await peer.ask(RequestCode.END_TRANSACTION, **ending, transactionId="tx")).code == ResponseCode.SUCCESS
    assert len(await front.backend.pop("broker-a", PopRequest("g", "ledger", 30_000))) == 1


async def test_a_delayed_message_is_recalled_at_the_broker_of_its_handle(front: Front) -> None:
    front.site.create(TopicConfig("later", MessageType.DELAY))
    due_ms = front.clock.now_ms() + 60_000
    message = outgoing("later", b"x", MessageType.DELAY, TIMER_DELIVER_MS=str(due_ms))
    (receipt,) = await front.site.brokers[1].delivery.send([message])
    handle = RecallHandle("later", "broker-b", due_ms, receipt.message_id).encode()
    peer = await front.connect("p")
    answer = await peer.ask(RequestCode.RECALL_MESSAGE, producerGroup="makers", topic="later", recallHandle=handle)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    again = await peer.ask(RequestCode.RECALL_MESSAGE, producerGroup="makers", topic="later", recallHandle=handle)
    assert again.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_pop_consumer_takes_and_acknowledges_through_the_proxy(front: Front) -> None:
    await front.send(b"1")
    peer = await front.connect("p")
    popped = await peer.ask(
        RequestCode.POP_MESSAGE, consumerGroup="poppers", topic="orders", queueId=-1, maxMsgNums=32,
        invisibleTime=30_000, pollTime=0, bornTime=front.clock.now_ms(), initMode=0, expType="TAG", exp="*",
        order="false", bname="broker-a",
    )  # fmt: skip
    assert popped.code == ResponseCode.SUCCESS, popped.remark
    handle = f"0 {popped.ext['popTime']} 30000 {popped.ext['reviveQid']} 0 broker-a 0 0"
    acked = await peer.ask(
        RequestCode.ACK_MESSAGE, consumerGroup="poppers", topic="orders", queueId=0, offset=0, extraInfo=handle
    )
    assert acked.code == ResponseCode.SUCCESS, acked.remark
    assert front.site.brokers[0].queues.committed_offset("poppers", "orders", 0) == 1


async def test_who_has_left_is_no_member_any_more(front: Front, consumer: Peer) -> None:
    members = await consumer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    assert b'"clientId":"c1"' in members.body
    await consumer.ask(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g")
    members = await consumer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    assert members.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert await consumer.members("g") == []


async def test_a_filter_that_cannot_be_read_is_refused_before_its_consumer_starts(front: Front) -> None:
    peer = await front.connect("p")
    body = (
        b'{"clientId":"p","group":"g","subscriptionData":{"topic":"orders","subString":"a >","expressionType":"SQL92"}}'
    )
    answer = await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_client_over_its_rate_is_told_to_slow_down(front: Front, consumer: Peer) -> None:
    front.processor.throttle = Throttle([ThrottleRule(client="c1", group="g", calls=2)])
    await consumer.pull(0)
    await consumer.pull(0)
    late = await consumer.ask(
        RequestCode.PULL_MESSAGE, consumerGroup="g", topic="orders", queueId=0, queueOffset=0, maxMsgNums=32, sysFlag=0,
        commitOffset=0, suspendTimeoutMillis=0, subVersion=0, bname="broker-a",
    )  # fmt: skip
    assert late.code == ResponseCode.FLOW_CONTROL
    other = await front.connect("c2")
    await other.join("g", "orders")
    await other.pull(0)
    front.clock.advance_ms(1_000)
    await consumer.pull(0)


async def test_bytes_that_a_client_received_count_against_its_rate(front: Front, consumer: Peer) -> None:
    front.processor.throttle = Throttle([ThrottleRule(client="c1", bytes=100)])
    await front.send(bytes(300))
    found, next_offset = await consumer.pull(0)
    assert len(found) == 1
    late = await consumer.ask(
        RequestCode.PULL_MESSAGE, consumerGroup="g", topic="orders", queueId=0, queueOffset=next_offset, maxMsgNums=32,
        sysFlag=0, commitOffset=0, suspendTimeoutMillis=0, subVersion=0, bname="broker-a",
    )  # fmt: skip
    assert late.code == ResponseCode.FLOW_CONTROL


async def test_what_a_client_commits_as_it_leaves_is_consumed(front: Front, consumer: Peer) -> None:
    await front.send(b"1", b"2")
    await consumer.pull(0)
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "2", "bname": "broker-a"}
    consumer.connection.notify(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
    left = {"clientID": "c1", "consumerGroup": "g"}
    consumer.connection.notify(RemotingCommand(RequestCode.UNREGISTER_CLIENT, left))
    await consumer.connection.close()
    async with asyncio.timeout(PATIENCE_S):
        while front.site.brokers[0].queues.committed_offset("g", "orders", 0) != 2:  # noqa: ASYNC110 - the broker has no event
            await asyncio.sleep(0.001)


async def test_what_a_reader_by_offset_commits_as_it_leaves_counts_though_it_comes_behind_that(front: Front) -> None:
    """RocketMQ 5.3 sends its last commits from threads of its own, and closes once it is told that it has left."""
    reader = await front.connect("c1")
    await reader.join("readers", "orders", kind="CONSUME_ACTIVELY")
    await front.send(b"1", b"2")
    await reader.pull(0, group="readers", flags=4)
    await reader.ask(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="readers")
    fields = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "2", "bname": "broker-a"}
    reader.connection.notify(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
    await reader.connection.close()
    await eventually(lambda: front.site.brokers[0].queues.committed_offset("readers", "orders", 0) == 2)


async def test_who_read_by_offset_and_shares_by_message_now_commits_what_it_holds_alone(front: Front) -> None:
    peer, other = await front.connect("c1"), await front.connect("c2")
    await peer.join("g", "orders", kind="CONSUME_ACTIVELY")
    await peer.ask(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g")
    for one in (peer, other):
        await one.join("g", "orders")
    await front.send(b"1", b"2")
    await other.pull(0)
    await peer.commit(2)
    assert front.site.brokers[0].queues.committed_offset("g", "orders", 0) == 0


async def test_a_stranger_cannot_commit_what_others_hold(front: Front, consumer: Peer) -> None:
    await front.send(b"1", b"2")
    await consumer.pull(0)
    stranger = await front.connect("c2")
    await stranger.commit(2)
    await stranger.pull(2, flags=5, commit=2)
    assert front.site.brokers[0].queues.committed_offset("g", "orders", 0) == 0


async def test_a_client_that_names_no_brokers_sees_one_with_all_queues(front: Front) -> None:
    peer = await front.connect("old")
    peer.version = 121
    await peer.join("g", "orders")
    route = decode_body(TopicRouteData, (await peer.ask(RequestCode.GET_ROUTE_BY_TOPIC, topic="orders")).body)
    assert [broker.broker_addrs for broker in route.broker_datas] == [{0: "proxy.example:8080"}]
    assert [(queue.read_queue_nums, queue.write_queue_nums) for queue in route.queue_datas] == [(4, 4)]
    sent = await peer.ask(
        RequestCode.SEND_MESSAGE_V2, b"body", a="makers", b="orders", c="TBW102", d=4, e=3, f=0, g=1, h=0, i="", j=0,
        k="false", m="false",
    )  # fmt: skip
    assert (sent.code, sent.ext["queueId"]) == (ResponseCode.SUCCESS, "3")
    assert front.site.brokers[1].maintenance.store.max_offset("orders", 1) == 1
    found, next_offset = await peer.pull(0, broker=None, queue=3)
    assert bodies(found) == [b"body"]
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": 3, "commitOffset": next_offset}
    assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code == ResponseCode.SUCCESS
    assert front.site.brokers[1].queues.committed_offset("g", "orders", 1) == 1
    missing = await peer.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=4)
    assert missing.code == ResponseCode.INVALID_PARAMETER


async def test_a_group_begins_its_retry_topic_at_the_beginning(front: Front, consumer: Peer) -> None:
    answer = await consumer.ask(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="%RETRY%g", queueId=0, bname="broker-a"
    )
    assert (answer.code, answer.ext["offset"]) == (ResponseCode.SUCCESS, "0")
