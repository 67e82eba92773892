"""Units of time are counted on Spark's timestamps as on plain numbers."""

from __future__ import annotations

import datetime
import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.functions import calendar as plain
from millstream.streams.plan.expressions import Call, Column, Literal
from millstream.streams.plan.types import STRING, DataType, TypeKind
from millstream.streams.spark.columns.calendar import FIELDS, floor_to_unit, next_bound, units_between
from millstream.streams.spark.functions.times import write_time

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
        F.struct(*(F.unix_micros(floor_to_unit(start, unit)).alias(unit) for unit in _BOUNDS)).alias("floors"),
        F.struct(*(F.unix_micros(next_bound(floor_to_unit(start, unit), unit)).alias(unit) for unit in _BOUNDS)).alias(
            "next"
        ),
        F.struct(*(FIELDS[unit](start).alias(unit) for unit in fields)).alias("fields"),
    )
    for (one, other), row in zip(rows, found.collect(), strict=True):
        floors = {unit: plain.floor_to_unit(one, unit) for unit in _BOUNDS}
        assert row["between"].asDict() == {unit: plain.units_between(one, other, unit) for unit in _UNITS}
        assert row["floors"].asDict() == floors
        assert row["next"].asDict() == {unit: plain.add_units(floor or 0, unit, 1) for unit, floor in floors.items()}
        assert row["fields"].asDict() == {unit: plain.field_of(one, unit) for unit in fields}


_PATTERNS = (
    "YYYY-MM-dd", "YY", "Y", "YYYYMMddHHmmss", "YYYY'W'ww-e", "w W c", "ee", "eee", "cccc", "EEEE, d MMMM uuuu", "D 'of' yy", "dd'T'HH:mm:ss.SSS",
    "wWe", "hh 'o''clock' a",
)  # fmt: skip


def test_times_are_written_as_java_writes_them(spark: SparkSession) -> None:
    chance = random.Random(11)
    times = [time for time in _times(chance) if time > 0]
    days = (
        datetime.datetime(year, month, day)
        for year in range(2015, 2027)
        for month, day in ((12, 26), (12, 31), (1, 1), (1, 4))
    )
    times += [(day - _EPOCH) // datetime.timedelta(microseconds=1) for day in days]
    moment = F.timestamp_micros(F.col("time"))
    of_call = Column("time", DataType(TypeKind.TIMESTAMP))
    calls = [Call("DATE_FORMAT", (of_call, Literal(pattern, STRING)), STRING) for pattern in _PATTERNS]
    columns = [write_time(call, 1, moment).alias(f"c{place}") for place, call in enumerate(calls)]
    java = spark._jvm.java.time  # type: ignore[union-attr]
    locale = spark._jvm.java.util.Locale.US  # type: ignore[union-attr]
    formats = [java.format.DateTimeFormatter.ofPattern(pattern, locale) for pattern in _PATTERNS]
    found = spark.createDataFrame([(time,) for time in times], ["time"]).select(*columns).collect()
    for time, row in zip(times, found, strict=True):
        local = java.LocalDateTime.ofEpochSecond(time // 1_000_000, time % 1_000_000 * 1000, java.ZoneOffset.UTC)
        assert list(row) == [of.format(local) for of in formats], local.toString()
