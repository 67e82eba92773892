"""Values of rows, as JSON of their types and as plain texts."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from millstream.gateway.row_values import RowFormat, row_writer
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, Field, TypeKind

TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)
INSTANT = DataType(TypeKind.TIMESTAMP_LTZ, precision=3)
MOMENT = datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000)
ROW = DataType(TypeKind.ROW, fields=(Field("a", INT), Field("at", TIMESTAMP)))


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (BOOLEAN, True, True),
        (BIGINT, 2**62, 2**62),
        (DOUBLE, 1.25, 1.25),
        (DOUBLE, math.inf, "Infinity"),
        (DOUBLE, -math.inf, "-Infinity"),
        (DOUBLE, math.nan, "NaN"),
        (DataType(TypeKind.DECIMAL, precision=5, scale=2), Decimal("1.50"), 1.5),
        (DataType(TypeKind.DECIMAL, precision=5, scale=0), Decimal(7), 7),
        (DataType(TypeKind.DECIMAL, precision=30, scale=3), Decimal("12345678901234567.125"), "12345678901234567.125"),
        (DataType(TypeKind.BYTES), b"\x0a\xff", "Cv8="),
        (DataType(TypeKind.DATE), datetime.date(2020, 1, 2), "2020-01-02"),
        (DataType(TypeKind.TIME), datetime.time(10, 11, 12), "10:11:12"),
        (TIMESTAMP, MOMENT, "2020-01-02T03:04:05.678000"),
        (INSTANT, MOMENT.replace(tzinfo=datetime.UTC), "2020-01-02T03:04:05.678000Z"),
        (INSTANT, MOMENT.replace(tzinfo=ZoneInfo("Asia/Tokyo")), "2020-01-01T18:04:05.678000Z"),
        (DataType(TypeKind.INTERVAL_DAY), datetime.timedelta(seconds=1.5), 1500),
        (DataType(TypeKind.ARRAY, elements=(TIMESTAMP,)), [MOMENT, None], ["2020-01-02T03:04:05.678000", None]),
        (DataType(TypeKind.ARRAY, elements=(DataType(TypeKind.TIME),)), [36_672_000], ["10:11:12"]),
        (DataType(TypeKind.MAP, elements=(STRING, INT)), [("a", 1), ("b", None)], {"a": 1, "b": None}),
        (DataType(TypeKind.MAP, elements=(INT, INT)), [(1, 2)], {"1": 2}),
        (ROW, {"a": 1, "at": MOMENT}, {"a": 1, "at": "2020-01-02T03:04:05.678000"}),
        (STRING, None, None),
    ],
)
def test_a_value_is_json_that_flinks_clients_read(data_type: DataType, value: object, expected: Any) -> None:
    (found,) = row_writer([data_type], RowFormat.JSON_OF_TYPES)((value,))
    assert found == expected
    assert type(found) is type(expected)


def test_plain_texts_are_those_of_a_cast_and_show_instants_in_the_sessions_zone() -> None:
    write = row_writer([INT, BOOLEAN, INSTANT, STRING], RowFormat.PLAIN_TEXT, ZoneInfo("Asia/Tokyo"))
    instant = MOMENT.replace(tzinfo=datetime.UTC)
    assert write((1, True, instant, None)) == ["1", "TRUE", "2020-01-02 12:04:05.678", None]
    write = row_writer([DataType(TypeKind.ARRAY, elements=(INSTANT,))], RowFormat.PLAIN_TEXT, ZoneInfo("Asia/Tokyo"))
    assert write(([instant, None],)) == ["[2020-01-02 12:04:05.678, NULL]"]
