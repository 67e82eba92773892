"""Field tables of AMQP 0-9-1, with the types that RabbitMQ reads and writes.

A table is a length of four bytes and then pairs: a name (a length of one byte, UTF-8), a letter for the type, and the
value. The letters are those of RabbitMQ's errata (https://www.rabbitmq.com/amqp-0-9-1-errata, section 3), which differ
from the specification's in `s`, a signed number of 16 bits, and `x`, bytes.

Decoded values do not tell the widths of numbers apart. Who passes a table on keeps its bytes, and changes one by
`split_table` and `join_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, TypeAlias

from millstream.protocol.amqp.reply_codes import ConnectionFailure, ReplyCode

__all__ = [
    "MAX_NAME_BYTES",
    "MAX_TABLE_DEPTH",
    "FieldTable",
    "FieldValue",
    "Timestamp",
    "decode_table",
    "encode_table",
    "encode_value",
    "join_table",
    "skip_table",
    "split_table",
]

MAX_TABLE_DEPTH: Final = 16
"""Tables and arrays within each other at most; deeper ones are refused as SYNTAX_ERROR."""

MAX_NAME_BYTES: Final = 255
"""Bytes of a name at most, as of every short string."""


class Timestamp(int):
    """Seconds since 1970, as field tables tell a time apart from a number."""

    __slots__ = ()


FieldValue: TypeAlias = bool | int | float | str | bytes | Decimal | Sequence[Any] | Mapping[str, Any] | None
"""A value of a table. Long strings are text; where they are no UTF-8, bytes."""

FieldTable: TypeAlias = Mapping[str, Any]
"""Names and values of the kind `FieldValue`."""

_LENGTH: Final = Struct("!I")
_DECIMAL: Final = Struct("!Bi")
_NUMBERS: Final = {
    letter: Struct(f"!{form}")
    for letter, form in zip(b"bBsuIilLfdT", ("b", "B", "h", "H", "i", "I", "q", "q", "f", "d", "Q"), strict=True)
}
_BOOL, _DECIMAL_LETTER, _TEXT, _ARRAY, _TIME, _TABLE, _VOID, _BYTES = b"tDSATFVx"
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_MAX_SCALE: Final = 255


def decode_table(data: bytes, at: int = 0, depth: int = 1) -> tuple[dict[str, FieldValue], int]:
    """The table that begins there, and where it ends. ConnectionFailure (SYNTAX_ERROR) if it is malformed."""
    start, end = _bounds(data, at, depth)
    table: dict[str, FieldValue] = {}
    while start < end:
        name, start = _decode_name(data, start, end)
        table[name], start = _decode_value(data, start, end, depth)
    return table, end


def skip_table(data: bytes, at: int = 0) -> int:
    """Where the table ends that begins there; it is checked as by `decode_table`."""
    return decode_table(data, at)[1]


def encode_table(table: FieldTable) -> bytes:
    """The table's bytes with its length. Numbers are `I` or `l`. ValueError for what no table can hold."""
    content = b"".join([_encode_name(name) + encode_value(value) for name, value in table.items()])
    return _LENGTH.pack(len(content)) + content


def split_table(data: bytes) -> list[tuple[str, bytes]]:
    """The pairs of a table that was given with its length: names, and values with their letters as they came."""
    start, end = _bounds(data, 0, 1)
    pairs = []
    while start < end:
        name, start = _decode_name(data, start, end)
        begin = start
        _, start = _decode_value(data, start, end, 1)
        pairs.append((name, data[begin:start]))
    return pairs


def join_table(pairs: Sequence[tuple[str, bytes]]) -> bytes:
    """The opposite of `split_table`."""
    content = b"".join([_encode_name(name) + value for name, value in pairs])
    return _LENGTH.pack(len(content)) + content


def encode_value(value: FieldValue) -> bytes:
    """The bytes of a value, its letter first. ValueError for what no table can hold."""
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, str):
        text = value.encode()
        return b"S" + _LENGTH.pack(len(text)) + text
    encode = next((encode for kind, encode in _ENCODERS if isinstance(value, kind)), None)
    if encode is None:
        raise ValueError(f"A field table cannot hold a {type(value).__name__}.")
    return encode(value)


