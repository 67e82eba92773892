"""Top-N in operators of ours: the rows that sorting everything gives, after every turn."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Player, inserted, table_of

from millstream.streams.operators.operator import DELETE, INSERT, Row
from millstream.streams.operators.ranking import OrderColumn, Ranker

S = 1_000_000
Function = Literal["ROW_NUMBER", "RANK", "DENSE_RANK"]
VALUES = st.one_of(st.none(), st.integers(-3, 3))
TURNS = st.lists(st.lists(st.tuples(st.sampled_from("ab"), VALUES, st.booleans()), max_size=6), max_size=6)


def places(function: Function, rows: list[Row], ascending: bool) -> list[tuple[int, Row]]:
    """Each row with its place; equal values in the order of arrival. NULL is the smallest value."""

    def key(row: Row) -> tuple[int, int]:
        return (0, 0) if row[1] is None else (1, row[1])

    ordered = sorted(rows, key=key, reverse=not ascending)
    if not ascending:
        # A reversed sort keeps the order of arrival of equal values in Python.
        assert ordered == sorted(rows, key=key, reverse=True)
    found = []
    for number, row in enumerate(ordered):
        before = [one for one in ordered if (key(one) < key(row) if ascending else key(one) > key(row))]
        rank = {"ROW_NUMBER": number + 1, "RANK": len(before) + 1, "DENSE_RANK": len({key(one) for one in before}) + 1}
        found.append((rank[function], row))
    return found


@pytest.mark.parametrize("function", ["ROW_NUMBER", "RANK", "DENSE_RANK"])
@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("ranked", [True, False])
@given(turns=TURNS, changing=st.booleans())
def test_the_ranked_rows_are_those_of_all_rows_sorted(
    function: Function,
    first: int,
    last: int,
    ascending: bool,
    ranked: bool,
    turns: list[list[tuple[str, int | None, bool]]],
    changing: bool,
) -> None:
    order = (OrderColumn(1, ascending, nulls_first=ascending),)
    player = Player(partial(Ranker, (0,), order, function, first, last, ranked=ranked, changing=changing))
    there: list[Row] = []
    number = 0
    for turn in turns:
        changes = []
        for key, value, comes in turn:
            gone = [row for row in there if row[:2] == (key, value)]
            if comes or not changing or not gone:
                number += 1
                there.append((key, value, number))
                changes.append((INSERT, there[-1]))
            else:
                there.remove(gone[-1])
                changes.append((DELETE, gone[-1]))
        player.turn(changes)
        wanted: Counter[Row] = Counter()
        for key in "ab":
            for place, row in places(function, [row for row in there if row[0] == key], ascending):
                if first <= place <= last:
                    wanted[(*row, place) if ranked else row] += 1
        assert table_of(player.played.said) == wanted


def test_a_window_tells_its_ranks_once_when_it_is_over() -> None:
    make = partial(Ranker, (0,), (OrderColumn(1, ascending=False),), "ROW_NUMBER", 1, 2, ranked=True, window_end=0)
    player = Player(make)
    rows = [(10 * S, 1), (10 * S, 5), (10 * S, 3), (20 * S, 9)]
    assert player.turn(inserted(*rows), watermark_us=9 * S) == []
    assert player.turn(watermark_us=10 * S) == [(INSERT, (10 * S, 5, 1)), (INSERT, (10 * S, 3, 2))]
    assert player.turn(inserted((10 * S, 7))) == []
    assert player.played.late == [(0, (10 * S, 7))]
    assert player.end() == [(INSERT, (20 * S, 9, 1))]


def test_rows_that_cannot_enter_the_places_are_not_kept() -> None:
    make = partial(Ranker, (0,), (OrderColumn(1, ascending=False),), "ROW_NUMBER", 1, 2, ranked=False, changing=False)
    player = Player(make)
    player.turn(inserted(*(("a", number) for number in range(100))))
    assert max(map(len, player._deltas)) < 500
    assert player.turn(inserted(("a", 5))) == []


@given(
    turns=st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=6), max_size=6),
    last=st.integers(1, 3),
    changing=st.booleans(),
)
def test_the_newest_of_equal_rows_may_stand_first(
    turns: list[list[tuple[str, int]]], last: int, changing: bool
) -> None:
    order = (OrderColumn(1, ascending=False),)
    make = partial(Ranker, (0,), order, "ROW_NUMBER", 1, last, ranked=False, changing=changing, newest_first=True)
    player = Player(make)
    there: list[Row] = []
    for turn in turns:
        rows = [(key, value, len(there) + place) for place, (key, value) in enumerate(turn)]
        there += rows
        player.turn([(INSERT, row) for row in rows])
        wanted: Counter[Row] = Counter()
        for key in "ab":
            mine = sorted((row for row in there if row[0] == key), key=lambda row: (row[1], row[2]), reverse=True)
            wanted.update(mine[:last])
        assert table_of(player.played.said) == wanted
