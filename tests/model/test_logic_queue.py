"""Logic queues: whatever is appended and moved, a reader sees each message once, in order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from example_counts import scaled
from millstream.model.errors import NameRefused
from millstream.model.logic_queue import (
    MAX_ITEMS,
    UNDECIDED,
    LogicQueue,
    MappingItem,
    TopicMapping,
    merged_queues,
)

BROKERS = ["a", "b", "c"]


def first(broker: str = "a", queue_id: int = 0, number: int = 0) -> LogicQueue:
    return LogicQueue(number, (MappingItem(0, broker, queue_id, 0),))


def mapping(broker: str, queue: LogicQueue, epoch: int = 1, total: int = 1) -> TopicMapping:
    return TopicMapping("t", broker, total, epoch, {queue.number: queue})


@dataclass
class Coordinator:
    """One who moves the queue, step by step, as far as it gets."""

    queue: LogicQueue
    epoch: int
    step: int = 0
    is_dead: bool = False


class MoveMachine(RuleBasedStateMachine):
    """One logic queue over three brokers whose writers and coordinators come in any order, and die in between."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[tuple[str, int], list[int]] = {("a", 0): []}
        self.tables = {"a": mapping("a", first())}
        self.accepted: list[int] = []
        self.offsets: list[int] = []
        self.coordinators: list[Coordinator] = []
        self.has_gap = False

    def newest(self) -> LogicQueue:
        return merged_queues(self.tables.values())[0]

    def epoch(self) -> int:
        return max(table.epoch for table in self.tables.values())

    def tell(self, broker: str, coordinator: Coordinator) -> None:
        table = self.tables.get(broker)
        new = mapping(broker, coordinator.queue, coordinator.epoch)
        try:
            self.tables[broker] = new if table is None else table.update(new)
        except NameRefused:
            coordinator.is_dead = True

    @rule(broker=st.sampled_from(BROKERS), count=st.integers(1, 5))
    def send(self, broker: str, count: int) -> None:
        table = self.tables.get(broker)
        if table is None or not table.queues[0].leads(broker):
            return
        leader = table.queues[0].leader
        physical = self.stored[broker, leader.queue_id]
        for _ in range(count):
            self.offsets.append(leader.logic(len(physical)))
            physical.append(len(self.accepted))
            self.accepted.append(len(self.accepted))

    @rule(broker=st.sampled_from(BROKERS))
    def begin_a_move(self, broker: str) -> None:
        queue = self.newest()
        if not queue.leader.is_decided:
            self.coordinators.append(Coordinator(queue, self.epoch() + 1))
        elif broker != queue.leader.broker_name:
            queue_id = sum(name == broker for name, _ in self.stored)
            self.stored[broker, queue_id] = []
            self.coordinators.append(Coordinator(queue.move_to(broker, queue_id), self.epoch() + 1))

    @precondition(lambda self: self.coordinators)
    @rule(data=st.data(), margin=st.sampled_from([0, 0, 7]))
    def go_on(self, data: st.DataObject, margin: int) -> None:
        one = data.draw(st.sampled_from(self.coordinators))
        last, leader = one.queue.items[-2], one.queue.leader
        one.step += 1
        if one.step == 1:
            self.tell(leader.broker_name, one)
        elif one.step == 2:
            self.tell(last.broker_name, one)
        elif one.step == 3:
            end = len(self.stored[last.broker_name, last.queue_id])
            self.has_gap |= bool(margin) or not end
            one.queue = one.queue.decide(end, 0, margin=margin)
            self.tell(leader.broker_name, one)
        else:
            for broker in BROKERS:
                self.tell(broker, one)
            one.is_dead = True
        self.coordinators = [each for each in self.coordinators if not each.is_dead]

    @precondition(lambda self: self.coordinators)
    @rule()
    def all_coordinators_die(self) -> None:
        self.coordinators = []

    @rule()
    def somebody_finishes_what_was_begun(self) -> None:
        self.coordinators = []
        one = Coordinator(self.newest(), self.epoch() + 1)
        if not one.queue.leader.is_decided:
            last = one.queue.items[-2]
            for broker in (one.queue.leader.broker_name, last.broker_name):
                self.tell(broker, one)
            end = len(self.stored[last.broker_name, last.queue_id])
            self.has_gap |= not end
            one.queue = one.queue.decide(end, 0)
        for broker in BROKERS:
            self.tell(broker, one)
        assert not one.is_dead
        assert sum(table.queues[0].leads(broker) for broker, table in self.tables.items()) == 1
        assert len({table.queues[0] for table in self.tables.values()}) == 1

    @invariant()
    def one_broker_at_most_stores(self) -> None:
        assert sum(table.queues[0].leads(broker) for broker, table in self.tables.items()) <= 1

    @invariant()
    def a_reader_sees_all_in_order(self) -> None:
        queue, offset, seen, offsets = self.newest(), 0, [], []
        for _ in range(len(self.accepted) + 2 * len(queue.items)):
            position = queue.position_of(offset)
            item = queue.readable[position]
            physical, stored = item.physical(offset), self.stored[item.broker_name, item.queue_id]
            limit = queue.limit(position)
            if physical < len(stored) and (limit is None or physical < limit):
                seen.append(stored[physical])
                offsets.append(item.logic(physical))
                offset = item.logic(physical) + 1
            elif position + 1 < len(queue.readable):
                offset = queue.readable[position + 1].logic_offset
        assert seen == self.accepted
        assert offsets == self.offsets
        if not self.has_gap:
            assert offsets == list(range(len(offsets)))

    @invariant()
    def every_broker_finds_its_physical_queues_again(self) -> None:
        queue = self.newest()
        for position, item in enumerate(queue.readable):
            assert queue.own(item.broker_name, item.queue_id) == position


