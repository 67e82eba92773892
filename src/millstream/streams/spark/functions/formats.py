"""Patterns of dates: checked while a plan is translated, because Spark finds a wrong one only when rows have come."""

from __future__ import annotations

import re
from functools import lru_cache

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Call, columns_of
from millstream.streams.spark.functions.builder import literal

__all__ = ["DEFAULT_FORMAT", "checked_format", "checked_pattern", "is_print_format"]

DEFAULT_FORMAT = "yyyy-MM-dd HH:mm:ss"
_REMEDY = "Use letters such as yyyy MM dd EEE HH mm ss SSS, and quote text: 'T'."
_REMEDY_READING = "Use yyyy MM dd HH mm ss SSS and quoted text: names of days, and weeks, are only written."
_CACHED_FORMATS = 1_000
_WIDE = re.compile(r"\d{7}")
"""A width or precision that would make a text of millions of characters of any value."""


def checked_format(call: Call, position: int, *, reads: bool = True) -> Column:
    """The format argument at `position` of `call`, else the default one; JobError for a pattern that Spark refuses.

    With `reads` it is one that texts can be read by, too.
    """
    if position >= len(call.arguments):
        return F.lit(DEFAULT_FORMAT)
    pattern = literal(call, position, str)
    if pattern is None:
        if list(columns_of(call.arguments[position])):
            raise JobError("JOB_FAILED", f"The format of {call} is not a constant.", remedy=_REMEDY)
        return F.lit(None).cast("string")
    return checked_pattern(call, pattern, reads=reads)


def checked_pattern(call: Call, pattern: str, *, reads: bool) -> Column:
    """The pattern, or a part of one; JobError where Spark refuses it."""
    if not _is_known(pattern, reads):
        remedy = _REMEDY_READING if reads else _REMEDY
        raise JobError("JOB_FAILED", f"{call.function} cannot use the format {pattern!r}.", remedy=remedy)
    return F.lit(pattern)


@lru_cache(maxsize=_CACHED_FORMATS)
def _is_known(pattern: str, reads: bool) -> bool:
    # A constant row is computed while Spark optimises: no task is started.
    row = SparkSession.active().sql("SELECT 1")
    try:
        row.select(F.date_format(F.lit(0).cast("timestamp"), pattern)).collect()
        if reads:
            row.select(F.try_to_timestamp(F.lit("2026-01-02"), F.lit(pattern))).collect()
    except PySparkException:
        return False
    return True


@lru_cache(maxsize=_CACHED_FORMATS)
def is_print_format(pattern: str, samples: tuple[str | bool | int | float, ...]) -> bool:
    """Whether Java's formatter takes values like these in that pattern; Spark finds a wrong one only with rows."""
    if _WIDE.search(pattern):
        return False
    jvm = SparkSession.active()._jvm
    gateway = SparkSession.active().sparkContext._gateway
    values = gateway.new_array(jvm.java.lang.Object, len(samples))  # type: ignore[union-attr]
    for place, sample in enumerate(samples):
        values[place] = sample
    try:
        jvm.java.lang.String.format(jvm.java.util.Locale.US, pattern, values)  # type: ignore[union-attr]
    except (PySparkException, Py4JJavaError):
        return False
    return True
