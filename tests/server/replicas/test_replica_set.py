"""The replicas of one broker: one is the master, the others have what it acknowledged, and they change places."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from local_set import NAME, LocalSet

from millstream.client.blocking import BlockingClient
from millstream.client.profiles import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from millstream.model.errors import MillstreamError, StoreError
from millstream.model.group import GroupConfig
from millstream.model.message import Address, Message, OutgoingMessage
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.command import RemotingCommand
from millstream.replication.epoch_log import EpochChunk, EpochLog
from millstream.replication.follower import Follower, NextStep, Step
from millstream.security.signature import Credentials
from millstream.server import broker_role
from millstream.server.replicas import replica_seed
from millstream.server.replicas.replicated_broker import ReplicaRole
from millstream.store.log_chunk import LogChunk
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.transport.remoting_client import RemotingConnection
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


async def test_replicas_have_what_the_master_acknowledged(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b", "c")
    assert [found[name].role for name in "abc"] == [ReplicaRole.MASTER, ReplicaRole.REPLICA, ReplicaRole.REPLICA]
    await found.make_topic()
    await found.send(b"1", b"2", b"3")
    end = found["a"].store.written_log_offset
    assert [found[name].log.end for name in "bc"] == [end, end]
    chunks = [found[name].store.read_chunk(0, 1_000_000).records for name in "abc"]
    assert chunks[0] == chunks[1] == chunks[2]
    assert await found.bodies() == [b"1", b"2", b"3"]


async def test_a_master_that_stops_is_followed_by_one_that_has_everything(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b", "c")
    await found.make_topic()
    await found.run(lambda client: client.create_group(GroupConfig("readers")))
    await found.send(b"1", b"2")
    await found.stop("a")
    await found.settle(2)
    assert await found.bodies() == [b"1", b"2"]
    await found.send(b"3")
    assert "readers" in [group.name for group in await found.run(lambda client: client.groups())]
    await found.add("a")
    await found.settle(3)
    assert found["a"].role is ReplicaRole.REPLICA
    assert await found.bodies() == [b"1", b"2", b"3"]


async def test_an_elected_replica_takes_over_from_a_living_master(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    number = found["b"].identity.broker_id
    answer = await found.ask(
        found.addresses["controller"], 1002, brokerName=NAME, clusterName="DefaultCluster", brokerId=number,
        designateElect="true",
    )  # fmt: skip
    assert answer.code == 0
    await eventually(lambda: found["b"].role is ReplicaRole.MASTER and found["a"].role is ReplicaRole.REPLICA)
    await found.settle(2)
    await eventually(lambda: found.route_of("orders") == found.address("b"))
    await found.send(b"2")
    assert await found.bodies() == [b"1", b"2"]
    assert found["a"].log.epochs == found["b"].log.epochs


async def test_what_a_former_master_wrote_alone_is_cut_off(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    former = found["a"]
    # The replica gets nothing of this, as if the line to it were cut.
    former.log.read = lambda log_offset, _: EpochChunk(LogChunk(log_offset, memoryview(b"")), None)  # type: ignore[method-assign]
    record = former.store.read_chunk(0, 1)
    former.store.append_chunk(former.log.end, _moved(former, record.records))
    tail = former.log.end
    assert found["b"].log.end < tail
    number = found["b"].identity.broker_id
    await found.ask(
        found.addresses["controller"], 1002, brokerName=NAME, clusterName="DefaultCluster", brokerId=number,
        designateElect="true",
    )  # fmt: skip
    await eventually(lambda: found.route_of("orders") == found.address("b"))
    await found.send(b"2")
    await found.settle(2)
    assert await found.bodies() == [b"1", b"2"]
    chunks = [found[name].store.read_chunk(0, 1_000_000).records for name in "ab"]
    assert chunks[0] == chunks[1]


def _moved(replicated: Any, record: memoryview) -> bytes:
    """A record of the log once more at its end."""
    from millstream.model.message import OutgoingMessage
    from millstream.protocol.record_encoder import RecordEncoder

    encoder = RecordEncoder(0, replicated.store.options.store_host)
    return encoder.encode(OutgoingMessage("orders", b"alone", {}), 0, 1, replicated.log.end)


async def test_a_replica_refuses_clients_and_says_who_the_master_is(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    answer = await found.ask(found.address("b"), 105, topic="orders")
    assert answer.code == 14
    assert found.address("a") in (answer.remark or "")
    assert "MS-5006" in (answer.remark or "")


async def test_tools_are_told_epochs_and_what_replicas_have(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    epochs = json.loads((await found.ask(found.address("a"), 1007)).body)
    assert epochs["brokerId"] == 0
    assert [entry["epoch"] for entry in epochs["epochList"]] == [1]
    assert epochs["maxOffset"] == epochs["epochList"][0]["endOffset"] == found["a"].log.end
    assert json.loads((await found.ask(found.address("b"), 1007)).body)["brokerId"] == 2
    status = json.loads((await found.ask(found.address("a"), 907)).body)
    [row] = status["haConnectionInfo"]
    assert (status["master"], row["inSync"], row["diff"]) == (True, True, 0)
    follower = json.loads((await found.ask(found.address("b"), 907)).body)
    assert follower["haClientRuntimeInfo"]["masterAddr"] == found.address("a")


async def test_with_too_few_replicas_nothing_is_stored(replica_set: MakeSet) -> None:
    found = replica_set(min_in_sync=2)
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    await found.stop("b")
    await found.settle(1)
    with pytest.raises(StoreError) as refused:
        await found.send(b"2")
    assert refused.value.name == "TOO_FEW_REPLICAS"
    await found.add("b")
    await found.settle(2)
    await found.send(b"3")
    assert await found.bodies() == [b"1", b"3"]


async def test_a_master_without_controllers_serves_no_reads_and_acknowledges_what_replicas_have_7017(
    replica_set: MakeSet,
) -> None:
    """RocketMQ issue 7017: an isolated master went on acknowledging what was lost when it became a replica."""
    found = replica_set(lease_ms=500)
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    assert await found.bodies() == [b"1"]
    controller = found.nameserver.controller_role
    assert controller is not None
    await controller.close()
    await eventually(lambda: not found["a"].holds_lease)
    with pytest.raises(MillstreamError):
        await found.bodies()
    await found.send(b"2")
    assert found["b"].log.end == found["a"].log.end


async def test_topics_that_were_deleted_and_made_again_are_the_same_at_all_replicas(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"old", b"old too")
    await found.run(lambda client: client.delete_topic("orders"))
    await found.make_topic()
    await found.send(b"new")
    await found.stop("a")
    await found.settle(1)
    assert await found.bodies() == [b"new"]


async def test_a_directory_of_another_broker_is_refused(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.stop("b")
    with pytest.raises(MillstreamError) as refused:
        await found.add("b", name="broker-b")
    assert refused.value.name == "ILLEGAL_SETTING"
    assert "broker-a" in refused.value.message


async def test_a_broker_without_replicas_becomes_the_first_of_a_set(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start()
    lone = await _start_alone(found, "a")
    await found.make_topic()
    await found.send(b"deleted", b"deleted too")
    await found.run(lambda client: client.delete_topic("orders"))
    await found.make_topic()
    await found.send(b"1")
    await lone.close()
    await found.add("a")
    await found.add("b")
    await found.settle(2)
    await found.send(b"2")
    await found.stop("a")
    await found.settle(1)
    assert await found.bodies() == [b"1", b"2"]


async def _start_alone(found: LocalSet, name: str) -> Any:
    from millstream.server.configuration.roles import BrokerConfiguration, Tls
    from millstream.server.separate import SeparateRole

    told = BrokerConfiguration(
        name=NAME, port=0, directory=str(found.directory / name), nameservers=(found.addresses["nameserver"],),
        tls=Tls("off"),
    )  # fmt: skip
    role = SeparateRole(told)
    await role.start()
    return role


async def test_a_line_that_somebody_works_on_is_given_to_nobody_else_by_the_next_master(replica_set: MakeSet) -> None:
    # Long enough for a busy machine to elect a master within it.
    found = replica_set(lease_ms=3_000)
    await found.start("a", "b")
    await found.run(
        lambda client: client.create_topic(
            TopicConfig("lines", read_queues=1, write_queues=1, message_type=MessageType.FIFO)
        )
    )
    await found.run(lambda client: client.create_group(GroupConfig("workers", fifo=True)))
    await found.run(lambda client: [client.send(Message("lines", body, message_group="one")) for body in (b"1", b"2")])
    first = await _pop(found, "a")
    assert first.code == 0, first.remark
    await _designate(found, "b")
    await found.settle(2)
    waited_s = found["b"].takeover_left_s
    again = await _pop(found, "b")
    assert waited_s > 0
    assert not found["b"].takeover_left_s, "nothing is given before the lease of the master before is over"
    assert again.code == 210, "the line is in work"


async def _pop(found: LocalSet, name: str) -> RemotingCommand:
    return await found.ask(
        found.address(name), 200050, consumerGroup="workers", topic="lines", queueId=0, maxMsgNums=1,
        invisibleTime=60_000, pollTime=0, bornTime=int(time.time() * 1000), initMode=0, order="true",
    )  # fmt: skip


async def _designate(found: LocalSet, name: str) -> None:
    """Have a replica elected as the master."""
    number = found[name].identity.broker_id
    answer = await found.ask(
        found.addresses["controller"], 1002, brokerName=NAME, clusterName="DefaultCluster", brokerId=number,
        designateElect="true",
    )  # fmt: skip
    assert answer.code == 0
    await eventually(lambda: found[name].role is ReplicaRole.MASTER)


class _Load:
    """A client that sends numbered messages, one after the other, until it is stopped; it keeps what failed."""

    def __init__(self, found: LocalSet) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[MillstreamError] = []
        self._found = found
        self._is_over = threading.Event()
        self._task: asyncio.Task[None]

    async def __aenter__(self) -> _Load:
        self._task = asyncio.create_task(self._found.run(self._send_all))
        await eventually(lambda: len(self.acknowledged) > 5)
        return self

    async def __aexit__(self, *_: object) -> None:
        count = len(self.acknowledged)
        await eventually(lambda: len(self.acknowledged) > count + 5)
        self._is_over.set()
        await self._task

    def _send_all(self, client: BlockingClient) -> None:
        while not self._is_over.is_set():
            body = b"%d" % (len(self.acknowledged) + len(self.failures))
            try:
                client.send(Message("orders", body))
                self.acknowledged.append(body)
            except MillstreamError as error:
                self.failures.append(error)


async def test_a_master_that_hands_over_under_load_fails_no_send_and_loses_nothing(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b", "c")
    await found.make_topic()
    async with _Load(found) as load:
        answer = await found.ask(found.address("a"), 9125)
        assert answer.code == 0, answer.remark
        assert answer.ext["masterAddress"] in (found.address("b"), found.address("c"))
        await found.settle(3)
    assert load.failures == []
    assert await found.bodies() == load.acknowledged
    assert found["a"].role is ReplicaRole.REPLICA


async def test_a_rolling_restart_under_load_fails_no_send_and_loses_nothing(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b", "c")
    await found.make_topic()
    async with _Load(found) as load:
        for name in "abc":
            await found.stop(name)
            await found.settle(2)
            await found.add(name)
            await found.settle(3)
    assert load.failures == []
    assert await found.bodies() == load.acknowledged


@pytest.mark.parametrize(("name", "target", "words"), [("a", 9, "cannot take over"), ("b", 1, "is not the master")])
async def test_a_handover_that_cannot_be_is_refused_and_changes_nothing(
    replica_set: MakeSet, name: str, target: int, words: str
) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    answer = await found.ask(found.address(name), 9125, brokerId=target)
    assert answer.code != 0
    assert words in (answer.remark or "")
    await found.send(b"1")
    assert await found.bodies() == [b"1"]
    assert found["a"].role is ReplicaRole.MASTER


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Credentials:
    """The first super user, whose keys the roles have in their environment."""
    user = Credentials("root", "secret-of-root")
    monkeypatch.setenv(ACCESS_KEY_VARIABLE, user.access_key)
    monkeypatch.setenv(SECRET_KEY_VARIABLE, user.secret_key)
    return user


async def test_with_access_control_replicas_sign_and_have_the_users_of_their_master(
    replica_set: MakeSet, root: Credentials
) -> None:
    found = replica_set(is_secure=True)
    await found.start("a", "b", "c")
    await found.make_topic()
    await found.send(b"1")
    fetch = Follower(found["b"].log, found["b"].identity, 1).fetch()
    host, _, port = found.address("a").rpartition(":")
    for signing in (None, Credentials("root", "another-secret"), Credentials("nobody", root.secret_key)):
        connection = await RemotingConnection.open(Address(host, int(port)), credentials=signing)
        answer = await connection.request(RemotingCommand(9120, fetch.encode()), 5)
        await connection.close()
        assert answer.code == 16, answer.remark
        assert not answer.body
    await found.stop("a")
    await found.settle(2)
    await found.send(b"2")
    assert await found.bodies() == [b"1", b"2"]
    await found.add("a")
    await found.settle(3)


async def test_a_false_replica_is_refused_and_changes_nothing_3015(replica_set: MakeSet) -> None:
    """RocketMQ issue 3015: whoever connected could say that it had any offset."""
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    master = found["a"]
    true = Follower(found["b"].log, found["b"].identity, 1).fetch()
    false = {
        "of another cluster": replace(true, cluster="other"),
        "of another broker": replace(true, name="other"),
        "of an earlier epoch": replace(true, epoch=0),
        "with the master's identity": replace(true, broker_id=1),
        "with other files": replace(true, segment_bytes=1),
    }
    for words, fetch in false.items():
        answer = await found.ask(found.address("a"), 9120, **fetch.encode())
        assert answer.code in (1, 2000), words
        assert "MS-24" in (answer.remark or ""), words
    ahead = replace(true, broker_id=77, log_offset=1 << 40, flushed=1 << 40)
    answer = await found.ask(found.address("a"), 9120, **ahead.encode())
    assert answer.ext["outcome"] == "diverged"
    assert master.store.confirmed_log_offset <= master.log.end
    await found.send(b"1")
    assert await found.bodies() == [b"1"]
    assert sorted(one["brokerId"] for one in (await found.info())["inSyncReplicas"]) == [1, 2]


async def test_a_new_replica_joins_a_set_whose_old_messages_are_gone(
    replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_role, "StoreOptions", partial(StoreOptions, segment_bytes=64 * 1024))
    found = replica_set()
    await found.start("a")
    await found.make_topic("quiet")
    await found.send(b"gone", topic="quiet")
    await found.make_topic()
    await found.run(lambda client: client.create_group(GroupConfig("readers")))
    await found.send(*(b"old" * 1000 for _ in range(100)))
    master = found["a"]
    master.store.retention = RetentionPolicy(keep_ms=1)
    master.store.write_checkpoint()
    await master.broker.maintenance.retain()
    await asyncio.sleep(0.01)
    await master.broker.maintenance.retain()
    assert master.log.start > 0
    await found.send(b"new")
    await found.add("b")
    await found.settle(2)
    assert found["b"].log.start == master.log.start
    assert not [path for path in (found.directory / "b").iterdir() if path.name.startswith("aside")]
    await found.send(b"newer")
    kept = await found.bodies()
    assert kept[-2:] == [b"new", b"newer"]
    await found.stop("a")
    await found.settle(1)
    assert await found.bodies() == kept
    assert "readers" in [group.name for group in await found.run(lambda client: client.groups())]
    result = await found.run(lambda client: client.send(Message("quiet", b"second")))
    assert result.queue_offset == 1, "no offset is given twice"


async def test_a_replica_whose_log_is_of_no_use_keeps_it_aside_and_begins_anew(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a")
    await found.make_topic()
    await found.send(b"1")
    store = MessageStore.open(found.directory / "b" / "store", StoreOptions(replicated=True))
    store.put([PendingRecord(OutgoingMessage("orders", b"of another set", {}), 0)])
    store.close()
    await found.add("b")
    await found.settle(2)
    aside = [path for path in (found.directory / "b").iterdir() if path.name.startswith("aside")]
    assert len(aside) == 1
    assert (aside[0] / "store" / "commitlog").is_dir()
    await found.stop("a")
    await found.settle(1)
    assert await found.bodies() == [b"1"]


async def test_a_replica_whose_disk_is_full_holds_nobody_up_and_comes_back(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    replica = found["b"]
    append = replica.store.append_chunk

    def refuse(_log_offset: int, _data: bytes) -> None:
        raise StoreError("DISK_FULL", "The disk has no room for the log.")

    replica.store.append_chunk = refuse  # type: ignore[method-assign]
    await found.send(b"2", b"3")
    await found.settle(1)
    replica.store.append_chunk = append  # type: ignore[method-assign]
    await found.settle(2)
    assert replica.log.end == found["a"].log.end
    assert await found.bodies() == [b"1", b"2", b"3"]


async def test_a_copy_of_a_replicas_directory_is_refused_by_the_controller(
    replica_set: MakeSet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.stop("b")
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    await found.add("b")
    await found.settle(2)
    await found.add("copy")
    await eventually(lambda: "Two brokers have one identity" in caplog.text)
    await found.send(b"1")
    assert await found.bodies() == [b"1"]
    # Neither of them may take the other's election for its own.
    await found.stop("a")
    await eventually(lambda: found["copy"].role is ReplicaRole.MASTER)
    await eventually(lambda: "has the identity of this one" in caplog.text)
    assert found["b"].role is not ReplicaRole.MASTER


async def test_a_master_whose_store_failed_serves_nothing_and_is_replaced(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    assert found["a"].holds_lease
    found["a"].store._health.fail("written", OSError("planted"))
    assert not found["a"].holds_lease, "an offset that it took now would be in no log"
    await eventually(lambda: found["b"].role is ReplicaRole.MASTER)
    await found.settle(1)
    assert await found.bodies() == [b"1"]


async def test_a_first_fetch_that_cannot_be_answered_leaves_no_session(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a")
    await found.make_topic()
    master = found["a"]
    assert master.port.source is not None
    read = master.log.read

    def fail(_log_offset: int, _max_bytes: int) -> EpochChunk:
        raise StoreError("RECORD_DAMAGED", "planted")

    master.log.read = fail  # type: ignore[method-assign]
    fetch = Follower(master.log, replace(master.identity, broker_id=7), master.view.epoch).fetch()
    assert (await found.ask(found.address("a"), 9120, **fetch.encode())).code != 0
    assert master.port.source.sync_set.ack_of(7) is None
    master.log.read = read  # type: ignore[method-assign]


def test_a_seed_that_was_not_planted_whole_leaves_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = MessageStore.open(tmp_path / "source" / "store", StoreOptions(replicated=True))
    source.put([PendingRecord(OutgoingMessage("orders", b"1", {}), 0)])
    log = EpochLog(source, tmp_path / "source" / "store")
    log.begin_epoch(1, 1)
    seed = msgspec.msgpack.decode(replica_seed.make_seed(tmp_path / "source", log), type=replica_seed.ReplicaSeed)
    source.close()
    (tmp_path / "replica").mkdir()

    def fail(*_: object) -> None:
        raise OSError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(replica_seed, "save_epochs", fail)
        with pytest.raises(OSError, match="planted"):
            replica_seed.plant_seed(tmp_path / "replica", seed, {}, source.options.segment_bytes, "1")
    assert not (tmp_path / "replica" / "store").exists()
    replica_seed.plant_seed(tmp_path / "replica", seed, {}, source.options.segment_bytes, "2")
    MessageStore.open(tmp_path / "replica" / "store", StoreOptions(replicated=True)).close()


async def test_a_followers_last_step_is_done_although_the_set_changes_at_the_same_moment(replica_set: MakeSet) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    replica = found["b"]
    assert replica._following is not None
    # The follower has ended and says what to do next; before that is done, a controller says that the set is another.
    replica._following.cancel()
    replica._step = Step(NextStep.CUT, replica.log.end)
    replica.note_view(replace(replica.view, set_epoch=replica.view.set_epoch + 1))
    await found.send(b"1", b"2")
    await eventually(lambda: replica.log.end == found["a"].log.end)


async def test_a_promotion_ends_where_another_replica_was_elected_unheard(
    replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replica_set()
    await found.start("a", "b", "c")
    await found.make_topic()
    await found.send(b"1")
    late, asks, hear = found["b"], found["b"]._ask_for_master, found["b"].note_view
    is_asking = False

    async def ask() -> None:
        nonlocal is_asking
        is_asking = True
        await asks()
        is_asking = False

    # No notice of an election reaches it: what it does not ask for it does not know.
    monkeypatch.setattr(late, "note_view", lambda view: hear(view) if is_asking else None)
    monkeypatch.setattr(late, "_ask_for_master", ask)
    number = late.identity.broker_id
    epoch, set_epoch = late.view.epoch, late.view.set_epoch
    late._latest = replace(
        late.view, master_id=number, address=found.address("b"), epoch=epoch + 1, set_epoch=set_epoch + 1
    )
    late._news.set()
    await eventually(lambda: late.port.source is not None)
    for name in "ca":
        await found.ask(
            found.addresses["controller"], 1002, brokerName=NAME, clusterName="DefaultCluster",
            brokerId=found[name].identity.broker_id, designateElect="true",
        )  # fmt: skip
    await eventually(lambda: late.role is ReplicaRole.REPLICA and late.view.epoch == epoch + 2)
    await found.settle(3)
    await found.send(b"2")
    assert await found.bodies() == [b"1", b"2"]


async def test_a_store_that_cannot_be_opened_again_at_a_change_of_role_is_opened_later(
    replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replica_set()
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    former, opening = found["a"], MessageStore.open
    failures = 2

    def fail_at_first(directory: Path, *rest: Any, **options: Any) -> MessageStore:
        nonlocal failures
        if failures and directory == former.directory / "store":
            failures -= 1
            raise StoreError("FILE_NOT_OPENED", "planted")
        return opening(directory, *rest, **options)

    monkeypatch.setattr(MessageStore, "open", fail_at_first)
    await found.ask(found.address("a"), 9125)
    await eventually(lambda: found["b"].role is ReplicaRole.MASTER)
    await found.settle(2)
    assert failures == 0
    assert former.role is ReplicaRole.REPLICA
    await found.send(b"2")
    await eventually(lambda: former.log.end == found["b"].log.end)
