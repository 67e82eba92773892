"""Rows whose range holds a value, against comparing with each."""

from __future__ import annotations

import datetime
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dimension_samples import built, pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.errors import DimensionError

CLOSED = IndexKey(IndexKind.RANGE, ("start", "end"))
HALF_OPEN = IndexKey(IndexKind.RANGE, ("start", "end"), end_included=False)


def ranges_of(rows: list[tuple[Any, Any]], data_type: pa.DataType) -> pa.RecordBatch:
    starts, ends = zip(*rows, strict=True) if rows else ((), ())
    columns = [pa.array(starts, data_type), pa.array(ends, data_type), pa.array(range(len(rows)), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, ["start", "end", "id"])


def held(rows: list[tuple[Any, Any]], probes: list[Any], end_included: bool) -> list[tuple[int, int]]:
    return sorted(
        (
            (place, row)
            for place, value in enumerate(probes)
            for row, (start, end) in enumerate(rows)
            if None not in (value, start, end) and start <= value and (value <= end if end_included else value < end)
        ),
        key=repr,
    )


def check(rows: list[tuple[Any, Any]], probes: list[Any], data_type: pa.DataType) -> None:
    with tempfile.TemporaryDirectory() as directory:
        table = built(Path(directory) / "t", ranges_of(rows, data_type), CLOSED, HALF_OPEN)
        for key in (CLOSED, HALF_OPEN):
            found = table.find(key, [pa.array(probes, data_type)])
            assert pairs(table, found, "id") == held(rows, probes, key.end_included)
            order = list(zip(found.probe.tolist(), found.row.tolist(), strict=True))
            assert order == sorted(order)


NUMBERS = st.none() | st.integers(-20, 20) | st.sampled_from([-(2**63), 2**63 - 1])


@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=80), probes=st.lists(NUMBERS, max_size=20))
@settings(deadline=None, max_examples=scaled(80))
def test_every_range_that_holds_a_number_is_found_however_they_overlap(
    rows: list[tuple[Any, Any]], probes: list[Any]
) -> None:
    check(rows, probes, pa.int64())


FLOATS = st.none() | st.floats(width=32)


@given(rows=st.lists(st.tuples(FLOATS, FLOATS), max_size=40), probes=st.lists(FLOATS, max_size=20))
@settings(deadline=None, max_examples=scaled(60))
def test_ranges_of_floats_compare_as_floats_do(rows: list[tuple[Any, Any]], probes: list[Any]) -> None:
    check(rows, probes, pa.float32())


def test_ranges_without_overlap_are_found_at_both_their_ends() -> None:
    rows = [(10 * one, 10 * one + 9) for one in range(2_000)]
    check(rows, [-1, 0, 9, 10, 19_999, 20_000], pa.int32())


def test_thousands_of_ranges_within_each_other_are_found() -> None:
    rows = [(-one, one) for one in range(1_000)] + [(5_000, 5_001)]
    check(rows, [0, 990, -998, 1_000, 5_000, 4_999], pa.int64())


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (pa.date32(), [datetime.date(2026, 1, day) for day in (1, 5, 9)]),
        (pa.timestamp("us"), [datetime.datetime(1960 + year, 1, 1) for year in (0, 20, 40)]),
        (pa.decimal128(9, 2), [Decimal("-1.50"), Decimal("0.25"), Decimal("7.00")]),
        (pa.int8(), [-128, 0, 127]),
    ],
    ids=str,
)
def test_ranges_of_times_and_decimals_are_found(data_type: pa.DataType, values: list[Any]) -> None:
    low, middle, high = values
    check([(low, middle), (middle, high), (high, low), (low, high)], [low, middle, high, None], data_type)


def test_a_number_of_another_width_lies_in_a_range_and_one_beyond_it_does_not(tmp_path: Path) -> None:
    table = built(tmp_path / "t", ranges_of([(1, 100)], pa.int8()), CLOSED)
    assert pairs(table, table.find(CLOSED, [pa.array([5, 2**40 + 5], pa.int64())]), "id") == [(0, 0)]


def test_a_value_with_more_digits_than_the_range_is_refused(tmp_path: Path) -> None:
    table = built(tmp_path / "t", ranges_of([(1, 100)], pa.int8()), CLOSED)
    with pytest.raises(DimensionError, match="beyond its digits"):
        table.find(CLOSED, [pa.array([Decimal("1.5")])])
