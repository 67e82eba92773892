"""The state of operators: what one process changes, another one has after the deltas."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.operators import state as states
from millstream.streams.operators.state import KeyedTable, OperatorState, part_change

KEYS = st.integers(0, 5)
CHANGES = st.lists(st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers()))))


@given(CHANGES)
def test_deltas_bring_another_state_to_the_same_values(turns: list[list[tuple[int, int | None]]]) -> None:
    ours, theirs = OperatorState(), OperatorState()
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
    ours, theirs = OperatorState(), OperatorState()
    table, copy = ours.table("values"), theirs.table("values")
    for key, value in (change for turn in turns for change in turn):
        table.delete(key) if value is None else table.put(key, value)
    theirs.apply(ours.snapshot())
    assert dict(copy.items()) == dict(table.items())


def _large_state() -> OperatorState:
    """Tables of each kind, with one entry more than two pickles take."""
    state = OperatorState(ttl_ms=10)
    table, grouped, timers, sets = (
        state.table("t", lives=True),
        state.grouped_table("g"),
        state.timers(),
        state.sets("s"),
    )
    for number in reversed(range(2 * states.ENTRIES_PER_PICKLE + 1)):
        state.set_clock(5_000 if number % 2 else 0)
        table.put(number, (number, [number]))
        grouped.put(number % 3, number, number)
        timers.set(number, number)
        sets.add(number, [number, -1])
    return state


def test_a_snapshot_of_more_entries_than_a_pickle_takes_holds_all_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "ENTRIES_PER_PICKLE", 4)
    ours, theirs = _large_state(), OperatorState(ttl_ms=10)
    table, grouped, timers, sets = (
        theirs.table("t", lives=True),
        theirs.grouped_table("g"),
        theirs.timers(),
        theirs.sets("s"),
    )
    theirs.apply(ours.snapshot())
    assert theirs.keys == ours.keys
    assert list(table.items()) == list(ours.table("t", lives=True).items())
    assert table.everything() == ours.table("t", lives=True).everything()
    assert [list(grouped.group(one)) for one in range(3)] == [
        list(ours.grouped_table("g").group(one)) for one in range(3)
    ]
    assert list(timers.due(100)) == list(ours.timers().due(100))
    assert sets.everything() == ours.sets("s").everything()


def test_a_snapshot_is_parted_by_tables_wherever_its_pickles_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "ENTRIES_PER_PICKLE", 4)
    named, others = part_change(_large_state().snapshot(), ("g/", "timers@"))
    first, second = OperatorState(ttl_ms=10), OperatorState(ttl_ms=10)
    second.table("t", lives=True)
    second.sets("s")
    first.apply(named)
    second.apply(others)
    assert first.keys == 2 * 9
    assert second.keys == 9 + 2 * 9
    assert part_change(b"", ("g/",)) == (b"", b"")


@given(st.lists(st.tuples(KEYS, st.integers(0, 20))), st.integers(0, 20))
def test_timers_wake_each_key_once_at_the_time_set_last(settings: list[tuple[int, int]], until: int) -> None:
    state, restored = OperatorState(), OperatorState()
    timers, others = state.timers(), restored.timers()
    for key, time_us in settings:
        timers.set(key, time_us)
    restored.apply(state.snapshot())
    wanted = sorted((time_us, key) for key, time_us in dict(settings).items() if time_us <= until)
    assert sorted(timers.due(until)) == wanted
    assert sorted(others.due(until)) == wanted
    assert list(timers.due(until)) == []


def test_a_value_lives_for_the_ttl_after_it_was_put_last() -> None:
    state = OperatorState(ttl_ms=10)
    table = state.table("values", lives=True)
    state.set_clock(0)
    table.put("a", 1)
    table.put("b", 2)
    state.set_clock(5_000)
    table.put("a", 3)
    state.set_clock(10_000)
    assert table.expire() == [("b", 2)]
    other = OperatorState(ttl_ms=10)
    copy = other.table("values", lives=True)
    other.apply(state.snapshot())
    other.set_clock(15_000)
    assert copy.expire() == [("a", 3)]
    assert len(copy) == 0


class Walked(dict[str, int]):
    """A dictionary that counts the places that are walked over: a walk begins with those of keys that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.gone = 0

    def pop(self, key: str, *default: Any) -> Any:
        self.gone += key in self
        return super().pop(key, *default)

    def __iter__(self) -> Iterator[str]:
        self.steps += self.gone
        for key in super().__iter__():
            self.steps += 1
            yield key

    def items(self) -> Any:
        return ((key, self[key]) for key in self)


