"""Joins in operators of ours: the pairs that a plain look at all rows finds, for every cut and order of the inputs."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Kinded, Player, inserted, table_of

from millstream.streams.operators.changes import DELETE, INSERT, Row
from millstream.streams.operators.interval_joining import IntervalJoiner
from millstream.streams.operators.joining import Joiner, JoinShape
from millstream.streams.operators.window_joining import WindowJoiner
from millstream.streams.plan.joins import JoinKind

S = 1_000_000
KINDS = list(JoinKind)
KEYS = st.one_of(st.none(), st.integers(0, 2))
STEPS = st.lists(st.lists(st.tuples(st.integers(0, 1), KEYS, st.integers(0, 3), st.booleans()), max_size=6), max_size=6)


def joined(
    kind: JoinKind, lefts: list[tuple[object, Row]], rights: list[tuple[object, Row]], fits: object
) -> Counter[Row]:
    """All pairs by trying each; a key of None equals nothing."""
    found: Counter[Row] = Counter()
    paired: set[int] = set()
    for key, left in lefts:
        partners = [
            place
            for place, (other, right) in enumerate(rights)
            if key is not None and key == other and fits(left, right)  # type: ignore[operator]
        ]
        paired.update(partners)
        if kind.only_left:
            if bool(partners) is (kind is JoinKind.SEMI):
                found[left] += 1
            continue
        for place in partners:
            found[left + rights[place][1]] += 1
        if not partners and kind.keeps_left:
            found[(*left, None, None)] += 1
    if kind.keeps_right:
        for place, (_, right) in enumerate(rights):
            if place not in paired:
                found[(None, None, *right)] += 1
    return found


def unequal(row: Row) -> bool:
    """The condition over left and right columns behind the key."""
    return bool(row[1] != row[3])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", [None, unequal])
@given(turns=STEPS)
def test_a_join_follows_rows_of_both_sides_that_come_and_go(
    kind: JoinKind, condition: object, turns: list[list[tuple[int, int | None, int, bool]]]
) -> None:
    shape = partial(JoinShape, kind, 1, (2, 2), condition)
    player = Player(lambda: Joiner(shape()))
    there: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
    for turn in turns:
        inputs: tuple[list[Kinded], list[Kinded]] = ([], [])
        for side, key, value, comes in turn:
            row = (key, key, value)
            if comes or not there[side][row]:
                there[side][row] += 1
                inputs[side].append((INSERT, row))
            else:
                there[side][row] -= 1
                inputs[side].append((DELETE, row))
        player.turn(*inputs)
        sides = [[(row[0], row[1:]) for row in side.elements()] for side in there]
        wanted = joined(kind, *sides, lambda left, right: condition is None or unequal(left + right))
        assert table_of(player.played.said) == wanted


TIMED = st.lists(st.lists(st.tuples(st.integers(0, 1), KEYS, st.integers(0, 30)), max_size=6), max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("lower", "upper"), [(-3, 5), (2, 4), (-6, -1), (0, 0)])
@given(turns=TIMED)
def test_an_interval_join_pairs_rows_that_lie_near_each_other(
    kind: JoinKind, lower: int, upper: int, turns: list[list[tuple[int, int | None, int]]]
) -> None:
    shape = partial(JoinShape, kind, 1, (2, 2))
    player = Player(lambda: IntervalJoiner(shape(), (1, 1), lower * S, upper * S))
    # In order of time but for 5 seconds, which the watermark waits for.
    rows = sorted((row for turn in turns for row in turn), key=lambda row: row[2] // 5)
    sides: tuple[list[tuple[object, Row]], list[tuple[object, Row]]] = ([], [])
    newest, start = 0, 0
    for turn in turns:
        inputs: tuple[list[Kinded], list[Kinded]] = ([], [])
        for side, key, time in rows[start : start + len(turn)]:
            inputs[side].append((INSERT, (key, key, time * S)))
            sides[side].append((key, (key, time * S)))
            newest = max(newest, time)
        start += len(turn)
        player.turn(*inputs, watermark_us=(newest - 5) * S - 1)
    player.end()
    near = joined(kind, *sides, lambda left, right: lower * S <= left[1] - right[1] <= upper * S)
    assert all(one == INSERT for one, _ in player.played.said)
    assert table_of(player.played.said) == near
    assert player.played.late == []


def test_an_interval_join_forgets_rows_that_find_no_partner_any_more() -> None:
    shape = partial(JoinShape, JoinKind.LEFT, 1, (2, 2))
    player = Player(lambda: IntervalJoiner(shape(), (1, 1), 0, 2 * S))
    left = (1, "x", 10 * S)
    assert player.turn(inserted(left), [], watermark_us=9 * S) == []
    assert player.turn([], [], watermark_us=10 * S) == [(0, ("x", 10 * S, None, None))]
    assert player.turn([], inserted((1, "y", 10 * S))) == []


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.lists(st.tuples(st.integers(0, 1), KEYS, st.integers(0, 3)), max_size=20), first=st.integers(0, 20))
def test_a_window_join_says_the_pairs_of_a_window_at_its_end(
    kind: JoinKind, rows: list[tuple[int, int | None, int]], first: int
) -> None:
    shape = partial(JoinShape, kind, 2, (2, 2))
    player = Player(lambda: WindowJoiner(shape(), (1, 1)))
    sides: tuple[list[tuple[object, Row]], list[tuple[object, Row]]] = ([], [])
    parts = (rows[:first], rows[first:])
    for part in parts:
        inputs: tuple[list[Kinded], list[Kinded]] = ([], [])
        for side, key, number in part:
            end = (number + 1) * 10 * S
            inputs[side].append((INSERT, (key, end, key, end)))
            sides[side].append(((key, end) if key is not None else None, (key, end)))
        assert player.turn(*inputs) == []
    player.end()
    assert table_of(player.played.said) == joined(kind, *sides, lambda _left, _right: True)
