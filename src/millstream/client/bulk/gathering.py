"""Single messages gathered to bulk messages: the rows that wait, and how many bytes they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from millstream.client.bulk.encoding import COLUMNS, DEFAULT_ROWS
from millstream.model.errors import MessageRefused
from millstream.model.message import MAX_BODY_BYTES
from millstream.model.properties import RESERVED, encode_properties

__all__ = [
    "DEFAULT_BATCH_BYTES",
    "DEFAULT_HOLD_S",
    "DEFAULT_WAITING_BYTES",
    "MAX_ROW_BYTES",
    "GatherLimits",
    "GatheredRows",
    "encode_user_properties",
    "row_bytes",
]

DEFAULT_BATCH_BYTES: Final = 2 * 1024 * 1024
"""Bytes of rows that close a bulk message: 10,000 rows of 100 bytes with key and tag pass below it."""

DEFAULT_HOLD_S: Final = 0.01
"""Seconds that a first row waits for others."""

DEFAULT_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of rows that are not yet acknowledged; a send waits while there are more. One row may go beyond."""

MAX_ROW_BYTES: Final = MAX_BODY_BYTES - 32 * 1024
"""Bytes of one message at most: with Arrow's metadata, and grown by a codec that finds nothing, it still is a body."""

_ROW_BYTES: Final = 16
"""What a row counts beyond its own bytes, so that empty ones are bounded too."""

_SEPARATORS: Final = ("\x01", "\x02")


@dataclass(frozen=True, slots=True)
class GatherLimits:
    """When gathered rows become a bulk message: at so many rows or bytes, or after so many seconds."""

    rows: int = DEFAULT_ROWS
    batch_bytes: int = DEFAULT_BATCH_BYTES
    hold_s: float = DEFAULT_HOLD_S
    waiting_bytes: int = DEFAULT_WAITING_BYTES


@dataclass(slots=True)
class GatheredRows:
    """The rows of one bulk message in the making."""

    topic: str
    bodies: list[bytes] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    tags: list[str | None] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, body: bytes, key: str | None, tag: str | None, text: str | None, size_bytes: int) -> int:
        """Append one row, of which `row_bytes` says `size_bytes`; its place."""
        self.bodies.append(body)
        self.keys.append(key)
        self.tags.append(tag)
        self.texts.append(text)
        self.size_bytes += size_bytes
        return len(self.bodies) - 1

    def is_full(self, limits: GatherLimits) -> bool:
        """Whether it is time to send."""
        return len(self.bodies) >= limits.rows or self.size_bytes >= limits.batch_bytes

    def record_batch(self) -> pa.RecordBatch:
        """The rows in columns; columns without a value are left out."""
        texts = {"key": self.keys, "tag": self.tags, "properties": self.texts}
        arrays = {"body": pa.array(self.bodies, COLUMNS["body"])}
        for name, values in texts.items():
            array = pa.array(values, COLUMNS[name])
            if array.null_count < len(values):
                arrays[name] = array
        return pa.record_batch(arrays)


def row_bytes(body: bytes, key: str | None, tag: str | None, text: str | None) -> int:
    """What a row counts; BODY_TOO_LARGE where no bulk message could hold it, TypeError where the body is not bytes."""
    if not isinstance(body, bytes):
        raise TypeError(f"a body is bytes, not {type(body).__name__}")
    size_bytes = len(body) + _ROW_BYTES + len(key or "") + len(tag or "") + len(text or "")
    if size_bytes > MAX_ROW_BYTES:
        raise MessageRefused("BODY_TOO_LARGE", f"The message has {size_bytes} bytes; the limit is {MAX_ROW_BYTES}.")
    return size_bytes


def encode_user_properties(key: str | None, tag: str | None, properties: Mapping[str, str] | None) -> str | None:
    """The stored text of a message's properties; ILLEGAL_PROPERTY where key, tag or properties cannot be stored.

    TypeError where one is no text.
    """
    if properties:
        for name in properties:
            if name in RESERVED:
                raise MessageRefused("ILLEGAL_PROPERTY", f"{name!r} is a reserved name, not one for a user property.")
    parts = (key or "", tag or "", *(properties or ()), *(properties or {}).values())
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"tags, keys and properties are text, not {type(part).__name__}")
        if any(mark in part for mark in _SEPARATORS):
            raise MessageRefused(
                "ILLEGAL_PROPERTY",
                "A tag, key or property has one of the characters \\x01 and \\x02, which separate them.",
            )
        if not part.isascii():
            try:
                part.encode()
            except UnicodeEncodeError:
                raise MessageRefused(
                    "ILLEGAL_PROPERTY", "A tag, key or property is not Unicode (half of a pair)."
                ) from None
    return encode_properties(properties).decode() if properties else None
