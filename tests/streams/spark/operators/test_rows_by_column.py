"""Rows that an operator passes on by column: Arrow's values of every type, with new columns behind them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millstream.streams.operators import columns
from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.columns import Numbers, SelectedRows
from millstream.streams.operators.key_groups import KeyGroups
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.over.streaming_over import OverFrame, StreamingOver
from millstream.streams.plan.types import BIGINT
from millstream.streams.spark.operators import stage as stages
from millstream.streams.spark.operators.arrow_rows import ArrowRows, batch_of, columns_of, rows_of
from millstream.streams.spark.operators.packing import OF_EACH_ROW, Packer
from millstream.streams.spark.operators.stage import OperatorSpec, OperatorStage
from millstream.streams.spark.runtime.micro_batch import ToldTime
from millstream.streams.state.state_files import LocalStateFiles

S = 1_000_000
TYPES = {
    pa.string(): ["x", None, "é", ""],
    pa.int32(): [1, None, -5, 2**31 - 1],
    pa.float64(): [1.5, None, float("inf"), -0.0],
    pa.bool_(): [True, None, False, True],
    pa.decimal128(10, 2): [Decimal("1.10"), None, Decimal("-3.00"), Decimal("0.00")],
    pa.timestamp("us", "UTC"): [1, None, -7, 5_000_000],
    pa.date32(): [date(2026, 1, 1), None, date(1969, 1, 1), date(1970, 1, 1)],
    pa.list_(pa.int64()): [[1, 2], None, [], [None]],
}


@pytest.mark.parametrize("arrow", TYPES, ids=str)
def test_values_stay_what_they_are(arrow: pa.DataType) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(TYPES[arrow], arrow), pa.array([1, 2, 3, 4])], names=["a", "n"])
    rows = ArrowRows([batch.slice(0, 2), batch.slice(2)], 2)
    assert list(rows) == rows_of(batch, 2)
    assert rows.at(np.array([3, 0])) == [rows[3], rows[0]]
    more = [(rows[2][0], 5), (None, 6)]
    taken = SelectedRows(
        rows, more, np.array([5, 0, 4, 3]), 2, (Numbers(np.array([9, 8, 7, 6]), np.array([1, 0, 1, 1]) == 1),)
    )
    fields = [pa.field("a", arrow), pa.field("n", pa.int64()), pa.field("sum", pa.int32())]
    found = columns_of(taken, slice(0, 4), fields)
    assert [array.type for array in found] == [field.type for field in fields]
    assert found == batch_of(taken.to_rows(), fields)
    assert columns_of(taken, slice(2, 4), fields) == [array.slice(2) for array in found]


@pytest.mark.parametrize(
    ("arrow", "told"), [(pa.string(), True), (pa.int32(), True), (pa.float64(), False), (pa.decimal128(5, 1), False)]
)
def test_only_types_whose_equal_values_are_equal_rows_give_keys(arrow: pa.DataType, told: bool) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([None, None], arrow)], names=["a"])
    assert (ArrowRows([batch], 1).keys((0,)) is not None) is told


def test_a_stage_says_and_keeps_the_same_by_column_and_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = pa.schema(
        [
            pa.field("name", pa.string()),
            pa.field("ts", pa.timestamp("us", "UTC")),
            pa.field("sum", pa.int64()),
            pa.field("__kind", pa.int8()),
            pa.field("__tick", pa.timestamp("us", "UTC")),
        ]
    )
    calls = (AggregateSpec("SUM", (2,), BIGINT, BIGINT),)

    def said(fewest: int) -> list[list[dict[str, object]]]:
        monkeypatch.setattr(columns, "FEWEST", fewest)
        directory = tmp_path / str(fewest)
        make = partial(StreamingOver, 2, (0,), (OrderColumn(1),), calls, OverFrame("rows", 3), time=1)
        files = LocalStateFiles(directory)
        spec = OperatorSpec(
            "job", str(fewest), make, KeyGroups(1, 1), files, (3,), (0,), output, str(directory), ToldTime(1)
        )
        turns = []
        for batch_id in range(4):
            monkeypatch.setattr(stages, "micro_batch", lambda: batch_id)  # noqa: B023
            stages._kept_states.clear()
            rows = packed(
                [(f"k{number % 3}", (batch_id * 100 + number * 7 % 120) * S, number) for number in range(200)]
            )
            told = [row for part in OperatorStage(spec)(rows) for row in part.to_pylist()]
            turns.append(sorted(told, key=repr))
        return turns

    by_column = said(1)
    assert by_column == said(10_000)
    assert sum(map(len, by_column)) > 500


def packed(rows: list[tuple[str, int, int]]) -> list[pa.RecordBatch]:
    """Rows of one key group and one queue, whose event time is 5 s behind the newest."""
    names, times, values = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(names),
            pa.array(times, pa.timestamp("us", "UTC")),
            pa.array(values),
            pa.array([0] * len(rows), pa.int32()),
            pa.array(["q/0"] * len(rows)),
            pa.array([time - 5 * S for time in times]),
            pa.nulls(len(rows), pa.int64()),
        ],
        names=["c0", "c1", "c2", *OF_EACH_ROW],
    )
    return list(Packer(0, KeyGroups(1, 1), width=3, kinds=False, source=0)(iter([batch])))
