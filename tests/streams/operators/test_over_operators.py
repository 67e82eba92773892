"""OVER in operators of ours: each row as a plain look at its partition says, for every cut into turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Kinded, Player, inserted, table_of

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import DELETE, END_OF_TIME_US, INSERT, Row
from millstream.streams.operators.over.retracting_over import RetractingOver
from millstream.streams.operators.over.streaming_over import OverFrame, StreamingOver
from millstream.streams.plan.types import BIGINT, DOUBLE, STRING

S = 1_000_000
Unit = Literal["rows", "range"]
SPECS = (
    AggregateSpec("COUNT", (), None, BIGINT),
    AggregateSpec("SUM", (1,), BIGINT, BIGINT),
    AggregateSpec("MIN", (1,), BIGINT, BIGINT),
    AggregateSpec("MAX", (1,), BIGINT, BIGINT),
    AggregateSpec("COUNT", (1,), BIGINT, BIGINT, distinct=True),
    AggregateSpec("FIRST_VALUE", (1,), BIGINT, BIGINT),
    AggregateSpec("LAST_VALUE", (1,), BIGINT, BIGINT),
    AggregateSpec("LISTAGG", (1,), BIGINT, STRING),
    AggregateSpec("AVG", (1,), DOUBLE, DOUBLE),
)
PLACED = (
    AggregateSpec("ROW_NUMBER", (), None, BIGINT),
    AggregateSpec("RANK", (), None, BIGINT),
    AggregateSpec("DENSE_RANK", (), None, BIGINT),
    AggregateSpec("LAG", (1,), BIGINT, BIGINT),
    AggregateSpec("LAG", (1,), BIGINT, BIGINT, literals=(2, 77)),
)
TIME = (OrderColumn(2),)
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(-4, 4)), st.integers(0, 30)), max_size=25
)
FRAMES = [("rows", None), ("rows", 0), ("rows", 2), ("range", None), ("range", 0), ("range", 5 * S)]


def facts(values: list[int | None]) -> tuple[Any, ...]:
    known = [value for value in values if value is not None]
    if not known:
        return (len(values), None, None, None, 0, None, None, None, None)
    return (
        len(values),
        sum(known),
        min(known),
        max(known),
        len(set(known)),
        known[0],
        known[-1],
        ",".join(map(str, known)),
        sum(known) / len(known),
    )


def of_the_place(rows: list[Row], number: int) -> tuple[Any, ...]:
    times = [row[2] for row in rows]
    before = [time for time in times if time < times[number]]
    lag = rows[number - 1][1] if number else None
    return number + 1, len(before) + 1, len(set(before)) + 1, lag, rows[number - 2][1] if number >= 2 else 77


def wanted_of(rows: list[Row], unit: Unit, preceding: int | None) -> Counter[Row]:
    """Every row with its results, by looking at its whole partition. Equal times stay in the order of arrival."""
    wanted: Counter[Row] = Counter()
    for key in "ab":
        mine = sorted((row for row in rows if row[0] == key), key=lambda row: row[2])
        for number, row in enumerate(mine):
            if unit == "rows":
                frame = mine[0 if preceding is None else max(0, number - preceding) : number + 1]
            else:
                since = -1 if preceding is None else row[2] - preceding
                frame = [one for one in mine if since <= one[2] <= row[2]]
            wanted[(*row, *facts([one[1] for one in frame]), *of_the_place(mine, number))] += 1
    return wanted


def cut(rows: list[Row], sizes: list[int]) -> list[list[Row]]:
    parts, start = [], 0
    for size in sizes:
        parts.append(rows[start : start + size])
        start += size
    return [*parts, rows[start:]]


@pytest.mark.parametrize(("unit", "preceding"), FRAMES)
@given(rows=ROWS, sizes=st.lists(st.integers(0, 6), max_size=5))
def test_each_row_tells_of_the_rows_before_it_in_time(
    unit: Unit, preceding: int | None, rows: list[Row], sizes: list[int]
) -> None:
    # Out of order by less than 5 seconds, which the watermark waits for.
    rows = [(key, value, time * S) for key, value, time in sorted(rows, key=lambda row: row[2] // 5)]
    player = Player(partial(StreamingOver, 3, (0,), TIME, (*SPECS, *PLACED), OverFrame(unit, preceding), time=2))
    newest = 0
    for part in cut(rows, sizes):
        newest = max([newest, *(row[2] for row in part)])
        player.turn(inserted(*part), watermark_us=newest - 5 * S)
    player.end()
    assert player.played.late == []
    assert {kind for kind, _ in player.played.said} <= {INSERT}
    assert table_of(player.played.said) == wanted_of(rows, unit, preceding)


@pytest.mark.parametrize(("unit", "preceding"), FRAMES)
@given(
    turns=st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("ab"), st.one_of(st.none(), st.integers(-2, 2)), st.integers(0, 9), st.booleans()
            ),
            max_size=5,
        ),
        max_size=5,
    )
)
def test_rows_that_come_and_go_in_any_order_change_what_others_tell(
    unit: Unit, preceding: int | None, turns: list[list[tuple[str, int | None, int, bool]]]
) -> None:
    player = Player(partial(RetractingOver, 3, (0,), TIME, (*SPECS, *PLACED), OverFrame(unit, preceding), time=2))
    there: list[Row] = []
    for turn in turns:
        changes = []
        for key, value, time, comes in turn:
            row = (key, value, time * S)
            if comes or row not in there:
                there.append(row)
                changes.append((INSERT, row))
            else:
                # The latest of equal rows goes.
                del there[len(there) - 1 - there[::-1].index(row)]
                changes.append((DELETE, row))
        player.turn(changes)
        assert table_of(player.played.said) == wanted_of(there, unit, preceding)


def test_rows_wait_for_the_watermark_and_come_in_the_order_of_time() -> None:
    player = Player(partial(StreamingOver, 2, (0,), (OrderColumn(1),), SPECS[:1], OverFrame(), time=1))
    assert player.turn(inserted(("a", 3 * S), ("a", 1 * S), ("a", 2 * S)), watermark_us=2 * S) == [
        (INSERT, ("a", 1 * S, 1)),
        (INSERT, ("a", 2 * S, 2)),
    ]
    assert player.turn(inserted(("a", 2 * S), ("a", None))) == []
    assert player.played.late == [(0, ("a", 2 * S))]
    assert player.end() == [(INSERT, ("a", 3 * S, 3))]


def test_the_rest_of_the_order_decides_between_rows_of_one_time() -> None:
    order = (OrderColumn(1), OrderColumn(2, ascending=False))
    player = Player(partial(StreamingOver, 3, (0,), order, PLACED[:2], OverFrame("rows"), time=1))
    player.turn(inserted(("a", S, 1), ("a", S, 3), ("a", S, 2), ("a", S, 3)))
    assert [row[2:] for _, row in player.end()] == [(3, 1, 1), (3, 2, 1), (2, 3, 3), (1, 4, 4)]


def test_rows_by_processing_time_are_told_at_once() -> None:
    player = Player(partial(StreamingOver, 2, (0,), (), SPECS[:2], OverFrame(), time=None))
    assert player.turn(inserted(("a", 1), ("a", 2)), now_us=S) == [(INSERT, ("a", 1, 1, 1)), (INSERT, ("a", 2, 2, 3))]
    assert player.turn(inserted(("a", 4)), now_us=2 * S) == [(INSERT, ("a", 4, 3, 7))]


def test_a_range_of_processing_time_holds_what_came_within_it() -> None:
    player = Player(partial(StreamingOver, 2, (0,), (), SPECS[:2], OverFrame("range", 2 * S), time=None))
    assert player.turn(inserted(("a", 1), ("a", 2)), now_us=S) == [(INSERT, ("a", 1, 2, 3)), (INSERT, ("a", 2, 2, 3))]
    assert player.turn(inserted(("a", 4)), now_us=3 * S) == [(INSERT, ("a", 4, 3, 7))]
    assert player.turn(inserted(("a", 8)), now_us=4 * S) == [(INSERT, ("a", 8, 2, 12))]


def test_a_turn_writes_only_its_own_rows_of_a_long_frame() -> None:
    player = Player(
        partial(StreamingOver, 2, (0,), (OrderColumn(1),), SPECS[:1], OverFrame("range", 10_000 * S), time=1)
    )
    for number in range(300):
        player.turn(inserted(("a", number * S)), watermark_us=number * S)
    assert player.played.said[-1] == (INSERT, ("a", 299 * S, 300))
    assert len(player._deltas[-1]) < 600


def test_a_frame_that_the_watermark_has_left_is_forgotten() -> None:
    player = Player(partial(StreamingOver, 2, (0,), (OrderColumn(1),), SPECS[:1], OverFrame("range", 10 * S), time=1))
    player.turn(inserted(*((f"key {number}", S) for number in range(50))), watermark_us=S)
    assert player.keys() > 50
    player.turn(watermark_us=11 * S)
    assert player.keys() == 0
    assert player.turn(inserted(("key 1", 12 * S)), watermark_us=12 * S) == [(INSERT, ("key 1", 12 * S, 1))]


ROW_SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])


@pytest.mark.parametrize("by_column", [(), range(3)])
def test_behind_the_end_of_event_time_rows_before_one_that_was_said_are_late(by_column: Container[int]) -> None:
    make = partial(StreamingOver, 3, (0,), TIME, SPECS[:1], OverFrame("rows", None), time=2)
    player = Player(make, schema=ROW_SCHEMA, by_column=by_column)

    def rows(first: int, behind: int) -> list[Kinded]:
        return inserted(*(("a", 1, time * S) for time in range(first, behind)))

    player.turn(rows(0, 100), watermark_us=50 * S)
    player.turn(rows(100, 200), watermark_us=END_OF_TIME_US)
    player.go_on(50 * S)
    player.turn(rows(150, 300), watermark_us=300 * S)
    assert [row[2] for _, row in player.played.late] == [time * S for time in range(150, 199)]
    # One of the same time is not before it.
    assert [row[2:4] for _, row in player.played.turns[-1]] == [(time * S, time + 2) for time in range(199, 300)]


def test_a_partition_that_nothing_touches_is_forgotten_after_its_ttl() -> None:
    player = Player(
        partial(StreamingOver, 2, (0,), (), (*SPECS[:1], PLACED[0]), OverFrame("rows", 5), time=None), ttl_ms=10
    )
    player.turn(inserted(("a", 1)), now_us=0)
    assert player.turn(inserted(("a", 1)), now_us=9_000) == [(INSERT, ("a", 1, 2, 2))]
    player.turn(now_us=19_000)
    assert player.turn(inserted(("a", 1)), now_us=19_001) == [(INSERT, ("a", 1, 1, 1))]


@given(values=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), preceding=st.integers(0, 4))
def test_sums_of_a_moving_frame_carry_no_rounding_along(values: list[float], preceding: int) -> None:
    spec = AggregateSpec("SUM", (0,), DOUBLE, DOUBLE)
    player = Player(partial(StreamingOver, 1, (), (), (spec,), OverFrame("rows", preceding), time=None))
    player.turn(inserted(*((value,) for value in values)))
    for number, (_, row) in enumerate(player.played.said):
        fresh = Player(partial(StreamingOver, 1, (), (), (spec,), OverFrame("rows"), time=None))
        fresh.turn(inserted(*((value,) for value in values[max(0, number - preceding) : number + 1])))
        assert row[1] == fresh.played.said[-1][1][1]
