"""Rows of columns of every kind, and their way into bodies and back."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, Field, Schema, TypeKind
from millstream.streams.spark.columns.arrow_types import arrow_type
from millstream.streams.spark.sinks.bodies import body_encoder
from millstream.streams.spark.source.formats.body_format import formats_of
from millstream.streams.spark.source.formats.keyed_rows import body_decoder

UTC = datetime.UTC
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
MOMENTS = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(UTC))
MILLISECONDS = MOMENTS.map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000))
INNER = DataType(
    TypeKind.ROW, fields=(Field("n", BIGINT), Field("words", DataType(TypeKind.ARRAY, elements=(STRING,))))
)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


KINDS: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "flag": (BOOLEAN, st.booleans()),
    "tiny": (DataType(TypeKind.TINYINT), whole(8)),
    "small": (DataType(TypeKind.SMALLINT), whole(16)),
    "number": (INT, whole(32)),
    "big": (BIGINT, whole(64)),
    "single": (DataType(TypeKind.FLOAT), st.floats(width=32, allow_nan=False)),
    "double": (DOUBLE, st.floats(allow_nan=False)),
    "price": (
        DataType(TypeKind.DECIMAL, precision=10, scale=2),
        st.integers(-(10**10) + 1, 10**10 - 1).map(lambda cents: decimal.Decimal(cents).scaleb(-2)),
    ),
    "word": (STRING, TEXTS),
    "raw": (DataType(TypeKind.BYTES), st.binary(max_size=12)),
    "day": (DataType(TypeKind.DATE), st.dates()),
    "clock": (DataType(TypeKind.TIME), st.integers(0, 86_399_999)),
    "at": (DataType(TypeKind.TIMESTAMP, precision=3), MILLISECONDS),
    "exactly": (DataType(TypeKind.TIMESTAMP, precision=6), MOMENTS),
    "instant": (DataType(TypeKind.TIMESTAMP_LTZ, precision=3), MILLISECONDS),
    "list": (DataType(TypeKind.ARRAY, elements=(INT,)), st.lists(whole(32), min_size=1, max_size=3)),
    "map": (
        DataType(TypeKind.MAP, elements=(STRING, BIGINT)),
        st.dictionaries(TEXTS, whole(64), min_size=1, max_size=3).map(lambda pairs: sorted(pairs.items())),
    ),
    "inner": (
        INNER,
        st.fixed_dictionaries({"n": whole(64), "words": st.lists(TEXTS, min_size=1, max_size=3)}),
    ),
}
"""Columns by name, with what draws their values; lists and maps are never blank."""

ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()}), min_size=1, max_size=4
)


def table_of(options: dict[str, str], columns: dict[str, DataType] | None = None) -> Table:
    columns = {name: kind for name, (kind, _) in KINDS.items()} if columns is None else columns
    physical = tuple(PhysicalColumn(name, kind) for name, kind in columns.items())
    return Table("t", physical, {"connector": "rocketmq", "topic": "t", **options})


def written(table: Table, rows: Sequence[dict[str, Any]]) -> list[bytes]:
    """The bodies of the rows."""
    arrays = [pa.array([row.get(of.name) for row in rows], arrow_type(of.type)) for of in table.physical]
    batch = pa.RecordBatch.from_arrays(arrays, names=[of.name for of in table.physical])
    schema = Schema(tuple(Field(of.name, of.type) for of in table.physical))
    return body_encoder(formats_of(table)[0], schema)(batch, [0] * len(rows))


def read(table: Table, bodies: Sequence[bytes], *names: str) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The rows of the bodies, with those columns alone if there are names, and places and reasons of what is none."""
    fields = [(of.name, of.type) for of in table.physical if not names or of.name in names]
    decoded = body_decoder(formats_of(table)[0], fields).decode(bodies)
    columns = [column.to_pylist() for column in decoded.columns]
    rows = [dict(zip((name for name, _ in fields), values, strict=True)) for values in zip(*columns, strict=True)]
    for row in rows:
        if row.get("map") is not None:
            row["map"] = sorted(row["map"])
    return rows, [(bad.position, bad.reason) for bad in decoded.malformed]
