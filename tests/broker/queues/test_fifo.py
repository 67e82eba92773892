"""The ledger that keeps order: within a message group one batch at a time, and no group waits for another."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from example_counts import scaled
from millstream.broker.queues.fifo import NO_GROUP, FifoLedger, attempt_key_of, line_of
from millstream.broker.queues.ledger import Delivery
from millstream.model.errors import ConsumeRefused

T = 1_700_000_000_000
CAPACITY = 12
LINES = [0, 1, 2]
ATTEMPTS = [0, 1, 2]


@dataclass
class Fate:
    """What the plain model knows of one message."""

    line: int
    state: str = "new"
    attempts: int = 0
    visible_ms: int = 0
    handle: int = 0
    attempt_key: int = 0


class FifoMachine(RuleBasedStateMachine):
    """The ledger against a list that is searched from end to end at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = FifoLedger(0, capacity=CAPACITY)
        self.fates: list[Fate] = []
        self.now_ms = T
        self.handles: list[tuple[int, int]] = []

    def pending(self) -> list[int]:
        return [offset for offset, fate in enumerate(self.fates) if fate.state in ("flying", "waiting")]

    def flying(self) -> list[int]:
        return [offset for offset, fate in enumerate(self.fates) if fate.state == "flying"]

    def hidden(self, offset: int) -> bool:
        fate = self.fates[offset]
        return fate.state == "flying" and fate.visible_ms > self.now_ms

    @rule(lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=9))
    def append(self, lines: list[int]) -> None:
        self.fates.extend(Fate(line) for line in lines)

    @rule(by_ms=st.sampled_from([1, 10, 50, 1000]))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(limit=st.integers(1, 8), invisible_ms=st.sampled_from([1, 10, 60]), attempt=st.sampled_from(ATTEMPTS))
    def pop(self, limit: int, invisible_ms: int, attempt: int) -> None:
        expected, waits = self.expect(limit)
        taken = self.take(limit, invisible_ms, attempt)
        assert [delivery.queue_offset for delivery in taken] == expected
        for offset in waits:
            self.fates[offset].state = "waiting"
        for delivery in taken:
            self.check_order(delivery.queue_offset, expected)
            fate = self.fates[delivery.queue_offset]
            assert not self.hidden(delivery.queue_offset), "nobody has what is out of sight"
            assert fate.state != "done"
        for delivery in taken:
            fate = self.fates[delivery.queue_offset]
            fate.state, fate.attempts, fate.attempt_key = "flying", fate.attempts + 1, attempt
            fate.visible_ms, fate.handle = self.now_ms + invisible_ms, delivery.pop_time_ms
            assert delivery.attempts == fate.attempts
            assert (delivery.queue_offset, delivery.pop_time_ms) not in self.handles
            self.handles.append((delivery.queue_offset, delivery.pop_time_ms))

    def expect(self, limit: int) -> tuple[list[int], list[int]]:
        held = {self.fates[offset].line for offset in self.flying() if self.hidden(offset)}
        expected = [offset for offset in self.pending() if self.fates[offset].line not in held][:limit]
        waits: list[int] = []
        room = CAPACITY - len(self.pending())
        for offset, fate in enumerate(self.fates):
            if fate.state == "new" and room > 0 and len(expected) < limit:
                room -= 1
                (waits if fate.line in held else expected).append(offset)
        return expected, waits

    def take(self, limit: int, invisible_ms: int, attempt: int) -> list[Delivery]:
        """As a look takes a batch."""
        ledger, taken = self.ledger, list[Delivery]()
        ledger.begin_batch(self.now_ms)
        while len(taken) < limit and (delivery := ledger.peek_due(self.now_ms)) is not None:
            ledger.redeliver(delivery, self.now_ms, invisible_ms)
            taken.append(delivery)
        while len(taken) < limit and ledger.room > 0 and ledger.cursor < len(self.fates):
            cursor, line = ledger.cursor, self.fates[ledger.cursor].line
            if ledger.admits(line):
                taken.append(ledger.deliver(cursor, self.now_ms, invisible_ms, line))
            else:
                ledger.hold_back(cursor, line)
        ledger.end_batch(attempt, taken)
        return taken

    def check_order(self, offset: int, batch: list[int]) -> None:
        line = self.fates[offset].line
        for earlier in range(offset):
            if self.fates[earlier].line == line and self.fates[earlier].state != "done":
                assert earlier in batch, "an earlier message of the group is neither consumed nor in the same batch"

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        offset, handle = data.draw(st.sampled_from(self.handles))
        fate = self.fates[offset]
        if fate.state == "flying" and fate.handle != handle:
            with pytest.raises(ConsumeRefused):
                self.ledger.acknowledge(offset, handle)
            return
        assert self.ledger.acknowledge(offset, handle) is (fate.state == "flying")
        fate.state = "done"

    @precondition(lambda self: self.flying())
    @rule(data=st.data())
    def acknowledge_the_newest_handle(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.flying()))
        assert self.ledger.acknowledge(offset, self.fates[offset].handle)
        self.fates[offset].state = "done"

    @precondition(lambda self: self.flying())
    @rule(data=st.data(), invisible_ms=st.sampled_from([0, 5, 500]), uncounted=st.booleans())
    def change_invisible(self, data: st.DataObject, invisible_ms: int, uncounted: bool) -> None:
        offset = data.draw(st.sampled_from(self.flying()))
        fate = self.fates[offset]
        delivery = self.ledger.change_invisible(offset, fate.handle, self.now_ms, invisible_ms, uncounted=uncounted)
        assert (offset, delivery.pop_time_ms) not in self.handles
        fate.handle, fate.visible_ms = delivery.pop_time_ms, self.now_ms + invisible_ms
        fate.attempts = max(fate.attempts - uncounted, 0)
        self.handles.append((offset, delivery.pop_time_ms))

    @precondition(lambda self: any(fate.state == "waiting" for fate in self.fates))
    @rule(data=st.data())
    def nothing_a_client_makes_up_reaches_what_waits(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from([n for n, fate in enumerate(self.fates) if fate.state == "waiting"]))
        with pytest.raises(ConsumeRefused):
            self.ledger.acknowledge(offset, 0)

    @precondition(lambda self: self.pending())
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.pending()))
        self.ledger.settle(offset)
        self.fates[offset].state = "done"

    @rule(attempt=st.sampled_from(ATTEMPTS))
    def repeat(self, attempt: int) -> None:
        expected = [
            offset
            for offset in self.flying()
            if attempt and self.fates[offset].attempt_key == attempt and self.hidden(offset)
        ]
        assert [delivery.queue_offset for delivery in self.ledger.repeat(attempt, self.now_ms)] == expected

    @rule()
    def saved_and_restored(self) -> None:
        self.ledger = FifoLedger(self.ledger.cursor, capacity=CAPACITY, in_flight=self.ledger.in_flight)

    @invariant()
    def every_message_is_consumed_in_flight_or_still_to_come(self) -> None:
        assert [delivery.queue_offset for delivery in self.ledger.in_flight] == self.pending()
        for offset, fate in enumerate(self.fates):
            assert self.ledger.is_consumed(offset) is (fate.state == "done")
            assert (fate.state == "new") is (offset >= self.ledger.cursor)

    @invariant()
    def it_says_when_to_look_again_and_never_too_late(self) -> None:
        due_ms = self.ledger.next_due_ms()
        hidden = {self.fates[offset].line for offset in self.flying() if self.hidden(offset)}
        free = [offset for offset in self.pending() if self.fates[offset].line not in hidden]
        if due_ms is None:
            assert not self.pending()
        elif due_ms == 0:
            assert free
        else:
            assert not free or due_ms <= self.now_ms

    @invariant()
    def bookkeeping_stays_in_proportion(self) -> None:
        ledger = self.ledger
        rows = len(ledger._hidden) + len(ledger._free) + sum(len(line.ready) for line in ledger._lines.values())
        assert len(ledger.in_flight) <= CAPACITY
        assert rows <= 4 * CAPACITY + 64


