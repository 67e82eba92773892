"""Aggregate functions, and the ranking and navigation functions of OVER, with Flink's semantics."""

from __future__ import annotations

import decimal

from millstream.streams.functions.spec import ArgumentTypes, FunctionSpec, Origin, array_of, map_of
from millstream.streams.plan.types import BIGINT, DOUBLE, INT, MAX_DIGITS, STRING, DataType, TypeKind

__all__ = ["AGGREGATES", "WINDOW_FUNCTIONS"]

_COUNT = BIGINT.as_nullable(False)
_AVERAGE_SCALE = 6
_LEAST_WARM_UP = 2
_MOST_IN_WINDOW = 65_535


def _sum(given: ArgumentTypes) -> DataType:
    first = given.types[0]
    if first.kind is TypeKind.DECIMAL:
        return DataType(TypeKind.DECIMAL, precision=MAX_DIGITS, scale=first.scale)
    return first.as_nullable()


def _sum0(given: ArgumentTypes) -> DataType:
    return _sum(given).as_nullable(False)


def _average(given: ArgumentTypes) -> DataType:
    first = given.types[0]
    if first.kind is TypeKind.DECIMAL:
        scale = max(_AVERAGE_SCALE, first.scale or 0)
        return DataType(TypeKind.DECIMAL, precision=MAX_DIGITS, scale=scale)
    return first.as_nullable()


def _same(given: ArgumentTypes) -> DataType:
    return given.types[0].as_nullable()


def _whole(given: ArgumentTypes) -> DataType:
    if not given.types[0].is_integer:
        raise TypeError("a whole number")
    return given.types[0].as_nullable()


def _multiset(given: ArgumentTypes) -> DataType:
    return DataType(TypeKind.MAP, elements=(given.types[0], INT.as_nullable(False)))


def _percentile(given: ArgumentTypes) -> DataType:
    fractions = given.types[1]
    if fractions.kind is TypeKind.ARRAY and fractions.elements[0].is_number:
        return array_of(DOUBLE)
    if not fractions.is_number:
        raise TypeError("a number, or an array of numbers, from 0 to 1 as argument 2")
    return DOUBLE


def _bins(_given: ArgumentTypes) -> DataType:
    return map_of(DOUBLE, BIGINT)


def _type_of_lag(given: ArgumentTypes) -> DataType:
    rows = given.literal(1)
    if len(given.types) > 1 and (not isinstance(rows, int) or rows < 0):
        raise TypeError("a constant of 0 or more as argument 2")
    return given.types[0].as_nullable()


def _parts(given: ArgumentTypes) -> DataType:
    parts = given.literal(0)
    if not isinstance(parts, int) or parts < 1:
        raise TypeError("a constant of 1 or more")
    return _COUNT


def _type_of_weighted_score(given: ArgumentTypes) -> DataType:
    weight = given.literal(1)
    if not isinstance(weight, int | float | decimal.Decimal) or not 0 < weight <= 1:
        raise TypeError("a constant above 0 and up to 1 as argument 2")
    return _type_of_score(given, 2)


def _type_of_score(given: ArgumentTypes, place: int = 1) -> DataType:
    warm_up = given.literal(place)
    if len(given.types) > place and (not isinstance(warm_up, int) or warm_up < _LEAST_WARM_UP):
        raise TypeError(f"a constant of {_LEAST_WARM_UP} or more as argument {place + 1}")
    return DOUBLE


def _half_spaces(given: ArgumentTypes) -> DataType:
    features, window = given.types[0], given.literal(1)
    inside = features.elements[0] if features.kind is TypeKind.ARRAY else features
    if not inside.is_number:
        raise TypeError("a number or an array of numbers as argument 1")
    if len(given.types) > 1 and (not isinstance(window, int) or not _LEAST_WARM_UP <= window <= _MOST_IN_WINDOW):
        raise TypeError(f"a constant from {_LEAST_WARM_UP} to {_MOST_IN_WINDOW} as argument 2")
    return DOUBLE


