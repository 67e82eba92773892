"""Arithmetic. Integer division stays integral; division by zero is NULL; overflow wraps."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Call, Literal, columns_of
from millstream.streams.plan.types import MAX_DIGITS, DataType, TypeKind
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.functions.builder import Builder, literal
from millstream.streams.spark.functions.times import ceil_time, floor_time

__all__ = ["NUMBERS"]


_NEGATED_DIGITS = 34
"""Digits of decimals that Spark negates without rounding them: its numbers are those of IEEE's decimal128."""


def _unhex(_call: Call, columns: Sequence[Column]) -> Column:
    """Of an odd number of digits Flink takes the first one away, and puts a byte of zeros in its place."""
    text = columns[0]
    whole, behind = F.unhex(text), F.unhex(F.substring(text, F.lit(2), F.char_length(text)))
    odd = F.when(whole.isNotNull(), F.concat(F.lit(b"\0"), behind))
    return F.when(F.char_length(text) % 2 == 1, odd).otherwise(whole)


def _divide(call: Call, columns: Sequence[Column]) -> Column:
    left, right = call.arguments
    if left.type.is_integer and right.type.is_integer:
        return F.call_function("div", columns[0], columns[1])
    if left.type.kind is TypeKind.INTERVAL_DAY:
        return columns[0] / F.nullif(columns[1], F.lit(0))
    if left.type.kind is TypeKind.INTERVAL_YEAR:
        return _whole_months(columns[0] / F.nullif(columns[1], F.lit(0)))
    return columns[0] / columns[1]


def _multiply(call: Call, columns: Sequence[Column]) -> Column:
    product = columns[0] * columns[1]
    return _whole_months(product) if call.type.kind is TypeKind.INTERVAL_YEAR else product


def _whole_months(months: Column) -> Column:
    """Halves away from 0."""
    return F.round(months).try_cast("int")


def _floor(call: Call, columns: Sequence[Column]) -> Column:
    return floor_time(call, columns) if call.arguments[0].type.is_timestamp else _whole(call, columns, F.floor)


def _ceil(call: Call, columns: Sequence[Column]) -> Column:
    return ceil_time(call, columns) if call.arguments[0].type.is_timestamp else _whole(call, columns, F.ceil)


def _whole(call: Call, columns: Sequence[Column], round_off: object) -> Column:
    if call.arguments[0].type.kind in (TypeKind.DATE, TypeKind.TIME):
        return floor_time(call, columns) if round_off is F.floor else ceil_time(call, columns)
    whole = F.floor(columns[0]) if round_off is F.floor else F.ceil(columns[0])
    if call.arguments[0].type.kind in (TypeKind.DOUBLE, TypeKind.FLOAT):
        # Spark makes a BIGINT of it, which is too short for large numbers.
        return F.when(F.abs(columns[0]) < _LEAST_WITHOUT_FRACTION, whole.cast("double")).otherwise(columns[0])
    return whole


def _round(call: Call, columns: Sequence[Column]) -> Column:
    _check_constant(call, 1, "digits")
    kind = call.arguments[0].type
    digits = (literal(call, 1, int) or 0) if len(columns) > 1 else 0
    if kind.kind is not TypeKind.DECIMAL or (kind.precision, kind.scale) != (MAX_DIGITS, 0) or digits >= 0:
        return F.round(*columns)
    # Spark ends the query where the rounded number has a digit more than fit.
    limit = F.lit(str(10**MAX_DIGITS - 5 * 10 ** min(-digits - 1, MAX_DIGITS))).cast(spark_type(kind))
    size = _size(columns[0], kind)
    return F.when(size < limit, F.round(*columns))


def _check_constant(call: Call, place: int, what: str) -> None:
    if len(call.arguments) > place and list(columns_of(call.arguments[place])):
        raise JobError(
            "JOB_FAILED", f"The {what} of {call} are not a constant.", remedy=f"Write the {what} as a number."
        )


def _truncate(call: Call, columns: Sequence[Column]) -> Column:
    _check_constant(call, 1, "digits")
    number, kind = columns[0], call.arguments[0].type
    digits = literal(call, 1, int) or 0
    if len(columns) > 1 and digits == 0 and literal(call, 1, int) is None:
        return F.lit(None).cast("double")
    if kind.is_integer:
        step = 10 ** min(-digits, _DOUBLE_SCALE) if digits < 0 else 1
        return number - number % F.lit(step)
    if digits >= (kind.scale or 0 if kind.kind is TypeKind.DECIMAL else _DOUBLE_SCALE):
        return number
    # As a DECIMAL a number is cut where its digits say so; as a DOUBLE 0.29 * 100 is already below 29.
    exact = number if kind.kind is TypeKind.DECIMAL else number.cast("decimal(38,18)")
    absolute = _size(exact, kind) if kind.kind is TypeKind.DECIMAL else F.abs(exact)
    size = F.call_function("floor", absolute, F.lit(max(digits, -_DOUBLE_SCALE)))
    cut = F.when(number < 0, _opposite(size, call.type)).otherwise(size)
    if kind.kind is TypeKind.DECIMAL:
        return F.when(number.isNotNull(), cut)
    return F.when(F.abs(number) < _LEAST_WITHOUT_FRACTION, cut.cast("double")).otherwise(number)


