"""Encodes and decodes AMQP 0-9-1 methods: class number, method number, and fields in order.

A method is a dataclass whose fields are annotated with `Octet`, `Short` and so on; `method` registers it. Bits that
follow each other share bytes, the first one lowest (specification, 4.2.5.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from struct import Struct
from struct import error as struct_error
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_type_hints

from millstream.protocol.amqp.field_table import (
    MAX_NAME_BYTES,
    FieldTable,
    Timestamp,
    decode_table,
    encode_table,
)
from millstream.protocol.amqp.reply_codes import ConnectionFailure, ReplyCode

__all__ = [
    "METHOD_ID",
    "AmqpMethod",
    "Bit",
    "Long",
    "LongLong",
    "LongText",
    "Octet",
    "Short",
    "ShortText",
    "Table",
    "TimeField",
    "decode_method",
    "decode_short_text",
    "encode_method",
    "encode_short_text",
    "method",
]

METHOD_ID: Final = Struct("!HH")
"""The class and the number of a method, with which its frame begins."""


class FieldKind(Enum):
    """The types of a method's fields."""

    OCTET = "B"
    SHORT = "H"
    LONG = "I"
    LONG_LONG = "Q"
    TIME = "time"
    SHORT_TEXT = "short string"
    LONG_TEXT = "long string"
    TABLE = "table"
    BIT = "bit"


Octet = Annotated[int, FieldKind.OCTET]
Short = Annotated[int, FieldKind.SHORT]
Long = Annotated[int, FieldKind.LONG]
LongLong = Annotated[int, FieldKind.LONG_LONG]
TimeField = Annotated[Timestamp, FieldKind.TIME]
ShortText = Annotated[str, FieldKind.SHORT_TEXT]
LongText = Annotated[bytes, FieldKind.LONG_TEXT]
Table = Annotated[FieldTable, FieldKind.TABLE]
Bit = Annotated[bool, FieldKind.BIT]


@dataclass(frozen=True, slots=True)
class AmqpMethod:
    """One method. `has_content` says whether header and body frames follow it."""

    method_id: ClassVar[tuple[int, int]] = (0, 0)
    has_content: ClassVar[bool] = False


_M = TypeVar("_M", bound=AmqpMethod)
_METHODS: Final[dict[tuple[int, int], type[AmqpMethod]]] = {}
_Fields = tuple[tuple[str, FieldKind], ...]
_FIELDS: Final[dict[tuple[int, int], _Fields]] = {}
_NUMBERS: Final = {
    kind: Struct(f"!{kind.value}") for kind in (FieldKind.OCTET, FieldKind.SHORT, FieldKind.LONG, FieldKind.LONG_LONG)
} | {FieldKind.TIME: Struct("!Q")}


def method(class_id: int, number: int, *, content: bool = False) -> Callable[[type[_M]], type[_M]]:
    """Register a class of methods under its numbers."""

    def register(kind: type[_M]) -> type[_M]:
        kind.method_id = (class_id, number)
        kind.has_content = content
        _METHODS[class_id, number] = kind
        return kind

    return register


def decode_method(payload: bytes) -> AmqpMethod:
    """The method of a frame. ConnectionFailure: COMMAND_INVALID for one that there is not, SYNTAX_ERROR."""
    try:
        number = METHOD_ID.unpack_from(payload)
    except struct_error:
        raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, "A method frame has no method.") from None
    kind = _METHODS.get(number)
    if kind is None:
        raise ConnectionFailure(ReplyCode.COMMAND_INVALID, f"There is no method {number[0]}.{number[1]}.")
    try:
        return kind(*_decode_fields(payload, _kinds_of(kind)))
    except (struct_error, IndexError):
        raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, f"The method {kind.__name__} is cut off.") from None


def encode_method(value: AmqpMethod) -> bytes:
    """The payload of a method's frame. ValueError for a value that its field cannot hold."""
    parts = [METHOD_ID.pack(*value.method_id)]
    bits: list[bool] = []
    for name, kind in _kinds_of(type(value)):
        field = getattr(value, name)
        if kind is FieldKind.BIT:
            bits.append(field)
            continue
        if bits:
            parts.append(_encode_bits(bits))
            bits = []
        parts.append(_encode_field(kind, field))
    if bits:
        parts.append(_encode_bits(bits))
    return b"".join(parts)


def encode_short_text(text: str) -> bytes:
    """A short string with its length. ValueError over 255 bytes."""
    data = text.encode()
    if len(data) > MAX_NAME_BYTES:
        raise ValueError(f"{text[:80]!r} has {len(data)} bytes; the limit is {MAX_NAME_BYTES}.")
    return bytes((len(data),)) + data


def decode_short_text(data: bytes, at: int) -> tuple[str, int]:
    """The short string that begins there, and where it ends. ConnectionFailure: SYNTAX_ERROR."""
    if at >= len(data):
        raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, "A short string is missing.")
    end = at + 1 + data[at]
    if end > len(data):
        raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, f"A short string of {data[at]} bytes is cut off.")
    try:
        return data[at + 1 : end].decode(), end
    except UnicodeDecodeError:
        words = f"The short string {data[at + 1 : end][:40]!r} is no UTF-8."
        raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, words) from None


def _kinds_of(kind: type[AmqpMethod]) -> _Fields:
    known = _FIELDS.get(kind.method_id)
    if known is None:
        hints = get_type_hints(kind, include_extras=True)
        known = tuple((field.name, hints[field.name].__metadata__[0]) for field in fields(kind))
        _FIELDS[kind.method_id] = known
    return known


def _decode_fields(data: bytes, kinds: _Fields) -> list[Any]:
    values: list[Any] = []
    at, bit = METHOD_ID.size, 0
    for _, kind in kinds:
        if kind is FieldKind.BIT:
            if bit == 8:
                at, bit = at + 1, 0
            values.append(bool(data[at] >> bit & 1))
            bit += 1
            continue
        if bit:
            at, bit = at + 1, 0
        value, at = _decode_field(kind, data, at)
        values.append(value)
    return values


def _decode_field(kind: FieldKind, data: bytes, at: int) -> tuple[Any, int]:
    if kind is FieldKind.SHORT_TEXT:
        return decode_short_text(data, at)
    if kind is FieldKind.TABLE:
        return decode_table(data, at)
    if kind is FieldKind.LONG_TEXT:
        end = at + 4 + int.from_bytes(data[at : at + 4])
        if at + 4 > len(data) or end > len(data):
            raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, "A long string is cut off.")
        return data[at + 4 : end], end
    form = _NUMBERS[kind]
    value = form.unpack_from(data, at)[0]
    return Timestamp(value) if kind is FieldKind.TIME else value, at + form.size


def _encode_field(kind: FieldKind, value: Any) -> bytes:
    if kind is FieldKind.SHORT_TEXT:
        return encode_short_text(value)
    if kind is FieldKind.TABLE:
        return encode_table(value)
    if kind is FieldKind.LONG_TEXT:
        return len(value).to_bytes(4) + bytes(value)
    try:
        return _NUMBERS[kind].pack(value)
    except struct_error as error:
        raise ValueError(f"{value} is no number of the kind {kind.name}: {error}") from None


def _encode_bits(bits: list[bool]) -> bytes:
    number = sum(1 << place for place, bit in enumerate(bits) if bit)
    return number.to_bytes((len(bits) + 7) // 8, "little")
