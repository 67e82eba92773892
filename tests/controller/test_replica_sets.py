"""The state that controllers agree on: what applies, what does not, and what stays true whatever comes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from replica_set_samples import NAME, heartbeat, led_set, replica_set

from millstream.controller.elections import ElectionOutcome, Elections
from millstream.controller.liveness import Liveness
from millstream.controller.replica_sets import Replica, ReplicaSet, ReplicaSets, SetChange
from millstream.controller.set_requests import alter_set, apply_id, clean_replicas, register_replica
from millstream.model.errors import NameRefused, StoreError
from millstream.protocol.remoting.administration.controller_requests import (
    BY_CONTROLLER,
    AlterSetRequest,
    ApplyIdRequest,
    CleanBrokerRequest,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.administration.sync_state_sets import SyncStateSetBody

IDS = st.integers(1, 5)


def made() -> tuple[ReplicaSets, ReplicaSet]:
    """A state with one set of two replicas, the first of them the master."""
    sets = ReplicaSets()
    assert sets.apply(SetChange("apply-id", NAME, 0, replica_set(1, 2)))
    found = sets.find(NAME)
    assert found is not None
    led = replace(found, master=1, master_epoch=1, members=(1, 2), set_epoch=1)
    assert sets.apply(SetChange("elect", NAME, found.revision, led))
    found = sets.find(NAME)
    assert found is not None
    return sets, found


def test_a_change_applies_to_the_revision_that_it_was_decided_on_alone() -> None:
    sets, found = made()
    later = replace(found, master_epoch=2)
    assert not sets.apply(SetChange("elect", NAME, found.revision - 1, later))
    assert not sets.apply(SetChange("elect", NAME, 0, later))
    assert sets.apply(SetChange("elect", NAME, found.revision, later))
    assert not sets.apply(SetChange("elect", NAME, found.revision, replace(later, master_epoch=3)))


def test_a_name_that_was_forgotten_and_made_again_takes_no_change_from_before() -> None:
    sets, found = made()
    assert sets.apply(SetChange("clean", NAME, found.revision))
    assert sets.apply(SetChange("apply-id", NAME, 0, replica_set(1, 2)))
    assert not sets.apply(SetChange("elect", NAME, found.revision, replace(found, master_epoch=2)))
    assert not sets.apply(SetChange("clean", "nobody", 0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"master_epoch": 0},
        {"set_epoch": 0},
        {"next_id": 2},
        {"master": 2},
        {"members": (1,)},
        {"members": (2, 1), "set_epoch": 2},
        {"members": (1, 3), "set_epoch": 2},
        {"master": 2, "master_epoch": 2, "members": (1,), "set_epoch": 2},
        {"replicas": {}},
        {"name": "other"},
        {"replicas": {1: Replica("h", "c"), 2: Replica("h", "c", is_learner=True)}},
    ],
)
def test_a_change_that_breaks_a_rule_applies_nowhere_whoever_decided_it(wrong: dict[str, Any]) -> None:
    sets, found = made()
    assert not sets.apply(SetChange("elect", NAME, found.revision, replace(found, **wrong)))
    assert sets.find(NAME) == found


def test_a_change_is_read_from_the_log_as_it_was_written() -> None:
    change = SetChange("elect", NAME, 4, led_set(1, 2, 3, last_members=(1, 2)))
    assert SetChange.decode(change.encode()) == change
    assert SetChange.decode(SetChange("clean", NAME, 4).encode()).after is None
    with pytest.raises(StoreError):
        SetChange.decode(b"{}")


def test_a_restored_state_goes_on_as_the_one_that_was_saved() -> None:
    sets, found = made()
    other = ReplicaSets()
    other.restore(sets.encode())
    change = SetChange("elect", NAME, found.revision, replace(found, master_epoch=2))
    assert other.apply(change)
    assert sets.apply(change)
    assert other.encode() == sets.encode()


@pytest.mark.parametrize("document", [b"", b"{}", b'{"version":9,"revision":1,"sets":[]}'])
def test_a_state_that_cannot_be_read_changes_nothing(document: bytes) -> None:
    sets, _ = made()
    before = sets.encode()
    with pytest.raises(StoreError):
        sets.restore(document)
    assert sets.encode() == before


def test_the_state_of_ten_thousand_replicas_is_far_below_its_limit() -> None:
    sets = ReplicaSets()
    for number in range(3334):
        name = f"broker-{number:05}-in-a-data-centre"
        three = replace(replica_set(1, 2, 3), name=name)
        assert sets.apply(SetChange("apply-id", name, 0, three))
        led = replace(three, master=1, master_epoch=1, members=(1, 2, 3), set_epoch=1, last_members=(1, 2, 3))
        assert sets.apply(SetChange("elect", name, number * 2 + 1, led))
    document = sets.encode()
    assert len(document) < 4 * 1024 * 1024
    other = ReplicaSets()
    other.restore(document)
    assert len(other) == 3334


class ControllerGroup(RuleBasedStateMachine):
    """One broker name under everything that brokers, tools and time may do, at two controllers that apply alike.

    Changes are decided by either of them, also on a state that is old by then, and arrive in one order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.states = (ReplicaSets(), ReplicaSets())
        self.liveness = Liveness()
        self.elections = Elections(self.liveness)
        self.undecided: list[SetChange] = []
        self.masters: dict[int, int | None] = {}
        """Which master each epoch had, since the name was made."""
        self.last: ReplicaSet | None = None

    @initialize()
    def begin(self) -> None:
        for number in (1, 2, 3):
            self.commit(apply_id(self.found, ApplyIdRequest("c", NAME, number, f"h{number}:1;{number}")))
            self.liveness.note(heartbeat(number), self.now_s)
        assert self.found is not None
        self.commit(self.elections.elect(self.found, 1, self.now_s).change)
        self.commit(alter_set(self.found, AlterSetRequest(NAME, 1, 1), SyncStateSetBody([1, 2], 1), self.lives))

    @property
    def found(self) -> ReplicaSet | None:
        return self.states[0].find(NAME)

    def lives(self, number: int) -> bool:
        return self.liveness.is_alive(NAME, number, self.now_s)

    def commit(self, change: SetChange | None) -> None:
        if change is None:
            return
        before = self.found
        entry = change.encode()
        applied = {state.apply(SetChange.decode(entry)) for state in self.states}
        assert len(applied) == 1
        if applied == {True}:
            self.check(before, self.found, change)

    def check(self, before: ReplicaSet | None, after: ReplicaSet | None, change: SetChange) -> None:
        if before is None or after is None:
            self.masters = {}
            return
        assert after.master_epoch >= before.master_epoch
        assert after.set_epoch >= before.set_epoch
        assert after.next_id >= before.next_id
        assert after.revision > before.revision
        if change.reason == "elect" and after.master is not None and before.master_epoch:
            assert after.master in before.members
            assert {*after.members} <= {*before.members}

    @rule(number=IDS, offset=st.integers(0, 5), epoch=st.integers(1, 3), leaves=st.booleans())
    def beat(self, number: int, offset: int, epoch: int, leaves: bool) -> None:
        told = heartbeat(number, max_offset=offset, epoch=epoch, is_goodbye=leaves)
        self.liveness.note(told, self.now_s)

    @rule(seconds=st.floats(0.1, 4), heard=st.sets(IDS), offset=st.integers(0, 5))
    def pass_time(self, seconds: float, heard: set[int], offset: int) -> None:
        self.now_s += seconds
        for number in heard:
            self.liveness.note(heartbeat(number, max_offset=offset), self.now_s)

    @rule(number=IDS)
    def close_port(self, number: int) -> None:
        self.liveness.lose(NAME, number)

    @rule()
    def change_leader(self) -> None:
        self.liveness.restart(self.now_s)

    @rule(number=IDS, code=st.sampled_from("ab"), delays=st.booleans())
    def take_id(self, number: int, code: str, delays: bool) -> None:
        self.propose(lambda: apply_id(self.found, ApplyIdRequest("c", NAME, number, f"h:1;{code}")), delays)

    @rule(number=IDS, learns=st.booleans(), ack=st.sampled_from(["true", "false", ""]), delays=st.booleans())
    def register(self, number: int, learns: bool, ack: str, delays: bool) -> None:
        asked = RegisterReplicaRequest("c", NAME, number, f"h{number}:2", learns, ack)
        self.propose(lambda: register_replica(self.found, asked), delays)

    @precondition(lambda self: self.found is not None and self.found.master is not None)
    @rule(members=st.sets(IDS), delays=st.booleans())
    def alter(self, members: set[int], delays: bool) -> None:
        found = self.found
        assert found is not None
        asked = AlterSetRequest(NAME, found.master or 0, found.master_epoch)
        wanted = SyncStateSetBody([*members], found.set_epoch)
        self.propose(lambda: alter_set(found, asked, wanted, self.lives), delays)

    @rule(asker=IDS | st.just(BY_CONTROLLER), designates=st.booleans(), delays=st.booleans())
    def elect(self, asker: int, designates: bool, delays: bool) -> None:
        found = self.found
        if found is None:
            return

        def decide() -> SetChange | None:
            election = self.elections.elect(found, asker, self.now_s, is_designated=designates)
            assert (election.outcome is ElectionOutcome.KEPT) <= (election.change is None)
            return election.change

        self.propose(decide, delays)

    @rule()
    def elect_what_is_due(self) -> None:
        found = self.found
        if found is not None and self.elections.find_due([found], self.now_s):
            change = self.elections.elect(found, BY_CONTROLLER, self.now_s).change
            assert change is not None, "what is due comes to something"
            self.commit(change)
            assert self.found is not None
            assert self.elections.find_due([self.found], self.now_s) == [], "and is not due again"

    @rule(ids=st.sets(IDS, min_size=1, max_size=2), living=st.booleans(), delays=st.booleans())
    def clean(self, ids: set[int], living: bool, delays: bool) -> None:
        asked = CleanBrokerRequest(NAME, "c", tuple(map(str, ids)), living)
        self.propose(lambda: clean_replicas(self.found, asked, self.lives), delays)

    @precondition(lambda self: self.now_s > 1020)
    @rule()
    def forget_all(self) -> None:
        self.propose(lambda: clean_replicas(self.found, CleanBrokerRequest(NAME, "c", (), True), self.lives), False)

    def propose(self, decide: Any, delays: bool) -> None:
        try:
            change = decide()
        except NameRefused:
            return
        if delays and change is not None:
            self.undecided.append(change)
        else:
            self.commit(change)

    @precondition(lambda self: self.undecided)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        self.commit(self.undecided.pop(data.draw(st.integers(0, len(self.undecided) - 1))))

    @rule()
    def restore_one(self) -> None:
        restored = ReplicaSets()
        restored.restore(self.states[1].encode())
        self.states = (self.states[0], restored)

    @invariant()
    def controllers_agree(self) -> None:
        assert self.states[0].encode() == self.states[1].encode()

    @invariant()
    def an_epoch_has_one_master_who_is_a_member(self) -> None:
        found = self.found
        if found is None:
            return
        assert self.masters.setdefault(found.master_epoch, found.master) == found.master
        assert found.master is None or found.master in found.members
        assert not any(found.replicas[one].is_learner for one in found.members)
        assert {*found.members} <= {*found.replicas}


TestControllerGroup = ControllerGroup.TestCase
TestControllerGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
