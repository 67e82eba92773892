"""Frames between a broker and its cold process, in both directions; no I/O.

    uint32 number | uint32 head bytes | uint32 body bytes | head | body

The number is that of an order, and its answer has the same. The head is MessagePack, the body bytes of records and what
goes with them. The integers are big-endian. `FramePlan` says how many bytes are to come next, for who waits for each
piece; `FrameReader` takes what is there, for who does not wait.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final, NamedTuple

__all__ = [
    "MAPPED_BYTES",
    "MAX_BODY_BYTES",
    "MAX_HEAD_BYTES",
    "PREFIX_BYTES",
    "BrokenFrame",
    "ColdFrame",
    "FramePlan",
    "FrameReader",
    "encode_frame",
]

MAX_HEAD_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a head at most: an upload names all topics, and its answer all parts of its objects."""

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a body at most: the longest block, and the places of its records."""

MAPPED_BYTES: Final = 256 * 1024
"""Bytes from which on a frame is put together in memory that the system clears page by page, as bytes come: to clear
that of a whole block at once takes longer than a send."""

_PRIVATE: Final = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}

_FIRST_BYTES: Final = 4096
"""Bytes that are asked for where a frame begins: many frames end within them, and of a long one only these are copied
twice."""

_PREFIX: Final = struct.Struct(">III")

PREFIX_BYTES: Final = _PREFIX.size
"""Bytes before the head."""


class BrokenFrame(Exception):
    """What came is no frame: nothing behind it can be read."""


class ColdFrame(NamedTuple):
    """An order or an answer."""

    number: int
    head: bytes | memoryview
    body: bytes | memoryview


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

    def frame(self, head: bytes | memoryview, body: bytes | memoryview) -> ColdFrame:
        """The frame of these bytes. Raises BrokenFrame where it was cut off."""
        if len(head) != self.head_bytes or len(body) != self.body_bytes:
            raise BrokenFrame("a frame was cut off")
        return ColdFrame(self.number, head, body)


class FrameReader:
    """Puts frames together: bytes go to `buffer`, `take` says how many they were. A frame's bytes are copied once."""

    def __init__(self) -> None:
        self._first = bytearray(_FIRST_BYTES)
        self._first_end = 0
        self._plan: FramePlan | None = None
        self._rest = memoryview(b"")
        self._rest_end = 0

    @property
    def buffer(self) -> memoryview:
        """Where the next bytes are to be put, from its start on; never empty."""
        if self._plan is None:
            return memoryview(self._first)[self._first_end :]
        return self._rest[self._rest_end :]

    def take(self, count: int) -> list[ColdFrame]:
        """The frames that are whole with so many more bytes. Raises BrokenFrame."""
        if self._plan is not None:
            self._rest_end += count
            return self._end_frame()
        self._first_end += count
        found: list[ColdFrame] = []
        at = 0
        while self._plan is None and self._first_end - at >= PREFIX_BYTES:
            plan = self._plan = FramePlan.of(bytes(self._first[at : at + PREFIX_BYTES]))
            at += PREFIX_BYTES
            self._rest = _make_room(plan.head_bytes + plan.body_bytes)
            self._rest_end = min(len(self._rest), self._first_end - at)
            self._rest[: self._rest_end] = self._first[at : at + self._rest_end]
            at += self._rest_end
            found += self._end_frame()
        left = self._first[at : self._first_end]
        self._first[: len(left)] = left
        self._first_end = len(left)
        return found

    def _end_frame(self) -> list[ColdFrame]:
        plan, rest = self._plan, self._rest
        if plan is None or self._rest_end < len(rest):
            return []
        self._plan, self._rest = None, memoryview(b"")
        whole = rest.toreadonly()
        return [plan.frame(whole[: plan.head_bytes], whole[plan.head_bytes :])]


def _make_room(size_bytes: int) -> memoryview:
    if size_bytes < MAPPED_BYTES:
        return memoryview(bytearray(size_bytes))
    return memoryview(mmap.mmap(-1, size_bytes, **_PRIVATE))


def encode_frame(number: int, head: bytes, *body: bytes | memoryview) -> list[bytes | memoryview]:
    """The pieces of a frame, to be sent in order. ValueError for one that is too long."""
    body_bytes = sum(map(len, body))
    if len(head) > MAX_HEAD_BYTES or body_bytes > MAX_BODY_BYTES:
        raise ValueError(f"a head of {len(head)} bytes and a body of {body_bytes} are too long for a frame")
    return [_PREFIX.pack(number & 0xFFFFFFFF, len(head), body_bytes) + head, *body]
