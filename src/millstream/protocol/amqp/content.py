"""Message properties of AMQP 0-9-1: flags and values of a content header (specification, 4.2.6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final

from millstream.protocol.amqp.field_table import Timestamp, skip_table
from millstream.protocol.amqp.method_codec import decode_short_text, encode_short_text
from millstream.protocol.amqp.reply_codes import ConnectionFailure, ReplyCode

__all__ = ["NO_PROPERTIES", "ContentProperties", "decode_properties", "encode_properties"]

NO_PROPERTIES: Final = b"\x00\x00"
"""The bytes of a message without properties."""

_FLAGS: Final = Struct("!H")
_TIME: Final = Struct("!Q")
_HAS_MORE_FLAGS: Final = 1


@dataclass(slots=True)
class ContentProperties:
    """The 14 properties in the order of their flags; None for one that is left out.

    `headers` is a field table with its length, as it came.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: bytes | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: Timestamp | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


_NAMES: Final = tuple(ContentProperties.__dataclass_fields__)
_BITS: Final = tuple((name, 1 << (15 - place)) for place, name in enumerate(_NAMES))
_OCTETS: Final = frozenset({"delivery_mode", "priority"})


def decode_properties(data: bytes) -> ContentProperties:
    """The properties of flags and values. ConnectionFailure: SYNTAX_ERROR."""
    found = ContentProperties()
    try:
        flags = _FLAGS.unpack_from(data)[0]
        if flags & _HAS_MORE_FLAGS or flags & 0b10:
            raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, f"The property flags {flags:#06x} have unknown bits.")
        at = _FLAGS.size
        for name, bit in _BITS:
            if not flags & bit:
                continue
            if name == "headers":
                end = skip_table(data, at)
                found.headers = data[at:end]
                at = end
            elif name in _OCTETS:
                setattr(found, name, data[at])
                at += 1
            elif name == "timestamp":
                found.timestamp = Timestamp(_TIME.unpack_from(data, at)[0])
                at += _TIME.size
            else:
                text, at = decode_short_text(data, at)
                setattr(found, name, text)
    except (struct_error, IndexError):
        raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, "The properties of a message are cut off.") from None
    if at != len(data):
        raise ConnectionFailure(ReplyCode.SYNTAX_ERROR, f"{len(data) - at} bytes follow a message's properties.")
    return found


def encode_properties(properties: ContentProperties) -> bytes:
    """The flags and values. ValueError for a value that its property cannot hold."""
    flags = 0
    parts = [b""]
    for name, bit in _BITS:
        value = getattr(properties, name)
        if value is None:
            continue
        flags |= bit
        if name == "headers":
            parts.append(value)
        elif name in _OCTETS:
            parts.append(bytes((value,)))
        elif name == "timestamp":
            parts.append(_TIME.pack(value))
        else:
            parts.append(encode_short_text(value))
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)