@pytest.mark.parametrize("count", [1_000, 2_000, 4_000])
def test_the_end_of_many_values_walks_over_each_of_them_once(count: int) -> None:
    table: KeyedTable[str, int] = KeyedTable(10_000)
    walked = table._put_at_us = Walked()
    for number in range(count):
        table.put(str(number), number)
    table.now_us = 5_000
    table.put("young", 0)
    table.now_us = 10_000
    assert len(table.expire()) == count
    assert walked.steps == count + 1
    assert table.expire() == []
    assert walked.steps == count + 1
    assert list(table._put_at_us) == ["young"]


def test_a_table_with_a_ttl_of_its_own_does_not_follow_the_jobs() -> None:
    state = OperatorState(ttl_ms=10, lives_ms={"left": 30, "right": 0})
    groups = [state.grouped_table(name, lives=True) for name in ("left", "right", "other")]
    for group in groups:
        group.put("g", "k", 1)
    state.set_clock(20_000)
    assert [group.expire() for group in groups] == [[], [], [("g", "k", 1)]]
    state.set_clock(30_000)
    assert [group.expire() for group in groups] == [[("g", "k", 1)], [], []]


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), KEYS, st.one_of(st.none(), st.integers(0, 20)))), max_size=8))
def test_groups_timers_and_sets_follow_deltas_while_they_are_in_use(
    turns: list[list[tuple[int, int, int | None]]],
) -> None:
    ours, theirs = OperatorState(), OperatorState()
    grouped, timers, sets = ours.grouped_table("g"), ours.timers("t"), ours.sets("s")
    copied, woken, others = theirs.grouped_table("g"), theirs.timers("t"), theirs.sets("s")
    for number, turn in enumerate(turns):
        for group, key, value in turn:
            if value is None:
                grouped.delete(group, key)
                timers.clear(key)
                sets.drop(group)
            else:
                grouped.put(group, key, value)
                timers.set(key, value)
                sets.add(group, (value, key))
        list(timers.due(number))
        theirs.apply(ours.delta())
        assert woken.open_ends() == timers.open_ends()
        assert sorted(woken.due(number)) == []
        for group in range(3):
            assert copied.group(group) == grouped.group(group)
        assert {key: set(values) for key, values in others.everything().items()} == {
            key: set(values) for key, values in sets.everything().items()
        }
    assert theirs.keys == ours.keys
    assert sorted(woken.due(100)) == sorted(timers.due(100))


def test_a_set_says_each_value_once_until_it_is_dropped() -> None:
    sets = OperatorState().sets("seen")
    assert sets.add("a", [3, 1, 3, 2]) == [3, 1, 2]
    assert sets.add("a", [2, 4]) == [4]
    assert sets.add("b", [4]) == [4]
    assert len(sets) == 5
    sets.drop("a")
    assert sets.add("a", [1]) == [1]
    assert sets.take_changes() == ({"a": [1], "b": [4]}, ["a"])
    assert sets.take_changes() == ({}, [])


OLD_NAMES = base64.b64decode(
    "gASVUgEAAAAAAABdlCiMJ21pbGxzdHJlYW0uc3RyZWFtcy5vcGVyYXRvcnMub3Zlcl9zdGF0ZZSMCVBhcnRpdGlvbpSTlIwsbWlsbHN0cmVhbS5z"
    "dHJlYW1zLmxlYXJuaW5nLmhhbGZfc3BhY2VfdHJlZXOUjAZGb3Jlc3SUk5QoKSmMBWFycmF5lIwUX2FycmF5X3JlY29uc3RydWN0b3KUk5QojAVh"
    "cnJheZSMBWFycmF5lJOUjAFIlEsCQwCUdJRSlGgJKGgMaA1LAmgOdJRSlEsAdJSBlIWUXZRLAWFoAYwESGVsZJSTlChLAUsCSwNLBHSUgZSHlIGU"
    "jCxtaWxsc3RyZWFtLnN0cmVhbXMuZnVuY3Rpb25zLnVzZXJfYWdncmVnYXRlc5SMCVVzZXJTdGF0ZZSTlCmBlIwBeJRDFYAFlQoAAAAAAAAAfZSM"
    "AWGUSwFzLpSGlGJlLg=="
)
"""A list of a Partition with a Forest and a Held, and of a UserState, as they were pickled before their modules moved."""


def test_a_state_is_read_whose_classes_have_moved_since() -> None:
    change = b"\x80\x04}\x8c\x06values}K\x01" + OLD_NAMES[11:-1] + b"s]\x86s."
    state = OperatorState()
    table = state.table("values")
    state.apply(change)
    (partition, user) = dict(table.items())[1]
    assert type(partition).__name__ == "Partition"
    assert type(user).__name__ == "UserState"
