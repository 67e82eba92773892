"""Which rows of the cold map are merged into one, and which of their objects are written anew.

Many quiet queues share packs, each with a few messages of thousands of queues. Without merging every hour adds an entry
to the list of each queue, and a reader fetches a block for each. Rows that follow one another in the log are merged,
those that were merged as often as one another, so each message is written anew a few times at most.

Pure: no clock, no store, no threads.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.tiered.cold_map import ColdMap, ColdObject, ColdStretch

__all__ = ["MAX_GENERATION", "MERGED_ROWS", "MergePlan", "MergePlanner"]

MERGED_ROWS: Final = 8
"""Rows that are merged into one, fewer where they have enough bytes or cover enough time."""

MERGE_AGE_MS: Final = 60 * 60 * 1000
"""Milliseconds for which the newest message of a row was stored before it is merged: readers that are a little behind
keep the objects that they have at hand."""

MAX_MERGED_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of the log that the rows of one merge cover at most, and so of the records that it writes anew: uploads wait
for it."""

MAX_GENERATION: Final = 4
"""How often a message is written anew at most."""

SMALL_OBJECT_BYTES: Final = 1024 * 1024
"""Bytes of an object with one queue from which on it stays as it is."""

_SPANS_OF_LIFE: Final = 8
"""Spans of time of merged objects that fit into what their messages live: all go when the last one is too old."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The rows to be merged, by name, in the order of the log; and the objects that are written anew, in that order."""

    rows: dict[str, ColdStretch]
    rewritten: tuple[ColdObject, ...]

    @property
    def first(self) -> ColdStretch:
        """The row that its log begins with."""
        return next(iter(self.rows.values()))

    @property
    def log_end(self) -> int:
        """Where the log of the rows ends."""
        return max(row.log_end for row in self.rows.values())

    @property
    def carried(self) -> tuple[ColdObject, ...]:
        """The objects that stay as they are."""
        anew = {one.key for one in self.rewritten}
        return tuple(one for row in self.rows.values() for one in row.objects or () if one.key not in anew)


@dataclass(frozen=True, slots=True)
class _Span:
    """When the messages of a row were stored, and how many bytes of the log it covers."""

    row: ColdStretch
    first_ms: int
    last_ms: int
    size_bytes: int


@dataclass(slots=True)
class MergePlanner:
    """Plans merges of one map. `keep_ms` tells how long messages of a topic live.

    `may_join` tells of rows that follow one another whether they may become one; it may say no for now.
    """

    cold: ColdMap
    keep_ms: Callable[[str], int]
    may_join: Callable[[Sequence[ColdStretch]], bool] = lambda _rows: True
    _spans: dict[str, _Span] = field(default_factory=dict)

    def find(self, now_ms: int, default_keep_ms: int, refused: Container[str] = ()) -> MergePlan | None:
        """The oldest rows that are to be merged; None where none are. Rows in `refused` are left alone."""
        spans = {name: self._span(name, row) for name, row in self.cold.stretches()}
        self._spans = spans
        longest_ms = default_keep_ms // _SPANS_OF_LIFE
        taken: list[str] = []
        for name, span in spans.items():
            is_old = span.last_ms < now_ms - MERGE_AGE_MS and span.row.generation < MAX_GENERATION
            if not is_old or name in refused or span.size_bytes > MAX_MERGED_BYTES:
                taken = []
                continue
            if taken and span.row.generation != spans[taken[-1]].row.generation:
                # More of the older ones' generation may come to stand here, when these are merged.
                taken = []
            grown = [*taken, name]
            if taken and not _fits([spans[one] for one in grown], longest_ms):
                plan = self._plan(taken)
                if plan is not None:
                    return plan
                grown = [name]
            taken = grown
            if len(taken) == MERGED_ROWS:
                plan = self._plan(taken)
                if plan is not None:
                    return plan
                # What keeps them apart may lie before the second.
                taken = taken[1:]
        return None

    def _span(self, name: str, row: ColdStretch) -> _Span:
        known = self._spans.get(name)
        if known is not None and known.row is row:
            return known
        parts = [part for one in row.objects or () for part in one.parts]
        first_ms, last_ms = min(part.first_stored_ms for part in parts), max(part.last_stored_ms for part in parts)
        return _Span(row, first_ms, last_ms, row.log_end - row.log_begin)

    def _plan(self, names: Sequence[str]) -> MergePlan | None:
        """The plan for these rows; None where they must not join, or it would spare nothing."""
        if len(names) < 2 or not self.may_join([self._spans[name].row for name in names]):
            return None
        rows = {name: self._spans[name].row for name in names}
        span_ms = max(self._spans[name].last_ms for name in names) - min(self._spans[name].first_ms for name in names)
        objects = [one for row in rows.values() for one in row.objects or ()]
        rewritten = _choose(objects, lambda one: self._is_worth(one, span_ms))
        return MergePlan(rows, tuple(rewritten)) if len(rewritten) > 1 else None

    def _is_worth(self, one: ColdObject, span_ms: int) -> bool:
        """Whether an object is small, and its messages live long enough to wait for others of that span."""
        return _is_small(one) and span_ms <= min(self.keep_ms(part.topic) for part in one.parts) // _SPANS_OF_LIFE


def _fits(spans: Sequence[_Span], longest_ms: int) -> bool:
    size_bytes = sum(span.size_bytes for span in spans)
    span_ms = max(span.last_ms for span in spans) - min(span.first_ms for span in spans)
    return size_bytes <= MAX_MERGED_BYTES and span_ms <= longest_ms


def _is_small(one: ColdObject) -> bool:
    return len(one.parts) > 1 or one.size_bytes < SMALL_OBJECT_BYTES


def _choose(objects: Sequence[ColdObject], is_worth: Callable[[ColdObject], bool]) -> list[ColdObject]:
    """The objects that are written anew: those worth it, and all others that have a queue of theirs, since what an
    object has of a queue is one range of offsets, without another object's in it."""
    anew = {one.key for one in objects if is_worth(one)}
    queues = {(part.topic, part.queue_id) for one in objects if one.key in anew for part in one.parts}
    while True:
        more = [
            one
            for one in objects
            if one.key not in anew and any((part.topic, part.queue_id) in queues for part in one.parts)
        ]
        if not more:
            return [one for one in objects if one.key in anew]
        for one in more:
            anew.add(one.key)
            queues.update((part.topic, part.queue_id) for part in one.parts)
