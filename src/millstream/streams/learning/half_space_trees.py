"""Half-space trees: anomaly scores by the density around a row in the previous window (Tan, Ting, Liu 2011).

Trees halve ranges at random and hold no data but counts, so learning and scoring cost the same for every row. The
splits come from a fixed seed: equal rows have equal scores in every process.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from millstream.streams.learning.scores import finite
from millstream.streams.operators.operator import Row

__all__ = ["DEFAULT_WINDOW", "DEPTH", "MAX_WINDOW", "TREES", "Features", "HalfSpaceTrees", "features_of"]

DEFAULT_WINDOW: Final = 250
"""Rows of a window of HST: a row is scored by the window before."""

MAX_WINDOW: Final = 65_535
"""Rows of a window at most: counts are kept in 16 bits."""

TREES: Final = 10
"""Trees of an ensemble; a state has `TREES * 2 ** (DEPTH + 1)` counts of 2 bytes, twice."""

DEPTH: Final = 8
"""How often a tree halves the ranges."""

_SEED: Final = 20_110_716
_NODES: Final = 2 ** (DEPTH + 1) - 1
_SCARCE: Final = 0.1
"""Of the window: a node with no more rows than that is not looked into further."""

Features = Callable[[Row], tuple[float, ...] | None]
"""The numbers of a row; None where one is missing."""


def features_of(place: int) -> Features:
    """The number or the array of numbers at a place of a row."""

    def features(row: Row) -> tuple[float, ...] | None:
        given = row[place]
        if given is None:
            return None
        numbers = [finite(one) for one in (given if isinstance(given, list | tuple) else [given])]
        known = tuple(one for one in numbers if one is not None)
        return known if known and len(known) == len(numbers) else None

    return features


class Forest(NamedTuple):
    """A state: the rows of the first window, then their ranges, the counts of the window before and of this one."""

    first: tuple[tuple[float, ...], ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    before: array[int] = array("H")
    now: array[int] = array("H")
    seen: int = 0


class HalfSpaceTrees:
    """Scores from 0 (a crowd) to 1 (nobody near), 0.5 where rows are as dense as if they lay evenly in their ranges.

    With m rows of the window before in the row's node of depth d, each tree says m * 2^d / window; the score is
    1 / (1 + the mean of that). The first window has no scores: it says in which ranges the features lie. Rows with
    another number of features than the first one have none and are not learned.
    """

    def __init__(self, features: Features, window: int = DEFAULT_WINDOW) -> None:
        self._features = features
        self._window = window

    def new(self) -> Forest:
        return Forest()

    def next(self, state: Forest, row: Row, key: Any) -> tuple[Forest, float | None]:
        features = self._features(row)
        if features is None or _width(state) not in (0, len(features)):
            return state, None
        if not state.ranges:
            return self._fill_first_window(state, features), None
        trees = splits(len(features))
        place = tuple(map(_within, features, state.ranges))
        score = 1 / (1 + self._density(state.before, trees, place))
        now = array("H", state.now)
        seen = state.seen + 1
        _learn(now, trees, place)
        if seen < self._window:
            return state._replace(now=now, seen=seen), score
        return state._replace(before=now, now=_zeros(), seen=0), score

    def _fill_first_window(self, state: Forest, features: tuple[float, ...]) -> Forest:
        """The state with one more row of the first window."""
        rows = (*state.first, features)
        if len(rows) < self._window:
            return state._replace(first=rows)
        ranges = tuple((min(column), max(column)) for column in zip(*rows, strict=True))
        counts, trees = _zeros(), splits(len(features))
        for one in rows:
            _learn(counts, trees, tuple(map(_within, one, ranges)))
        return Forest((), ranges, counts, _zeros(), 0)

    def _density(
        self, counts: array[int], trees: Sequence[Sequence[tuple[int, float]]], place: Sequence[float]
    ) -> float:
        total = 0.0
        for number, tree in enumerate(trees):
            node, depth, start = 0, 0, number * _NODES
            while depth < DEPTH and counts[start + node] > _SCARCE * self._window:
                node = _below(tree, node, place)
                depth += 1
            total += counts[start + node] * 2.0**depth
        return total / (len(trees) * self._window)


@lru_cache(maxsize=16)
def splits(features: int) -> tuple[tuple[tuple[int, float], ...], ...]:
    """Of each tree its inner nodes: the feature and where it is halved, of ranges from 0 to 1 with room beside them.

    The children of node n are 2n + 1 and 2n + 2. A tree's range of a feature is the paper's: of a random point in
    [0, 1] as far to both sides as twice the longer way to an end.
    """
    chance = random.Random(_SEED + features)
    return tuple(_tree(features, chance) for _ in range(TREES))


def _tree(features: int, chance: random.Random) -> tuple[tuple[int, float], ...]:
    reach = []
    for _ in range(features):
        middle = chance.random()
        half = 2 * max(middle, 1 - middle)
        reach.append((middle - half, middle + half))
    ranges: dict[int, list[tuple[float, float]]] = {0: reach}
    nodes: list[tuple[int, float]] = []
    for node in range(2**DEPTH - 1):
        mine = ranges.pop(node)
        feature = chance.randrange(features)
        low, high = mine[feature]
        middle = (low + high) / 2
        nodes.append((feature, middle))
        for child, part in ((2 * node + 1, (low, middle)), (2 * node + 2, (middle, high))):
            ranges[child] = [*mine[:feature], part, *mine[feature + 1 :]]
    return tuple(nodes)


def _learn(counts: array[int], trees: Sequence[Sequence[tuple[int, float]]], place: Sequence[float]) -> None:
    for number, tree in enumerate(trees):
        node, start = 0, number * _NODES
        counts[start] += 1
        for _ in range(DEPTH):
            node = _below(tree, node, place)
            counts[start + node] += 1


def _below(tree: Sequence[tuple[int, float]], node: int, place: Sequence[float]) -> int:
    feature, middle = tree[node]
    return 2 * node + (1 if place[feature] < middle else 2)


def _within(value: float, span: tuple[float, float]) -> float:
    """The value with the range as 0 to 1; a range of one value is a point in its middle."""
    low, high = span
    width = high - low
    return (value - low) / width if width > 0 else 0.5 + (value - low)


def _zeros() -> array[int]:
    return array("H", bytes(2 * _NODES * TREES))


def _width(state: Forest) -> int:
    return len(state.ranges) or (len(state.first[0]) if state.first else 0)
