"""Turns records of a compacted queue into changes by key, for state stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from millstream.protocol.record import RecordParts, split_state

__all__ = ["Change", "ChangelogDecoder", "KeyOf", "key_of_record"]

_KEYS = re.compile(rb"(?:^|\x02)KEYS\x01 *([^\x02 ]+)")

KeyOf = Callable[[RecordParts], bytes | None]
"""The key of a record; None for one without."""


def key_of_record(parts: RecordParts) -> bytes | None:
    """The first word of the property KEYS."""
    found = _KEYS.search(parts.properties)
    return found[1] if found else None


class Change(NamedTuple):
    """A key has the value, a slice of the record; None: the key is deleted."""

    key: bytes
    value: memoryview | None
    queue_offset: int


class ChangelogDecoder:
    """Reads one queue from `next_offset` on. Gaps are passed over, and so is what was taken before."""

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset

    def changes(self, records: Iterable[memoryview]) -> Iterator[Change]:
        """The changes of whole, verified records in the order of their offsets. Records without a key are none."""
        for record in records:
            queue_offset, body, properties = split_state(record)
            if queue_offset < self.next_offset:
                continue
            self.next_offset = queue_offset + 1
            found = _KEYS.search(properties)
            if found:
                yield Change(found[1], body if len(body) else None, queue_offset)

    def pass_to(self, next_offset: int) -> None:
        """Go on at `next_offset`, if that is further on: there is nothing before it any more."""
        self.next_offset = max(self.next_offset, next_offset)
