from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from millstream.transport.grpc.deadlines import TICK_S, DeadlineTable


@dataclass(eq=False)
class Entry:
    due_s: float
    bucket: int = 0


def noted(table: DeadlineTable, due_s: float, now_s: float) -> Entry:
    entry = Entry(due_s)
    table.add(entry, due_s, now_s)
    return entry


def test_an_entry_is_due_at_its_time_or_a_tick_later_and_once() -> None:
    table = DeadlineTable()
    entry = noted(table, 1000.05, 1000.0)
    assert table.take_due(1000.04) == []
    assert table.take_due(1000.05 + TICK_S) == [entry]
    assert (table.take_due(2000.0), len(table), entry.bucket) == ([], 0, 0)


def test_a_removed_entry_is_never_due_and_a_second_removal_is_no_error() -> None:
    table = DeadlineTable()
    entry = noted(table, 5.0, 0.0)
    table.remove(entry)
    table.remove(entry)
    assert (table.take_due(100.0), len(table)) == ([], 0)


def test_one_that_is_due_at_once_is_due_with_the_next_tick() -> None:
    table = DeadlineTable()
    table.take_due(50.0)
    late = noted(table, 40.0, 50.0)
    other = noted(table, 50.0, 50.0)
    assert set(table.take_due(50.0 + TICK_S)) == {late, other}


def test_a_time_beyond_all_measure_is_no_deadline() -> None:
    table = DeadlineTable()
    entry = noted(table, 3600.0 * 99_999_999, 0.0)
    assert (len(table), entry.bucket) == (0, 0)
    table.remove(entry)


def test_a_long_sleep_costs_as_much_as_there_are_entries() -> None:
    table = DeadlineTable()
    entries = [noted(table, float(second), 0.0) for second in (1, 5, 10**8)]
    assert table.take_due(2e8) == entries


@given(st.floats(0, 1e8), st.lists(st.tuples(st.floats(0, 30.0), st.floats(0, 2.0), st.booleans()), max_size=60))
def test_whatever_comes_and_goes_each_is_due_once_and_neither_early_nor_late(
    now_s: float, steps: list[tuple[float, float, bool]]
) -> None:
    table, open_entries = DeadlineTable(), []
    rng = random.Random(7)
    for wait_s, pause_s, removes in steps:
        open_entries.append(noted(table, now_s + wait_s, now_s))
        if removes:
            table.remove(open_entries.pop(rng.randrange(len(open_entries))))
        now_s += pause_s
        due = table.take_due(now_s)
        assert all(isinstance(one, Entry) and one.due_s <= now_s for one in due)
        for one in due:
            assert isinstance(one, Entry)
            open_entries.remove(one)
        # One whose tick had begun when it was noted is due with the next.
        assert all(one.due_s > now_s - 2 * TICK_S for one in open_entries)
        assert len(table) == len(open_entries)
    last = table.take_due(now_s + 40)
    assert len(last) == len(open_entries)
