"""Decodes requests within limits that protobuf's decoder lacks."""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message

from millstream.model.errors import MessageRefused
from millstream.protocol.grpc.service import Method

__all__ = ["MAX_LIST_BYTES", "MAX_PARTS", "MAX_PLAIN_BYTES", "decode_request"]


MAX_PLAIN_BYTES = 64 * 1024
"""Bytes of a request at most: what is decoded of them takes up to 50 times as much."""

MAX_LIST_BYTES = 1024 * 1024
"""The same for the requests that carry lists or texts; the bodies of sent messages are not counted."""

MAX_PARTS = 4_096
"""Fields of a request at most, as messages of a send; those within fields are not counted."""

_HARMLESS_BYTES = 2 * MAX_PARTS
"""A request of so many bytes is within the limits: a field has two bytes at least."""

_WITH_LISTS = {"SendMessage", "AckMessage", "SyncLiteSubscription", "Telemetry"}
_SENT_MESSAGE, _BODY = 1, 4
_VARINT, _FIXED64, _BYTES, _GROUP_BEGIN, _GROUP_END, _FIXED32 = range(6)


def decode_request(method: Method, raw: bytes) -> Message:
    """The request of a method. REQUEST_MALFORMED for bytes that are none, REQUEST_TOO_LARGE over a limit above."""
    try:
        if method.name in _WITH_LISTS:
            if len(raw) > _HARMLESS_BYTES:
                _check_parts(raw, has_bodies=method.name == "SendMessage")
        elif len(raw) > MAX_PLAIN_BYTES:
            raise _too_large(len(raw), MAX_PLAIN_BYTES)
        return method.request.FromString(raw)
    except (DecodeError, IndexError) as error:
        words = str(error)[:200]
        raise MessageRefused("REQUEST_MALFORMED", f"{len(raw)} bytes are no {method.name} request: {words}.") from None


def _check_parts(raw: bytes, *, has_bodies: bool) -> None:
    plain_bytes = len(raw)
    at = parts = 0
    while at < len(raw):
        parts += 1
        number, start, at = _field(raw, at)
        if has_bodies and number == _SENT_MESSAGE:
            plain_bytes -= _body_bytes(raw, start, at)
        if parts > MAX_PARTS:
            raise MessageRefused("REQUEST_TOO_LARGE", f"The request has more than {MAX_PARTS} fields.")
    if plain_bytes > MAX_LIST_BYTES:
        raise _too_large(plain_bytes, MAX_LIST_BYTES)


def _too_large(size_bytes: int, limit_bytes: int) -> MessageRefused:
    return MessageRefused(
        "REQUEST_TOO_LARGE", f"The request has {size_bytes} bytes beside bodies; the limit is {limit_bytes}."
    )


def _body_bytes(raw: bytes, at: int, end: int) -> int:
    """Bytes of the last body of a sent message: an earlier one is dropped by the decoder, but must be read first."""
    found = 0
    for _ in range(MAX_PARTS):
        if at >= end:
            break
        number, start, at = _field(raw, at)
        if number == _BODY:
            found = at - start
    return found


def _field(raw: bytes, at: int) -> tuple[int, int, int]:
    """The number of the field at a place, where its value starts and where it ends. IndexError beyond the bytes."""
    tag, start = _varint(raw, at)
    kind = tag & 7
    if kind == _BYTES:
        length, start = _varint(raw, start)
        return tag >> 3, start, start + length
    if kind == _VARINT:
        return tag >> 3, start, _varint(raw, start)[1]
    if kind in (_FIXED64, _FIXED32):
        return tag >> 3, start, start + (8 if kind == _FIXED64 else 4)
    if kind in (_GROUP_BEGIN, _GROUP_END):
        return tag >> 3, start, start
    raise DecodeError(f"wire type {kind} at byte {at}")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = raw[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        at += 1
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise DecodeError(f"a varint of more than ten bytes ends at byte {at}")
