"""Text functions. Positions start at 1; characters are code points, as in Flink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.streams.errors import JobError
from millstream.streams.functions.text.log_lines import value_of_key
from millstream.streams.functions.text.strings import capitalise, decode_bytes, encode_text, nth_position
from millstream.streams.plan.expressions import Call, columns_of
from millstream.streams.plan.types import BIGINT, DOUBLE, STRING, DataType, TypeKind
from millstream.streams.spark.columns.casts import cast
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.functions.builder import Builder, by_row, literal, null_unless_all
from millstream.streams.spark.functions.patterns import is_pattern, quote_pattern
from millstream.streams.spark.functions.times import is_print_format

__all__ = ["TEXT"]

_WHOLE = 2**31 - 1
"""Length that takes the rest of any text."""

_WHITE_SPACE = r"\s"

MAX_MADE_CHARACTERS = 1_000_000
"""Characters that LPAD, RPAD and REPEAT make at most; a longer text would be NULL, and could take all memory."""


def _trim(call: Call, columns: Sequence[Column]) -> Column:
    """TRIM(text[, characters[, BOTH | LEADING | TRAILING]])."""
    side = (literal(call, 2, str) or "BOTH").upper()
    cut = {"BOTH": F.trim, "LEADING": F.ltrim, "TRAILING": F.rtrim}[side]
    return _cut(cut, columns)


def _cut(cut: Callable[..., Column], columns: Sequence[Column]) -> Column:
    return cut(columns[0], columns[1]) if len(columns) > 1 else cut(columns[0])


def _substring(call: Call, columns: Sequence[Column]) -> Column:
    text, start = columns[0], columns[1]
    length = columns[2] if len(columns) > 2 else F.lit(_WHOLE)
    part = F.substring(text, start, length)
    first = literal(call, 1, int)
    if first is None or first < 0:
        # Spark cuts off what lies before the text; in Flink such a part is blank.
        part = F.when(-start > F.char_length(text), F.lit("")).otherwise(part)
    count = literal(call, 2, int)
    if len(columns) > 2 and (count is None or count < 0):
        part = F.when(length >= 0, part)
    return null_unless_all(columns, part)


def _pad(pad: Callable[..., Column]) -> Builder:
    def build(_call: Call, columns: Sequence[Column]) -> Column:
        text, length, filler = columns
        return F.when(length.between(0, MAX_MADE_CHARACTERS) & (filler != ""), pad(text, length, filler))

    return build


def _repeat(_call: Call, columns: Sequence[Column]) -> Column:
    text, times = columns
    made = F.char_length(text).cast("bigint") * times
    return F.when(made <= MAX_MADE_CHARACTERS, F.repeat(text, times))


def _split_index(call: Call, columns: Sequence[Column]) -> Column:
    text, separator, index = columns
    if call.arguments[1].type.is_integer:
        separator = F.chr(separator)
    given = literal(call, 1, str)
    if given is not None:
        pattern = F.lit(_WHITE_SPACE if not given else "\\Q" + given.replace("\\E", "\\E\\\\E\\Q") + "\\E")
    else:
        pattern = F.when(separator == "", F.lit(_WHITE_SPACE)).otherwise(quote_pattern(separator))
    part = F.try_element_at(F.split(text, pattern, -1), index + 1)
    return F.when((index >= 0) & (text != ""), part)


def _instr(call: Call, columns: Sequence[Column]) -> Column:
    text, part = columns[0], columns[1]
    if len(columns) < 3:
        return F.call_function("instr", text, part)
    start = literal(call, 2, int)
    if len(columns) == 3 and start is not None and start > 0:
        return F.position(part, text, columns[2])
    occurrence = columns[3] if len(columns) > 3 else F.lit(1)
    return by_row(nth_position, "int", text, part, columns[2], occurrence)


def _split(_call: Call, columns: Sequence[Column]) -> Column:
    text, separator = columns
    characters = F.filter(F.split(text, F.lit("")), lambda character: character != "")
    return F.when(separator == "", characters).otherwise(F.split(text, quote_pattern(separator), -1))


def _str_to_map(call: Call, columns: Sequence[Column]) -> Column:
    """STR_TO_MAP; the separators are regular expressions, and Spark ends the query at a wrong one."""
    separators = list(columns[1:]) or [F.lit(","), F.lit("=")]
    for place in (1, 2):
        if len(columns) > place:
            pattern = literal(call, place, str)
            if pattern is None and list(columns_of(call.arguments[place])):
                message = f"The separators of {call} are not constants."
                raise JobError("JOB_FAILED", message, remedy="Write them as strings.")
            if pattern is None or not is_pattern(pattern):
                return F.lit(None).cast("map<string,string>")
    empty = F.create_map().cast("map<string,string>")
    return F.when(columns[0] == "", empty).otherwise(F.str_to_map(columns[0], *separators))


def _elt(call: Call, columns: Sequence[Column]) -> Column:
    place, values = columns[0], columns[1:]
    chosen = F.lit(None).cast(spark_type(call.type))
    for number, value in enumerate(values, 1):
        chosen = F.when(place == number, value).otherwise(chosen)
    return chosen


def _printf(call: Call, columns: Sequence[Column]) -> Column:
    pattern = literal(call, 0, str)
    if pattern is None:
        if list(columns_of(call.arguments[0])):
            raise JobError("JOB_FAILED", f"The format of {call} is not a constant.", remedy="Write it as a string.")
        return F.lit(None).cast("string")
    values, types = columns[1:], [argument.type for argument in call.arguments[1:]]
    # A DECIMAL is printed as it is, or as a DOUBLE where the format wants digits.
    for decimals in (STRING, DOUBLE):
        printed = [_printed_type(data_type, decimals) for data_type in types]
        if is_print_format(pattern, tuple(_SAMPLES[data_type.kind] for data_type in printed)):
            cast_values = zip(values, types, printed, strict=True)
            return F.format_string(pattern, *(cast(value, have, wanted) for value, have, wanted in cast_values))
    return F.lit(None).cast("string")


# The whole number is no character: a format that would print one fails for the sample, and not for a row.
_SAMPLES: dict[TypeKind, str | bool | int | float] = {
    TypeKind.STRING: "a",
    TypeKind.BOOLEAN: True,
    TypeKind.BIGINT: 2**40,
    TypeKind.DOUBLE: 1.0,
}


def _printed_type(data_type: DataType, decimals: DataType) -> DataType:
    """The type that Java's formatter gets a value in."""
    if data_type.kind is TypeKind.DECIMAL:
        return decimals
    if data_type.is_integer:
        return BIGINT
    if data_type.is_number:
        return DOUBLE
    return data_type if data_type.kind is TypeKind.BOOLEAN else STRING