def _encode_int(value: int) -> bytes:
    if _INT_MIN <= value <= _INT_MAX:
        return b"I" + _NUMBERS[ord("I")].pack(value)
    if _LONG_MIN <= value <= _LONG_MAX:
        return b"l" + _NUMBERS[ord("l")].pack(value)
    raise ValueError(f"{value} has more than 64 bits.")


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    if not isinstance(exponent, int) or not exponent >= -_MAX_SCALE:
        raise ValueError(f"{value} is no decimal of {_MAX_SCALE} places.")
    number = -number * 10 ** max(exponent, 0) if sign else number * 10 ** max(exponent, 0)
    if not _INT_MIN <= number <= _INT_MAX:
        raise ValueError(f"{value} has more than 32 bits.")
    return b"D" + _DECIMAL.pack(max(-exponent, 0), number)


def _encode_array(values: Sequence[FieldValue]) -> bytes:
    content = b"".join(map(encode_value, values))
    return b"A" + _LENGTH.pack(len(content)) + content


# The first that fits; a time is a number as well.
_ENCODERS: Final[tuple[tuple[type | tuple[type, ...], Callable[..., bytes]], ...]] = (
    (Timestamp, lambda value: b"T" + _NUMBERS[_TIME].pack(value)),
    (int, _encode_int),
    (float, lambda value: b"d" + _NUMBERS[ord("d")].pack(value)),
    (bytes, lambda value: b"x" + _LENGTH.pack(len(value)) + value),
    (Decimal, _encode_decimal),
    (Mapping, lambda value: b"F" + encode_table(value)),
    (type(None), lambda value: b"V"),
    ((list, tuple), _encode_array),
)


def _encode_name(name: str) -> bytes:
    text = name.encode()
    if len(text) > MAX_NAME_BYTES:
        raise ValueError(f"The name {name[:80]!r} has {len(text)} bytes; the limit is {MAX_NAME_BYTES}.")
    return bytes((len(text),)) + text


def _bounds(data: bytes, at: int, depth: int) -> tuple[int, int]:
    """Where the content of a table or array begins and ends."""
    if depth > MAX_TABLE_DEPTH:
        raise _malformed_table(f"tables and arrays are more than {MAX_TABLE_DEPTH} deep")
    if at + 4 > len(data):
        raise _malformed_table("a length is missing")
    end = at + 4 + int.from_bytes(data[at : at + 4])
    if end > len(data):
        raise _malformed_table(f"{end - at - 4} bytes are announced and {len(data) - at - 4} are there")
    return at + 4, end


def _decode_name(data: bytes, at: int, end: int) -> tuple[str, int]:
    stop = at + 1 + data[at]
    if stop >= end:
        raise _malformed_table("a name goes beyond its table")
    try:
        return data[at + 1 : stop].decode(), stop
    except UnicodeDecodeError:
        raise _malformed_table(f"the name {data[at + 1 : stop][:40]!r} is no UTF-8") from None


def _decode_value(data: bytes, at: int, end: int, depth: int) -> tuple[FieldValue, int]:
    letter, at = data[at], at + 1
    value: FieldValue
    if letter in (_TEXT, _BYTES):
        start, at = _bounds(data, at, 1)
        value = data[start:at]
        if letter == _TEXT:
            value = _text_or_bytes(value)
    elif letter == _TABLE:
        value, at = decode_table(data, at, depth + 1)
    elif letter == _ARRAY:
        value, at = _decode_array(data, at, depth + 1)
    elif letter == _VOID:
        value = None
    else:
        value, at = _decode_number(letter, data, at)
    if at > end:
        raise _malformed_table(f"a value of type {chr(letter)!r} goes beyond its table")
    return value, at


def _decode_array(data: bytes, at: int, depth: int) -> tuple[list[FieldValue], int]:
    start, end = _bounds(data, at, depth)
    values: list[FieldValue] = []
    while start < end:
        value, start = _decode_value(data, start, end, depth)
        values.append(value)
    return values, end


def _decode_number(letter: int, data: bytes, at: int) -> tuple[FieldValue, int]:
    try:
        if letter == _BOOL:
            return data[at] != 0, at + 1
        if letter == _DECIMAL_LETTER:
            scale, number = _DECIMAL.unpack_from(data, at)
            return Decimal(number).scaleb(-scale), at + _DECIMAL.size
        form = _NUMBERS.get(letter)
        if form is None:
            raise _malformed_table(f"there is no type {chr(letter)!r}")
        value = form.unpack_from(data, at)[0]
        return Timestamp(value) if letter == _TIME else value, at + form.size
    except (IndexError, struct_error):
        raise _malformed_table(f"a value of type {chr(letter)!r} is cut off") from None


def _text_or_bytes(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _malformed_table(words: str) -> ConnectionFailure:
    return ConnectionFailure(ReplyCode.SYNTAX_ERROR, f"A field table cannot be read: {words}.")
