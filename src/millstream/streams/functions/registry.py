"""The functions that SQL can call: arguments, result types and an example each, as Flink defines them.

A `type_rule` gets the argument types and gives the result type; it raises `TypeError` with what it wants otherwise.
The Spark builders stand in `millstream.streams.spark.functions` under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.streams.functions.common_type import common_type
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, TypeKind

__all__ = ["AGGREGATES", "FUNCTIONS", "FunctionSpec"]

TypeRule = Callable[[Sequence[DataType]], DataType]

DATE = DataType(TypeKind.DATE)
TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)
TIMESTAMP_LTZ = DataType(TypeKind.TIMESTAMP_LTZ, precision=3)


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function. `max_args` None takes any number; `deterministic` False may differ from row to row by itself."""

    name: str
    min_args: int
    max_args: int | None
    type_rule: TypeRule
    description: str
    example: str
    deterministic: bool = True


def _want(condition: bool, wanted: str) -> None:
    if not condition:
        raise TypeError(wanted)


def _is(data_type: DataType, *kinds: TypeKind) -> bool:
    return data_type.kind in (*kinds, TypeKind.NULL)


def _texts(result: DataType, count: int | None = None) -> TypeRule:
    """The first `count` arguments (None: all) are strings, the others whole numbers."""

    def rule(types: Sequence[DataType]) -> DataType:
        for position, data_type in enumerate(types):
            if count is None or position < count:
                _want(_is(data_type, TypeKind.STRING), f"a string as argument {position + 1}")
            else:
                _want(data_type.is_integer or _is(data_type), f"a whole number as argument {position + 1}")
        return result

    return rule


def _same_number(types: Sequence[DataType]) -> DataType:
    _want(types[0].is_number or _is(types[0]), "a number")
    return types[0]


def _double(types: Sequence[DataType]) -> DataType:
    _want(all(data_type.is_number or _is(data_type) for data_type in types), "numbers")
    return DOUBLE


def _number_or_time(types: Sequence[DataType]) -> DataType:
    first = types[0]
    if len(types) > 1:
        _want(first.is_timestamp or _is(first, TypeKind.DATE), "a time before TO")
        return first
    _want(first.is_number or _is(first), "a number, or a time with TO unit")
    return DataType(TypeKind.DECIMAL, precision=first.precision, scale=0) if first.kind is TypeKind.DECIMAL else first


def _common(types: Sequence[DataType]) -> DataType:
    return common_type(types)


def _if(types: Sequence[DataType]) -> DataType:
    _want(_is(types[0], TypeKind.BOOLEAN), "a condition as argument 1")
    return common_type(types[1:])


def _first(types: Sequence[DataType]) -> DataType:
    common_type(types)
    return types[0].as_nullable()


def _modulo(types: Sequence[DataType]) -> DataType:
    _want(all(data_type.is_number or _is(data_type) for data_type in types), "numbers")
    return types[1]


def _time_field(types: Sequence[DataType]) -> DataType:
    _want(types[-1].is_timestamp or _is(types[-1], TypeKind.DATE), "a date or a timestamp")
    return BIGINT


def _timestamp_of_text(types: Sequence[DataType]) -> DataType:
    _want(all(_is(data_type, TypeKind.STRING) for data_type in types), "strings")
    return TIMESTAMP


def _instant(types: Sequence[DataType]) -> DataType:
    text = _is(types[0], TypeKind.STRING)
    _want(text or types[0].is_number, "a number with a precision of 0 or 3, or a string")
    return TIMESTAMP_LTZ


def _formatted(types: Sequence[DataType]) -> DataType:
    first = types[0]
    _want(first.is_timestamp or _is(first, TypeKind.DATE, TypeKind.STRING), "a timestamp or a string as argument 1")
    _want(_is(types[1], TypeKind.STRING), "a format as argument 2")
    return STRING


def _from_seconds(types: Sequence[DataType]) -> DataType:
    _want(types[0].is_integer or _is(types[0]), "seconds since 1970 as argument 1")
    return STRING


def _shifted(types: Sequence[DataType]) -> DataType:
    _want(types[1].is_integer or _is(types[1]), "a whole number of units")
    _want(types[2].is_timestamp or _is(types[2], TypeKind.DATE), "a date or a timestamp")
    return types[2]


