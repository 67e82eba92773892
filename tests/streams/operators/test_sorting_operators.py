"""Sorted and limited results of our operators: what sorting and cutting all rows gives, for every cut."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from playing import Player, inserted, table_of

from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import DELETE, INSERT, Row
from millstream.streams.operators.sorting import Limiter, Sorter

S = 1_000_000
BY_TIME = (OrderColumn(0), OrderColumn(1, ascending=False))
TIMED = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=25)
CUTS = st.lists(st.integers(0, 25), max_size=4)


def cut(rows: list[Row], cuts: list[int]) -> list[list[Row]]:
    """The rows in turns."""
    bounds = [0, *sorted(min(one, len(rows)) for one in cuts), len(rows)]
    return [rows[start:end] for start, end in pairwise(bounds)]


def wanted_order(rows: list[Row]) -> list[Row]:
    """By time, then by the number downward, then by arrival."""
    return sorted(rows, key=lambda row: (row[0], -row[1]))


@given(rows=TIMED, cuts=CUTS, skip=st.integers(0, 5))
def test_rows_wait_for_the_watermark_and_come_in_the_order_of_time(
    rows: list[tuple[int, int]], cuts: list[int], skip: int
) -> None:
    player = Player(partial(Sorter, BY_TIME, time=0, skip=skip))
    ordered = sorted(rows, key=lambda row: row[0] // 5)
    numbered = [(time * S, value, number) for number, (time, value) in enumerate(ordered)]
    newest = 0
    for turn in cut(numbered, cuts):
        newest = max([newest, *(row[0] for row in turn)])
        said = player.turn(inserted(*turn), watermark_us=newest - 5 * S - 1)
        assert all(row[0] <= newest - 5 * S - 1 for _, row in said)
    player.end()
    assert player.played.said == inserted(*wanted_order(numbered)[skip:])
    assert player.played.late == []


def test_a_row_behind_the_watermark_is_late() -> None:
    player = Player(partial(Sorter, BY_TIME, time=0))
    assert player.turn(inserted((10 * S, 1)), watermark_us=10 * S) == inserted((10 * S, 1))
    assert player.turn(inserted((10 * S, 2), (None, 3)), watermark_us=30 * S) == []
    assert {row for _, row in player.played.late} == {(10 * S, 2), (None, 3)}


def test_a_row_that_is_taken_back_while_it_waits_was_never_there_and_later_at_once() -> None:
    player = Player(partial(Sorter, BY_TIME, time=0))
    player.turn(inserted((10 * S, 1), (20 * S, 1), (20 * S, 1)), watermark_us=15 * S)
    assert player.turn([(DELETE, (10 * S, 1)), (DELETE, (20 * S, 1))]) == [(DELETE, (10 * S, 1))]
    assert player.end() == inserted((20 * S, 1))
    assert table_of(player.played.said) == {(20 * S, 1): 1}


@given(rows=TIMED, cuts=CUTS)
def test_without_a_time_all_rows_are_sorted_at_the_end(rows: list[tuple[int, int]], cuts: list[int]) -> None:
    player = Player(partial(Sorter, (OrderColumn(1, ascending=False), OrderColumn(0))))
    for turn in cut(list(rows), cuts):
        assert player.turn(inserted(*turn), watermark_us=50) == []
    assert player.end() == inserted(*sorted(rows, key=lambda row: (-row[1], row[0])))


def test_by_arrival_each_turn_is_sorted_for_itself() -> None:
    player = Player(partial(Sorter, (OrderColumn(1),), on_arrival=True))
    assert player.turn(inserted((1, 3), (2, 1)), now_us=5) == inserted((2, 1), (1, 3))
    assert player.turn(inserted((3, 2)), now_us=5) == inserted((3, 2))


@given(
    count=st.integers(0, 20), cuts=CUTS, skip=st.integers(0, 8), limit=st.one_of(st.none(), st.integers(0, 8))
)  # fmt: skip
def test_a_limit_says_the_rows_that_come_first(count: int, cuts: list[int], skip: int, limit: int | None) -> None:
    player = Player(partial(Limiter, skip, limit))
    rows: list[Row] = [(number,) for number in range(count)]
    for turn in cut(rows, cuts):
        player.turn(inserted(*turn))
    end = None if limit is None else skip + limit
    assert player.played.said == [(INSERT, row) for row in rows[skip:end]]
