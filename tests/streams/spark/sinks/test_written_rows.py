"""Rows as sinks write them: JSON as Flink's format has it, and values that Python cannot hold."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa

from millstream.streams.connectors.print.sink import PrintSink
from millstream.streams.plan.types import BOOLEAN, DOUBLE, INT, STRING, VARIANT, DataType, Field, Schema, TypeKind
from millstream.streams.spark.sinks.json_rows import encode_rows, python_values
from millstream.streams.spark.sinks.sink import SinkTask, Written

_TIME = pa.timestamp("us", "UTC")
_MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)


def encoded(data_type: DataType, arrow_type: pa.DataType, *values: object) -> list[str]:
    """The JSON values that a column of `data_type` becomes."""
    rows = pa.RecordBatch.from_arrays([pa.array(values, arrow_type)], names=["x"])
    texts = encode_rows(rows, Schema((Field("x", data_type),)))
    return [text.decode().removeprefix('{"x":').removesuffix("}") for text in texts]


@pytest.mark.parametrize(
    ("kind", "arrow_type", "value", "text"),
    [
        (STRING, pa.string(), 'a"b', '"a\\"b"'),
        (INT, pa.int32(), -3, "-3"),
        (DOUBLE, pa.float64(), 2.5, "2.5"),
        (DOUBLE, pa.float64(), float("nan"), "null"),
        (BOOLEAN, pa.bool_(), True, "true"),
        (DataType(TypeKind.DECIMAL, precision=4, scale=2), pa.decimal128(4, 2), decimal.Decimal("1.10"), "1.10"),
        (DataType(TypeKind.TIMESTAMP, precision=3), _TIME, _MOMENT, '"2026-01-02 03:04:05.678"'),
        (DataType(TypeKind.TIMESTAMP_LTZ, precision=3), _TIME, _MOMENT, '"2026-01-02 03:04:05.678Z"'),
        (DataType(TypeKind.TIMESTAMP), _TIME, _MOMENT.replace(microsecond=0), '"2026-01-02 03:04:05"'),
        (DataType(TypeKind.DATE), pa.date32(), _MOMENT.date(), '"2026-01-02"'),
        (DataType(TypeKind.TIME), pa.int32(), 3_723_500, '"01:02:03.5"'),
        (DataType(TypeKind.BYTES), pa.binary(), b"hello", '"aGVsbG8="'),
        (DataType(TypeKind.ARRAY, elements=(INT,)), pa.list_(pa.int32()), [1, None], "[1,null]"),
        (VARIANT, pa.string(), '{"a":[1]}', '{"a":[1]}'),
        (DataType(TypeKind.ARRAY, elements=(VARIANT,)), pa.list_(pa.string()), ['"x"', None], '["x",null]'),
        (
            DataType(TypeKind.MAP, elements=(STRING, DataType(TypeKind.TIME))),
            pa.map_(pa.string(), pa.int32()),
            [("a", 0), ("b", None)],
            '{"a":"00:00:00","b":null}',
        ),
        (
            DataType(TypeKind.ROW, fields=(Field("at", DataType(TypeKind.TIMESTAMP)), Field("n", INT))),
            pa.struct([("at", _TIME), ("n", pa.int32())]),
            {"at": _MOMENT, "n": 1},
            '{"at":"2026-01-02 03:04:05.678","n":1}',
        ),
    ],
)
def test_each_type_is_written_as_flink_writes_it(
    kind: DataType, arrow_type: pa.DataType, value: object, text: str
) -> None:
    assert encoded(kind, arrow_type, value, None) == [text, "null"]


def test_columns_keep_their_order_and_names() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], names=["b", "a b"])
    (text,) = encode_rows(rows, Schema((Field("b", INT), Field("a b", STRING))))
    assert list(json.loads(text).items()) == [("b", 1), ("a b", "x")]


@pytest.mark.parametrize(
    ("values", "arrow_type"),
    [([10**18, 0], _TIME), ([10**7, 0], pa.date32())],
)
def test_a_time_beyond_the_year_9999_is_null_and_its_neighbours_stay(
    values: list[int], arrow_type: pa.DataType
) -> None:
    numbers = pa.array(values, pa.int64() if arrow_type == _TIME else pa.int32())
    beyond, epoch = python_values(numbers.cast(arrow_type))
    assert beyond is None
    assert epoch.year == 1970


def test_printed_rows_come_batch_by_batch_as_plain_values_and_leave_nothing_behind() -> None:
    schema = Schema((Field("n", INT), Field("at", DataType(TypeKind.TIMESTAMP)), Field("t", DataType(TypeKind.TIME))))
    shown: list[tuple[tuple[str, ...], list[tuple[object, ...]]]] = []
    sink = PrintSink("p", schema, lambda columns, rows, kinds: shown.append((columns, rows)))
    directory = Path(sink.__getstate__()["_directory"])
    task = SinkTask("job", 3, 1)
    writer = pickle.loads(pickle.dumps(sink)).writer(task)
    for number in (1, 2):
        arrays = [pa.array([number], pa.int32()), pa.array([_MOMENT], _TIME), pa.array([1500], pa.int32())]
        writer.write(pa.RecordBatch.from_arrays(arrays, names=list(schema.names)))
    sink.commit(3, [Written(task, 2, writer.finish())])
    naive, clock = _MOMENT.replace(tzinfo=None), datetime.time(0, 0, 1, 500_000)
    assert shown == [(("n", "at", "t"), [(number, naive, clock)]) for number in (1, 2)]
    assert list(directory.iterdir()) == []
    del sink
    assert not directory.exists()