def _difference(types: Sequence[DataType]) -> DataType:
    for data_type in types[1:]:
        _want(data_type.is_timestamp or _is(data_type, TypeKind.DATE), "dates or timestamps")
    return INT


def _fixed(result: DataType) -> TypeRule:
    return lambda _types: result


def _printed(types: Sequence[DataType]) -> DataType:
    """CONCAT takes what can be printed."""
    for data_type in types:
        _want(not data_type.elements and not data_type.fields, "values that can be printed")
    return STRING


def _sum(types: Sequence[DataType]) -> DataType:
    first = _same_number(types)
    if first.kind is TypeKind.DECIMAL:
        return DataType(TypeKind.DECIMAL, precision=38, scale=first.scale)
    return first.as_nullable()


def _average(types: Sequence[DataType]) -> DataType:
    first = _same_number(types)
    if first.kind is TypeKind.DECIMAL:
        return DataType(TypeKind.DECIMAL, precision=38, scale=max(6, first.scale or 0))
    return first.as_nullable()


def _comparable(types: Sequence[DataType]) -> DataType:
    _want(not types[0].elements and not types[0].fields, "values that can be compared")
    return types[0].as_nullable()


_ROWS: tuple[tuple[str, int, int | None, TypeRule, str, str], ...] = (
    ("UPPER", 1, 1, _texts(STRING), "The text in upper case.", "UPPER('ab')"),
    ("LOWER", 1, 1, _texts(STRING), "The text in lower case.", "LOWER('AB')"),
    ("INITCAP", 1, 1, _texts(STRING), "Each word with a capital letter.", "INITCAP('ab cd')"),
    ("TRIM", 1, 3, _texts(STRING), "The text without blanks, or other characters, at its ends.", "TRIM(' ab ')"),
    ("LTRIM", 1, 2, _texts(STRING), "The text without blanks at its start.", "LTRIM(' ab')"),
    ("RTRIM", 1, 2, _texts(STRING), "The text without blanks at its end.", "RTRIM('ab ')"),
    ("CHAR_LENGTH", 1, 1, _texts(INT), "How many characters.", "CHAR_LENGTH('ab')"),
    ("CHARACTER_LENGTH", 1, 1, _texts(INT), "How many characters.", "CHARACTER_LENGTH('ab')"),
    ("SUBSTRING", 2, 3, _texts(STRING, 1), "Characters from a place (from 1) on.", "SUBSTRING('abc', 2, 1)"),
    ("SUBSTR", 2, 3, _texts(STRING, 1), "Characters from a place (from 1) on.", "SUBSTR('abc', 2)"),
    ("CONCAT", 1, None, _printed, "The values one after another; NULL if one is.", "CONCAT('a', 'b')"),
    ("CONCAT_WS", 2, None, _printed, "The values with a separator; NULLs are left out.", "CONCAT_WS('-', 'a', 'b')"),
    ("REPLACE", 3, 3, _texts(STRING), "The text with each occurrence replaced.", "REPLACE('abc', 'b', 'x')"),
    ("LPAD", 3, 3, lambda t: _padded(t), "The text filled up at its start.", "LPAD('7', 3, '0')"),
    ("RPAD", 3, 3, lambda t: _padded(t), "The text filled up at its end.", "RPAD('7', 3, '0')"),
    ("REVERSE", 1, 1, _texts(STRING), "The text backward.", "REVERSE('ab')"),
    ("REPEAT", 2, 2, _texts(STRING, 1), "The text several times.", "REPEAT('ab', 2)"),
    ("POSITION", 2, 2, _texts(INT), "Where the first stands in the second, from 1; 0: nowhere.", "POSITION('b' IN 'ab')"),
    ("LOCATE", 2, 3, _texts(INT, 2), "Where the first stands in the second.", "LOCATE('b', 'abb', 3)"),
    ("INSTR", 2, 4, _texts(INT, 2), "Where the second stands in the first.", "INSTR('abb', 'b')"),
    ("LEFT", 2, 2, _texts(STRING, 1), "The first characters.", "LEFT('abc', 2)"),
    ("RIGHT", 2, 2, _texts(STRING, 1), "The last characters.", "RIGHT('abc', 2)"),
    ("SPLIT_INDEX", 3, 3, lambda t: _split(t), "The part at a place (from 0) between separators.", "SPLIT_INDEX('a,b', ',', 1)"),
    ("REGEXP", 2, 2, _texts(BOOLEAN), "Whether the regular expression matches somewhere.", "REGEXP('abc', 'b.')"),
    ("REGEXP_EXTRACT", 2, 3, _texts(STRING, 2), "What a group (0: all) of the first match holds.", "REGEXP_EXTRACT('a1', '([0-9])', 1)"),
    ("REGEXP_REPLACE", 3, 3, _texts(STRING), "The text with each match replaced.", "REGEXP_REPLACE('a1', '[0-9]', 'x')"),
    ("MD5", 1, 1, _texts(STRING), "The MD5 digest as hex.", "MD5('a')"),
    ("SHA1", 1, 1, _texts(STRING), "The SHA-1 digest as hex.", "SHA1('a')"),
    ("SHA256", 1, 1, _texts(STRING), "The SHA-256 digest as hex.", "SHA256('a')"),
    ("TO_BASE64", 1, 1, _texts(STRING), "The text in base 64.", "TO_BASE64('a')"),
    ("FROM_BASE64", 1, 1, _texts(STRING), "The text that base 64 holds.", "FROM_BASE64('YQ==')"),
    ("HASH_CODE", 1, 1, _fixed(INT), "Java's hash code of the text.", "HASH_CODE('a')"),
    ("PARSE_URL", 2, 3, _texts(STRING), "A part of a URL.", "PARSE_URL('http://a/b', 'HOST')"),
    ("JSON_VALUE", 2, 2, _texts(STRING), "The scalar at a path of JSON text.", "JSON_VALUE('{\"a\":1}', '$.a')"),
    ("IS_ALPHA", 1, 1, _texts(BOOLEAN), "Whether all characters are letters.", "IS_ALPHA('ab')"),
    ("IS_DIGIT", 1, 1, _texts(BOOLEAN), "Whether all characters are digits.", "IS_DIGIT('12')"),
    ("ASCII", 1, 1, _texts(INT), "The number of the first character.", "ASCII('a')"),
    ("CHR", 1, 1, _texts(STRING, 0), "The character of a number.", "CHR(97)"),
    ("ABS", 1, 1, _same_number, "Without the sign.", "ABS(-1)"),
    ("CEIL", 1, 2, _number_or_time, "The next whole number, or the next bound of a unit of time.", "CEIL(1.2)"),
    ("FLOOR", 1, 2, _number_or_time, "The whole number below, or the bound of a unit of time.", "FLOOR(1.8)"),
    ("ROUND", 1, 2, _same_number, "Rounded to digits.", "ROUND(1.26, 1)"),
    ("POWER", 2, 2, _double, "The first to the power of the second.", "POWER(2, 3)"),
    ("SQRT", 1, 1, _double, "The square root.", "SQRT(4)"),
    ("MOD", 2, 2, _modulo, "The rest of a division.", "MOD(7, 3)"),
    ("SIGN", 1, 1, _same_number, "-1, 0 or 1.", "SIGN(-5)"),
    ("GREATEST", 1, None, _common, "The greatest; NULL if one is.", "GREATEST(1, 2)"),
    ("LEAST", 1, None, _common, "The least; NULL if one is.", "LEAST(1, 2)"),
    ("COALESCE", 1, None, _common, "The first that is not NULL.", "COALESCE(NULL, 1)"),
    ("NULLIF", 2, 2, _first, "NULL if both are equal, else the first.", "NULLIF(1, 1)"),
    ("IF", 3, 3, _if, "The second if the condition holds, else the third.", "IF(TRUE, 1, 2)"),
    ("IFNULL", 2, 2, _common, "The first, or the second where it is NULL.", "IFNULL(NULL, 1)"),
    ("TO_TIMESTAMP", 1, 2, _timestamp_of_text, "The time of a text; NULL if it is none.", "TO_TIMESTAMP('2026-01-01 00:00:00')"),
    ("TO_TIMESTAMP_LTZ", 1, 2, _instant, "The instant of seconds (0) or milliseconds (3).", "TO_TIMESTAMP_LTZ(0, 3)"),
    ("TO_DATE", 1, 2, lambda t: _date(t), "The date of a text; NULL if it is none.", "TO_DATE('2026-01-01')"),
    ("DATE_FORMAT", 2, 2, _formatted, "The time as text, in a Java pattern.", "DATE_FORMAT('2026-01-01 00:00:00', 'yyyy')"),
    ("FROM_UNIXTIME", 1, 2, _from_seconds, "Seconds since 1970 as text.", "FROM_UNIXTIME(0)"),
    ("UNIX_TIMESTAMP", 0, 2, _texts(BIGINT), "Seconds since 1970.", "UNIX_TIMESTAMP('1970-01-01 00:00:01')"),
    ("YEAR", 1, 1, _time_field, "The year.", "YEAR(TO_DATE('2026-01-01'))"),
    ("MONTH", 1, 1, _time_field, "The month.", "MONTH(TO_DATE('2026-01-01'))"),
    ("DAYOFMONTH", 1, 1, _time_field, "The day of the month.", "DAYOFMONTH(TO_DATE('2026-01-01'))"),
    ("DAYOFWEEK", 1, 1, _time_field, "The day of the week, 1 is Sunday.", "DAYOFWEEK(TO_DATE('2026-01-01'))"),
    ("HOUR", 1, 1, _time_field, "The hour.", "HOUR(TO_TIMESTAMP('2026-01-01 05:00:00'))"),
    ("MINUTE", 1, 1, _time_field, "The minute.", "MINUTE(TO_TIMESTAMP('2026-01-01 05:06:00'))"),
    ("SECOND", 1, 1, _time_field, "The second.", "SECOND(TO_TIMESTAMP('2026-01-01 05:06:07'))"),
    ("EXTRACT", 2, 2, _time_field, "A field of a time.", "EXTRACT(YEAR FROM TO_DATE('2026-01-01'))"),
    ("TIMESTAMPADD", 3, 3, _shifted, "The time moved by units.", "TIMESTAMPADD(DAY, 1, TO_DATE('2026-01-01'))"),
    ("TIMESTAMPDIFF", 3, 3, _difference, "Whole units between two times.", "TIMESTAMPDIFF(DAY, TO_DATE('2026-01-01'), TO_DATE('2026-01-03'))"),
    ("CURRENT_TIMESTAMP", 0, 0, _fixed(TIMESTAMP_LTZ), "The time of the micro-batch.", "CURRENT_TIMESTAMP"),
    ("NOW", 0, 0, _fixed(TIMESTAMP_LTZ), "The time of the micro-batch.", "NOW()"),
    ("PROCTIME", 0, 0, _fixed(TIMESTAMP_LTZ), "The time of the micro-batch.", "PROCTIME()"),
)  # fmt: skip