FifoMachine.TestCase.settings = settings(max_examples=scaled(120), stateful_step_count=40, deadline=None)
TestFifoMachine = FifoMachine.TestCase


def taken(ledger: FifoLedger, lines: list[int], now_ms: int = T, *, attempt: int = 0) -> list[Delivery]:
    """One batch of new messages of these lines."""
    ledger.begin_batch(now_ms)
    batch = [ledger.deliver(ledger.cursor, now_ms, 100, line) for line in lines if ledger.admits(line)]
    ledger.end_batch(attempt, batch)
    return batch


def test_a_stuck_message_group_holds_up_no_other_group_of_its_queue() -> None:
    ledger = FifoLedger(0)
    taken(ledger, [1])
    ledger.begin_batch(T)
    assert not ledger.admits(1)
    assert ledger.admits(2)
    ledger.hold_back(1, 1)
    ledger.deliver(2, T, 100, 2)
    assert ledger.peek_due(T) is None
    assert ledger.committed == 0


def test_what_waited_for_its_group_comes_first_in_its_own_place_and_as_its_first_attempt() -> None:
    ledger = FifoLedger(0)
    (first,) = taken(ledger, [1])
    ledger.hold_back(1, 1)
    ledger.hold_back(2, 1)
    assert ledger.next_due_ms() == T + 100
    ledger.acknowledge(0, first.pop_time_ms)
    assert ledger.is_ready
    ledger.begin_batch(T)
    given = []
    while (due := ledger.peek_due(T)) is not None:
        ledger.redeliver(due, T, 100)
        given.append((due.queue_offset, due.attempts))
    assert given == [(1, 1), (2, 1)]


