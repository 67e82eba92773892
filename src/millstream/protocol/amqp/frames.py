"""Frames of AMQP 0-9-1 (specification, 2.3.5 and 4.2.3): kinds, limits and encoding."""

from __future__ import annotations

from struct import Struct
from typing import Final

from millstream.protocol.amqp.method_codec import METHOD_ID, AmqpMethod, encode_method, encode_short_text

__all__ = [
    "BODY",
    "CONTENT_HEADER",
    "DEFAULT_FRAME_BYTES",
    "FRAME_END",
    "FRAME_HEADER",
    "FRAME_OVERHEAD_BYTES",
    "HEADER",
    "HEARTBEAT",
    "HEARTBEAT_FRAME",
    "METHOD",
    "MIN_FRAME_BYTES",
    "PROTOCOL_HEADER",
    "content_frames",
    "deliver_prefix",
    "frame",
    "method_frame",
]

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
"""What a client sends first, and what a server answers to a client of another version."""

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8

FRAME_HEADER: Final = Struct("!BHI")
"""Kind, channel, and bytes of the payload."""

FRAME_END: Final = 0xCE  # The byte behind every payload.

FRAME_OVERHEAD_BYTES: Final = FRAME_HEADER.size + 1

MIN_FRAME_BYTES: Final = 4_096
"""Bytes of a whole frame that every peer must take; until the limit is agreed, no frame is larger."""

DEFAULT_FRAME_BYTES: Final = 131_072
"""Bytes of a whole frame that a server offers; RabbitMQ's default."""

CONTENT_HEADER: Final = Struct("!HHQ")
"""Class, weight (always 0) and bytes of the body; properties follow."""

HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

_BASIC: Final = 60
_DELIVER: Final = METHOD_ID.pack(60, 60)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return b"%b%b\xce" % (FRAME_HEADER.pack(kind, channel, len(payload)), payload)


def method_frame(channel: int, method: AmqpMethod) -> bytes:
    """The frame of a method."""
    return frame(METHOD, channel, encode_method(method))


def content_frames(channel: int, method: bytes, properties: bytes, body: bytes, frame_max_bytes: int) -> bytes:
    """A method's payload, its content header and its body, cut to the limit of a whole frame."""
    head = FRAME_HEADER.pack
    size = len(body)
    start = b"%b%b\xce%b%b%b\xce" % (
        head(METHOD, channel, len(method)),
        method,
        head(HEADER, channel, CONTENT_HEADER.size + len(properties)),
        CONTENT_HEADER.pack(_BASIC, 0, size),
        properties,
    )
    room = frame_max_bytes - FRAME_OVERHEAD_BYTES
    if size <= room:
        return b"%b%b%b\xce" % (start, head(BODY, channel, size), body) if size else start
    return start + b"".join([frame(BODY, channel, body[at : at + room]) for at in range(0, size, room)])


def deliver_prefix(consumer_tag: str) -> bytes:
    """The payload of basic.deliver up to its delivery tag, which is the same for all deliveries of a consumer."""
    return _DELIVER + encode_short_text(consumer_tag)
