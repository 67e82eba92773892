"""The first row of each key by event time: told once, when no earlier one can come."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Player, inserted

from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import INSERT, Row
from millstream.streams.operators.ranking import FirstRows, Ranker

S = 1_000_000
SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.timestamp("us")), ("number", pa.int64())])
KEEPS_FIRST = partial(FirstRows, (0,), 1, ranked=False)


def test_a_row_waits_until_no_earlier_one_can_come() -> None:
    player = Player(KEEPS_FIRST)
    assert player.turn(inserted(("a", 9 * S, 1), ("b", 5 * S, 2), ("a", 7 * S, 3)), watermark_us=6 * S) == inserted(
        ("b", 5 * S, 2)
    )
    assert player.turn(inserted(("a", 8 * S, 4), ("b", 8 * S, 5)), watermark_us=7 * S) == inserted(("a", 7 * S, 3))
    assert player.end() == []
    assert player.played.late == []


def test_of_equal_times_the_row_that_came_first_is_told() -> None:
    player = Player(KEEPS_FIRST)
    player.turn(inserted(("a", 7 * S, 1), ("a", 7 * S, 2)))
    player.turn(inserted(("a", 7 * S, 3)))
    assert player.end() == inserted(("a", 7 * S, 1))


def test_the_place_stands_behind_the_row_where_it_is_asked_for() -> None:
    player = Player(partial(FirstRows, (0,), 1, ranked=True))
    player.turn(inserted(("a", 7 * S, 1)))
    assert player.end() == inserted(("a", 7 * S, 1, 1))


def test_a_row_without_a_time_is_never_the_first() -> None:
    player = Player(KEEPS_FIRST)
    player.turn(inserted(("a", None, 1), ("a", 7 * S, 2)))
    assert player.end() == inserted(("a", 7 * S, 2))


def test_a_key_may_come_again_when_its_time_to_live_is_over() -> None:
    player = Player(KEEPS_FIRST, ttl_ms=1000)
    assert player.turn(inserted(("a", 1 * S, 1)), watermark_us=1 * S) == inserted(("a", 1 * S, 1))
    assert player.turn(inserted(("a", 2 * S, 2)), watermark_us=2 * S, now_us=S // 2) == []
    assert player.turn(watermark_us=2 * S, now_us=2 * S) == []
    assert player.turn(inserted(("a", 3 * S, 3)), watermark_us=3 * S, now_us=2 * S) == inserted(("a", 3 * S, 3))


def test_what_waits_does_not_end_with_a_time_to_live() -> None:
    player = Player(KEEPS_FIRST, ttl_ms=1)
    player.turn(inserted(("a", 1 * S, 1)))
    player.turn(now_us=100 * S)
    assert player.end(now_us=200 * S) == inserted(("a", 1 * S, 1))


def test_a_key_that_a_top_n_has_told_is_not_told_again() -> None:
    top = Player(partial(Ranker, (0,), (OrderColumn(1),), "ROW_NUMBER", 1, 1, ranked=False, changing=False))
    top.turn(inserted(("a", 1 * S, 1)), watermark_us=1 * S)
    player = Player(KEEPS_FIRST)
    player._deltas = top._deltas
    player.turn(inserted(("a", 2 * S, 2), ("b", 2 * S, 3)))
    assert player.end() == inserted(("b", 2 * S, 3))


def test_only_a_row_for_each_open_key_is_kept() -> None:
    player = Player(KEEPS_FIRST)
    player.turn(inserted(*(("a", (100 - number) * S, number) for number in range(100))))
    assert player.keys() == 2


@given(
    turns=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9))), max_size=5),
            st.integers(0, 9),
        ),
        max_size=6,
    ),
    many=st.booleans(),
)
def test_each_key_is_told_with_the_least_of_the_rows_that_were_in_time(
    turns: list[tuple[list[tuple[str, int | None]], int]], many: bool
) -> None:
    player = Player(KEEPS_FIRST, schema=SCHEMA, by_column=range(len(turns)) if many else ())
    watermark_s = -1
    best: dict[str, Row] = {}
    told: dict[str, Row] = {}
    late = []
    number = 0
    for rows, time_s in turns:
        made: list[Row] = []
        # As many as columns are for, of a key that nobody asks about.
        for key, at in [*rows, *([("z", 9)] * (64 if many else 0))]:
            number += 1
            made.append((key, None if at is None else at * S, number))
        for key, at, of in made:
            if at is None:
                continue
            if at < watermark_s * S:
                late.append((0, (key, at, of)))
            elif key not in told and (key not in best or at < best[key][1]):
                best[key] = (key, at, of)
        watermark_s = max(watermark_s, time_s)
        said = player.turn(inserted(*made), watermark_us=time_s * S)
        final = {key: row for key, row in best.items() if key not in told and row[1] <= watermark_s * S}
        told |= final
        assert sorted(said) == sorted((INSERT, row) for row in final.values())
    assert player.played.late == late


@pytest.mark.parametrize("late_us", [7 * S - 1, 7 * S])
def test_a_row_at_the_watermark_is_not_late(late_us: int) -> None:
    player = Player(KEEPS_FIRST)
    player.turn(watermark_us=7 * S)
    said = player.turn(inserted(("a", late_us, 1)))
    is_late = late_us < 7 * S
    assert said == ([] if is_late else inserted(("a", late_us, 1)))
    assert bool(player.played.late) is is_late
