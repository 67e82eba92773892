"""Joins in operators of ours: the pairs that a plain look at all rows finds, for every cut and order of the inputs."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Kinded, Player, inserted, table_of

from millstream.streams.operators.joins.interval_joining import IntervalJoiner
from millstream.streams.operators.joins.not_in_joining import NotInJoiner
from millstream.streams.operators.joins.regular_joining import JoinShape, RegularJoiner
from millstream.streams.operators.joins.window_joining import WindowJoiner
from millstream.streams.operators.operator import DELETE, INSERT, Row
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
    player = Player(lambda: RegularJoiner(shape()))
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


@pytest.mark.parametrize(
    "make", [*(partial(RegularJoiner, JoinShape(kind, 1, (2, 2))) for kind in KINDS), partial(NotInJoiner, 1)]
)
def test_rows_with_lists_and_rows_inside_come_and_go(make: Any) -> None:
    player = Player(make)
    left, right = (1, ["a", None], {"city": "Oslo", "zips": [1]}), (1, [], None)
    first = player.turn(inserted(left), []) + player.turn([], inserted(right))
    gone = player.turn([(DELETE, left)], []) + player.turn([], [(DELETE, right)])
    assert sorted(kind for kind, _ in first + gone) == sorted([INSERT, DELETE] * (len(first + gone) // 2))
    assert first
    for kind, row in first + gone:
        assert row in (left[1:], left[1:] + right[1:], (*left[1:], None, None), (None, None, *right[1:])), kind


PAIRS = st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 1)))


def is_known_apart(key: Row, others: list[Row]) -> bool:
    """NOT IN in three values: each comparison with a NULL is unknown, AND over the columns, OR over the rows."""
    for other in others:
        equal = [None if None in pair else pair[0] == pair[1] for pair in zip(key, other, strict=True)]
        if False not in equal:
            return False
    return True


@pytest.mark.parametrize("keys", [1, 2])
@given(turns=st.lists(st.lists(st.tuples(st.integers(0, 1), PAIRS, st.booleans()), max_size=6), max_size=6))
def test_not_in_shows_the_rows_that_are_known_to_equal_none(
    keys: int, turns: list[list[tuple[int, tuple[int | None, int | None], bool]]]
) -> None:
    player = Player(lambda: NotInJoiner(keys))
    there: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
    for turn in turns:
        inputs: tuple[list[Kinded], list[Kinded]] = ([], [])
        for side, values, comes in turn:
            row = (*values[:keys], *values)
            kind = INSERT if comes or not there[side][row] else DELETE
            there[side][row] += 1 if kind == INSERT else -1
            inputs[side].append((kind, row))
        player.turn(*inputs)
        others = [row[:keys] for row in there[1].elements()]
        wanted = Counter(row[keys:] for row in there[0].elements() if is_known_apart(row[:keys], others))
        assert table_of(player.played.said) == wanted


def test_a_null_hides_all_rows_of_not_in_until_it_goes() -> None:
    player = Player(lambda: NotInJoiner(1))
    assert player.turn(inserted((1, "a"), (None, "b")), []) == [(INSERT, ("a",)), (INSERT, ("b",))]
    assert player.turn([], inserted((2,))) == [(DELETE, ("b",))]
    assert player.turn([], inserted((None,))) == [(DELETE, ("a",))]
    assert player.turn([], [(DELETE, (None,))]) == [(INSERT, ("a",))]


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
