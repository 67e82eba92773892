"""Remoting clients of static topics at a proxy, while the queues move between the brokers behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from contract_ground import Site, outgoing
from front_ground import Front, Peer, bodies, running_front

from broker_cluster import running_cluster
from millstream.client.client import Client
from millstream.client.static_topics import StaticTopicOperations
from millstream.model.clock import ManualClock
from millstream.model.operations import AckRequest, PopRequest, PullRequest
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.administration.static_topics import LOGIC_BROKER_NAME
from millstream.protocol.remoting.bodies import TopicRouteData, decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.messages.offsets import LockBody, LockedBody, QueueName

TOPIC = "moving"


@dataclass
class Ground:
    """A proxy before the brokers a and b, of which the first stores the two queues at the beginning."""

    front: Front
    client: Client

    async def remap(self, *brokers: str) -> None:
        await self.client.run(StaticTopicOperations(self.client.conversations).remap(TOPIC, brokers))


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    clock = ManualClock()
    async with running_cluster(tmp_path, ["a", "b"], clock=clock) as cluster:
        client = Client(cluster.nameserver)
        await client.run(StaticTopicOperations(client.conversations).create(TopicConfig(TOPIC), 2, ["a"]))
        site = Site(clock, cluster.routes, cluster.servers["a"], cluster.nameserver, list(cluster.brokers.values()))
        async with running_front(site, clock) as front:
            yield Ground(front, client)
        await client.close()


async def send(peer: Peer, body: bytes, broker: str, queue: int = 0) -> int:
    """The offset of a message in its queue."""
    sent = await peer.ask(
        RequestCode.SEND_MESSAGE_V2, body, a="makers", b=TOPIC, c="TBW102", d=4, e=queue, f=0, g=1, h=0, i="", j=0,
        k="false", m="false", n=broker,
    )  # fmt: skip
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    return int(sent.ext["queueOffset"])


async def test_what_is_sent_pulled_and_committed_goes_where_the_queue_is_now(ground: Ground) -> None:
    peer = await ground.front.connect("c")
    await peer.join("g", TOPIC)
    route = decode_body(TopicRouteData, (await peer.ask(RequestCode.GET_ROUTE_BY_TOPIC, topic=TOPIC)).body)
    assert route.topic_queue_mapping_by_broker
    assert {name: info.total_queues for name, info in route.topic_queue_mapping_by_broker.items()} == {"a": 2, "b": 2}
    assert await send(peer, b"1", "a") == 0
    found, next_offset = await peer.pull(0, topic=TOPIC, broker="a")
    assert bodies(found) == [b"1"]
    await ground.remap("b")
    assert await send(peer, b"2", "a") == 1, "the client's route is older than the move"
    found, next_offset = await peer.pull(next_offset, topic=TOPIC, broker="b")
    assert [(one.body, one.queue_offset) for one in found] == [(b"2", 1)]
    committed = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "bname": "b"}
    answer = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **committed, commitOffset=next_offset)
    assert answer.code == ResponseCode.SUCCESS
    told = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, **committed)
    assert told.ext["offset"] == "2"
    assert await peer.pull(2, topic=TOPIC, broker="b") == ([], 2)
    assert not ground.front.processor.renewer.table, "the message of the former part is acknowledged, too"


async def test_a_message_of_a_queue_that_moved_is_sent_back_where_it_lies(ground: Ground) -> None:
    peer = await ground.front.connect("c")
    await peer.join("g", TOPIC)
    await send(peer, b"bad", "a")
    found, _ = await peer.pull(0, topic=TOPIC, broker="a")
    await ground.remap("b")
    back = {"group": "g", "offset": found[0].log_offset, "originTopic": TOPIC, "bname": "b"}
    answer = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, delayLevel=-1, **back)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert ground.front.site.brokers[0].maintenance.store.max_offset("%DLQ%g", 0) == 1


async def test_who_reads_by_offset_reads_over_all_moves(ground: Ground) -> None:
    peer = await ground.front.connect("c")
    await peer.join("readers", TOPIC, kind="CONSUME_ACTIVELY")
    await send(peer, b"1", "a")
    await ground.remap("b")
    await send(peer, b"2", "a")
    found, _ = await peer.pull(0, group="readers", topic=TOPIC, broker="a", flags=4)
    if len(found) == 1:
        found += (await peer.pull(1, group="readers", topic=TOPIC, broker="a", flags=4))[0]
    assert bodies(found) == [b"1", b"2"]
    where = {"topic": TOPIC, "queueId": 0, "bname": "a"}
    assert (await peer.ask(RequestCode.GET_MAX_OFFSET, **where)).ext["offset"] == "2"
    assert (await peer.ask(RequestCode.GET_MIN_OFFSET, **where)).ext["offset"] == "0"


async def test_a_queue_is_locked_where_it_is_now(ground: Ground) -> None:
    one, other = await ground.front.connect("o1"), await ground.front.connect("o2")
    queues = [QueueName(TOPIC, LOGIC_BROKER_NAME, number) for number in (0, 1)]
    for peer in (one, other):
        await peer.join("ordered", TOPIC)
    locked: list[list[QueueName]] = []
    for peer in (one, other):
        body = encode_body(LockBody("ordered", peer.client_id, queues))
        locked.append(decode_body(LockedBody, (await peer.ask(RequestCode.LOCK_BATCH_MQ, body)).body).locked)
    assert locked == [queues, []]


async def test_a_pop_and_its_acknowledgement_find_their_broker_after_a_move(ground: Ground) -> None:
    peer = await ground.front.connect("c")
    await send(peer, b"1", "a")
    pop = {
        "consumerGroup": "poppers", "topic": TOPIC, "queueId": 0, "maxMsgNums": 32, "invisibleTime": 30_000,
        "pollTime": 0, "bornTime": ground.front.clock.now_ms(), "initMode": 0, "expType": "TAG", "exp": "*",
        "order": "false", "bname": "a",
    }  # fmt: skip
    popped = await peer.ask(RequestCode.POP_MESSAGE, **pop)
    (message,) = (decode_record(record) for record in iterate_records(popped.body))
    await ground.remap("b")
    handle = message.properties.get("POP_CK") or f"0 {popped.ext['popTime']} 30000 {popped.ext['reviveQid']} 0 a 0 0"
    acked = await peer.ask(
        RequestCode.ACK_MESSAGE, consumerGroup="poppers", topic=TOPIC, queueId=0, offset=0, extraInfo=handle
    )
    assert acked.code == ResponseCode.SUCCESS, acked.remark
    await send(peer, b"2", "b")
    popped = await peer.ask(RequestCode.POP_MESSAGE, **pop)
    assert [decode_record(record).body for record in iterate_records(popped.body)] == [b"2"]


async def test_a_client_that_names_no_brokers_sends_and_reads_while_queues_move(ground: Ground) -> None:
    peer = await ground.front.connect("old")
    peer.version = 121
    await peer.join("g", TOPIC)
    fields = {"c": "TBW102", "d": 4, "f": 0, "g": 1, "h": 0, "i": "", "j": 0, "k": "false", "m": "false"}
    for offset, brokers in enumerate((["a"], ["b"])):
        await ground.remap(*brokers)
        sent = await peer.ask(RequestCode.SEND_MESSAGE_V2, b"m", a="makers", b=TOPIC, e=1, **fields)
        assert (sent.code, sent.ext["queueId"], sent.ext["queueOffset"]) == (0, "1", str(offset)), sent.remark
    found, next_offset = await peer.pull(0, topic=TOPIC, broker=None, queue=1)
    found += (await peer.pull(next_offset, topic=TOPIC, broker=None, queue=1))[0]
    assert [one.queue_offset for one in found] == [0, 1]


async def test_who_looks_ahead_sees_what_lies_at_all_brokers_of_a_queue(ground: Ground) -> None:
    peer = await ground.front.connect("c")
    await send(peer, b"1", "a")
    await ground.remap("b")
    await send(peer, b"2", "b")
    where = {"consumerGroup": "poppers", "topic": TOPIC, "queueId": 0, "bname": "a"}
    for _ in range(2):
        answer = await peer.ask(RequestCode.PEEK_MESSAGE, **where, maxMsgNums=10)
        found = [decode_record(record) for record in iterate_records(answer.body)]
        assert [(one.body, one.queue_id, one.queue_offset) for one in found] == [(b"1", 0, 0), (b"2", 0, 1)]
    one = await peer.ask(RequestCode.PEEK_MESSAGE, **where, maxMsgNums=1)
    assert [decode_record(record).body for record in iterate_records(one.body)] == [b"1"]
    nothing = await peer.ask(RequestCode.PEEK_MESSAGE, **{**where, "queueId": 1}, maxMsgNums=1)
    assert nothing.code == ResponseCode.PULL_NOT_FOUND


async def test_the_backend_of_grpc_clients_sends_pops_and_pulls_while_a_queue_moves(ground: Ground) -> None:
    backend = ground.front.backend
    for number, brokers in enumerate((["a"], ["b"], ["a", "b"])):
        await ground.remap(*brokers)
        message = outgoing(TOPIC, b"%d" % number)
        message.queue_id = 0
        (receipt,) = await backend.send([message])
        assert (receipt.queue_id, receipt.queue_offset) == (0, number)
    pulled: list[bytes] = []
    while len(pulled) < 3:
        result = await backend.pull("b", PullRequest("readers", TOPIC, 0, len(pulled), 32, 1 << 20))
        pulled += [decode_record(record).body for record in result.records]
    assert pulled == [b"0", b"1", b"2"]
    popped: list[bytes] = []
    while len(popped) < 3:
        for one in await backend.pop("b", PopRequest("g", TOPIC, 30_000, 0)):
            await backend.ack(AckRequest("g", TOPIC, one.handle))
            popped.append(one.message.body)
    assert sorted(popped) == [b"0", b"1", b"2"]
    assert await backend.group_offset("b", "g", TOPIC, 0) == 3
