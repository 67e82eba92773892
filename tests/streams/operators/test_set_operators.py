"""INTERSECT and EXCEPT of our operators: what counting all rows gives, after every turn."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Kinded, Player, inserted, table_of

from millstream.streams.operators.operator import DELETE, INSERT, Row
from millstream.streams.operators.set_operations import SetOperator
from millstream.streams.plan.joins import SetKind

VALUES = st.one_of(st.none(), st.integers(0, 2))
TURNS = st.lists(st.lists(st.tuples(st.integers(0, 1), VALUES, st.booleans()), max_size=6), max_size=6)


def expected(kind: SetKind, left: Counter[Row], right: Counter[Row], *, keep_all: bool) -> Counter[Row]:
    if keep_all:
        return left & right if kind is SetKind.INTERSECT else left - right
    rows = set(+left) & set(+right) if kind is SetKind.INTERSECT else set(+left) - set(+right)
    return Counter(rows)


@pytest.mark.parametrize("kind", list(SetKind))
@pytest.mark.parametrize("keep_all", [False, True])
@given(turns=TURNS)
def test_the_result_follows_both_inputs(
    kind: SetKind, keep_all: bool, turns: list[list[tuple[int, int | None, bool]]]
) -> None:
    player = Player(partial(SetOperator, kind, keep_all=keep_all))
    there: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
    for turn in turns:
        inputs: tuple[list[Kinded], list[Kinded]] = ([], [])
        for side, value, comes in turn:
            row = (value, [value])
            key = (value,)
            comes = comes or not there[side][key]
            there[side][key] += 1 if comes else -1
            inputs[side].append((INSERT if comes else DELETE, row))
        player.turn(*inputs)
        said = [(kind_of, row[:1]) for kind_of, row in player.played.said]
        assert table_of(said) == expected(kind, *there, keep_all=keep_all)


def test_a_row_that_comes_and_goes_within_a_turn_is_not_told() -> None:
    player = Player(partial(SetOperator, SetKind.EXCEPT, keep_all=False))
    assert player.turn([(INSERT, (1,)), (DELETE, (1,))], []) == []
    assert player.turn(inserted((2,)), inserted((2,))) == []


def test_a_row_that_nobody_touches_is_forgotten_and_may_still_be_taken_back() -> None:
    player = Player(partial(SetOperator, SetKind.EXCEPT, keep_all=True), ttl_ms=10)
    assert player.turn(inserted((1,)), []) == [(INSERT, (1,))]
    assert player.turn([], [], now_us=20_000) == []
    assert player.turn([(DELETE, (1,))], [], now_us=20_001) == []
