"""The body of SEND_BATCH_MESSAGE: messages of one topic and queue, laid end to end.

    int32 size | int32 magic (0) | int32 bodyCRC (0) | int32 flag | int32 bodyLen + body |
    int16 propertiesLen + properties

Integers are big-endian; size counts the whole item.
Source: RocketMQ 5.3's `MessageDecoder.encodeMessages` (facts only).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from millstream.model.errors import MessageRefused
from millstream.model.properties import MAX_STORED_BYTES, decode_properties, encode_properties

__all__ = ["MIN_ITEM_BYTES", "decode_batch", "encode_batch_item"]

_HEAD = struct.Struct(">iiiii")
MIN_ITEM_BYTES = _HEAD.size + 2
"""Bytes of an item without body and properties."""


def encode_batch_item(body: bytes, properties: Mapping[str, str], *, flag: int = 0) -> bytes:
    """One message of a batch; PROPERTIES_TOO_LARGE where the properties' text is over 32,767 bytes."""
    text = encode_properties(properties)
    if len(text) > MAX_STORED_BYTES:
        raise MessageRefused(
            "PROPERTIES_TOO_LARGE", f"The properties have {len(text)} bytes; the limit is {MAX_STORED_BYTES}."
        )
    head = _HEAD.pack(MIN_ITEM_BYTES + len(body) + len(text), 0, 0, flag, len(body))
    return b"".join((head, body, len(text).to_bytes(2, "big"), text))


def decode_batch(batch: bytes) -> list[tuple[bytes, dict[str, str], int]]:
    """Body, properties and flag of each message; MESSAGE_MALFORMED where lengths do not fit."""
    items: list[tuple[bytes, dict[str, str], int]] = []
    position, end = 0, len(batch)
    while position < end:
        if end - position < MIN_ITEM_BYTES:
            raise _malformed_error(position, f"{end - position} bytes are left")
        size, _, _, flag, body_bytes = _HEAD.unpack_from(batch, position)
        body_start = position + _HEAD.size
        body_end = body_start + body_bytes
        position += size
        if body_bytes < 0 or position > end or body_end + 2 > position:
            raise _malformed_error(body_start - _HEAD.size, f"size {size}, body of {body_bytes} bytes")
        if body_end + 2 + int.from_bytes(batch[body_end : body_end + 2], "big") != position:
            raise _malformed_error(body_start - _HEAD.size, "its properties do not end with it")
        items.append((batch[body_start:body_end], decode_properties(batch[body_end + 2 : position]), flag))
    return items


def _malformed_error(position: int, why: str) -> MessageRefused:
    return MessageRefused("MESSAGE_MALFORMED", f"The batch's message at byte {position} cannot be read: {why}.")
