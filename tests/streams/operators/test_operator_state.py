"""The state of operators: what one process changes, another one has after the deltas."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.operators.state import State

KEYS = st.integers(0, 5)
CHANGES = st.lists(st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers()))))


@given(CHANGES)
def test_deltas_bring_another_state_to_the_same_values(turns: list[list[tuple[int, int | None]]]) -> None:
    ours, theirs = State(), State()
    table, copy = ours.table("values"), theirs.table("values")
    for turn in turns:
        for key, value in turn:
            if value is None:
                table.delete(key)
            else:
                table.put(key, value)
        theirs.apply(ours.delta())
        assert dict(copy.items()) == dict(table.items())
    assert ours.delta() == b""


@given(CHANGES)
def test_a_snapshot_holds_what_all_deltas_brought(turns: list[list[tuple[int, int | None]]]) -> None:
    ours, theirs = State(), State()
    table, copy = ours.table("values"), theirs.table("values")
    for key, value in (change for turn in turns for change in turn):
        table.delete(key) if value is None else table.put(key, value)
    theirs.apply(ours.snapshot())
    assert dict(copy.items()) == dict(table.items())


@given(st.lists(st.tuples(KEYS, st.integers(0, 20))), st.integers(0, 20))
def test_timers_wake_each_key_once_at_the_time_set_last(settings: list[tuple[int, int]], until: int) -> None:
    state, restored = State(), State()
    timers, others = state.timers(), restored.timers()
    for key, time_us in settings:
        timers.set(key, time_us)
    restored.apply(state.snapshot())
    wanted = sorted((time_us, key) for key, time_us in dict(settings).items() if time_us <= until)
    assert sorted(timers.due(until)) == wanted
    assert sorted(others.due(until)) == wanted
    assert list(timers.due(until)) == []


def test_a_value_lives_for_the_ttl_after_it_was_put_last() -> None:
    state = State(ttl_ms=10)
    table = state.table("values", lives=True)
    state.set_clock(0)
    table.put("a", 1)
    table.put("b", 2)
    state.set_clock(5_000)
    table.put("a", 3)
    state.set_clock(10_000)
    assert table.expire() == [("b", 2)]
    other = State(ttl_ms=10)
    copy = other.table("values", lives=True)
    other.apply(state.snapshot())
    other.set_clock(15_000)
    assert copy.expire() == [("a", 3)]
    assert len(copy) == 0


def test_a_table_with_a_ttl_of_its_own_does_not_follow_the_jobs() -> None:
    state = State(ttl_ms=10, lives_ms={"left": 30, "right": 0})
    groups = [state.grouped(name, lives=True) for name in ("left", "right", "other")]
    for group in groups:
        group.put("g", "k", 1)
    state.set_clock(20_000)
    assert [group.expire() for group in groups] == [[], [], [("g", "k", 1)]]
    state.set_clock(30_000)
    assert [group.expire() for group in groups] == [[("g", "k", 1)], [], []]