TestMoves = MoveMachine.TestCase
TestMoves.settings = settings(max_examples=scaled(60), stateful_step_count=40, deadline=None)


def refused(words: str) -> pytest.RaisesExc[NameRefused]:
    return pytest.raises(NameRefused, match=words)


def test_a_new_leader_begins_where_the_old_one_ended() -> None:
    queue = first().move_to("b", 3).decide(70, 5)
    assert queue.leader == MappingItem(1, "b", 3, 70, start_ms=5)
    assert queue.limit(0) == 70
    assert queue.limit(1) is None


def test_a_margin_leaves_offsets_out() -> None:
    assert first().move_to("b", 0).decide(70, 5, margin=30).leader.logic_offset == 100


def test_a_queue_without_decision_is_stored_by_nobody() -> None:
    queue = first().move_to("b", 0)
    assert not queue.leads("a")
    assert not queue.leads("b")
    assert queue.position_of(1_000_000) == 0


def test_a_decision_is_made_once() -> None:
    queue = first().move_to("b", 0).decide(70, 5)
    assert queue.decide(90, 6) is queue


def test_a_second_move_waits_for_the_first() -> None:
    with refused("being moved to b"):
        first().move_to("b", 0).move_to("c", 0)


def test_items_of_a_queue_are_bounded() -> None:
    items = tuple(MappingItem(n, "a", n, n) for n in range(MAX_ITEMS))
    with refused("limit"):
        LogicQueue(0, items).move_to("b", 0)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ((), "0 items"),
        ((MappingItem(0, "a", 0, UNDECIDED),), "without a logic offset"),
        ((MappingItem(0, "a", 0, 0), MappingItem(0, "b", 0, 9)), "generations"),
        ((MappingItem(0, "a", 0, 0, end_offset=10), MappingItem(1, "b", 0, 9)), "before 10"),
        ((MappingItem(0, "a", 0, 5), MappingItem(1, "b", 0, 4)), "before 5"),
        ((MappingItem(0, "a", 0, 0, 4, 3),), "ends before"),
        ((MappingItem(0, "", 0, 0),), "without a broker"),
        ((MappingItem(0, "a", -1, 0),), "negative"),
    ],
)
def test_items_that_contradict_each_other_are_refused(items: tuple[MappingItem, ...], words: str) -> None:
    with refused(words):
        LogicQueue(0, items).check()


def test_one_physical_queue_is_part_of_one_logic_queue() -> None:
    queues = {0: first("a", 0, 0), 1: first("a", 0, 1)}
    with refused("in queue 0 and in 1"):
        TopicMapping("t", "a", 2, 1, queues).check()


def test_an_older_epoch_is_refused() -> None:
    with refused("epoch 5 here"):
        mapping("a", first(), 5).update(mapping("a", first(), 4))


def test_a_decided_offset_stays() -> None:
    queue = first().move_to("b", 0).decide(70, 5)
    changed = LogicQueue(0, (queue.items[0], replace(queue.leader, logic_offset=80)))
    with refused("begins at 70, not 80"):
        mapping("b", queue).update(mapping("b", changed, 2))


def test_one_epoch_has_one_leader() -> None:
    with refused("another leader"):
        mapping("a", first()).update(mapping("a", first().move_to("b", 0)))


def test_a_change_by_force_is_not_compared() -> None:
    assert mapping("a", first(), 5).update(mapping("a", first("a", 9), 4), force=True).queues[0] == first("a", 9)


def test_queues_cannot_become_fewer() -> None:
    with refused("cannot have fewer"):
        mapping("a", first(), 1, 4).update(mapping("a", first(), 2, 3))


def test_a_change_keeps_the_queues_that_it_does_not_name() -> None:
    old = TopicMapping("t", "a", 2, 1, {0: first(), 1: first("a", 1, 1)})
    assert old.update(TopicMapping("t", "a", 2, 2, {1: first("a", 1, 1)})).queues.keys() == {0, 1}


def test_the_newest_of_each_queue_is_found() -> None:
    begun = first().move_to("b", 0)
    done = begun.decide(7, 0)
    assert merged_queues([mapping("a", first()), mapping("b", begun)]) == {0: begun}
    assert merged_queues([mapping("a", begun), mapping("b", done)]) == {0: done}
    rival = first().move_to("c", 0)
    assert merged_queues([mapping("c", rival), mapping("a", begun), mapping("b", begun)]) == {0: begun}


def test_an_empty_item_is_followed_by_one_of_another_offset() -> None:
    assert first().move_to("b", 0).decide(0, 0).leader.logic_offset == 1
