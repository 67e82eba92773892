"""Which rows of the cold map are merged into one, and which of their objects are written anew.

Many quiet queues share packs, each with a few messages of thousands of queues. Without merging every hour adds an entry
to the list of each queue, and a reader fetches a block for each. Rows that follow one another in the log are merged,
those that were merged as often as one another, so each message is written anew a few times at most.

Pure: no clock, no store, no threads. Plans are made in steps, between which others have their turns.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.tiered.cold_map import STEP_PARTS, ColdMap, ColdObject, ColdStretch

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
    """Plans merges of one map.

    `may_join` tells of rows that follow one another whether they may become one; it may say no for now.
    """

    cold: ColdMap
    may_join: Callable[[Sequence[ColdStretch]], bool] = lambda _rows: True
    _spans: dict[str, _Span] = field(default_factory=dict)

    def find(
        self, now_ms: int, lifetimes_ms: Mapping[str, int], default_ms: int, refused: Container[str] = ()
    ) -> Generator[None, None, MergePlan | None]:
        """The oldest rows that are to be merged; None where none are. Rows in `refused` are left alone.

        Messages of a topic live as long as `lifetimes_ms` says, else `default_ms`.
        """
        spans: dict[str, _Span] = {}
        for name, row in self.cold.stretches():
            known = self._spans.get(name)
            if known is None or known.row is not row:
                known = _span_of(row)
                yield
            spans[name] = known
        self._spans = spans
        longest_ms, live_ms = default_ms // _SPANS_OF_LIFE, _Lifetimes(lifetimes_ms, default_ms)
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
                plan = yield from self._plan(taken, live_ms)
                if plan is not None:
                    return plan
                grown = [name]
            taken = grown
            if len(taken) == MERGED_ROWS:
                plan = yield from self._plan(taken, live_ms)
                if plan is not None:
                    return plan
                # What keeps them apart may lie before the second.
                taken = taken[1:]
        return None

    def _plan(self, names: Sequence[str], live_ms: _Lifetimes) -> Generator[None, None, MergePlan | None]:
        """The plan for these rows; None where they must not join, or it would spare nothing."""
        if len(names) < 2 or not self.may_join([self._spans[name].row for name in names]):
            return None
        yield
        rows = {name: self._spans[name].row for name in names}
        span_ms = max(self._spans[name].last_ms for name in names) - min(self._spans[name].first_ms for name in names)
        objects = [one for row in rows.values() for one in row.objects or ()]
        rewritten = yield from _choose(
            objects, lambda one: _is_small(one) and span_ms <= live_ms(one) // _SPANS_OF_LIFE
        )
        return MergePlan(rows, tuple(rewritten)) if len(rewritten) > 1 else None


@dataclass(frozen=True, slots=True)
class _Lifetimes:
    """How long messages of topics live; of an object, those that live shortest."""

    of_topics: Mapping[str, int]
    default_ms: int

    def __call__(self, one: ColdObject) -> int:
        if not self.of_topics:
            return self.default_ms
        return min(self.of_topics.get(part.topic, self.default_ms) for part in one.parts)


def _span_of(row: ColdStretch) -> _Span:
    parts = [part for one in row.objects or () for part in one.parts]
    first_ms, last_ms = min(part.first_stored_ms for part in parts), max(part.last_stored_ms for part in parts)
    return _Span(row, first_ms, last_ms, row.log_end - row.log_begin)


def _fits(spans: Sequence[_Span], longest_ms: int) -> bool:
    size_bytes = sum(span.size_bytes for span in spans)
    span_ms = max(span.last_ms for span in spans) - min(span.first_ms for span in spans)
    return size_bytes <= MAX_MERGED_BYTES and span_ms <= longest_ms


def _is_small(one: ColdObject) -> bool:
    return len(one.parts) > 1 or one.size_bytes < SMALL_OBJECT_BYTES


def _choose(
    objects: Sequence[ColdObject], is_worth: Callable[[ColdObject], bool]
) -> Generator[None, None, list[ColdObject]]:
    """The objects that are written anew: those worth it, and all others that have a queue of theirs, since what an
    object has of a queue is one range of offsets, without another object's in it."""
    anew, rest = yield from _divide(objects, is_worth)
    more, queues = anew if rest else [], set[tuple[str, int]]()
    while more:
        for one in more:
            queues.update((part.topic, part.queue_id) for part in one.parts)
            if len(one.parts) >= STEP_PARTS:
                yield
        more, rest = yield from _divide(
            rest, lambda one: any((part.topic, part.queue_id) in queues for part in one.parts)
        )
        anew = [*anew, *more]
    keys = {one.key for one in anew}
    return [one for one in objects if one.key in keys]


def _divide(
    objects: Sequence[ColdObject], fits: Callable[[ColdObject], bool]
) -> Generator[None, None, tuple[list[ColdObject], list[ColdObject]]]:
    """Those that fit, and the others; a step ends when many of their parts were looked at."""
    found: tuple[list[ColdObject], list[ColdObject]] = ([], [])
    looked_at = 0
    for one in objects:
        found[0 if fits(one) else 1].append(one)
        looked_at += len(one.parts)
        if looked_at >= STEP_PARTS:
            looked_at = 0
            yield
    return found
