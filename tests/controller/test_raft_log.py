"""The log of three controllers in one event loop: messages of Raft go from one to the other without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from replica_set_samples import replica_set

from millstream.consensus.raft import HardState, RaftOptions
from millstream.consensus.raft_storage import RaftFiles
from millstream.controller.raft_log import RaftLog
from millstream.controller.replica_sets import ReplicaSets, SetChange
from millstream.controller.replicated_log import ControllerPeer, LogRole
from millstream.model.errors import ConsumeRefused, NameRefused, StoreError
from millstream.protocol.remoting.administration.controller_requests import RaftEnvelope
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from patience import eventually

GROUP = "g"
PEERS = tuple(ControllerPeer(f"n{number}", f"127.0.0.1:{number}") for number in range(3))
OPTIONS = RaftOptions(election_timeout_ms=150, heartbeat_ms=30)


class Group:
    """Three members. `cut` holds those that nobody hears."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.logs: dict[str, RaftLog] = {}
        self.sets: dict[str, ReplicaSets] = {}
        self.cut: set[str] = set()

    def start(self, peer: ControllerPeer) -> None:
        sets = self.sets[peer.id] = ReplicaSets()
        storage = RaftFiles(self._directory / peer.id)
        log = RaftLog(sets, GROUP, peer, PEERS, storage, _Wire(self, peer.id), options=OPTIONS)
        self.logs[peer.id] = log
        log.start()

    async def stop(self, name: str) -> None:
        await self.logs.pop(name).close()

    def deliver(self, sender: str, receiver: str, message: bytes) -> None:
        log = self.logs.get(receiver)
        if log is not None and not {sender, receiver} & self.cut:
            envelope = RaftEnvelope(GROUP, sender, receiver)
            log.receive(RemotingCommand(RequestCode.RAFT_MESSAGE, envelope.encode(), message), None)  # type: ignore[arg-type]

    def leaders(self) -> list[str]:
        return [name for name, log in self.logs.items() if log.role is LogRole.LEADER]

    async def leader(self) -> str:
        await eventually(lambda: len(self.leaders()) == 1)
        return self.leaders()[0]


class _Wire:
    def __init__(self, group: Group, sender: str) -> None:
        self._group = group
        self._sender = sender

    def send(self, peer_id: str, message: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._group.deliver, self._sender, peer_id, message)

    async def close(self) -> None:
        """Nothing to close."""


@asynccontextmanager
async def running(directory: Path, peers: Sequence[ControllerPeer] = PEERS) -> AsyncIterator[Group]:
    group = Group(directory)
    for peer in peers:
        group.start(peer)
    try:
        yield group
    finally:
        for name in list(group.logs):
            await group.stop(name)


def change(name: str) -> SetChange:
    return SetChange("apply-id", name, 0, replica_set(1, name=name))


async def test_what_the_leader_proposes_is_applied_at_all_and_there_after_a_restart_of_all(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        assert await group.logs[leader].propose(change("a"))
        assert not await group.logs[leader].propose(change("a"))
        await group.logs[leader].barrier()
        await eventually(lambda: all(sets.find("a") is not None for sets in group.sets.values()))
    async with running(tmp_path) as group:
        leader = await group.leader()
        await group.logs[leader].barrier()
        assert group.sets[leader].find("a") is not None


async def test_a_follower_names_the_leader_and_decides_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        follower = next(name for name in group.logs if name != leader)
        await eventually(lambda: group.logs[follower].leader is not None)
        for refuse in (group.logs[follower].propose(change("a")), group.logs[follower].barrier()):
            with pytest.raises(NameRefused, match=leader) as refused:
                await refuse
            assert refused.value.name == "CONTROLLER_NOT_LEADER"


async def test_a_leader_that_is_cut_off_confirms_nothing_and_another_one_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        old = await group.leader()
        assert await group.logs[old].propose(change("a"))
        group.cut.add(old)
        reading = asyncio.create_task(group.logs[old].barrier())
        await eventually(lambda: any(name != old for name in group.leaders()))
        with pytest.raises((NameRefused, ConsumeRefused)):
            await reading
        new = next(name for name in group.leaders() if name != old)
        assert await group.logs[new].propose(change("b"))
        group.cut.clear()
        await eventually(lambda: group.sets[old].find("b") is not None)
        await eventually(lambda: len(group.leaders()) == 1)


async def test_most_controllers_must_be_there(tmp_path: Path) -> None:
    async with running(tmp_path, PEERS[:1]) as group:
        log = group.logs["n0"]
        await eventually(lambda: log.role is LogRole.CANDIDATE)
        with pytest.raises(NameRefused):
            await log.propose(change("a"))
        group.start(PEERS[1])
        assert await group.logs[await group.leader()].propose(change("a"))


async def test_a_message_for_another_group_or_member_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, PEERS[:1]) as group:
        log = group.logs["n0"]
        for envelope in (
            RaftEnvelope("h", "n1", "n0"),
            RaftEnvelope(GROUP, "n1", "n2"),
            RaftEnvelope(GROUP, "n9", "n0"),
        ):
            command = RemotingCommand(RequestCode.RAFT_MESSAGE, envelope.encode(), b"garbage")
            assert log.receive(command, None) is None  # type: ignore[arg-type]
        assert caplog.text.count("was refused") == 3


async def test_a_member_whose_disk_fails_says_nothing_more_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(files: RaftFiles, hard_state: HardState) -> None:
        if files._directory.name == broken:
            raise StoreError("DISK_FULL", "There is no room.")
        save_vote(files, hard_state)

    broken, save_vote = "", RaftFiles.save_vote
    monkeypatch.setattr(RaftFiles, "save_vote", fail)
    async with running(tmp_path) as group:
        broken = await group.leader()
        group.cut.add(broken)
        await eventually(lambda: any(name != broken for name in group.leaders()))
        group.cut.clear()
        await eventually(lambda: group.logs[broken].role is LogRole.UNKNOWN)
        with pytest.raises(ConsumeRefused, match="no room"):
            await group.logs[broken].propose(change("a"))
        leader = next(name for name in group.leaders() if name != broken)
        assert await group.logs[leader].propose(change("a"))


async def test_barriers_of_many_callers_share_a_question_to_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        log = group.logs[await group.leader()]
        before = log._node.raft._read_numbers
        await asyncio.gather(*(log.barrier() for _ in range(200)))
        assert log._node.raft._read_numbers - before == 2


async def test_a_caller_that_gives_up_leaves_the_barriers_of_others_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        log = group.logs[await group.leader()]
        waiting = [asyncio.create_task(log.barrier()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[2].cancel()
        await asyncio.gather(*waiting[:2])
        assert waiting[2].cancelled()


async def test_a_barrier_that_waits_fails_when_the_controller_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        waiting = [asyncio.create_task(group.logs[leader].barrier()) for _ in range(2)]
        await asyncio.sleep(0)
        await group.stop(leader)
        with pytest.raises(ConsumeRefused):
            await waiting[1]
        await asyncio.gather(*waiting, return_exceptions=True)
