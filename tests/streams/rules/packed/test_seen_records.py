"""Records that are there twice count once, and only whole micro-batches are read."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.rules.packed.guard import Ahead, SeenRecords, whole_batches
from millstream.streams.rules.packed.record import BatchEnd, Head, RowsHead


def rows(last: int, *, queue: str = "s/0", number: int = 0, shape: str = "rows", batch: int = 0) -> RowsHead:
    return RowsHead("job", batch, queue, shape, max(0, last - 9), last, number, 10)


def end(batch: int, *queues: str) -> BatchEnd:
    return BatchEnd("job", batch, "", queues or ("b/0",), {})


def ahead(*heads: Head, first: int = 0) -> Ahead:
    return Ahead(list(enumerate(heads, first)))


def test_a_record_at_or_below_the_highest_offset_is_left_out() -> None:
    seen = SeenRecords()
    told = [seen.admits("b/0", rows(last)) for last in (9, 19, 9, 19, 29)]
    assert told == [True, True, False, False, True]


def test_queues_shapes_and_queues_of_the_source_are_kept_apart() -> None:
    seen = SeenRecords()
    assert seen.admits("b/0", rows(19))
    assert seen.admits("b/1", rows(19))
    assert seen.admits("b/0", rows(9, queue="s/1"))
    assert seen.admits("b/0", rows(9, shape="counts"))
    assert not seen.admits("b/0", rows(9))


def test_two_records_with_the_rows_of_one_event_are_both_new() -> None:
    seen = SeenRecords()
    assert [seen.admits("b/0", rows(9, number=number)) for number in (0, 1, 1, 0)] == [True, True, False, False]


def test_what_was_seen_comes_back_from_an_offset() -> None:
    seen = SeenRecords(batch_id=4)
    seen.admits("b/0", rows(19, number=2))
    again = SeenRecords.from_json(json.loads(json.dumps(seen.to_json())))
    assert again == seen
    assert not again.admits("b/0", rows(19, number=2))
    assert SeenRecords.from_json(None) == SeenRecords()


@given(st.lists(st.tuples(st.sampled_from(["s/0", "s/1"]), st.integers(0, 3)), max_size=8), st.data())
def test_whatever_is_repeated_from_where_a_crash_was_counts_once(
    sizes: Sequence[tuple[str, int]], data: st.DataObject
) -> None:
    """A writer that dies repeats its records from an earlier one on, in the same order."""
    ends = {"s/0": -1, "s/1": -1}
    records = []
    for queue, size in sizes:
        ends[queue] += size + 1
        records.append(RowsHead("job", 0, queue, "rows", ends[queue] - size, ends[queue], 0, size + 1))
    written: list[RowsHead] = []
    for _ in range(data.draw(st.integers(0, 3))):
        written += records[: data.draw(st.integers(0, len(records)))]
    # Each attempt is a beginning of the records, and the last one is whole.
    written += records
    seen = SeenRecords()
    assert [one for one in written if seen.admits("b/0", one)] == records


def test_a_micro_batch_is_whole_once_it_has_ended_in_all_its_queues() -> None:
    both = ("b/0", "b/1")
    first, second = ahead(rows(9), end(0, *both), rows(19), end(1, *both)), ahead(end(0, *both), rows(9))
    assert whole_batches({"b/0": first, "b/1": second}, -1) == [0]
    assert whole_batches({"b/0": first, "b/1": second}, 0) == []
    second.heads.append((2, end(1, *both)))
    assert whole_batches({"b/0": first, "b/1": second}, -1) == [0, 1]


def test_a_queue_that_came_later_holds_up_no_micro_batch_of_before() -> None:
    old, new = ahead(end(0, "b/0"), end(1, "b/0", "b/1")), ahead()
    assert whole_batches({"b/0": old, "b/1": new}, -1) == [0]


def test_a_queue_whose_end_was_lost_is_through_with_it_at_the_next_one() -> None:
    both = ("b/0", "b/1")
    whole, lost = ahead(end(0, *both), end(1, *both)), ahead(rows(9), rows(19), end(1, *both))
    assert whole_batches({"b/0": whole, "b/1": lost}, -1) == [0, 1]
    assert lost.end_of(0) is None


def test_the_end_of_a_micro_batch_that_was_repeated_is_behind_its_last_copy() -> None:
    queue = ahead(rows(9), end(0), rows(9), end(0), rows(19), end(1), rows(29), first=100)
    assert (queue.end_of(0), queue.end_of(1), queue.newest_end()) == (104, 106, 1)
    assert (queue.rows_before(104), queue.rows_before(107)) == (20, 40)
