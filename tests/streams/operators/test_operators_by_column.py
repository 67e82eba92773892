"""Operators that look at whole columns say and keep what they do of rows one by one, in turns of either kind."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playing import Player, inserted, table_of

from millstream.streams.operators import columns
from millstream.streams.operators.aggregates.accumulator import Sum, WholeAverage
from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.columns import LARGEST
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import BatchTimes, Changes, Operator, OperatorOutput, Row
from millstream.streams.operators.over.streaming_over import OverFrame, StreamingOver
from millstream.streams.operators.ranking import Ranker
from millstream.streams.operators.state import OperatorState
from millstream.streams.operators.windows.window_times import Cumulating, Hopping, Slicing
from millstream.streams.operators.windows.windowing import Windower
from millstream.streams.plan.types import BIGINT, INT, STRING, DataType, TypeKind
from millstream.streams.spark.operators.arrow_rows import ArrowRows

S = 1_000_000
TIMESTAMP = DataType(TypeKind.TIMESTAMP)
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int32()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
KEY, NUMBER, TIME, VALUE = range(4)
SPECS = (
    AggregateSpec("COUNT", (), None, BIGINT),
    AggregateSpec("COUNT", (KEY,), STRING, BIGINT),
    AggregateSpec("COUNT", (VALUE,), BIGINT, BIGINT),
    AggregateSpec("SUM", (VALUE,), BIGINT, BIGINT),
    AggregateSpec("AVG", (VALUE,), BIGINT, BIGINT),
    AggregateSpec("SUM0", (NUMBER,), INT, INT),
)
EXTREMES = (
    AggregateSpec("MIN", (VALUE,), BIGINT, BIGINT),
    AggregateSpec("MAX", (TIME,), TIMESTAMP, TIMESTAMP),
    AggregateSpec("MAX", (NUMBER,), INT, INT),
)
FRAMES = [("rows", None), ("rows", 0), ("rows", 3), ("range", None), ("range", 0), ("range", 4 * S)]
VALUES = st.one_of(st.none(), st.integers(-20, 20), st.sampled_from([2**31 - 1, 2**60, 2**63 - 1, -(2**63)]))
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.sampled_from([1, 2, 2**31 - 1])),
        st.one_of(st.none(), st.integers(0, 12), st.integers(0, 12)),
        VALUES,
    ),
    max_size=12,
)
TURNS = st.lists(ROWS, max_size=6)


@pytest.fixture(autouse=True)
def few_rows_come_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "FEWEST", 1)


def over(unit: Literal["rows", "range"], preceding: int | None, partition: tuple[int, ...]) -> Operator:
    return StreamingOver(4, partition, (OrderColumn(TIME),), SPECS, OverFrame(unit, preceding), time=TIME)


@pytest.mark.parametrize(("unit", "preceding"), FRAMES)
@given(
    turns=TURNS,
    by_column=st.sets(st.integers(0, 6)),
    stays=st.booleans(),
    partition=st.sampled_from([(KEY,), (NUMBER,), (KEY, NUMBER), ()]),
)
def test_frames_tell_the_same_by_column(
    unit: Literal["rows", "range"],
    preceding: int | None,
    turns: list[list[Row]],
    by_column: set[int],
    stays: bool,
    partition: tuple[int, ...],
) -> None:
    make = partial(over, unit, preceding, partition)
    plain = Player(make)
    other = Player(make, schema=SCHEMA, by_column=by_column, stays=stays)
    newest_us = 0
    for turn in turns:
        rows = inserted(*((key, number, None if at is None else at * S, value) for key, number, at, value in turn))
        newest_us = max([newest_us, *(row[TIME] for _, row in rows if row[TIME] is not None)])
        # What is up to 3 s older than the newest is not late; what is newer waits.
        said = [player.turn(rows, watermark_us=newest_us - 3 * S) for player in (plain, other)]
        assert table_of(said[0]) == table_of(said[1])
    assert table_of(plain.end()) == table_of(other.end())
    assert sorted(plain.played.late, key=repr) == sorted(other.played.late, key=repr)
    assert plain.keys() == other.keys()


@pytest.mark.parametrize(("unit", "preceding"), FRAMES)
def test_rows_of_a_key_are_told_in_the_order_of_time(unit: Literal["rows", "range"], preceding: int | None) -> None:
    chance = random.Random(5)
    player = Player(partial(over, unit, preceding, (KEY,)), schema=SCHEMA, by_column=range(9))
    for number in range(8):
        rows = [(chance.choice("ab"), 1, (number * 5 + chance.randrange(9)) * S, 1) for _ in range(30)]
        player.turn(inserted(*rows), watermark_us=(number * 5 - 1) * S)
    said = player.end()
    for key in "ab":
        times = [row[TIME] for turn in player.played.turns for _, row in turn if row[KEY] == key]
        assert times == sorted(times)
    assert player.played.late == []
    assert said


@pytest.mark.parametrize("slicing", [Hopping(4 * S, 4 * S, S), Hopping(4 * S, 2 * S), Cumulating(4 * S, 2 * S)])
@given(turns=TURNS, by_column=st.sets(st.integers(0, 6)), keys=st.integers(0, 2))
def test_windows_tell_the_same_by_column(
    slicing: Slicing, turns: list[list[Row]], by_column: set[int], keys: int
) -> None:
    make = partial(Windower, keys, (*SPECS, *EXTREMES), TIME, slicing)
    plain = Player(make)
    other = Player(make, schema=SCHEMA, by_column=by_column)
    newest_us = 0
    for number, turn in enumerate(turns):
        # Windows begin and end in one turn, or lie across some.
        moved = [(key, one, None if at is None else (at + 5 * number) * S, value) for key, one, at, value in turn]
        newest_us = max([newest_us, *(row[TIME] for row in moved if row[TIME] is not None)])
        said = [player.turn(inserted(*moved), watermark_us=newest_us - S) for player in (plain, other)]
        assert table_of(said[0]) == table_of(said[1])
    assert table_of(plain.end()) == table_of(other.end())
    assert sorted(plain.played.late, key=repr) == sorted(other.played.late, key=repr)
    assert plain.keys() == other.keys() == 0


def test_nothing_is_kept_of_a_window_that_begins_and_ends_in_a_turn() -> None:
    player = Player(partial(Windower, 1, SPECS, TIME, Hopping(S, S)), schema=SCHEMA, by_column=[0])
    rows = [("a", 1, number * S // 4, number) for number in range(40)]
    assert len(player.turn(inserted(*rows), watermark_us=9 * S)) == 9
    assert player.keys() == 2
    assert len(player._deltas[0]) < 400


@pytest.mark.parametrize("place", [VALUE, TIME])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize(("first", "last", "ranked"), [(1, 1, False), (1, 3, False), (2, 3, True), (1, 2, True)])
@given(turns=TURNS, by_column=st.sets(st.integers(0, 6)), newest_first=st.booleans())
def test_the_first_rows_are_the_same_by_column(
    place: int,
    ascending: bool,
    first: int,
    last: int,
    ranked: bool,
    turns: list[list[Row]],
    by_column: set[int],
    newest_first: bool,
) -> None:
    order = (OrderColumn(place, ascending, nulls_first=ascending),)
    make = partial(
        Ranker, (KEY,), order, "ROW_NUMBER", first, last, ranked=ranked, changing=False, newest_first=newest_first
    )
    plain = Player(make)
    other = Player(make, schema=SCHEMA, by_column=by_column)
    number = 0
    for turn in turns:
        # Each row is another one, so that it shows which of equal ones is kept.
        rows = [(key, number + count, at, value) for count, (key, _, at, value) in enumerate(turn)]
        number += len(rows)
        plain.turn(inserted(*rows))
        other.turn(inserted(*rows))
        assert table_of(plain.played.said) == table_of(other.played.said)


def test_rows_without_a_chance_are_not_made() -> None:
    make = partial(
        Ranker, (KEY,), (OrderColumn(VALUE, ascending=False),), "ROW_NUMBER", 1, 2, ranked=False, changing=False
    )
    operator, state = make(), OperatorState()
    operator.open(state)
    for low in (100, 0):
        values = list(range(low, low + 90))
        arrays = [
            pa.array(["a"] * 90),
            pa.array([1] * 90, pa.int32()),
            pa.nulls(90, pa.timestamp("us")),
            pa.array(values),
        ]
        rows = ArrowRows([pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)], 4)
        out = OperatorOutput()
        operator.process(0, Changes(rows), BatchTimes(), out)
        assert [row[VALUE] for row in out.rows] == ([188, 189] if low else [])
        assert rows._rows is None


@given(
    states=st.lists(st.tuples(st.integers(0, 9), st.integers(-LARGEST + 1, LARGEST - 1)), min_size=1, max_size=9),
    machine=st.sampled_from([Sum(64), Sum(32), Sum(8, 0), WholeAverage()]),
)
def test_results_of_many_states_are_those_of_each(states: list[tuple[int, int]], machine: Sum) -> None:
    states = [(count, total if count else 0) for count, total in states]
    counts, totals = (np.array(values, np.int64) for values in zip(*states, strict=True))
    told: Any = columns.to_list(machine.results(counts, totals))
    assert told == [machine.result(state) for state in states]
