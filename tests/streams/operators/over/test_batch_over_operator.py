"""OVER over whole partitions: each row as a plain look at all of them says, at the end of a run."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Player, inserted

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import DELETE, INSERT
from millstream.streams.operators.over.batch_over import BatchOver
from millstream.streams.operators.over.streaming_over import OverFrame
from millstream.streams.plan.types import BIGINT, DOUBLE

VALUES = st.one_of(st.none(), st.integers(-5, 5))
ROWS = st.lists(st.tuples(st.sampled_from("ab"), VALUES), max_size=12)
EDGES = st.one_of(st.none(), st.integers(-3, 3))
SUM = AggregateSpec("SUM", (1,), BIGINT, BIGINT)
COUNT = AggregateSpec("COUNT", (), None, BIGINT)


def told(specs: tuple[AggregateSpec, ...], values: list[Any]) -> list[tuple[Any, ...]]:
    """What the calls say of the values of one partition in ascending order."""
    player = Player(partial(BatchOver, 2, (0,), (OrderColumn(1),), specs, OverFrame()))
    assert player.turn(inserted(*(("a", value) for value in values))) == []
    return [row[2:] for _, row in player.end()]


@pytest.mark.parametrize("unit", ["rows", "range"])
@pytest.mark.parametrize("ascending", [True, False])
@given(rows=ROWS, preceding=EDGES, following=EDGES)
def test_a_frame_holds_the_rows_between_its_bounds(
    unit: Literal["rows", "range"], ascending: bool, rows: list[tuple[str, int | None]], preceding: Any, following: Any
) -> None:
    if preceding is not None and following is not None and preceding + following < 0:
        return
    order = (OrderColumn(1, ascending, nulls_first=ascending),)
    make = partial(BatchOver, 2, (0,), order, (COUNT, SUM), OverFrame(unit, preceding, following))
    player = Player(make)
    player.turn(inserted(*rows))
    found = [row for _, row in player.end()]
    wanted = []
    for key in sorted({key for key, _ in rows}, key=[key for key, _ in rows].index):
        values = sorted((value for of, value in rows if of == key), key=lambda one: (one is not None, one or 0))
        values = values if ascending else values[::-1]
        for place, value in enumerate(values):
            inside = [
                other
                for number, other in enumerate(values)
                if is_inside(unit, (place, value), (number, other), preceding, following, ascending)
            ]
            known = [one for one in inside if one is not None]
            wanted.append((key, value, len(inside), sum(known) if known else None))
    assert found == wanted


def is_inside(
    unit: str, mine: tuple[int, Any], other: tuple[int, Any], preceding: Any, following: Any, ascending: bool
) -> bool:
    """Whether a row is in another's frame, by the words of the standard: NULL is near NULL alone."""
    if unit == "rows":
        distance = other[0] - mine[0]
    elif mine[1] is None or other[1] is None:
        if mine[1] is None and other[1] is None:
            return True
        is_before = (other[1] is None) == ascending
        return preceding is None if is_before else following is None
    else:
        distance = (other[1] - mine[1]) * (1 if ascending else -1)
    return (preceding is None or distance >= -preceding) and (following is None or distance <= following)


def test_lead_tells_the_value_behind_or_the_default() -> None:
    plain, far = (AggregateSpec("LEAD", (1,), BIGINT, BIGINT, literals=more) for more in ((), (2, 77)))
    assert told((plain, far), [3, 1, 2]) == [(2, 3), (3, 77), (None, 77)]


@pytest.mark.parametrize(
    ("parts", "rows", "wanted"),
    [(4, 6, [1, 1, 2, 2, 3, 4]), (3, 3, [1, 2, 3]), (5, 2, [1, 2]), (1, 3, [1, 1, 1]), (2, 5, [1, 1, 1, 2, 2])],
)
def test_ntile_gives_the_first_parts_one_row_more(parts: int, rows: int, wanted: list[int]) -> None:
    spec = AggregateSpec("NTILE", (2,), BIGINT, BIGINT)
    player = Player(partial(BatchOver, 2, (0,), (OrderColumn(1),), (spec,), OverFrame()))
    player.turn(inserted(*(("a", value, parts) for value in range(rows))))
    assert [row[-1] for _, row in player.end()] == wanted


def test_parts_of_the_rows_before_a_row_are_those_of_the_standard() -> None:
    """PERCENT_RANK is (rank - 1) / (rows - 1), CUME_DIST the rows up to and with the peers by all rows."""
    specs = tuple(AggregateSpec(name, (), None, DOUBLE) for name in ("PERCENT_RANK", "CUME_DIST"))
    assert told(specs, [10, 20, 20, 30, 40]) == [(0.0, 0.2), (0.25, 0.6), (0.25, 0.6), (0.75, 0.8), (1.0, 1.0)]
    assert told(specs, [7]) == [(0.0, 1.0)]


def test_rows_that_were_taken_back_were_never_there() -> None:
    player = Player(partial(BatchOver, 2, (0,), (), (COUNT,), OverFrame()))
    player.turn([(INSERT, ("a", 1)), (INSERT, ("a", 2)), (DELETE, ("a", 1))])
    assert player.end() == [(INSERT, ("a", 2, 1))]


def test_a_row_that_is_taken_back_and_never_came_is_passed_over() -> None:
    player = Player(partial(BatchOver, 2, (0,), (), (COUNT,), OverFrame()))
    player.turn([(INSERT, ("a", 1)), (DELETE, ("a", 7)), (DELETE, ("b", 7))])
    player.turn([(INSERT, ("a", 2))])
    assert player.end() == [(INSERT, ("a", 1, 2)), (INSERT, ("a", 2, 2))]
