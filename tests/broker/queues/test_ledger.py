"""The pop ledger: one message at a time in sight of one consumer, nothing lost, order where it is promised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from state_bench import load_table

from example_counts import scaled
from millstream.broker.queues.fifo import FifoLedger
from millstream.broker.queues.ledger import Ledger
from millstream.broker.queues.offsets import OffsetTable
from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.store.snapshot import Snapshot

T = 1_700_000_000_000
CAPACITY = 12


@dataclass
class Fate:
    """What the naive model knows of one message."""

    state: str = "new"
    attempts: int = 0
    visible_ms: int = 0
    handle: int = 0
    taken: int = 0
    """The handle that the consumer has, where it was renewed since."""

    def takes(self, handle: int) -> bool:
        return self.state == "flying" and handle in {self.handle, self.taken}


class LedgerMachine(RuleBasedStateMachine):
    """The ledger against a list that is searched from end to end at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(0, capacity=CAPACITY)
        self.fates: list[Fate] = []
        self.now_ms = T
        self.handles: list[tuple[int, int]] = []

    def unwanted(self, offset: int) -> bool:
        return offset % 7 == 3

    def flying(self) -> list[int]:
        return [offset for offset, fate in enumerate(self.fates) if fate.state == "flying"]

    @rule(count=st.integers(1, 9))
    def append(self, count: int) -> None:
        self.fates.extend(Fate() for _ in range(count))

    @rule(by_ms=st.sampled_from([0, 1, 10, 50, 1000]))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(by_ms=st.sampled_from([1, 10]))
    def the_wall_clock_steps_back(self, by_ms: int) -> None:
        self.now_ms -= by_ms
        # What was seen to be visible stays so: the model looks once before the step, as the ledger does.
        for offset in self.flying():
            if self.fates[offset].visible_ms <= self.now_ms + by_ms:
                self.fates[offset].visible_ms = min(self.fates[offset].visible_ms, self.now_ms)
        self.ledger.peek_due(self.now_ms + by_ms)

    @rule(limit=st.integers(1, 8), invisible_ms=st.sampled_from([1, 10, 60]))
    def pop(self, limit: int, invisible_ms: int) -> None:
        due = [offset for offset in self.flying() if self.fates[offset].visible_ms <= self.now_ms]
        room = CAPACITY - len(self.flying())
        fresh = [offset for offset, fate in enumerate(self.fates) if fate.state == "new" and not self.unwanted(offset)]
        expected_due = due[:limit]
        expected_new = fresh[: max(0, min(limit - len(expected_due), room))]

        taken = []
        while len(taken) < limit and (delivery := self.ledger.peek_due(self.now_ms)) is not None:
            self.ledger.redeliver(delivery, self.now_ms, invisible_ms)
            taken.append(delivery)
        while len(taken) < limit and self.ledger.room > 0 and self.ledger.cursor < len(self.fates):
            cursor = self.ledger.cursor
            if self.unwanted(cursor):
                self.ledger.pass_over(cursor + 1)
                self.fates[cursor].state = "done"
            else:
                taken.append(self.ledger.deliver(cursor, self.now_ms, invisible_ms))

        assert [delivery.queue_offset for delivery in taken] == expected_due + expected_new
        for delivery in taken:
            fate = self.fates[delivery.queue_offset]
            fate.state, fate.attempts = "flying", fate.attempts + 1
            fate.visible_ms, fate.handle, fate.taken = self.now_ms + invisible_ms, delivery.pop_time_ms, 0
            assert delivery.attempts == fate.attempts
            assert (delivery.queue_offset, delivery.pop_time_ms) not in self.handles
            self.handles.append((delivery.queue_offset, delivery.pop_time_ms))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        offset, handle = data.draw(st.sampled_from(self.handles))
        fate = self.fates[offset]
        if fate.state == "flying" and not fate.takes(handle):
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

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), invisible_ms=st.sampled_from([0, 5, 500]))
    def change_invisible(self, data: st.DataObject, invisible_ms: int) -> None:
        offset, handle = data.draw(st.sampled_from(self.handles))
        fate = self.fates[offset]
        if not fate.takes(handle):
            with pytest.raises(ConsumeRefused):
                self.ledger.change_invisible(offset, handle, self.now_ms, invisible_ms)
            return
        delivery = self.ledger.change_invisible(offset, handle, self.now_ms, invisible_ms)
        assert (offset, delivery.pop_time_ms) not in self.handles
        fate.handle, fate.visible_ms, fate.taken = delivery.pop_time_ms, self.now_ms + invisible_ms, 0
        self.handles.append((offset, delivery.pop_time_ms))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), invisible_ms=st.sampled_from([0, 5, 500]))
    def renew(self, data: st.DataObject, invisible_ms: int) -> None:
        offset, handle = data.draw(st.sampled_from(self.handles))
        fate = self.fates[offset]
        if not fate.takes(handle):
            with pytest.raises(ConsumeRefused):
                self.ledger.renew(offset, handle, self.now_ms, invisible_ms)
            return
        delivery = self.ledger.renew(offset, handle, self.now_ms, invisible_ms)
        assert (offset, delivery.pop_time_ms) not in self.handles
        fate.taken = fate.taken or fate.handle
        fate.handle, fate.visible_ms = delivery.pop_time_ms, self.now_ms + invisible_ms
        self.handles.append((offset, delivery.pop_time_ms))

    @precondition(lambda self: self.flying())
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.flying()))
        self.ledger.settle(offset)
        self.fates[offset].state = "done"

    @rule()
    def saved_and_restored(self) -> None:
        self.ledger = Ledger(self.ledger.cursor, capacity=CAPACITY, in_flight=self.ledger.in_flight)

    @invariant()
    def every_message_is_consumed_in_flight_or_still_to_come(self) -> None:
        assert [delivery.queue_offset for delivery in self.ledger.in_flight] == self.flying()
        for offset, fate in enumerate(self.fates):
            assert self.ledger.is_consumed(offset) is (fate.state == "done")
            assert (fate.state == "new") is (offset >= self.ledger.cursor)

    @invariant()
    def the_committed_offset_is_the_lowest_that_is_not_consumed(self) -> None:
        pending = [offset for offset, fate in enumerate(self.fates) if fate.state != "done"]
        assert self.ledger.committed == (pending[0] if pending else len(self.fates))

    @invariant()
    def the_next_due_time_is_known(self) -> None:
        times = [self.fates[offset].visible_ms for offset in self.flying()]
        due_ms = self.ledger.next_due_ms()
        if not times:
            assert due_ms is None
        elif due_ms == 0:
            assert min(times) <= self.now_ms
        else:
            assert due_ms == min(times)

    @invariant()
    def bookkeeping_stays_in_proportion(self) -> None:
        assert len(self.ledger.in_flight) <= CAPACITY
        assert len(self.ledger._hidden) + len(self.ledger._ready) <= 2 * CAPACITY + 64 + 1


