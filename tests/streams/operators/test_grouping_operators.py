"""GROUP BY in operators of ours, with windows and without: as a plain look at all rows says, for every cut."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Player, inserted, table_of

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.grouping import Grouper
from millstream.streams.operators.operator import (
    DELETE,
    END_OF_TIME_US,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    BatchTimes,
    Changes,
    OperatorOutput,
    Row,
)
from millstream.streams.operators.state import OpenEnds, OperatorState
from millstream.streams.operators.windows.sessions import SessionRows, SessionWindower
from millstream.streams.operators.windows.window_times import Cumulating, Hopping, Slicing
from millstream.streams.operators.windows.windowing import EmitStrategy, Windower
from millstream.streams.plan.types import BIGINT, DOUBLE

S = 1_000_000
SPECS = (
    AggregateSpec("COUNT", (), None, BIGINT),
    AggregateSpec("SUM", (1,), BIGINT, BIGINT),
    AggregateSpec("MAX", (1,), BIGINT, BIGINT),
    AggregateSpec("COUNT", (1,), BIGINT, BIGINT, distinct=True),
)
VALUES = st.one_of(st.none(), st.integers(-5, 5))
ROWS = st.lists(st.tuples(st.sampled_from("ab"), VALUES, st.integers(0, 40)), max_size=30)


def facts(values: list[int | None]) -> tuple[object, ...]:
    known = [value for value in values if value is not None]
    return len(values), sum(known) if known else None, max(known, default=None), len(set(known))


def cut(rows: list[Any], sizes: list[int]) -> list[list[Any]]:
    parts, start = [], 0
    for size in sizes:
        parts.append(rows[start : start + size])
        start += size
    return [*parts, rows[start:]]


@given(st.lists(st.tuples(st.sampled_from("ab"), VALUES, st.booleans())), st.lists(st.integers(0, 6), max_size=5))
def test_groups_follow_rows_that_come_and_go(steps: list[tuple[str, int | None, bool]], sizes: list[int]) -> None:
    player = Player(partial(Grouper, 1, SPECS, changing=True))
    there: Counter[tuple[str, int | None]] = Counter()
    changes = []
    for key, value, comes in steps:
        if comes or not there[key, value]:
            there[key, value] += 1
            changes.append((INSERT, (key, value)))
        else:
            there[key, value] -= 1
            changes.append((DELETE, (key, value)))
    for part in cut(changes, sizes):
        player.turn(part)
    groups: dict[str, list[int | None]] = defaultdict(list)
    for key, value in there.elements():
        groups[key].append(value)
    assert table_of(player.played.said) == Counter((key, *facts(values)) for key, values in groups.items())


def test_a_turn_tells_one_change_of_a_group() -> None:
    player = Player(partial(Grouper, 1, SPECS[:2], changing=False))
    assert player.turn(inserted(("a", 1), ("a", 2))) == [(0, ("a", 2, 3))]
    assert player.turn(inserted(("a", None), ("b", 1))) == [(1, ("a", 2, 3)), (2, ("a", 3, 3)), (0, ("b", 1, 1))]
    assert player.turn(inserted()) == []


def test_a_group_that_nothing_touches_is_forgotten_after_its_ttl() -> None:
    player = Player(partial(Grouper, 1, SPECS[:1], changing=False), ttl_ms=10)
    player.turn(inserted(("a",)), now_us=0)
    player.turn(inserted(("b",)), now_us=9_000)
    assert player.turn(now_us=10_000) == []
    assert player.turn(inserted(("a",), ("b",)), now_us=11_000) == [(0, ("a", 1)), (1, ("b", 1)), (2, ("b", 2))]


def windows_by_hand(slicing: Slicing, time: int) -> set[tuple[int, int]]:
    """All windows of a moment, by trying every one nearby."""
    found = set()
    if isinstance(slicing, Hopping):
        for number in range(-200, 200):
            start = slicing.offset_us + number * slicing.slide_us
            if start <= time < start + slicing.size_us:
                found.add((start, start + slicing.size_us))
    else:
        assert isinstance(slicing, Cumulating)
        for number in range(-200, 200):
            start = slicing.offset_us + number * slicing.size_us
            for end in range(start + slicing.step_us, start + slicing.size_us + 1, slicing.step_us):
                if start <= time < end:
                    found.add((start, end))
    return found


SLICINGS = [
    Hopping(10 * S, 10 * S),
    Hopping(10 * S, 10 * S, 3 * S),
    Hopping(10 * S, 4 * S),
    Hopping(6 * S, 2 * S, 1 * S),
    Hopping(3 * S, 5 * S),
    Cumulating(12 * S, 3 * S),
]


@pytest.mark.parametrize("slicing", SLICINGS, ids=str)
def test_slices_lie_in_all_windows_of_their_moments(slicing: Slicing) -> None:
    for time in range(-25 * S, 25 * S, S // 2):
        wanted = windows_by_hand(slicing, time)
        (place,) = slicing.starts([time])
        assert set(slicing.windows_of(place)) == wanted
        assert all(place in set(slicing.slices_of(window)) for window in wanted)
        if wanted:
            last = max(wanted, key=lambda window: window[1])
            keeping = [window for window in wanted if place in set(slicing.last_needed(window))]
            assert keeping == [last]


@pytest.mark.parametrize("slicing", SLICINGS, ids=str)
@given(rows=ROWS, sizes=st.lists(st.integers(0, 6), max_size=5))
def test_windows_hold_what_their_rows_add_up_to(slicing: Slicing, rows: list[Row], sizes: list[int]) -> None:
    # Out of order by at most 5 seconds, which the watermark waits for.
    rows = sorted(rows, key=lambda row: row[2] // 5)
    player = Player(partial(Windower, 1, SPECS, 2, slicing))
    newest = 0
    for part in cut([(key, value, time * S) for key, value, time in rows], sizes):
        newest = max([newest, *(row[2] for row in part)])
        player.turn(inserted(*part), watermark_us=newest - 5 * S)
    player.end()
    groups: dict[tuple[str, tuple[int, int]], list[int | None]] = defaultdict(list)
    for key, value, time in rows:
        for window in windows_by_hand(slicing, time * S):
            groups[key, window].append(value)
    wanted = Counter((key, *facts(values), start, end, end - 1000) for (key, (start, end)), values in groups.items())
    assert all(kind == INSERT for kind, _ in player.played.said)
    assert table_of(player.played.said) == wanted
    assert player.played.late == []


@pytest.mark.parametrize("slicing", [SLICINGS[0], SLICINGS[2]], ids=str)
@given(
    steps=st.lists(st.tuples(st.sampled_from("ab"), VALUES, st.none() | st.integers(0, 40), st.booleans())),
    sizes=st.lists(st.integers(0, 6), max_size=5),
)
def test_windows_follow_rows_that_come_and_go_and_rows_without_a_time_are_in_none(
    slicing: Slicing, steps: list[tuple[str, int | None, int | None, bool]], sizes: list[int]
) -> None:
    there: Counter[Row] = Counter()
    changes: list[tuple[int, Row]] = []
    for key, value, time, comes in steps:
        row = (key, value, None if time is None else time * S)
        kind = INSERT if comes or not there[row] else DELETE
        there[row] += 1 if kind == INSERT else -1
        changes.append((kind, row))
    player = Player(partial(Windower, 1, SPECS, 2, slicing, changing=True))
    for part in cut(changes, sizes):
        player.turn(part)
    player.end()
    groups: dict[tuple[str, tuple[int, int]], list[int | None]] = defaultdict(list)
    for key, value, time_us in there.elements():
        for window in () if time_us is None else windows_by_hand(slicing, time_us):
            groups[key, window].append(value)
    wanted = Counter((key, *facts(values), start, end, end - 1000) for (key, (start, end)), values in groups.items())
    assert table_of(player.played.said) == wanted
    assert player.played.late == []


def test_a_row_behind_the_watermark_is_late_and_counts_where_a_window_is_open() -> None:
    player = Player(partial(Windower, 1, SPECS[:1], 1, Hopping(10 * S, 5 * S)))
    player.turn(inserted(("a", 3 * S)), watermark_us=10 * S - 1000)
    assert [row for _, row in player.played.said] == [
        ("a", 1, -5 * S, 5 * S, 5 * S - 1000),
        ("a", 1, 0, 10 * S, 10 * S - 1000),
    ]
    player.turn(inserted(("a", 4 * S), ("a", 7 * S)))
    assert player.played.late == [(0, ("a", 4 * S))]
    assert player.end() == [(0, ("a", 1, 5 * S, 15 * S, 15 * S - 1000))]


def test_windows_of_all_keys_wait_for_one_time() -> None:
    state = OperatorState()
    windows = Windower(1, SPECS[:1], 1, Hopping(10 * S, 10 * S))
    windows.open(state)
    rows = Changes([("a", S), ("b", 2 * S), ("a", 11 * S)])
    windows.process(0, rows, BatchTimes(), OperatorOutput())
    assert state.open_ends() == OpenEnds(3, 10 * S - 1000)
    windows.advance(BatchTimes(watermark_us=10 * S), OperatorOutput())
    assert state.open_ends() == OpenEnds(1, 20 * S - 1000)


def test_early_rows_are_taken_back_by_the_final_one() -> None:
    player = Player(partial(Windower, 1, SPECS[:1], 1, Hopping(10 * S, 10 * S), speaking=EmitStrategy(early_us=2 * S)))
    row = (0, 10 * S, 10 * S - 1000)
    assert player.turn(inserted(("a", S)), watermark_us=S, now_us=0) == []
    assert player.turn(now_us=S) == []
    assert player.turn(now_us=2 * S) == [(0, ("a", 1, *row))]
    assert player.turn(inserted(("a", 2 * S)), now_us=3 * S) == []
    assert player.turn(watermark_us=10 * S, now_us=4 * S) == [(1, ("a", 1, *row)), (2, ("a", 2, *row))]
    assert player.turn(now_us=9 * S) == []


def test_late_rows_correct_a_window_until_its_lateness_is_over() -> None:
    speaking = EmitStrategy(late_us=0, lateness_us=5 * S)
    player = Player(partial(Windower, 1, SPECS[:1], 1, Hopping(10 * S, 10 * S), speaking=speaking))
    row = (0, 10 * S, 10 * S - 1000)
    assert player.turn(inserted(("a", S)), watermark_us=10 * S) == [(0, ("a", 1, *row))]
    assert player.turn(inserted(("a", 2 * S)), now_us=1) == [(1, ("a", 1, *row)), (2, ("a", 2, *row))]
    assert player.turn(watermark_us=15 * S, now_us=2) == []
    assert player.turn(inserted(("a", 3 * S)), now_us=3) == []
    assert player.played.late == [(0, ("a", 3 * S))]


def test_windows_over_processing_time_close_by_the_clock() -> None:
    player = Player(partial(Windower, 1, SPECS[:1], 1, Hopping(10 * S, 10 * S), on_arrival=True))
    assert player.turn(inserted(("a", None)), now_us=3 * S) == []
    assert player.turn(inserted(("a", None)), now_us=9 * S) == []
    assert player.turn(inserted(("a", None)), now_us=11 * S) == [(0, ("a", 2, 0, 10 * S, 10 * S - 1000))]
    assert player.end(now_us=11 * S) == [(0, ("a", 1, 10 * S, 20 * S, 20 * S - 1000))]


def test_windows_over_processing_time_have_the_rows_of_a_run_that_is_one_turn() -> None:
    player = Player(partial(Windower, 1, SPECS[:1], 1, Hopping(10 * S, 10 * S), on_arrival=True))
    said = player.turn(inserted(("a", None), ("a", None)), watermark_us=END_OF_TIME_US, now_us=3 * S)
    assert said == [(0, ("a", 2, 0, 10 * S, 10 * S - 1000))]
    assert not player.played.late


def test_rows_that_carry_their_window_are_summed_by_it() -> None:
    player = Player(partial(Windower, 1, (AggregateSpec("SUM", (1,), BIGINT, BIGINT),), 2, None))
    rows = [("a", 1, 0, 10 * S), ("a", 2, 0, 10 * S), ("a", 5, 5 * S, 15 * S)]
    assert player.turn(inserted(*rows), watermark_us=10 * S) == [(0, ("a", 3, 0, 10 * S, 10 * S - 1000))]
    assert player.end() == [(0, ("a", 5, 5 * S, 15 * S, 15 * S - 1000))]


@given(rows=ROWS, sizes=st.lists(st.integers(0, 6), max_size=5))
def test_sessions_end_where_their_rows_pause(rows: list[Row], sizes: list[int]) -> None:
    gap = 3
    rows = sorted(rows, key=lambda row: row[2] // 5)
    player = Player(partial(SessionWindower, 1, SPECS, 2, gap * S))
    newest = 0
    for part in cut([(key, value, time * S) for key, value, time in rows], sizes):
        newest = max([newest, *(row[2] for row in part)])
        player.turn(inserted(*part), watermark_us=newest - 5 * S)
    player.end()
    wanted: Counter[Row] = Counter()
    for session in sessions_of(rows, gap):
        start, end = session[0][2] * S, (session[-1][2] + gap) * S
        wanted[(session[0][0], *facts([row[1] for row in session]), start, end, end - 1000)] += 1
    assert table_of(player.played.said) == wanted
    assert player.played.late == []


def test_rows_that_are_taken_back_leave_the_sums_of_their_session() -> None:
    player = Player(partial(SessionWindower, 1, SPECS[:1], 1, 3 * S, changing=True))
    player.turn(inserted(("a", 1 * S), ("a", 2 * S), ("b", 1 * S)))
    player.turn([(DELETE, ("a", 1 * S)), (DELETE, ("b", 1 * S))])
    # The session keeps the bounds that it had; one without rows is none.
    assert player.end() == [(INSERT, ("a", 1, 1 * S, 5 * S, 5 * S - 1000))]


def test_a_row_that_moves_on_leaves_one_session_for_another() -> None:
    player = Player(partial(SessionWindower, 1, SPECS[:1], 1, 3 * S, changing=True))
    player.turn(inserted(("a", 1 * S), ("a", 2 * S)))
    player.turn([(UPDATE_BEFORE, ("a", 2 * S)), (UPDATE_AFTER, ("a", 9 * S))])
    wanted = [("a", 1, 1 * S, 5 * S, 5 * S - 1000), ("a", 1, 9 * S, 12 * S, 12 * S - 1000)]
    assert player.end() == [(INSERT, row) for row in wanted]


def test_what_is_taken_back_behind_the_end_of_its_session_changes_nothing() -> None:
    player = Player(partial(SessionWindower, 1, SPECS[:1], 1, 3 * S, changing=True))
    said = player.turn(inserted(("a", 1 * S)), watermark_us=10 * S)
    assert said == [(INSERT, ("a", 1, 1 * S, 4 * S, 4 * S - 1000))]
    assert player.turn([(DELETE, ("a", 1 * S))]) == player.end() == []


@given(rows=ROWS, sizes=st.lists(st.integers(0, 6), max_size=5))
def test_the_rows_of_a_session_are_said_with_its_bounds(rows: list[Row], sizes: list[int]) -> None:
    gap = 3
    rows = sorted(rows, key=lambda row: row[2] // 5)
    player = Player(partial(SessionRows, 1, 3, gap * S))
    newest = 0
    for part in cut([(key, key, value, time * S) for key, value, time in rows], sizes):
        newest = max([newest, *(row[3] for row in part)])
        player.turn(inserted(*part), watermark_us=newest - 5 * S)
    player.end()
    wanted: Counter[Row] = Counter()
    for session in sessions_of(rows, gap):
        start, end = session[0][2] * S, (session[-1][2] + gap) * S
        wanted.update((key, value, time * S, start, end, end - 1000) for key, value, time in session)
    assert table_of(player.played.said) == wanted
    assert player.played.late == []


def sessions_of(rows: list[Row], gap: int) -> list[list[Row]]:
    """The rows of each key, taken apart where their times (third column) pause for longer than the gap."""
    sessions: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (row[0], row[2])):
        if sessions and row[0] == sessions[-1][-1][0] and row[2] <= sessions[-1][-1][2] + gap:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    return sessions


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32)), st.randoms())
def test_sums_of_floats_do_not_depend_on_the_order(values: list[float], random: object) -> None:
    spec = AggregateSpec("SUM", (1,), DOUBLE, DOUBLE)
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = []
    for order in (values, shuffled):
        player = Player(partial(Grouper, 1, (spec,), changing=True))
        for value in order:
            player.turn(inserted(("a", value)))
        found.append(table_of(player.played.said))
    assert found[0] == found[1]


def test_a_turn_writes_only_the_different_values_that_are_new() -> None:
    player = Player(partial(Grouper, 1, (AggregateSpec("COUNT", (1,), BIGINT, BIGINT, distinct=True),), changing=False))
    player.turn(inserted(*(("a", f"value {number}") for number in range(5_000))))
    player.turn(inserted(*(("a", f"value {number}") for number in range(4_990, 5_003))))
    assert player.played.said[-1] == (2, ("a", 5_003))
    assert len(player._deltas[-1]) < 500


def test_a_group_that_comes_again_has_none_of_its_different_values_left() -> None:
    spec = AggregateSpec("COUNT", (1,), BIGINT, BIGINT, distinct=True)
    player = Player(partial(Grouper, 1, (spec,), changing=True), ttl_ms=10)
    player.turn(inserted(("a", 1), ("a", 2)), now_us=0)
    player.turn(now_us=10_000)
    assert player.keys() == 0
    assert player.turn(inserted(("a", 1)), now_us=11_000) == [(INSERT, ("a", 1))]