_CLOCKS = ("CURRENT_TIMESTAMP", "NOW", "PROCTIME", "UNIX_TIMESTAMP")


def _padded(types: Sequence[DataType]) -> DataType:
    _want(_is(types[0], TypeKind.STRING) and _is(types[2], TypeKind.STRING), "strings as arguments 1 and 3")
    _want(types[1].is_integer or _is(types[1]), "a length as argument 2")
    return STRING


def _split(types: Sequence[DataType]) -> DataType:
    _want(_is(types[0], TypeKind.STRING), "a string as argument 1")
    _want(_is(types[1], TypeKind.STRING) or types[1].is_integer, "a separator as argument 2")
    _want(types[2].is_integer or _is(types[2]), "a place as argument 3")
    return STRING


def _date(types: Sequence[DataType]) -> DataType:
    _want(all(_is(data_type, TypeKind.STRING) for data_type in types), "strings")
    return DATE


FUNCTIONS: dict[str, FunctionSpec] = {
    name: FunctionSpec(name, least, most, rule, description, example, name not in _CLOCKS)
    for name, least, most, rule, description, example in _ROWS
}
"""Scalar functions by name."""

AGGREGATES: dict[str, FunctionSpec] = {
    spec.name: spec
    for spec in (
        FunctionSpec(
            "COUNT", 0, 1, _fixed(DataType(TypeKind.BIGINT, nullable=False)), "How many (not NULL).", "COUNT(*)"
        ),
        FunctionSpec("SUM", 1, 1, _sum, "The sum, in the argument's type.", "SUM(bytes)"),
        FunctionSpec("AVG", 1, 1, _average, "The mean, in the argument's type.", "AVG(celsius)"),
        FunctionSpec("MIN", 1, 1, _comparable, "The least.", "MIN(celsius)"),
        FunctionSpec("MAX", 1, 1, _comparable, "The greatest.", "MAX(celsius)"),
    )
}
"""Aggregate functions by name."""