LedgerMachine.TestCase.settings = settings(max_examples=scaled(80), stateful_step_count=40, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase


def popped(ledger: Ledger, count: int, now_ms: int = T, invisible_ms: int = 100) -> list[int]:
    """Deliver `count` new offsets; their handles."""
    return [ledger.deliver(ledger.cursor, now_ms, invisible_ms).pop_time_ms for _ in range(count)]


def test_a_stuck_message_costs_no_memory_for_those_acknowledged_behind_it() -> None:
    ledger = Ledger(0, capacity=10)
    stuck = ledger.deliver(0, T, 3_600_000)
    for offset in range(1, 5_000):
        ledger.acknowledge(offset, ledger.deliver(offset, T, 3_600_000).pop_time_ms)
    assert ledger.committed == 0
    assert ledger.in_flight == [stuck]
    assert len(ledger._hidden) < 100
    ledger.acknowledge(0, stuck.pop_time_ms)
    assert ledger.committed == 5_000


def test_a_handle_of_a_message_never_delivered_is_refused() -> None:
    ledger = Ledger(5)
    for offset in (5, 99, -1):
        with pytest.raises(ConsumeRefused) as refused:
            ledger.acknowledge(offset, T)
        assert refused.value.name == "INVALID_RECEIPT_HANDLE"


def test_a_delivery_that_is_visible_again_can_be_acknowledged_until_it_is_delivered_again() -> None:
    ledger = Ledger(0)
    first, second = popped(ledger, 2)
    assert ledger.peek_due(T + 100) is not None
    assert ledger.acknowledge(0, first)
    due = ledger.peek_due(T + 100)
    assert due is not None
    ledger.redeliver(due, T + 100, 100)
    with pytest.raises(ConsumeRefused, match="replaced"):
        ledger.acknowledge(1, second)


def test_an_offset_cannot_be_delivered_for_the_first_time_twice() -> None:
    ledger = Ledger(0)
    ledger.deliver(0, T, 100)
    with pytest.raises(ValueError, match="delivered before"):
        ledger.deliver(0, T, 100)


def test_holding_a_delivery_keeps_its_handle_and_its_attempts() -> None:
    ledger = Ledger(0)
    (handle,) = popped(ledger, 1)
    delivery = ledger.find(0, handle)
    ledger.hold(delivery, T + 100, 500)
    assert ledger.peek_due(T + 599) is None
    assert ledger.peek_due(T + 600) is delivery
    assert delivery.attempts == 1
    assert ledger.acknowledge(0, handle)


def test_skipping_consumes_what_lies_below_and_never_goes_back() -> None:
    ledger = Ledger(0)
    handles = popped(ledger, 4)
    ledger.skip_to(2)
    assert ledger.committed == 2
    ledger.skip_to(1)
    assert ledger.committed == 2
    assert ledger.acknowledge(3, handles[3])
    ledger.skip_to(10)
    assert (ledger.committed, ledger.cursor, ledger.is_idle) == (10, 10, True)


def test_truncating_makes_lost_offsets_deliverable_anew() -> None:
    ledger = Ledger(0)
    popped(ledger, 6)
    ledger.truncate(4)
    assert ledger.cursor == 4
    assert [delivery.queue_offset for delivery in ledger.in_flight] == [0, 1, 2, 3]
    assert ledger.deliver(4, T, 100).attempts == 1


@pytest.mark.parametrize("kind", [Ledger, FifoLedger])
def test_a_ledger_survives_its_saved_form(tmp_path: Path, kind: type[Ledger]) -> None:
    table = OffsetTable(Snapshot(tmp_path / "offsets.json"))
    load_table(table.table, tmp_path)
    ledger = table.open_ledger("g", "t", 2, fifo=kind is FifoLedger, first_offset=0)
    lines: list[dict[str, int]] = [{"line": n} if isinstance(ledger, FifoLedger) else {} for n in range(3)]
    first, second, third = (ledger.deliver(n, T, 100, **more).pop_time_ms for n, more in enumerate(lines))
    ledger.acknowledge(1, second)
    delivery = ledger.change_invisible(2, third, T + 7, 40)
    due = ledger.peek_due(T + 60)
    assert due is delivery
    ledger.redeliver(due, T + 60, 90)
    table.write_changes()

    restored = OffsetTable(Snapshot(tmp_path / "offsets.json"))
    load_table(restored.table, tmp_path)
    restored.limit(lambda topic, queue_id: 10)
    after = restored.ledger("g", "t", 2)
    assert type(after) is kind
    assert after is not None
    assert (after.cursor, after.committed) == (3, 0)
    assert after.in_flight == ledger.in_flight
    assert after.acknowledge(1, second) is False
    assert after.acknowledge(0, first) is True
    assert after.committed == 2


@given(st.data(), st.sampled_from([Ledger, FifoLedger]))
@settings(max_examples=scaled(200), deadline=None)
def test_a_run_of_acknowledgements_does_what_each_of_them_does(data: st.DataObject, kind: type[Ledger]) -> None:
    one_by_one, together = kind(0, capacity=CAPACITY), kind(0, capacity=CAPACITY)
    for ledger in (one_by_one, together):
        for queue_offset in range(8):
            ledger.deliver(queue_offset, T + queue_offset, 100)
        ledger.renew(5, T + 5, T + 50, 100)
        ledger.floor_ms = T
        ledger.peek_due(T + 102)
    places = st.tuples(st.sampled_from([0, 0, 0, 1]), st.integers(0, 9), st.integers(T - 1, T + 8))
    run = data.draw(st.lists(places | st.integers(0, 7).map(lambda number: (0, number, T + number)), min_size=1))
    now_ms = data.draw(st.integers(T + 99, T + 108))
    expected: dict[int, str] = {}
    position = 0
    while position < len(run) and run[position][0] == run[0][0]:
        _, queue_offset, pop_time_ms = run[position]
        try:
            one_by_one.check_time(queue_offset, pop_time_ms, now_ms)
            one_by_one.acknowledge(queue_offset, pop_time_ms)
        except ConsumeRefused as error:
            expected[position] = str(error)
        position += 1
    errors: dict[int, MillstreamError] = {}
    assert together.acknowledge_run(run, 0, now_ms, errors) == position
    assert {at: str(error) for at, error in errors.items()} == expected
    assert together.in_flight == one_by_one.in_flight
    assert (together.committed, together.next_due_ms()) == (one_by_one.committed, one_by_one.next_due_ms())


@given(st.integers(0, 9), st.integers(0, 5), st.integers(-200, 200), st.integers(0, 1))
def test_a_run_of_deliveries_does_what_each_of_them_does(skipped: int, count: int, later_ms: int, floor: int) -> None:
    one_by_one, together = Ledger(3), Ledger(3)
    for ledger in (one_by_one, together):
        for queue_offset in range(3, 7):
            ledger.deliver(queue_offset, T, 100)
        ledger.floor_ms = floor * (T + 50)
        ledger.changed = False
    first, now_ms = 7 + skipped, T + later_ms
    for queue_offset in range(first, first + count):
        one_by_one.deliver(queue_offset, now_ms, 100)
    together.deliver_run(first, count, now_ms, 100)
    assert together.in_flight == one_by_one.in_flight
    assert all(held.pop_time_ms == together.pop_time_ms(now_ms) for held in together.in_flight[4:])
    assert (together.cursor, together.changed, together.next_due_ms()) == (
        one_by_one.cursor, one_by_one.changed, one_by_one.next_due_ms(),
    )  # fmt: skip
    for moment_ms in range(T - 200, T + 400, 10):
        assert together.peek_due(moment_ms) == one_by_one.peek_due(moment_ms)


def test_a_run_that_was_delivered_before_is_refused() -> None:
    ledger = Ledger(3)
    with pytest.raises(ValueError, match="offset 2 was delivered before; the cursor is 3"):
        ledger.deliver_run(2, 5, T, 100)
    assert ledger.is_idle