def _log(_call: Call, columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return F.ln(columns[0])
    base, number = columns
    return F.when((base > 1) & (number > 0), F.ln(number) / F.ln(base))


def _random(call: Call, columns: Sequence[Column]) -> Column:
    _check_constant(call, 0, "seed")
    seed = literal(call, 0, int) if columns else None
    return F.rand() if seed is None else F.rand(seed)


def _random_integer(call: Call, columns: Sequence[Column]) -> Column:
    bound = columns[-1]
    random = F.rand() if len(columns) == 1 else _random(call, columns)
    return F.when(bound > 0, F.floor(random * bound)).otherwise(F.lit(0))


def _plain(function: Callable[..., Column]) -> Builder:
    return lambda _call, columns: function(*columns)


_DOUBLE_SCALE = 18
"""Digits behind the point that a DOUBLE is cut by at most."""

_LEAST_WITHOUT_FRACTION = 1e15
"""Doubles from here on have less than two digits behind the point, too few to cut any."""


def _negate(call: Call, columns: Sequence[Column]) -> Column:
    argument = call.arguments[0]
    if isinstance(argument, Literal) and isinstance(argument.value, datetime.timedelta):
        return F.lit(-argument.value)
    return _opposite(columns[0], argument.type)


def _abs(call: Call, columns: Sequence[Column]) -> Column:
    return _size(columns[0], call.arguments[0].type)


def _opposite(number: Column, of: DataType) -> Column:
    """The number with the other sign; of decimals with more digits than Spark negates by their texts."""
    if of.kind is not TypeKind.DECIMAL or (of.precision or 0) <= _NEGATED_DIGITS:
        return -number
    text = number.cast("string")
    positive = F.substring(text, F.lit(2), F.char_length(text))
    return F.when(number < 0, positive).otherwise(F.concat(F.lit("-"), text)).cast(spark_type(of))


def _size(number: Column, of: DataType) -> Column:
    if of.kind is not TypeKind.DECIMAL or (of.precision or 0) <= _NEGATED_DIGITS:
        return F.abs(number)
    return F.when(number < 0, _opposite(number, of)).otherwise(number)


def _sum(sign: int) -> Builder:
    def build(call: Call, columns: Sequence[Column]) -> Column:
        of, by = (argument.type.kind for argument in call.arguments)
        if by is TypeKind.INTERVAL_DAY and call.type.kind is TypeKind.DATE:
            return F.date_add(columns[0], F.extract(F.lit("DAY"), columns[1]) * F.lit(sign))
        time = columns[0]
        if call.type.kind is TypeKind.TIME:
            time = F.timestamp_millis(time)
        elif of is TypeKind.DATE and call.type.is_timestamp:
            time = time.cast("timestamp")
        by_months = by is TypeKind.INTERVAL_YEAR and of is not TypeKind.INTERVAL_YEAR
        by_what = F.make_ym_interval(F.lit(0), columns[1]) if by_months else columns[1]
        moved = time + by_what if sign > 0 else time - by_what
        return _on_the_clock(moved) if call.type.kind is TypeKind.TIME else moved

    return build


def _on_the_clock(moved: Column) -> Column:
    """The time of day of a moment; one behind midnight goes on at the start of the day."""
    return F.pmod(F.unix_millis(moved), F.lit(_DAY_MS)).cast("int")


_DAY_MS = 86_400_000

NUMBERS: dict[str, Builder] = {
    "+": _sum(1),
    "-": _sum(-1),
    "*": _multiply,
    "/": _divide,
    "%": lambda _call, columns: columns[0] % columns[1],
    "MOD": lambda _call, columns: columns[0] % columns[1],
    "NEGATE": _negate,
    "ABS": _abs,
    "CEIL": _ceil,
    "FLOOR": _floor,
    "ROUND": _round,
    "POWER": lambda _call, columns: F.pow(columns[0], columns[1]),
    "TRUNCATE": _truncate,
    "SQRT": _plain(F.sqrt),
    "EXP": _plain(F.exp),
    "LN": _plain(F.ln),
    "LOG": _log,
    "LOG10": _plain(F.log10),
    "LOG2": _plain(F.log2),
    "SIN": _plain(F.sin),
    "SINH": _plain(F.sinh),
    "COS": _plain(F.cos),
    "COSH": _plain(F.cosh),
    "TAN": _plain(F.tan),
    "TANH": _plain(F.tanh),
    "COT": _plain(F.cot),
    "ASIN": _plain(F.asin),
    "ACOS": _plain(F.acos),
    "ATAN": _plain(F.atan),
    "ATAN2": _plain(F.atan2),
    "DEGREES": _plain(F.degrees),
    "RADIANS": _plain(F.radians),
    "PI": lambda _call, _columns: F.lit(math.pi),
    "E": lambda _call, _columns: F.lit(math.e),
    "RAND": _random,
    "RAND_INTEGER": _random_integer,
    "UUID": lambda _call, _columns: F.call_function("uuid"),
    "BIN": _plain(F.bin),
    "HEX": _plain(F.hex),
    "UNHEX": _unhex,
    "BITAND": lambda _call, columns: columns[0].bitwiseAND(columns[1]),
    "BITOR": lambda _call, columns: columns[0].bitwiseOR(columns[1]),
    "BITXOR": lambda _call, columns: columns[0].bitwiseXOR(columns[1]),
    "BITNOT": _plain(F.bitwise_not),
    "SIGN": lambda _call, columns: F.signum(columns[0]),
}