AGGREGATES: dict[str, FunctionSpec] = {
    spec.name: spec
    for spec in (
        FunctionSpec("COUNT", "[value ANY]", _COUNT, "How many values are not NULL; COUNT(*): how many rows.", "COUNT(*)"),
        FunctionSpec("SUM", "number NUMBER", _sum, "The sum, in the argument's type.", "SUM(bytes)"),
        FunctionSpec("SUM0", "number NUMBER", _sum0, "The sum; 0 where there is no number.", "SUM0(bytes)", origin=Origin.OWN),
        FunctionSpec("AVG", "number NUMBER", _average, "The mean, in the argument's type.", "AVG(celsius)"),
        FunctionSpec("MIN", "value COMPARABLE", _same, "The least.", "MIN(celsius)"),
        FunctionSpec("MAX", "value COMPARABLE", _same, "The greatest.", "MAX(celsius)"),
        FunctionSpec("STDDEV_POP", "number NUMBER", _average, "The standard deviation of all values.", "STDDEV_POP(celsius)"),
        FunctionSpec("STDDEV_SAMP", "number NUMBER", _average, "The standard deviation of a sample.", "STDDEV_SAMP(celsius)"),
        FunctionSpec("STDDEV", "number NUMBER", _average, "The same as STDDEV_SAMP.", "STDDEV(celsius)"),
        FunctionSpec("VAR_POP", "number NUMBER", _average, "The variance of all values.", "VAR_POP(celsius)"),
        FunctionSpec("VAR_SAMP", "number NUMBER", _average, "The variance of a sample.", "VAR_SAMP(celsius)"),
        FunctionSpec("VARIANCE", "number NUMBER", _average, "The same as VAR_SAMP.", "VARIANCE(celsius)"),
        FunctionSpec("COLLECT", "value COMPARABLE", _multiset, "Each value that is not NULL, and how often.", "COLLECT(host)"),
        FunctionSpec("LISTAGG", "text STRING [, separator STRING]", STRING, "The texts in one, with commas or a separator between them.", "LISTAGG(host, ';')"),
        FunctionSpec("ARRAY_AGG", "value ANY", lambda given: array_of(given.types[0]), "The values as an array, NULLs too.", "ARRAY_AGG(host)"),
        FunctionSpec("FIRST_VALUE", "value ANY", _same, "The first value that is not NULL, in the order of time.", "FIRST_VALUE(celsius)"),
        FunctionSpec("LAST_VALUE", "value ANY", _same, "The last value that is not NULL, in the order of time.", "LAST_VALUE(celsius)"),
        FunctionSpec("BIT_AND", "number INT", _whole, "The bits that are set in all.", "BIT_AND(bytes)", origin=Origin.OWN),
        FunctionSpec("BIT_OR", "number INT", _whole, "The bits that are set in any.", "BIT_OR(bytes)", origin=Origin.OWN),
        FunctionSpec("BIT_XOR", "number INT", _whole, "The bits that are set in an odd number of values.", "BIT_XOR(bytes)", origin=Origin.OWN),
        FunctionSpec("APPROX_COUNT_DISTINCT", "value COMPARABLE", _COUNT, "About how many different values.", "APPROX_COUNT_DISTINCT(host)"),
        FunctionSpec("PERCENTILE", "number NUMBER, fraction ANY [, weight INT]", _percentile, "The value below which that part (0 to 1) of all lies.", "PERCENTILE(celsius, 0.95)"),
        FunctionSpec("JSON_ARRAYAGG", "value ANY [, nulls STRING]", STRING.as_nullable(False), "The values as a JSON array, without NULLs unless NULL ON NULL.", "JSON_ARRAYAGG(host)", spelled="JSON_ARRAYAGG(value [NULL | ABSENT ON NULL])"),
        FunctionSpec("JSON_OBJECTAGG", "key STRING, value ANY [, nulls STRING]", STRING.as_nullable(False), "The pairs as a JSON object.", "JSON_OBJECTAGG(host VALUE bytes)", spelled="JSON_OBJECTAGG([KEY] key VALUE value [NULL | ABSENT ON NULL])"),
        FunctionSpec("HISTOGRAM", "number NUMBER, width NUMBER", _bins, "How many rows fall into each bin of that width, by the bin's lower bound.", "HISTOGRAM(celsius, 5)", origin=Origin.OWN),
        FunctionSpec("MAX_BY", "value ANY, order COMPARABLE", _same, "The value of the row whose order is greatest.", "MAX_BY(host, bytes)", origin=Origin.OWN),
        FunctionSpec("MIN_BY", "value ANY, order COMPARABLE", _same, "The value of the row whose order is least.", "MIN_BY(host, bytes)", origin=Origin.OWN),
    )
}  # fmt: skip
"""Aggregate functions by name."""

