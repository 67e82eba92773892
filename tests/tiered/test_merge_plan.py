"""Which rows are merged: those that are old, alike and many; no message is written anew often."""

from __future__ import annotations

from collections.abc import Container, Mapping

from hypothesis import given
from hypothesis import strategies as st

from millstream.tiered import merge_plan
from millstream.tiered.cold_map import ColdMap, ColdObject, ColdPart, ColdStretch, commit_stretch, release_objects
from millstream.tiered.merge_plan import MAX_GENERATION, MERGE_AGE_MS, MERGED_ROWS, MergePlan, MergePlanner

HOUR_MS = 3_600_000
LONG_MS = 1_000_000 * HOUR_MS
LARGE = merge_plan.SMALL_OBJECT_BYTES


def pack(name: str, number: int, topics: str = "ab", size: int = 100, stored_ms: int = 0) -> ColdObject:
    parts = tuple(ColdPart(topic, 0, number, number + 1, stored_ms, stored_ms) for topic in topics)
    return ColdObject(f"{name}/{topics}", size, 0, parts)


def map_of(count: int, *, log_bytes: int = 1, topics: str = "ab", size: int = 100, stored_ms: int = 0) -> ColdMap:
    cold = ColdMap()
    for number in range(count):
        found = pack(f"r{number}", number, topics, size, stored_ms)
        cold.apply(f"r{number}", ColdStretch(0, number * log_bytes, (number + 1) * log_bytes, (found,)))
    return cold


def find(
    planner: MergePlanner,
    now_ms: int = LONG_MS,
    lifetimes_ms: Mapping[str, int] | None = None,
    default_ms: int = LONG_MS,
    refused: Container[str] = (),
) -> MergePlan | None:
    steps = planner.find(now_ms, lifetimes_ms or {}, default_ms, refused)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: MergePlan | None = done.value
            return found


def names(cold: ColdMap, now_ms: int = LONG_MS, keep_ms: int = LONG_MS) -> list[str]:
    plan = find(MergePlanner(cold), now_ms, default_ms=keep_ms)
    return [] if plan is None else [*plan.rows]


def test_the_oldest_rows_are_merged_once_there_are_enough() -> None:
    assert names(map_of(MERGED_ROWS - 1)) == []
    assert names(map_of(MERGED_ROWS + 3)) == [f"r{number}" for number in range(MERGED_ROWS)]


def test_what_was_stored_lately_is_left_alone() -> None:
    cold = map_of(MERGED_ROWS, stored_ms=1000)
    assert names(cold, 1000 + MERGE_AGE_MS) == []
    assert names(cold, 1001 + MERGE_AGE_MS) != []


def test_fewer_rows_are_merged_where_they_have_enough_bytes() -> None:
    assert names(map_of(4, log_bytes=merge_plan.MAX_MERGED_BYTES // 3)) == ["r0", "r1", "r2"]
    assert names(map_of(4, log_bytes=merge_plan.MAX_MERGED_BYTES)) == []


def test_rows_are_merged_within_a_part_of_the_time_that_messages_live() -> None:
    cold = ColdMap()
    for number in range(MERGED_ROWS):
        cold.apply(
            f"r{number}", ColdStretch(0, number, number + 1, (pack(f"r{number}", number, stored_ms=number * HOUR_MS),))
        )
    assert names(cold, keep_ms=24 * HOUR_MS) == ["r0", "r1", "r2", "r3"]
    assert names(cold, keep_ms=72 * HOUR_MS) == [f"r{number}" for number in range(MERGED_ROWS)]


def test_objects_of_short_lived_topics_go_on_as_they_are() -> None:
    cold = ColdMap()
    for number in range(MERGED_ROWS):
        at = number * HOUR_MS
        objects = (pack(f"r{number}", number, "ab", 100, at), pack(f"r{number}", number, "xy", 100, at))
        cold.apply(f"r{number}", ColdStretch(0, number, number + 1, objects))
    plan = find(MergePlanner(cold), lifetimes_ms=dict.fromkeys("xy", 10 * HOUR_MS))
    assert plan is not None
    assert [one.key for one in plan.rewritten] == [f"r{number}/ab" for number in range(MERGED_ROWS)]
    assert [one.key for one in plan.carried] == [f"r{number}/xy" for number in range(MERGED_ROWS)]


def test_large_objects_of_one_queue_go_on_unless_a_small_one_has_more_of_it() -> None:
    cold = ColdMap()
    for number in range(MERGED_ROWS):
        is_quiet = number == 4
        busy = pack(f"r{number}", number, "q", 50 if is_quiet else LARGE)
        alone = pack(f"r{number}", number, "z", LARGE)
        cold.apply(f"r{number}", ColdStretch(0, number, number + 1, (pack(f"r{number}", number), busy, alone)))
    plan = find(MergePlanner(cold))
    assert plan is not None
    assert [one.key for one in plan.carried] == [f"r{number}/z" for number in range(MERGED_ROWS)]
    assert names(map_of(MERGED_ROWS, topics="q", size=LARGE)) == []


def test_rows_that_must_not_join_or_cannot_be_read_end_a_merge() -> None:
    cold = map_of(2 * MERGED_ROWS)
    border = MERGED_ROWS // 2
    plan = find(MergePlanner(cold, lambda rows: not rows[0].log_begin < border <= rows[-1].log_begin))
    assert plan is not None
    assert plan.first.log_begin == border
    plan = find(MergePlanner(cold), refused={"r2"})
    assert plan is not None
    assert plan.first.log_begin == 3


@given(count=st.integers(1, 300))
def test_rows_grow_with_the_logarithm_of_the_uploads_and_messages_are_written_anew_as_seldom(count: int) -> None:
    cold, written = ColdMap(), 0
    for number in range(count):
        cold.apply(f"r{number}", ColdStretch(0, number, number + 1, (pack(f"r{number}", number),)))
        while (plan := find(MergePlanner(cold))) is not None:
            name = f"m{number}-{plan.first.generation}"
            row = ColdStretch(
                0, plan.first.log_begin, plan.log_end, generation=plan.first.generation + 1, replaces=tuple(plan.rows)
            )
            first, end = plan.first.log_begin, plan.log_end
            parts = tuple(ColdPart(topic, 0, first, end, 0, 0) for topic in "ab")
            cold.apply(name, commit_stretch(row, (ColdObject(f"{name}/0", 100, 0, parts),)))
            for other, kept in cold.find_unreleased().items():
                cold.apply(other, release_objects(cold.rows[other], kept, 0))
            written += end - first
    assert len(cold.ranges("a", 0)) <= (MERGED_ROWS - 1) * (MAX_GENERATION + 1)
    assert written <= count * MAX_GENERATION
    offsets = [offset for one in cold.ranges("a", 0) for offset in range(one.first_queue_offset, one.next_queue_offset)]
    assert offsets == [*range(count)]