def test_a_group_stays_held_while_one_of_its_batch_is_visible_again_and_another_is_not() -> None:
    ledger = FifoLedger(0)
    first, _ = taken(ledger, [1, 1])
    ledger.change_invisible(0, first.pop_time_ms, T, 0)
    assert ledger.peek_due(T) is None
    assert ledger.next_due_ms() == T + 100
    due = ledger.peek_due(T + 100)
    assert due is not None
    assert due.queue_offset == 0


def test_a_message_on_its_way_to_the_dead_letters_ends_its_groups_part_of_the_batch_alone() -> None:
    ledger = FifoLedger(0)
    taken(ledger, [1, 1, 2])
    ledger.begin_batch(T + 100)
    dead = ledger.peek_due(T + 100)
    assert dead is not None
    ledger.hold(dead, T + 100, 500)
    other = ledger.peek_due(T + 100)
    assert other is not None
    assert other.queue_offset == 2
    assert not ledger.admits(1)
    assert ledger.admits(3)


def test_the_same_attempt_gets_what_is_left_of_its_batch_and_another_one_nothing() -> None:
    ledger = FifoLedger(0)
    one = attempt_key_of("one")
    batch = taken(ledger, [1, 1, 2], attempt=one)
    taken(ledger, [3], attempt=attempt_key_of("two"))
    ledger.acknowledge(0, batch[0].pop_time_ms)
    assert ledger.repeat(one, T + 50) == batch[1:]
    assert ledger.repeat(attempt_key_of("three"), T + 50) == []
    assert ledger.repeat(attempt_key_of(""), T + 50) == []
    assert ledger.repeat(one, T + 100) == []


def test_an_attempt_gets_nothing_that_was_delivered_to_another_one_since() -> None:
    ledger = FifoLedger(0)
    taken(ledger, [1], attempt=7)
    ledger.begin_batch(T + 100)
    due = ledger.peek_due(T + 100)
    assert due is not None
    ledger.redeliver(due, T + 100, 100)
    ledger.end_batch(8, [due])
    assert ledger.repeat(7, T + 100) == []
    assert ledger.repeat(8, T + 100) == [due]


def test_any_text_is_a_line_and_any_attempt_id_a_number_that_fits() -> None:
    assert line_of(None) == NO_GROUP
    assert line_of("") != NO_GROUP
    assert line_of("ann") != line_of("bob")
    assert line_of("\ud800") > 0
    assert attempt_key_of("") == 0
    assert 0 < attempt_key_of("x" * 1_000_000) < 1 << 63
