"""The locks of ordered consumers, by examples and against a model that remembers who was granted what until when."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.broker.queues.queue_locks import LOCK_LIMIT_S, LockedQueue, QueueLocks

GROUPS, CLIENTS = ("g", "h"), ("c1", "c2", "c3")
QUEUES = [LockedQueue("t", "b", number) for number in range(4)]
LIMIT = 6

groups, clients = st.sampled_from(GROUPS), st.sampled_from(CLIENTS)
queues = st.lists(st.sampled_from(QUEUES), unique=True)


class LocksMachine(RuleBasedStateMachine):
    """Each queue of each group has one owner at a time, until it gives it up, is gone or is silent for 60 s."""

    def __init__(self) -> None:
        super().__init__()
        self.locks = QueueLocks(limit=LIMIT)
        self.owners: dict[tuple[str, LockedQueue], tuple[str, float]] = {}
        self.now_s = 0.0

    def owner(self, group: str, queue: LockedQueue) -> str | None:
        client_id, until_s = self.owners.get((group, queue), (None, 0.0))
        return client_id if self.now_s < until_s else None

    @rule(group=groups, client_id=clients, wanted=queues)
    def lock(self, group: str, client_id: str, wanted: list[LockedQueue]) -> None:
        granted = self.locks.lock(group, client_id, wanted, self.now_s)
        for queue in wanted:
            free = self.owner(group, queue) in (None, client_id)
            assert free or queue not in granted
            # Beyond the limit a new lock may be refused, a renewal never.
            assert queue in granted or not free or (self.owner(group, queue) is None and len(self.locks) >= LIMIT)
        for queue in granted:
            self.owners[group, queue] = client_id, self.now_s + LOCK_LIMIT_S

    @rule(group=groups, client_id=clients, given_up=queues)
    def unlock(self, group: str, client_id: str, given_up: list[LockedQueue]) -> None:
        self.locks.unlock(group, client_id, given_up)
        for queue in given_up:
            if self.owner(group, queue) == client_id:
                del self.owners[group, queue]

    @rule(group=groups, client_id=clients)
    def release(self, group: str, client_id: str) -> None:
        self.locks.release(group, client_id)
        for queue in QUEUES:
            if self.owner(group, queue) == client_id:
                del self.owners[group, queue]

    @rule(seconds=st.floats(0, LOCK_LIMIT_S * 1.5))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def bounded(self) -> None:
        assert len(self.locks) <= LIMIT

    @invariant()
    def a_group_with_a_lock_is_ordered(self) -> None:
        for group in GROUPS:
            expected = any(self.owner(group, queue) is not None for queue in QUEUES)
            assert self.locks.is_ordered(group, self.now_s) is expected


TestLocks = LocksMachine.TestCase


def test_a_lock_is_for_one_client_until_it_is_silent_for_a_minute() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "c1", QUEUES[:2], 0.0) == QUEUES[:2]
    assert locks.lock("g", "c2", QUEUES, 20.0) == QUEUES[2:]
    assert locks.lock("g", "c1", QUEUES, 40.0) == QUEUES[:2]
    assert locks.lock("h", "c2", QUEUES, 40.0) == QUEUES
    assert locks.lock("g", "c2", QUEUES, 40.0 + LOCK_LIMIT_S) == QUEUES


def test_what_nobody_renews_is_forgotten_and_makes_room() -> None:
    locks = QueueLocks(limit=2)
    assert locks.lock("g", "c1", QUEUES, 0.0) == QUEUES[:2]
    assert locks.lock("h", "c1", QUEUES, LOCK_LIMIT_S) == QUEUES[:2]
    assert len(locks) == 2