def _overlay(_call: Call, columns: Sequence[Column]) -> Column:
    text, other, place = columns[:3]
    length = columns[3] if len(columns) > 3 else F.char_length(other)
    outside = (place <= 0) | (place > F.char_length(text))
    return null_unless_all(columns, F.when(outside, text).otherwise(F.overlay(text, other, place, length)))


def _translate(_call: Call, columns: Sequence[Column]) -> Column:
    return F.call_function("translate", *columns)


def _consists_of(pattern: str) -> Builder:
    """Whether a text matches the pattern as a whole; FALSE for NULL."""
    return lambda _call, columns: F.coalesce(columns[0].rlike(pattern), F.lit(False))


def _parse_url(_call: Call, columns: Sequence[Column]) -> Column:
    return F.try_parse_url(*columns)


def _char_length(_call: Call, columns: Sequence[Column]) -> Column:
    return F.char_length(columns[0])


TEXT: dict[str, Builder] = {
    "||": lambda _call, columns: F.concat(*columns),
    "UPPER": lambda _call, columns: F.upper(columns[0]),
    "LOWER": lambda _call, columns: F.lower(columns[0]),
    "INITCAP": lambda _call, columns: by_row(capitalise, "string", columns[0]),
    "TRIM": _trim,
    "LTRIM": lambda _call, columns: _cut(F.ltrim, columns),
    "RTRIM": lambda _call, columns: _cut(F.rtrim, columns),
    "BTRIM": lambda _call, columns: _cut(F.trim, columns),
    "LENGTH": _char_length,
    "OVERLAY": _overlay,
    "TRANSLATE": _translate,
    "STARTSWITH": lambda _call, columns: F.startswith(*columns),
    "ENDSWITH": lambda _call, columns: F.endswith(*columns),
    "SPLIT": _split,
    "STRING_SPLIT": _split,
    "STR_TO_MAP": _str_to_map,
    "KEYVALUE": lambda _call, columns: by_row(value_of_key, "string", *columns, nulls=True),
    "ELT": _elt,
    "PRINTF": _printf,
    "ENCODE": lambda _call, columns: by_row(encode_text, "binary", *columns),
    "DECODE": lambda _call, columns: by_row(decode_bytes, "string", *columns),
    "URL_ENCODE": lambda _call, columns: F.url_encode(columns[0]),
    "URL_DECODE": lambda _call, columns: F.try_url_decode(columns[0]),
    "CHAR_LENGTH": _char_length,
    "CHARACTER_LENGTH": _char_length,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "CONCAT": lambda _call, columns: F.concat(*columns),
    "CONCAT_WS": lambda _call, columns: F.call_function("concat_ws", *columns),
    "REPLACE": lambda _call, columns: F.replace(*columns),
    "LPAD": _pad(F.lpad),
    "RPAD": _pad(F.rpad),
    "REVERSE": lambda _call, columns: F.reverse(columns[0]),
    "REPEAT": _repeat,
    "POSITION": lambda _call, columns: F.position(columns[0], columns[1]),
    "LOCATE": lambda _call, columns: F.position(*columns),
    "INSTR": _instr,
    "LEFT": lambda _call, columns: F.left(columns[0], columns[1]),
    "RIGHT": lambda _call, columns: F.right(columns[0], columns[1]),
    "SPLIT_INDEX": _split_index,
    "PARSE_URL": _parse_url,
    "IS_ALPHA": _consists_of(r"\A\p{L}+\z"),
    "IS_DIGIT": _consists_of(r"\A\p{Nd}+\z"),
    "IS_DECIMAL": _consists_of(r"\A[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\z"),
    "ASCII": lambda _call, columns: F.ascii(columns[0]),
    "CHR": lambda _call, columns: F.chr(columns[0]),
}
