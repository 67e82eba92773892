"""A controller over time: it elects when masters die, tells replicas, and keeps what it decided."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from replica_set_samples import ME, NAME, LoneController

from millstream.controller.controller import Controller, ControllerOptions
from millstream.controller.elections import ElectionOutcome
from millstream.controller.replica_sets import ReplicaSet, ReplicaSets, SetChange
from millstream.controller.replicated_log import LogRole, SingleMemberLog
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.protocol.remoting.administration.controller_requests import (
    AlterSetRequest,
    ApplyIdRequest,
    CleanBrokerRequest,
    ElectRequest,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.administration.sync_state_sets import SyncStateSetBody
from millstream.store.files import FileLayer
from millstream.store.snapshot import Snapshot
from patience import eventually


async def led(lone: LoneController, *numbers: int, **register: str) -> None:
    """These replicas live and are in the set, the first of them is the master."""
    for number in numbers:
        await lone.add(number, **register)
    await lone.controller.elect(ElectRequest(NAME, "c", numbers[0]))
    if len(numbers) > 1:
        await lone.controller.alter(AlterSetRequest(NAME, numbers[0], 1), SyncStateSetBody([*numbers], 1))
    lone.sent.clear()


def found(lone: LoneController) -> ReplicaSet:
    one = lone.sets.find(NAME)
    assert one is not None
    return one


async def settle(lone: LoneController) -> None:
    """Have the elections held that are due now."""
    lone.controller.tick()
    await eventually(lambda: not lone.controller._electing)


async def test_a_silent_master_is_replaced_by_the_best_replica_which_all_living_ones_are_told() -> None:
    lone = LoneController()
    await led(lone, 1, 2, 3)
    lone.clock.advance_ms(1900)
    await lone.beat(2, max_offset=5)
    await lone.beat(3, max_offset=6)
    await settle(lone)
    assert found(lone).master == 1
    lone.clock.advance_ms(100)
    await settle(lone)
    assert (found(lone).master, found(lone).members, found(lone).master_epoch) == (3, (2, 3), 2)
    assert sorted(address for address, _ in lone.sent) == ["h2:10911", "h3:10911"]
    assert lone.controller.election_counts[ElectionOutcome.ELECTED] == 2


async def test_replicas_are_not_told_where_the_setting_says_so() -> None:
    lone = LoneController(ControllerOptions(peers=(ME,), notifies=False))
    await led(lone, 1, 2)
    await lone.controller.elect(ElectRequest(NAME, "c", 2, is_designated=True))
    assert (found(lone).master, lone.sent) == (2, [])


async def test_a_master_that_says_goodbye_is_replaced_before_it_has_its_answer() -> None:
    lone = LoneController()
    await led(lone, 1, 2, all_ack="false")
    assert await lone.beat(1) == 3000
    assert await lone.beat(1, is_goodbye=True) == 0
    assert (found(lone).master, found(lone).members) == (2, (2,))
    assert lone.sent[0][1].ext.get("previousLeaseMs") is None


async def test_a_new_master_hears_how_long_the_former_one_may_hold_its_lease() -> None:
    lone = LoneController()
    await led(lone, 1, 2, all_ack="true")
    await lone.beat(1)
    lone.clock.advance_ms(300)
    await lone.controller.elect(ElectRequest(NAME, "c", 2, is_designated=True))
    assert {command.ext["previousLeaseMs"] for _, command in lone.sent} == {"3000"}


async def test_a_master_whose_process_starts_again_is_no_master_until_it_is_elected_again_6344() -> None:
    """What it has now need not be what it had. RocketMQ issue 6344: a master goes on as one in a new epoch."""
    lone = LoneController()
    await led(lone, 1)
    again = await lone.controller.register(RegisterReplicaRequest("c", NAME, 1, "h1:10911"))
    assert (again.master, again.master_epoch) == (None, 2)
    await lone.beat(1)
    elected = await lone.controller.elect(ElectRequest(NAME, "c", 1))
    assert (elected.found.master, elected.found.master_epoch, elected.found.members) == (1, 3, (1,))


async def test_a_master_whose_process_starts_again_finds_another_one_where_a_member_lives() -> None:
    lone = LoneController()
    await led(lone, 1, 2)
    again = await lone.controller.register(RegisterReplicaRequest("c", NAME, 1, "h1:10911"))
    assert (again.master, again.members) == (2, (2,))


async def test_a_master_is_kept_whose_connection_closed_and_whose_port_is_open() -> None:
    lone = LoneController()
    await led(lone, 1, 2)
    await lone.controller.note_closed(NAME, 1)
    await settle(lone)
    assert found(lone).master == 1
    lone.closed.add("h1:10911")
    await lone.controller.note_closed(NAME, 1)
    await settle(lone)
    assert found(lone).master == 2


async def test_a_master_that_beats_while_it_is_looked_for_stays() -> None:
    lone = LoneController()
    await led(lone, 1, 2)

    async def beat_meanwhile(_address: str) -> bool:
        await lone.beat(1)
        return False

    lone.controller.reach = beat_meanwhile
    await lone.controller.note_closed(NAME, 1)
    await settle(lone)
    assert found(lone).master == 1


async def test_a_set_without_a_master_gets_one_when_a_member_comes_back() -> None:
    lone = LoneController()
    await led(lone, 1)
    await lone.add(2)
    lone.clock.advance_ms(2000)
    await lone.beat(2)
    await settle(lone)
    await settle(lone)
    assert (found(lone).master, found(lone).master_epoch) == (None, 2)
    assert lone.controller.election_counts[ElectionOutcome.NOBODY] == 1
    await lone.beat(1)
    await settle(lone)
    assert (found(lone).master, found(lone).master_epoch) == (1, 3)


class SlowLog(SingleMemberLog):
    """A log that keeps proposals back until it is let go, or fails."""

    def __init__(self, sets: ReplicaSets) -> None:
        super().__init__(sets, ME)
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.proposals = 0

    async def propose(self, change: SetChange) -> bool:
        self.proposals += 1
        await self.may_go.wait()
        return await super().propose(change)


async def test_no_lease_is_given_while_an_election_is_under_way_that_counts_with_its_end_7017() -> None:
    lone = LoneController()
    lone.controller.log = log = SlowLog(lone.sets)
    await led(lone, 1, 2, all_ack="true")
    lone.clock.advance_ms(2000)
    await lone.beat(2)
    log.may_go.clear()
    before = log.proposals
    lone.controller.tick()
    await eventually(lambda: log.proposals > before)
    assert await lone.beat(1) == 0
    assert found(lone).master == 1
    log.may_go.set()
    await eventually(lambda: found(lone).master == 2)
    assert await lone.beat(2) == 3000


async def test_no_lease_is_given_while_it_is_not_known_what_became_of_an_election() -> None:
    lone = LoneController()
    lone.controller.log = log = SlowLog(lone.sets)
    await led(lone, 1, 2, all_ack="true")
    assert await lone.beat(1) == 3000
    log.may_go.clear()
    before = log.proposals
    asked = asyncio.ensure_future(lone.controller.elect(ElectRequest(NAME, "c", 2, is_designated=True)))
    await eventually(lambda: log.proposals > before)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert await lone.beat(1) == 0
    log.may_go.set()
    await lone.controller.register(RegisterReplicaRequest("c", NAME, 2, "new:1", all_ack="true"))
    assert await lone.beat(1) == 3000


async def test_requests_for_one_broker_at_a_time_come_to_pass_one_after_the_other() -> None:
    lone = LoneController()
    wishes = [ApplyIdRequest("c", NAME, 1, f"h{number}:1;{number}") for number in range(20)]
    ends = await asyncio.gather(*map(lone.controller.apply_id, wishes), return_exceptions=True)
    assert [type(end) for end in ends].count(NameRefused) == 19
    assert [end for end in ends if end is None] == [None]


async def test_what_was_forgotten_counts_as_unheard() -> None:
    lone = LoneController()
    await led(lone, 1, 2)
    assert lone.controller.count_active() == {NAME: 2}
    await lone.controller.clean(CleanBrokerRequest(NAME, "c", (), True))
    assert lone.controller.count_active() == {}
    assert lone.controller.liveness.find(NAME, 1) is None
    lone.clock.advance_ms(2000)
    await lone.controller.apply_id(ApplyIdRequest("c", NAME, 1, "h1:10911;9"))
    assert not lone.controller.lives(NAME, 1)


async def test_a_new_leader_lets_nobody_die_for_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = LoneController()
    await led(lone, 1, 2)
    monkeypatch.setattr(type(lone.log), "role", LogRole.FOLLOWER)
    lone.clock.advance_ms(60_000)
    lone.controller.tick()
    monkeypatch.undo()
    monkeypatch.setattr(type(lone.log), "term", 2)
    lone.clock.advance_ms(10)
    await settle(lone)
    assert found(lone).master == 1
    lone.clock.advance_ms(1990)
    await lone.beat(2)
    await settle(lone)
    assert found(lone).master == 1
    lone.clock.advance_ms(10)
    await settle(lone)
    assert found(lone).master == 2


async def test_what_was_decided_is_there_after_a_restart(tmp_path: Path) -> None:
    sets = ReplicaSets()
    log = SingleMemberLog(sets, ME, Snapshot(tmp_path / "controller.json"))
    controller = Controller(sets, log)
    await asyncio.gather(
        *(controller.apply_id(ApplyIdRequest("c", f"b{number}", 1, f"h{number}:1;1")) for number in range(50))
    )
    await controller.elect(ElectRequest("b7", "c", 1))
    again = ReplicaSets()
    SingleMemberLog(again, ME, Snapshot(tmp_path / "controller.json"))
    assert again.encode() == sets.encode()
    assert len(again) == 50


class FullDisk(FileLayer):
    """A disk that takes nothing once it is full."""

    is_full = False
    saves = 0

    def replace(self, path: Path, content: bytes) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.saves += 1
        super().replace(path, content)


async def test_a_controller_that_cannot_keep_what_it_decides_leads_no_more(tmp_path: Path) -> None:
    disk, sets = FullDisk(), ReplicaSets()
    log = SingleMemberLog(sets, ME, Snapshot(tmp_path / "controller.json", disk))
    controller = Controller(sets, log)
    await controller.apply_id(ApplyIdRequest("c", NAME, 1, "h1:1;1"))
    disk.is_full = True
    with pytest.raises(ConsumeRefused, match="cannot be saved") as refused:
        await controller.apply_id(ApplyIdRequest("c", NAME, 2, "h2:1;1"))
    assert refused.value.name == "CONTROLLER_LOG_FAILED"
    disk.is_full = False
    with pytest.raises(NameRefused) as other:
        await controller.next_id(NAME)
    assert other.value.name == "CONTROLLER_NOT_LEADER"
    assert log.leader is None
    await controller.close()
    again = ReplicaSets()
    SingleMemberLog(again, ME, Snapshot(tmp_path / "controller.json"))
    kept = again.find(NAME)
    assert kept is not None
    assert sorted(kept.replicas) == [1]


async def test_changes_that_come_while_the_state_is_saved_share_the_next_save(tmp_path: Path) -> None:
    disk, sets = FullDisk(), ReplicaSets()
    controller = Controller(sets, SingleMemberLog(sets, ME, Snapshot(tmp_path / "controller.json", disk)))
    await asyncio.gather(
        *(controller.apply_id(ApplyIdRequest("c", f"b{number}", 1, f"h{number}:1;1")) for number in range(200))
    )
    # Each save writes two files.
    assert disk.saves <= 2 * 3
