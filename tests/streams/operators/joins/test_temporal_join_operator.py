"""The temporal join of our operators: each left row with the version that looking at all versions finds."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Kinded, Player, inserted, table_of

from millstream.streams.operators.evaluate import Evaluator
from millstream.streams.operators.joins.regular_joining import JoinShape
from millstream.streams.operators.joins.temporal_joining import TemporalJoiner
from millstream.streams.operators.operator import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Row
from millstream.streams.plan.joins import JoinKind

S = 1_000_000
KEYS = st.one_of(st.none(), st.integers(0, 2))
ROWS = st.lists(st.tuples(st.integers(0, 1), KEYS, st.integers(0, 30), st.booleans()), max_size=30)


def joiner(kind: JoinKind, condition: Evaluator | None = None) -> Player:
    shape = partial(JoinShape, kind, 1, (2, 2), condition)
    return Player(lambda: TemporalJoiner(shape(), (1, 1)))


def unequal(row: Row) -> bool:
    """The condition over a left row (number, time) and a version (number, time)."""
    return bool(row[0] % 3 != row[2] % 3)


def expected(kind: JoinKind, lefts: list[Row], versions: list[tuple[Row, bool]], *, condition: bool) -> Counter[Row]:
    """Each left row with the last version up to its time, found by looking at all of them."""
    found: Counter[Row] = Counter()
    for key, *left in lefts:
        partner = None
        for (other, *right), ends in sorted(versions, key=lambda one: one[0][2]):
            if key is not None and other == key and right[1] <= left[1]:
                partner = None if ends else right
        if partner is not None and (not condition or unequal((*left, *partner))):
            found[(*left, *partner)] += 1
        elif kind is JoinKind.LEFT:
            found[(*left, None, None)] += 1
    return found


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT])
@pytest.mark.parametrize("condition", [False, True])
@given(rows=ROWS, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_each_row_meets_the_version_of_its_time_for_every_cut(
    kind: JoinKind, condition: bool, rows: list[tuple[int, int | None, int, bool]], cuts: list[int]
) -> None:
    player = joiner(kind, unequal if condition else None)
    # In order of time but for 5 seconds, which the watermark waits for.
    ordered = sorted(rows, key=lambda row: row[2] // 5)
    lefts: list[Row] = []
    versions: dict[tuple[int | None, int], tuple[Row, bool]] = {}
    newest, start = 0, 0
    for end in [*sorted(cuts), len(ordered)]:
        inputs: tuple[list[Kinded], list[Kinded]] = ([], [])
        for number, (side, key, time, ends) in enumerate(ordered[start:end], start):
            row = (key, number, time * S)
            if side == 0:
                lefts.append(row)
                inputs[0].append((INSERT, row))
            else:
                # The last version of one moment is the one that counts.
                versions[key, time] = (row, ends)
                inputs[1].append((DELETE if ends else INSERT, row))
            newest = max(newest, time)
        start = max(start, end)
        player.turn(*inputs, watermark_us=(newest - 5) * S - 1)
    player.end()
    assert table_of(player.played.said) == expected(kind, lefts, list(versions.values()), condition=condition)
    assert player.played.late == []


def test_a_row_waits_for_the_watermark_and_rows_come_in_the_order_of_time() -> None:
    player = joiner(JoinKind.LEFT)
    assert player.turn(inserted((1, "b", 20 * S), (1, "a", 10 * S)), [], watermark_us=9 * S) == []
    assert player.turn([], inserted((1, "v", 10 * S)), watermark_us=20 * S) == [
        (INSERT, ("a", 10 * S, "v", 10 * S)),
        (INSERT, ("b", 20 * S, "v", 10 * S)),
    ]


def test_an_update_begins_a_version_and_leaves_the_one_before_where_it_was() -> None:
    player = joiner(JoinKind.INNER)
    versions = [
        (INSERT, (1, "old", 10 * S)),
        (UPDATE_BEFORE, (1, "old", 10 * S)),
        (UPDATE_AFTER, (1, "new", 20 * S)),
    ]
    player.turn(inserted((1, "a", 15 * S), (1, "b", 25 * S)), versions)
    assert [row[2] for _, row in player.end()] == ["old", "new"]


def test_versions_behind_the_watermark_are_forgotten_but_the_newest() -> None:
    player = joiner(JoinKind.LEFT)
    player.turn([], inserted((1, "x", 10 * S), (1, "y", 20 * S), (1, "z", 40 * S)), watermark_us=30 * S)
    late = (1, "late", 15 * S)
    assert player.turn(inserted(late, (1, "on", 30 * S + 1)), [], watermark_us=31 * S) == [
        (INSERT, ("late", 15 * S, None, None)),
        (INSERT, ("on", 30 * S + 1, "y", 20 * S)),
    ]
    assert player.played.late == [(0, late[1:])]


def test_a_left_row_that_is_taken_back_takes_its_pair_back() -> None:
    player = joiner(JoinKind.INNER)
    player.turn(inserted((1, "a", 15 * S)), inserted((1, "v", 10 * S)), watermark_us=5 * S)
    player.turn([(DELETE, (1, "a", 15 * S))], [])
    player.end()
    assert table_of(player.played.said) == Counter()