WINDOW_FUNCTIONS: dict[str, FunctionSpec] = {
    spec.name: spec
    for spec in (
        FunctionSpec("ROW_NUMBER", "", _COUNT, "The number of the row, from 1.", "ROW_NUMBER() OVER (PARTITION BY host ORDER BY ts)"),
        FunctionSpec("RANK", "", _COUNT, "The rank of the row; equal rows share one and the next are left out.", "RANK() OVER (PARTITION BY host ORDER BY bytes)"),
        FunctionSpec("DENSE_RANK", "", _COUNT, "The rank of the row; equal rows share one and none is left out.", "DENSE_RANK() OVER (PARTITION BY host ORDER BY bytes)"),
        FunctionSpec("PERCENT_RANK", "", DOUBLE.as_nullable(False), "(rank - 1) / (rows - 1); 0 for a single row.", "PERCENT_RANK() OVER (PARTITION BY host ORDER BY bytes)"),
        FunctionSpec("CUME_DIST", "", DOUBLE.as_nullable(False), "The part of the rows that come before this one or are equal.", "CUME_DIST() OVER (PARTITION BY host ORDER BY bytes)"),
        FunctionSpec("NTILE", "buckets INT", _parts, "Which of so many even parts the row is in, from 1.", "NTILE(4) OVER (PARTITION BY host ORDER BY bytes)"),
        FunctionSpec("LAG", "value COMMON [, rows INT [, default COMMON]]", _type_of_lag, "The value some rows (1) before; NULL or the default where there is none.", "LAG(bytes, 1, 0) OVER (PARTITION BY host ORDER BY ts)"),
        FunctionSpec("LEAD", "value COMMON [, rows INT [, default COMMON]]", _type_of_lag, "The value some rows (1) behind; NULL or the default where there is none.", "LEAD(bytes) OVER (PARTITION BY host ORDER BY ts)"),
        FunctionSpec("FIRST_VALUE", "value ANY", _same, "The value of the first row of the frame.", "FIRST_VALUE(bytes) OVER (PARTITION BY host ORDER BY ts)"),
        FunctionSpec("LAST_VALUE", "value ANY", _same, "The value of the last row of the frame.", "LAST_VALUE(bytes) OVER (PARTITION BY host ORDER BY ts)"),
        FunctionSpec("ZSCORE", "number NUMBER [, warm_up INT]", _type_of_score, "How many standard deviations the value is from the mean of those before it; NULL for the first ones (10).", "ZSCORE(bytes) OVER (PARTITION BY host ORDER BY ts)", origin=Origin.OWN),
        FunctionSpec("EWMA", "number NUMBER, weight NUMBER", _type_of_weighted_score, "The mean up to the row in which each value counts the weight and what came before the rest.", "EWMA(bytes, 0.2) OVER (PARTITION BY host ORDER BY ts)", origin=Origin.OWN),
        FunctionSpec("EWMA_SCORE", "number NUMBER, weight NUMBER [, warm_up INT]", _type_of_weighted_score, "As ZSCORE, with a mean and a deviation that forget.", "EWMA_SCORE(bytes, 0.2) OVER (PARTITION BY host ORDER BY ts)", origin=Origin.OWN),
        FunctionSpec("HST", "features ANY [, window INT]", _half_spaces, "From 0 to 1 how far a row is from the crowd of the window (250 rows) before, by half-space trees; NULL in the first window.", "HST(ARRAY[bytes, seconds]) OVER (PARTITION BY host ORDER BY ts)", origin=Origin.OWN),
    )
}  # fmt: skip
"""Functions that are called with OVER, by name; all aggregates can be, too."""
