"""A slice is cut into pieces that lie in objects and what the broker gives, with nothing missing and nothing twice."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.spark.source.cold_pieces import ColdPiece, ColdSpan, cut_pieces, pieces_of, walk_slice
from millstream.streams.spark.source.position import Slice
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.places import ObjectPlace

PLACE = ObjectPlace("file:///cold")


def object_of(first: int, following: int) -> ColdRange:
    return ColdRange(first, following, 0, 0, f"{first}-{following}.msc", 1)


@st.composite
def spans(draw: st.DrawFn) -> list[ColdSpan]:
    """Objects by offset, with holes, in one answer of a broker or two; they may reach over where the disk begins."""
    ends = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=12)))
    kept = [object_of(*pair) for pair in pairwise(ends) if draw(st.booleans())]
    middle, disk_offset = draw(st.integers(0, len(kept))), draw(st.integers(0, 60))
    return [ColdSpan(PLACE, tuple(some), disk_offset) for some in (kept[:middle], kept[middle:])]


@given(spans(), st.integers(0, 60), st.integers(1, 60))
def test_each_offset_of_a_slice_comes_once_and_from_an_object_exactly_where_one_has_it(
    told: list[ColdSpan], start: int, length: int
) -> None:
    part = Slice("a/0", start, start + length)
    offset = start
    for step in walk_slice(part, cut_pieces(part, told)):
        assert (step.queue, step.start) == (part.queue, offset)
        assert step.end > step.start
        for one in range(step.start, step.end):
            holders = [
                where
                for span in told
                for where in span.ranges
                if where.first_queue_offset <= one < min(where.next_queue_offset, span.disk_offset)
            ]
            assert holders == ([step.where] if isinstance(step, ColdPiece) else [])
        offset = step.end
    assert offset == part.end


def test_an_answer_that_repeats_the_last_object_of_the_one_before_gives_it_once() -> None:
    told = [ColdSpan(PLACE, (object_of(0, 10),), 30), ColdSpan(PLACE, (object_of(0, 10), object_of(10, 20)), 30)]
    pieces = cut_pieces(Slice("a/0", 3, 25), told)
    assert [(piece.start, piece.end) for piece in pieces] == [(3, 10), (10, 20)]


def test_slices_without_cold_rows_carry_no_pieces() -> None:
    groups = [(Slice("a/0", 0, 5), Slice("a/1", 0, 5)), (Slice("a/0", 5, 20),)]
    cold = pieces_of(groups, {"a/0": [ColdSpan(PLACE, (object_of(0, 8),), 8)]})
    assert [{part: [(one.start, one.end) for one in pieces] for part, pieces in group.items()} for group in cold] == [
        {Slice("a/0", 0, 5): [(0, 5)]},
        {Slice("a/0", 5, 20): [(5, 8)]},
    ]
