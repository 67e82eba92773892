"""Splits a range into parts in the object store and parts at the broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from millstream.streams.spark.source.position import Slice
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.places import ObjectPlace

__all__ = ["ColdPiece", "ColdSpan", "cut_pieces", "pieces_of", "walk_slice"]


@dataclass(frozen=True, slots=True)
class ColdSpan:
    """What a broker says of a queue: the ranges below `disk_offset`, by offset, that lie in the store at `place`."""

    place: ObjectPlace
    ranges: tuple[ColdRange, ...]
    disk_offset: int


@dataclass(frozen=True, slots=True)
class ColdPiece:
    """Rows of one queue from `start` up to but without `end`, all of them in one object."""

    queue: str
    start: int
    end: int
    place: ObjectPlace
    where: ColdRange


def cut_pieces(part: Slice, spans: Iterable[ColdSpan]) -> tuple[ColdPiece, ...]:
    """The pieces of a slice, by offset and without overlaps. What lies between them is the broker's to give."""
    pieces: list[ColdPiece] = []
    for span in spans:
        for where in span.ranges:
            start = max(part.start, where.first_queue_offset, pieces[-1].end if pieces else 0)
            end = min(part.end, where.next_queue_offset, span.disk_offset)
            if start < end:
                pieces.append(ColdPiece(part.queue, start, end, span.place, where))
    return tuple(pieces)


def pieces_of(
    groups: Sequence[Sequence[Slice]], spans: Mapping[str, Sequence[ColdSpan]]
) -> list[dict[Slice, tuple[ColdPiece, ...]]]:
    """For each group the pieces of those of its slices that have any; `spans` by queue."""
    found = [{part: cut_pieces(part, spans.get(part.queue, ())) for part in group} for group in groups]
    return [{part: pieces for part, pieces in group.items() if pieces} for group in found]


def walk_slice(part: Slice, pieces: Iterable[ColdPiece]) -> Iterator[Slice | ColdPiece]:
    """The slice in order: its pieces, and as slices what lies between and behind them."""
    offset = part.start
    for piece in pieces:
        if piece.start > offset:
            yield Slice(part.queue, offset, piece.start)
        yield piece
        offset = piece.end
    if offset < part.end:
        yield Slice(part.queue, offset, part.end)
