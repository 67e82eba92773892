"""Which replicas must have a message, and up to where they have the log."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.replication.sync_set import (
    BARRED_S,
    MAX_BEHIND_S,
    MAX_LOST_S,
    AckPolicy,
    ReplicaAck,
    SetRequest,
    SyncSet,
)


def sync_set(*members: int, **policy: object) -> SyncSet:
    made = SyncSet(
        1,
        5,
        members or (1,),
        7,
        policy=AckPolicy(**policy),
        confirmed=0,
        epoch_start=0,
        now_s=0.0,  # type: ignore[arg-type]
    )
    made.note_own(100, 100)
    return made


def acknowledge(replicas: SyncSet, broker_id: int, written: int, *, now_s: float = 0.0, flushed: int = 0) -> None:
    replicas.open_session(broker_id, broker_id * 10, now_s)
    replicas.acknowledge(broker_id, broker_id * 10, written, flushed, now_s)


def test_a_master_alone_confirms_what_it_has() -> None:
    assert sync_set().confirmed == 100


def test_a_member_without_a_session_holds_the_confirmed_offset_6662() -> None:
    replicas = sync_set(1, 2, 3)
    acknowledge(replicas, 2, 80)
    assert replicas.confirmed == 0
    acknowledge(replicas, 3, 60)
    assert replicas.confirmed == 60
    replicas.close_session(3, 30, 1.0)
    replicas.acknowledge(2, 20, 100, 0, 1.0)
    assert replicas.confirmed == 60


def test_a_member_counts_from_the_moment_of_asking_5663() -> None:
    replicas = sync_set(1)
    acknowledge(replicas, 2, 100)
    assert replicas.next_change(0.0) == SetRequest(frozenset({1, 2}), 7, 5)
    replicas.note_lost()
    replicas.note_own(200, 200)
    assert replicas.confirmed == 100
    replicas.acknowledge(2, 20, 150, 0, 0.0)
    assert replicas.confirmed == 150
    assert replicas.next_change(0.0) == SetRequest(frozenset({1, 2}), 7, 5)


def test_a_member_is_given_up_from_the_moment_of_the_answer_5663() -> None:
    replicas = sync_set(1, 2)
    assert replicas.next_change(MAX_LOST_S) is None
    assert replicas.next_change(MAX_LOST_S + 0.1) == SetRequest(frozenset({1}), 7, 5)
    assert replicas.confirmed == 0
    replicas.note_set([1], 8)
    assert replicas.confirmed == 100


def test_a_refusal_frees_only_where_no_earlier_attempt_can_be_applied() -> None:
    replicas = sync_set(1)
    acknowledge(replicas, 2, 100)
    replicas.next_change(0.0)
    replicas.note_lost()
    assert replicas.required == {1, 2}
    replicas.next_change(0.0)
    replicas.note_refused(0.0)
    assert replicas.required == {1}
    assert replicas.next_change(BARRED_S / 2) is None, "a replica that the controller refuses is not asked for again"
    change = replicas.next_change(BARRED_S)
    assert change is not None
    assert change.members == {1, 2}


def test_two_members_that_leave_at_once_are_one_change_9897() -> None:
    replicas = sync_set(1, 2, 3)
    acknowledge(replicas, 2, 100)
    acknowledge(replicas, 3, 100)
    replicas.close_session(2, 20, 1.0)
    replicas.close_session(3, 30, 1.0)
    change = replicas.next_change(1.0 + MAX_LOST_S + 0.1)
    assert change is not None
    assert change.members == {1}
    assert replicas.next_change(9.0) is None


def test_two_sessions_of_one_identity_count_once() -> None:
    replicas = sync_set(1, all_in_set=False, in_sync_replicas=3)
    assert replicas.open_session(2, 20, 0.0) is None
    assert replicas.open_session(2, 21, 0.0) == 20
    replicas.acknowledge(2, 20, 100, 0, 0.0)
    replicas.acknowledge(2, 21, 100, 0, 0.0)
    assert replicas.confirmed == 0
    replicas.close_session(2, 20, 0.0)
    acknowledge(replicas, 3, 90)
    assert replicas.confirmed == 90


def test_a_replica_cannot_have_the_identity_of_its_master() -> None:
    with pytest.raises(ValueError, match="own id"):
        sync_set(1).open_session(1, 10, 0.0)


def test_what_is_written_does_not_count_where_flushed_is_demanded() -> None:
    replicas = sync_set(1, 2, replica_ack=ReplicaAck.FLUSHED)
    acknowledge(replicas, 2, 100, flushed=40)
    assert replicas.confirmed == 40


def test_a_set_below_the_least_takes_no_writes() -> None:
    replicas = sync_set(1, 2, min_in_sync=2)
    assert replicas.takes_writes
    replicas.next_change(MAX_LOST_S + 1)
    assert not replicas.takes_writes
    replicas.note_set([1], 8)
    assert not replicas.takes_writes


def test_a_member_that_follows_a_busy_log_is_not_behind_and_one_that_stands_is() -> None:
    replicas = sync_set(1, 2, 3)
    acknowledge(replicas, 2, 0)
    acknowledge(replicas, 3, 0)
    second = 0
    for second in range(1, 40):
        replicas.note_own(100 * second, 0)
        replicas.acknowledge(2, 20, 100 * (second - 1), 0, float(second))
        replicas.acknowledge(3, 30, 0, 0, float(second))
        change = replicas.next_change(float(second))
        if change is not None:
            break
    assert change == SetRequest(frozenset({1, 2}), 7, 5)
    assert second > MAX_BEHIND_S


def test_a_replica_joins_when_it_has_all_that_counts_and_the_start_of_the_epoch() -> None:
    replicas = SyncSet(1, 5, [1], 7, policy=AckPolicy(), confirmed=50, epoch_start=80, now_s=0.0)
    acknowledge(replicas, 2, 79)
    assert replicas.next_change(0.0) is None
    replicas.acknowledge(2, 20, 80, 0, 0.0)
    assert replicas.next_change(0.0) is not None


class SetUnderFaults(RuleBasedStateMachine):
    """A controller that applies changes late, whose answers are lost; replicas that come and go.

    Whoever may be elected, each member of the controller's set, has all that was confirmed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.replicas = SyncSet(1, 5, [1, 2], 0, policy=AckPolicy(), confirmed=0, epoch_start=0, now_s=0.0)
        self.now_s = 0.0
        self.end = 0
        self.logs = {2: 0, 3: 0}
        self.sessions: dict[int, int] = {}
        self.latest_session = 0
        self.controller = (frozenset({1, 2}), 0)
        self.requests: list[SetRequest] = []

    @rule(size=st.integers(1, 20))
    def write(self, size: int) -> None:
        self.end += size
        self.replicas.note_own(self.end, self.end)

    @rule(broker_id=st.sampled_from([2, 3]))
    def connect(self, broker_id: int) -> None:
        self.latest_session += 1
        self.sessions[broker_id] = self.latest_session
        self.replicas.open_session(broker_id, self.latest_session, self.now_s)

    @rule(broker_id=st.sampled_from([2, 3]), late=st.booleans())
    def disconnect(self, broker_id: int, late: bool) -> None:
        session = self.sessions.get(broker_id)
        if session is not None:
            self.replicas.close_session(broker_id, session - late, self.now_s)

    @rule(broker_id=st.sampled_from([2, 3]), part=st.floats(0, 1))
    def copy(self, broker_id: int, part: float) -> None:
        self.logs[broker_id] += int((self.end - self.logs[broker_id]) * part)
        session = self.sessions.get(broker_id)
        if session is not None:
            written = self.logs[broker_id]
            self.replicas.acknowledge(broker_id, session, written, written, self.now_s)

    @rule(seconds=st.sampled_from([0.5, 4.0, 16.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.replicas.tick(self.now_s)

    @rule()
    def ask(self) -> None:
        change = self.replicas.next_change(self.now_s)
        if change is not None:
            self.requests.append(change)

    @rule()
    def lose_answer(self) -> None:
        self.replicas.note_lost()

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 100), answered=st.booleans(), kept=st.booleans())
    def apply(self, number: int, answered: bool, kept: bool) -> None:
        place = number % len(self.requests)
        change = self.requests[place] if kept else self.requests.pop(place)
        if change.set_epoch == self.controller[1]:
            self.controller = (change.members, change.set_epoch + 1)
        if answered:
            self.replicas.note_set(*self.controller)

    @invariant()
    def who_may_be_elected_has_all_that_counts(self) -> None:
        logs = {1: self.end, **self.logs}
        assert all(logs[member] >= self.replicas.confirmed for member in self.controller[0])


TestSetUnderFaults = SetUnderFaults.TestCase
