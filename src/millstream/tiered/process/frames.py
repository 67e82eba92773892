"""Frames between a broker and its cold process, in both directions; no I/O.

    uint32 number | uint32 head bytes | uint32 body bytes | head | body

The number is that of an order, and its answer has the same. The head is MessagePack, the body bytes of records and what
goes with them. The integers are big-endian. `FramePlan` says how many bytes are to come next, so that whoever receives
asks the system for each piece once.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["MAX_BODY_BYTES", "MAX_HEAD_BYTES", "PREFIX_BYTES", "BrokenFrame", "ColdFrame", "FramePlan", "encode_frame"]

MAX_HEAD_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a head at most: an upload names all topics, and its answer all parts of its objects."""

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a body at most: the longest block, and the places of its records."""

_PREFIX: Final = struct.Struct(">III")

PREFIX_BYTES: Final = _PREFIX.size
"""Bytes before the head."""


class BrokenFrame(Exception):
    """What came is no frame: nothing behind it can be read."""


class ColdFrame(NamedTuple):
    """An order or an answer."""

    number: int
    head: bytes
    body: bytes


class FramePlan(NamedTuple):
    """What follows a prefix."""

    number: int
    head_bytes: int
    body_bytes: int

    @classmethod
    def of(cls, prefix: bytes) -> FramePlan:
        """The plan of a frame that begins with PREFIX_BYTES bytes. Raises BrokenFrame."""
        if len(prefix) != PREFIX_BYTES:
            raise BrokenFrame(f"{len(prefix)} bytes are no prefix")
        plan = cls(*_PREFIX.unpack(prefix))
        if plan.head_bytes > MAX_HEAD_BYTES or plan.body_bytes > MAX_BODY_BYTES:
            raise BrokenFrame(f"a head of {plan.head_bytes} bytes and a body of {plan.body_bytes} are too long")
        return plan

    def frame(self, head: bytes, body: bytes) -> ColdFrame:
        """The frame of these bytes. Raises BrokenFrame where it was cut off."""
        if len(head) != self.head_bytes or len(body) != self.body_bytes:
            raise BrokenFrame("a frame was cut off")
        return ColdFrame(self.number, head, body)


def encode_frame(number: int, head: bytes, *body: bytes | memoryview) -> list[bytes | memoryview]:
    """The pieces of a frame, to be sent in order. ValueError for one that is too long."""
    body_bytes = sum(map(len, body))
    if len(head) > MAX_HEAD_BYTES or body_bytes > MAX_BODY_BYTES:
        raise ValueError(f"a head of {len(head)} bytes and a body of {body_bytes} are too long for a frame")
    return [_PREFIX.pack(number & 0xFFFFFFFF, len(head), body_bytes) + head, *body]
