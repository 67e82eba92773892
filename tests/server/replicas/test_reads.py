"""Reading from replicas: what is confirmed and nothing else, at a master's side and without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from local_set import NAME, LocalSet

from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.replication.epoch_log import EpochChunk
from millstream.server import broker_role
from millstream.server.replicas.replicated_broker import ReplicaRole
from millstream.store.log_chunk import LogChunk
from patience import eventually

MakeSet = Callable[..., LocalSet]


@pytest.fixture
async def replica_set(tmp_path: Path) -> AsyncIterator[MakeSet]:
    made: list[LocalSet] = []

    def make(**settings: Any) -> LocalSet:
        made.append(LocalSet(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def pull(found: LocalSet, name: str, offset: int, *, wait_ms: int = 0, **fields: object) -> RemotingCommand:
    """A pull of the queue of `orders` at one replica, as RocketMQ's clients send it."""
    flags = 4 | (2 if wait_ms else 0)
    asked = {
        "consumerGroup": "readers", "topic": "orders", "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": flags, "commitOffset": 0, "suspendTimeoutMillis": wait_ms, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG", **fields,
    }  # fmt: skip
    return await found.ask(found.address(name), RequestCode.PULL_MESSAGE, **asked)


def bodies_of(answer: RemotingCommand) -> list[bytes]:
    return [decode_record(record).body for record in iterate_records(answer.body)]


async def applied(found: LocalSet, name: str, topic: str = "orders") -> None:
    """Wait until a replica knows the topic and shows all that its master has confirmed."""
    await eventually(lambda: found[name].broker.topics.find(topic) is not None)
    await confirmed(found, name)


async def confirmed(found: LocalSet, name: str) -> None:
    master = next(found[one] for one in "abc" if found[one].role is ReplicaRole.MASTER)
    end = master.store.written_log_offset
    await eventually(lambda: found[name].store.visible_log_offset >= end)


