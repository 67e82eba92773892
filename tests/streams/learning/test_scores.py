"""Scores against the plain formulas over all values before, and half-space trees against counting by hand."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.learning.half_space_trees import DEPTH, TREES, HalfSpaceTrees, features_of, splits
from millstream.streams.learning.scores import Ewma, EwmaScore, ZScore, value_of
from millstream.streams.learning.scoring import Score

VALUES = st.lists(st.one_of(st.none(), st.integers(-1000, 1000).map(lambda number: number / 8)), max_size=40)


def scored(machine: Score, values: list[Any]) -> list[Any]:
    state, found = machine.new(), []
    for value in values:
        state, score = machine.next(state, (value,), None)
        found.append(score)
    return found


def close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)


@given(VALUES, st.integers(2, 5))
def test_a_z_score_is_that_of_the_values_before(values: list[float | None], warm_up: int) -> None:
    for number, (value, score) in enumerate(zip(values, scored(ZScore(value_of(0), warm_up), values), strict=True)):
        before = [one for one in values[:number] if one is not None]
        if value is None or len(before) < warm_up:
            assert score is None
        elif len(set(before)) == 1:
            assert score == (0 if value == before[0] else math.copysign(math.inf, value - before[0]))
        else:
            assert close(score, (value - statistics.fmean(before)) / statistics.stdev(before))


@given(VALUES, st.floats(0.01, 1))
def test_a_weighted_mean_is_the_sum_of_the_values_by_their_weights(values: list[float | None], weight: float) -> None:
    for number, mean in enumerate(scored(Ewma(value_of(0), weight), values)):
        known = [one for one in values[: number + 1] if one is not None]
        if not known:
            assert mean is None
            continue
        last = len(known) - 1
        weights = [(1 - weight) ** last, *(weight * (1 - weight) ** (last - place) for place in range(1, last + 1))]
        assert close(mean, math.fsum(map(math.prod, zip(weights, known, strict=True))))


@given(VALUES, st.floats(0.01, 0.99))
def test_a_weighted_score_is_that_of_the_weighted_moments_before(values: list[float | None], weight: float) -> None:
    machine = EwmaScore(value_of(0), weight, 3)
    for number, (value, score) in enumerate(zip(values, scored(machine, values), strict=True)):
        known = [one for one in values[:number] if one is not None]
        if value is None or len(known) < 3:
            assert score is None
            continue
        last = len(known) - 1
        weights = [(1 - weight) ** last, *(weight * (1 - weight) ** (last - place) for place in range(1, last + 1))]
        mean = math.fsum(map(math.prod, zip(weights, known, strict=True)))
        variance = math.fsum(of * (one - mean) ** 2 for of, one in zip(weights, known, strict=True))
        if variance > 1e-6:
            assert close(score, (value - mean) / math.sqrt(variance))


def test_what_is_no_number_is_not_learned() -> None:
    clean = [1.0, 2.0, 4.0, 3.0]
    odd = [1.0, math.nan, 2.0, math.inf, 4.0, None, 3.0]
    machine = ZScore(value_of(0), 2)
    assert [score for score in scored(machine, odd) if score is not None] == scored(machine, clean)[2:]


def test_half_space_trees_say_nothing_in_the_first_window_and_less_for_a_crowd_than_for_a_stranger() -> None:
    crowd = [[10 + place % 7, 20 + place % 5] for place in range(64)]
    scores = scored(HalfSpaceTrees(features_of(0), 64), [*crowd, *crowd[:5], [500, -500]])
    assert scores[:64] == [None] * 64
    assert all(0 < score < 0.5 for score in scores[64:69])
    assert scores[69] > 0.5


def test_a_density_is_the_rows_of_the_node_against_an_even_spread() -> None:
    """With one value in the window before, each tree's node is the root's child side after side down to the leaf."""
    scores = scored(HalfSpaceTrees(features_of(0), 4), [5.0, 5.0, 5.0, 5.0, 5.0])
    assert scores[4] == pytest.approx(1 / (1 + 2**DEPTH))


def test_the_window_before_is_what_counts() -> None:
    """After a second window elsewhere the first place is empty; ranges stay those of the first window."""
    here, there = [[float(place)] for place in range(8)], [[1000.0 + place] for place in range(8)]
    scores = scored(HalfSpaceTrees(features_of(0), 8), [*here, *there, [3.0], [1003.0]])
    assert scores[8] == 1.0
    assert scores[16] == 1.0
    assert scores[17] < 0.5


@given(st.integers(1, 4))
def test_trees_split_every_feature_range_in_its_middle(features: int) -> None:
    trees = splits(features)
    assert len(trees) == TREES
    for tree in trees:
        assert len(tree) == 2**DEPTH - 1
        assert {feature for feature, _ in tree} <= set(range(features))
    assert trees == splits.__wrapped__(features)


def test_rows_with_another_number_of_features_have_no_score() -> None:
    assert scored(HalfSpaceTrees(features_of(0), 2), [[1.0], [2.0], [1.0, 2.0], [None], None])[2:] == [None] * 3


def test_a_state_is_never_changed_in_place() -> None:
    machine = HalfSpaceTrees(features_of(0), 3)
    state = machine.new()
    for value in (1.0, 2.0, 3.0, 2.0):
        state, _ = machine.next(state, (value,), None)
    copies = bytes(state.before), bytes(state.now)
    machine.next(state, (2.5,), None)
    assert (bytes(state.before), bytes(state.now)) == copies
