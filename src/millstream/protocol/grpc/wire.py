"""Protobuf's wire format, for the few message types that are encoded by hand because they are frequent.

A field is its tag (number and wire type) and a value: a varint, or a length and so many bytes. Source: protobuf's
encoding guide (facts only).
"""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

__all__ = ["VARINTS", "bytes_field", "encode_varint", "number_field", "tag"]

_VARINT, _BYTES = 0, 2
_LENGTH_TYPES = frozenset((FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE))
_KEPT_VARINTS = 1 << 14
"""Numbers from 0 on whose bytes are kept, about 0.6 MB: ordinary lengths and queue offsets."""

_INT64 = (1 << 64) - 1


class _Varints(dict[int, bytes]):
    """The bytes of any int32 or int64; those of small numbers are at hand. Negative ones take ten bytes."""

    def __missing__(self, number: int) -> bytes:
        return encode_varint(number & _INT64)


def encode_varint(number: int) -> bytes:
    """The bytes of a number of 64 bits without a sign."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


VARINTS = _Varints()
"""Number -> its bytes."""

VARINTS.update({number: VARINTS[number] for number in range(_KEPT_VARINTS)})


def tag(message: type[Message], field: str) -> bytes:
    """What stands before a field's value: before a number itself, before others their length."""
    described = message.DESCRIPTOR.fields_by_name[field]
    return VARINTS[described.number << 3 | (_BYTES if described.type in _LENGTH_TYPES else _VARINT)]


def bytes_field(before: bytes, value: bytes) -> bytes:
    """A text, bytes or message behind its tag."""
    return b"".join((before, VARINTS[len(value)], value))


def number_field(before: bytes, number: int) -> bytes:
    """A number behind its tag; nothing for 0, which is what a field without presence reads as where it is not there."""
    return before + VARINTS[number] if number else b""