async def test_a_replica_gives_what_its_master_acknowledged(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1", b"2")
    await applied(found, "b")
    answer = await pull(found, "b", 0)
    assert (answer.code, bodies_of(answer)) == (ResponseCode.SUCCESS, [b"1", b"2"])
    assert (answer.ext["minOffset"], answer.ext["maxOffset"], answer.ext["nextBeginOffset"]) == ("0", "2", "2")
    place = {"topic": "orders", "queueId": 0}
    for code, wanted in ((RequestCode.GET_MAX_OFFSET, "2"), (RequestCode.GET_MIN_OFFSET, "0")):
        assert (await found.ask(found.address("b"), code, **place)).ext["offset"] == wanted
    late_ms = time.time_ns() // 1_000_000 + 60_000
    by_time = await found.ask(
        found.address("b"), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=late_ms, boundaryType="LOWER", **place
    )
    assert by_time.ext["offset"] == "2"
    log_offset = decode_record(next(iterate_records(answer.body))).log_offset
    by_id = await found.ask(found.address("b"), RequestCode.VIEW_MESSAGE_BY_ID, offset=log_offset)
    assert bodies_of(by_id) == [b"1"]
    assert found["b"].reads.requests == 5
    assert found["b"].reads.size_bytes >= len(answer.body)


async def test_what_changes_anything_a_replica_refuses_still(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await applied(found, "b")
    refused = (
        RequestCode.SEND_MESSAGE_V2, RequestCode.POP_MESSAGE, RequestCode.LOCK_BATCH_MQ, RequestCode.END_TRANSACTION,
        RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_AND_CREATE_TOPIC,
    )  # fmt: skip
    for code in refused:
        answer = await found.ask(found.address("b"), code, topic="orders", consumerGroup="readers", queueId=0)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, code
        assert found.address("a") in (answer.remark or "")
    # A pull that commits would lose the offset.
    answer = await pull(found, "b", 0, sysFlag=5, commitOffset=1)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert found["b"].broker.groups.find("readers") is None


async def test_a_replica_hides_what_is_not_confirmed(replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the record, which does not count yet: a failover may take it back."""
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    await applied(found, "b")
    master, replica = found["a"], found["b"]
    with monkeypatch.context() as patched:
        patched.setattr(master.store, "confirm", lambda _: None)
        sending = asyncio.create_task(found.send(b"2"))
        await eventually(lambda: replica.log.end == master.log.end > replica.store.confirmed_log_offset)
        answer = await pull(found, "b", 0)
        assert (bodies_of(answer), answer.ext["maxOffset"]) == ([b"1"], "1")
        assert (await pull(found, "b", 1)).code == ResponseCode.PULL_NOT_FOUND
        end = await found.ask(found.address("b"), RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
        assert end.ext["offset"] == "1"
        raw = await found.ask(
            found.address("b"), RequestCode.BULK_FETCH, topic="orders", queueId=0, queueOffset=0, consumerGroup="r"
        )
        assert bodies_of(raw) == [b"1"]
        hidden = await found.ask(
            found.address("b"), RequestCode.VIEW_MESSAGE_BY_ID, offset=replica.store.confirmed_log_offset
        )
        assert hidden.code == ResponseCode.SYSTEM_ERROR
    master.store.confirm(master.log.end)
    await sending
    await eventually(lambda: replica.store.visible_log_offset == master.log.end)
    assert bodies_of(await pull(found, "b", 1)) == [b"2"]


async def test_a_pull_that_waits_at_a_replica_gets_what_comes(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await applied(found, "b")
    waiting = asyncio.create_task(pull(found, "b", 0, wait_ms=20_000))
    await eventually(lambda: found["b"].broker._polls.waiting == 1)
    await found.send(b"1")
    # Within the 5 s that the client waits, much less than the pull would.
    assert bodies_of(await waiting) == [b"1"]


async def test_readers_are_refused_where_replicas_serve_no_reads(replica_set: MakeSet) -> None:
    found = replica_set(serve_reads=False, old_percent=0)
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1", b"2")
    await applied(found, "b")
    assert (await pull(found, "b", 0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    answer = await pull(found, "a", 0, maxMsgNums=1)
    assert answer.ext["suggestWhichBrokerId"] == "0"


async def test_a_reader_that_is_far_behind_is_sent_to_a_replica_and_back(replica_set: MakeSet) -> None:
    found = replica_set(old_percent=0)
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1", b"2", b"3")
    await applied(found, "b")
    number = str(found["b"].identity.broker_id)
    for name in ("a", "b"):
        behind = await pull(found, name, 0, maxMsgNums=1)
        assert behind.ext["suggestWhichBrokerId"] == number
        at_end = await pull(found, name, 2)
        assert (bodies_of(at_end), at_end.ext["suggestWhichBrokerId"]) == ([b"3"], "0")
    await found.stop("b")
    await eventually(lambda: not found["a"].readable_replicas)
    alone = await pull(found, "a", 0, maxMsgNums=1)
    assert alone.ext["suggestWhichBrokerId"] == "0"


async def test_a_replica_that_does_not_know_its_master_yet_lets_nobody_read(
    replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a log that the master's does not go on from."""
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    await applied(found, "b")
    assert bodies_of(await pull(found, "b", 0)) == [b"1"]
    await found.stop("b")
    monkeypatch.setattr(broker_role, "ROLE_S", 0.01)
    await found.add("b", controllers=("127.0.0.1:1",))
    assert found["b"].role is ReplicaRole.REGISTERING
    assert (await pull(found, "b", 0)).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_former_master_shows_nothing_that_it_wrote_alone(
    replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record was never confirmed: it hides it as the master, and cuts it off as a replica."""
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    await applied(found, "b")
    former = found["a"]
    with monkeypatch.context() as patched:
        # The replica gets nothing of what comes, as if the line to it were cut.
        patched.setattr(former.log, "read", lambda place, _: EpochChunk(LogChunk(place, memoryview(b"")), None))
        sending = asyncio.create_task(found.send(b"alone"))
        await eventually(lambda: former.log.end > former.store.confirmed_log_offset)
        assert bodies_of(await pull(found, "a", 0)) == [b"1"]
        number = found["b"].identity.broker_id
        await found.ask(
            found.addresses["controller"], RequestCode.ELECT_MASTER, brokerName=NAME, clusterName="DefaultCluster",
            brokerId=number, designateElect="true",
        )  # fmt: skip
        await eventually(lambda: found["a"].role is ReplicaRole.REPLICA and found["b"].role is ReplicaRole.MASTER)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await found.settle(2)
    await confirmed(found, "a")
    kept = bodies_of(await pull(found, "a", 0))
    assert kept == bodies_of(await pull(found, "b", 0))
    assert kept[0] == b"1"


async def test_queues_of_a_static_topic_are_read_from_masters_alone(replica_set: MakeSet) -> None:
    """Their numbers are others than those of the broker's own queues."""
    found = replica_set()
    await found.start("a", "b")
    await found.run(lambda client: client.create_static_topic(TopicConfig("orders"), 2))
    await found.send(b"1")
    await applied(found, "b")
    await eventually(lambda: found["b"].broker.topics.mapping("orders") is not None)
    place = {"topic": "orders", "queueId": 0}
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORE_TIME):
        answer = await found.ask(found.address("b"), code, **place)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await pull(found, "b", 0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    raw = await found.ask(found.address("b"), RequestCode.BULK_FETCH, queueOffset=0, consumerGroup="r", **place)
    assert raw.code == ResponseCode.SERVICE_NOT_AVAILABLE
    # The broker's own queue of a number may be named: so masters read what moved away from them.
    own = await found.ask(found.address("b"), RequestCode.GET_MAX_OFFSET, lo="false", **place)
    assert own.code == ResponseCode.SUCCESS


async def test_nameservers_list_replicas_and_forget_those_that_are_gone(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b", "c")
    await found.make_topic()
    assert found.nameserver.nameserver_role is not None
    registry = found.nameserver.nameserver_role.registry
    ids = {name: found[name].identity.broker_id for name in "bc"}
    everybody = {0: found.address("a"), ids["b"]: found.address("b"), ids["c"]: found.address("c")}
    await eventually(lambda: registry.members(NAME) == everybody)
    route = registry.route("orders")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == everybody
    await found.stop("c")
    assert registry.members(NAME) == {0: found.address("a"), ids["b"]: found.address("b")}
    # The other one is elected: it is the master alone then, and the topic is still there.
    await found.stop("a")
    await found.settle(1)
    await eventually(lambda: registry.members(NAME) == {0: found.address("b")})
    assert found.route_of("orders") == found.address("b")


async def test_with_access_control_a_replica_lets_in_who_may_read(
    replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_ACCESS_KEY", "admin")
    monkeypatch.setenv("MILLSTREAM_SECRET_KEY", "secret-of-admin")
    found = replica_set(is_secure=True)
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    await applied(found, "b")
    assert bodies_of(await pull(found, "b", 0)) == [b"1"]
    found._access = type(found._access)(False)
    refused = await pull(found, "b", 0)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.body == b""
