"""Units of time are counted on Spark's timestamps as on plain numbers."""

from __future__ import annotations

import datetime
import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.functions import calendar as plain
from millstream.streams.spark.calendar import FIELDS, floored, next_bound, units_between

pytestmark = pytest.mark.spark

_UNITS = ("DAY", "MONTH", "YEAR")
_BOUNDS = ("WEEK", "MONTH", "DECADE", "CENTURY", "MILLENNIUM")
_NAMED_TWICE = ("DAYOFMONTH", "DAYOFYEAR", "DAYOFWEEK")
_EPOCH = datetime.datetime(1970, 1, 1)


def _times(chance: random.Random) -> list[int]:
    """Microseconds since 1970 around the ends of months, and some days and hours from them."""
    ends = [datetime.datetime(chance.randint(1890, 2120), chance.randint(1, 12), 1) for _ in range(150)]
    near = [end + datetime.timedelta(days=chance.randint(-2, 2), hours=chance.choice((0, 7, 12))) for end in ends]
    return [(time - _EPOCH) // datetime.timedelta(microseconds=1) + chance.choice((0, 0, 1, 999_999)) for time in near]


def test_differences_bounds_and_fields_are_those_of_plain_numbers(spark: SparkSession) -> None:
    chance = random.Random(7)
    starts, ends = _times(chance), _times(chance)
    rows = [*zip(starts, ends, strict=True), *((time, time + chance.choice((0, 1, -1))) for time in starts)]
    start, end = (F.timestamp_micros(F.col(name)) for name in ("start", "end"))
    fields = [unit for unit in FIELDS if unit not in _NAMED_TWICE]
    found = spark.createDataFrame(rows, ["start", "end"]).select(
        F.struct(*(units_between(unit, start, end).alias(unit) for unit in _UNITS)).alias("between"),
        F.struct(*(F.unix_micros(floored(start, unit)).alias(unit) for unit in _BOUNDS)).alias("floors"),
        F.struct(*(F.unix_micros(next_bound(floored(start, unit), unit)).alias(unit) for unit in _BOUNDS)).alias(
            "next"
        ),
        F.struct(*(FIELDS[unit](start).alias(unit) for unit in fields)).alias("fields"),
    )
    for (one, other), row in zip(rows, found.collect(), strict=True):
        floors = {unit: plain.floored(one, unit) for unit in _BOUNDS}
        assert row["between"].asDict() == {unit: plain.units_between(one, other, unit) for unit in _UNITS}
        assert row["floors"].asDict() == floors
        assert row["next"].asDict() == {unit: plain.moved(floor or 0, unit, 1) for unit, floor in floors.items()}
        assert row["fields"].asDict() == {unit: plain.field_of(one, unit) for unit in fields}
