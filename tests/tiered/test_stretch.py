"""Sharing out: every record comes to one object, in order; large queues have their own, small ones share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chunk_records import ChunkRecord, queue_of
from millstream.tiered.queue_records import CHUNK_BYTES, QueueRecords
from millstream.tiered.stretch import OWN_CHUNK_BYTES, share_out


def queue_with(topic: str, queue_id: int, sizes: list[int]) -> QueueRecords:
    records = [ChunkRecord(b"x" * size, offset, offset * 10, offset) for offset, size in enumerate(sizes)]
    return queue_of(topic, queue_id, records)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3)),
        st.lists(st.sampled_from([100, 1_000_000, 5_000_000]), min_size=1, max_size=12),
        max_size=6,
    )
)
def test_every_record_comes_to_one_object_in_the_order_of_its_queue(queues: dict[tuple[str, int], list[int]]) -> None:
    gathered = [queue_with(*place, sizes) for place, sizes in sorted(queues.items())]
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for parts in share_out(gathered, lambda _topic: 0):
        assert parts
        size_bytes = sum(part.size_bytes for part in parts)
        assert size_bytes <= CHUNK_BYTES or sum(len(part.blocks) for part in parts) == 1
        for part in parts:
            assert part.size_bytes == sum(len(block.raw) for block in part.blocks)
            ranges = [(block.first_queue_offset, block.next_queue_offset) for block in part.blocks]
            found.setdefault((part.topic, part.queue_id), []).extend(ranges)
    assert {*found} == {*queues}
    for place, ranges in found.items():
        assert [offset for first, following in ranges for offset in range(first, following)] == [
            *range(len(queues[place]))
        ]


def test_a_large_queue_has_objects_of_its_own_and_small_ones_share_one() -> None:
    gathered = [queue_with("big", 0, [1_000_000] * 40), *(queue_with("small", n, [100]) for n in range(500))]
    objects = list(share_out(gathered, lambda _topic: 0))
    assert [len(parts) for parts in objects] == [1, 1, 500]
    assert gathered[0].size_bytes > OWN_CHUNK_BYTES


def test_topics_share_an_object_only_with_those_of_their_class() -> None:
    gathered = [queue_with(topic, 0, [100]) for topic in ("day1", "day2", "year")]
    objects = list(share_out(gathered, len))
    assert [[part.topic for part in parts] for parts in objects] == [["day1", "day2", "year"]]
    objects = list(share_out(gathered, lambda topic: int(topic == "year")))
    assert [[part.topic for part in parts] for parts in objects] == [["day1", "day2"], ["year"]]


def test_an_upload_of_ten_thousand_quiet_topics_is_one_object() -> None:
    shares = [queue_with(f"quiet-{number}", 0, [100]) for number in range(10_000)]
    [parts] = share_out(shares, lambda _topic: 0)
    assert len(parts) == 10_000
