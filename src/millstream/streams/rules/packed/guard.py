"""Deduplicates packed hits, so that a repeated record counts once."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from millstream.streams.rules.packed.record import BatchEnd, Head, RowsHead

__all__ = ["Ahead", "SeenRecords", "whole_batches"]


class SeenRecords(msgspec.Struct):
    """The highest source offset seen, by the topic's queue and by source queue and shape; a part of a reader's offset.

    Beside each offset stands the number of the record: rows of one event may be in two. `batch_id` is the last
    micro-batch that was read to its end, -1 before the first.
    """

    highest: dict[str, dict[str, tuple[int, int]]] = {}
    batch_id: int = -1

    def admits(self, into: str, head: RowsHead) -> bool:
        """Whether the record in the topic's queue `into` is new; it is seen from then on."""
        by_source = self.highest.setdefault(into, {})
        source, stands = f"{head.queue} {head.shape}", (head.last, head.number)
        known = by_source.get(source)
        if known is not None and stands <= known:
            return False
        by_source[source] = stands
        return True

    def to_json(self) -> dict[str, Any]:
        """The form in which it stands in an offset."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> SeenRecords:
        """The value of `to_json`; nothing seen for None."""
        return cls() if value is None else msgspec.convert(value, cls)


class Ahead(msgspec.Struct):
    """The heads that lie ahead in one queue of the topic, with their offsets in it."""

    heads: list[tuple[int, Head]] = []

    def end_of(self, batch_id: int) -> int | None:
        """The offset behind the last end of a micro-batch up to `batch_id`; None where there is none."""
        ends = [offset for offset, head in self.heads if isinstance(head, BatchEnd) and head.batch_id <= batch_id]
        return ends[-1] + 1 if ends else None

    def newest_end(self) -> int:
        """The newest micro-batch that has ended; -1 for none."""
        return max((head.batch_id for _, head in self.heads if isinstance(head, BatchEnd)), default=-1)

    def rows_up_to(self, offset: int) -> list[RowsHead]:
        """The heads of rows that lie before an offset."""
        return [head for _, head in self.heads[: self._place(offset)] if isinstance(head, RowsHead)]

    def rows_before(self, offset: int) -> int:
        """How many hits lie before an offset."""
        return sum(head.rows for head in self.rows_up_to(offset))

    def forget_before(self, offset: int) -> None:
        """Leave out what lies before an offset."""
        del self.heads[: self._place(offset)]

    def _place(self, offset: int) -> int:
        return bisect.bisect_left(self.heads, offset, key=lambda one: one[0])


def whole_batches(ahead: Mapping[str, Ahead], after: int) -> list[int]:
    """The micro-batches later than `after` that have ended in every queue they went to, oldest first.

    A queue is through with a micro-batch once a later one has ended in it.
    """
    newest = {queue: one.newest_end() for queue, one in ahead.items()}
    found: dict[int, bool] = {}
    for end in _ends(ahead.values()):
        if end.batch_id > after:
            found[end.batch_id] = all(newest.get(queue, end.batch_id) >= end.batch_id for queue in end.queues)
    whole = []
    for batch_id in sorted(found):
        if not found[batch_id]:
            break
        whole.append(batch_id)
    return whole


def _ends(ahead: Iterable[Ahead]) -> Iterable[BatchEnd]:
    return (head for one in ahead for _, head in one.heads if isinstance(head, BatchEnd))
