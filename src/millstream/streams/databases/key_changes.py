"""What the changes of a micro-batch come to, key by key."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.streams.operators.changes import INSERT, UPDATE_AFTER

__all__ = ["KeyChanges", "key_changes", "share_of"]

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Rows to put in the place of those with their keys, and keys whose rows go."""

    put: list[Values]
    gone: list[Values]


def key_changes(changes: Iterable[tuple[int, Values]], places: Sequence[int]) -> KeyChanges:
    """The changes netted: of each key the row that is left, or that none is.

    `places` are those of the key's columns. Changes of one key may come in any order as long as each row that goes is
    told: what came and went counts for nothing, and of several rows that are left the last one counts.
    """
    counts: dict[Values, dict[Values, int]] = {}
    for kind, row in changes:
        rows = counts.setdefault(tuple(row[place] for place in places), {})
        named = tuple("NaN" if value != value else value for value in row)
        count = rows.pop(named, 0) + (1 if kind in (INSERT, UPDATE_AFTER) else -1)
        # The row that was told last stands last.
        rows[named] = count
    put, gone = [], []
    for key, rows in counts.items():
        left = [row for row, count in rows.items() if count > 0]
        if left:
            put.append(left[-1])
        else:
            gone.append(key)
    return KeyChanges(put, gone)


def share_of(values: Values, shares: int) -> int:
    """Which of so many shares a row or a key belongs to: the same in every process."""
    return zlib.crc32(repr(values).encode()) % shares if shares > 1 else 0
