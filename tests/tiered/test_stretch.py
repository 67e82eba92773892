"""Sharing out: every record comes to one object, in order; large queues have their own, small ones share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.tiered.chunk import ChunkRecord
from millstream.tiered.stretch import CHUNK_BYTES, OWN_CHUNK_BYTES, share_out

KIB = b"x" * 1024


def records_of(sizes: list[int]) -> list[ChunkRecord]:
    return [ChunkRecord(b"x" * size, offset, 1, offset * 10, offset) for offset, size in enumerate(sizes)]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3)),
        st.lists(st.sampled_from([100, 1_000_000, 5_000_000]), min_size=1, max_size=12),
        max_size=6,
    )
)
def test_every_record_comes_to_one_object_in_the_order_of_its_queue(queues: dict[tuple[str, int], list[int]]) -> None:
    gathered = {place: records_of(sizes) for place, sizes in queues.items()}
    found: dict[tuple[str, int], list[ChunkRecord]] = {}
    for parts in share_out(gathered, lambda _topic: 0):
        assert parts
        size_bytes = sum(len(record.data) for part in parts for record in part.records)
        assert size_bytes <= CHUNK_BYTES or sum(len(part.records) for part in parts) == 1
        for part in parts:
            found.setdefault((part.topic, part.queue_id), []).extend(part.records)
    assert found == gathered


def test_a_large_queue_has_objects_of_its_own_and_small_ones_share_one() -> None:
    gathered = {("big", 0): records_of([1_000_000] * 40)} | {("small", n): records_of([100]) for n in range(500)}
    objects = list(share_out(gathered, lambda _topic: 0))
    assert [len(parts) for parts in objects] == [1, 1, 500]
    assert sum(len(record.data) for record in gathered["big", 0]) > OWN_CHUNK_BYTES


def test_topics_share_an_object_only_with_those_of_their_class() -> None:
    gathered = {(topic, 0): records_of([100]) for topic in ("day1", "day2", "year")}
    objects = list(share_out(gathered, lambda topic: len(topic)))
    assert [[part.topic for part in parts] for parts in objects] == [["day1", "day2", "year"]]
    objects = list(share_out(gathered, lambda topic: int(topic == "year")))
    assert [[part.topic for part in parts] for parts in objects] == [["day1", "day2"], ["year"]]
