"""What is copied next, and what was: rows of the broker's state alone decide."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from millstream.tiered.cold_map import ColdMap, ColdObject, ColdPart, ColdStretch
from millstream.tiered.columns import column_map
from millstream.tiered.columns.column_map import ColumnFile, ColumnMap, ColumnTopic, data_prefix, next_file, resume_file
from millstream.tiered.columns.column_work import CopiedFile

PREFIX = data_prefix("c", "t", "b")


def name_of(begin: int) -> str:
    return f"{begin:020}-0000000000-u{begin}"


def stretch(begin: int, end: int, *topics: str, offset: int = 0, size: int = 100) -> ColdStretch:
    objects = tuple(
        ColdObject(f"{name_of(begin)}/{topic}", size, 0, (ColdPart(topic, 0, offset, offset + end - begin, 1, 2),))
        for topic in topics
    )
    return ColdStretch(0, begin, end, objects)


def cold_of(*stretches: ColdStretch) -> ColdMap:
    cold = ColdMap()
    for one in stretches:
        cold.apply(name_of(one.log_begin), one)
    return cold


def held(log_begin: int, log_end: int, stored_ms: int = 2) -> ColumnFile:
    return ColumnFile("t", log_begin, log_end, CopiedFile(1, 1, 0, 0, 1, stored_ms, {0: log_end}))


@given(
    ends=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    own=st.lists(st.booleans(), min_size=12, max_size=12),
    size=st.integers(1, 60),
)
def test_files_follow_one_another_and_have_each_message_once(ends: list[int], own: list[bool], size: int) -> None:
    stretches, begin = [], 0
    for length, is_own in zip(ends, own, strict=False):
        stretches.append(stretch(begin, begin + length, "t" if is_own else "other", offset=begin, size=size))
        begin += length
    cold, copies, found = cold_of(*stretches), ColumnMap(), []
    before, column_map.MAX_FILE_BYTES = column_map.MAX_FILE_BYTES, 100
    try:
        while (following := next_file(cold, "t", PREFIX, copies.copied_until("t"))) is not None:
            copies.apply(following.key, following.row)
            assert resume_file(cold, *copies.find_begun("t")) == following
            found += [(part.first_queue_offset, part.next_queue_offset) for part in following.parts]
            copies.apply(following.key, held(following.row.log_begin, following.row.log_end))
    finally:
        column_map.MAX_FILE_BYTES = before
    assert found == [(one.log_begin, one.log_end) for one, is_own in zip(stretches, own, strict=False) if is_own]


def test_the_name_of_a_file_tells_its_range_and_the_upload_that_it_came_from() -> None:
    following = next_file(cold_of(stretch(0, 5, "t"), stretch(5, 9, "t", offset=5)), "t", PREFIX, 0)
    assert following is not None
    assert following.key == f"columns/c/t/data/b/{0:020}-{9:020}-u5.parquet"


def test_a_file_that_is_gone_is_still_known_as_copied() -> None:
    copies = ColumnMap()
    copies.apply("t", ColumnTopic("id INT", "json", copied_until=9))
    copies.apply("one", held(0, 9))
    copies.apply("one", None)
    assert copies.copied_until("t") == 9
    assert copies.rows() == {"t": ColumnTopic("id INT", "json", copied_until=9)}


def test_only_files_that_are_older_than_their_topic_keeps_messages_expire() -> None:
    copies = ColumnMap()
    copies.apply("old", held(0, 5, stored_ms=10))
    copies.apply("new", held(5, 9, stored_ms=20))
    copies.apply("begun", ColumnFile("t", 9, 12))
    assert [*copies.find_expired({"t": 15}, 100)] == ["old"]
    assert [*copies.find_expired({}, 100)] == ["old", "new"]
    assert [*copies.present("t")] == ["old", "new"]


@example(own=[True, True], steps=[("begin", 0, 2), ("end", 0, 2), ("merge", 0, 2)], size=60)
@example(own=[False, True], steps=[("begin", 0, 2), ("merge", 0, 2)], size=1)
@given(
    own=st.lists(st.booleans(), min_size=1, max_size=12),
    steps=st.lists(
        st.tuples(st.sampled_from(["begin", "end", "merge"]), st.integers(0, 11), st.integers(2, 4)), max_size=30
    ),
    size=st.integers(1, 60),
)
def test_files_have_each_message_once_while_rows_are_merged(
    own: list[bool], steps: list[tuple[str, int, int]], size: int
) -> None:
    stretches = [
        stretch(begin, begin + 1, "t" if is_own else "other", offset=begin, size=size)
        for begin, is_own in enumerate(own)
    ]
    cold, copies, found = cold_of(*stretches), ColumnMap(), []
    before, column_map.MAX_FILE_BYTES = column_map.MAX_FILE_BYTES, 100

    def copy(*, ends: bool) -> bool:
        begun = copies.find_begun("t")
        following = None if begun is not None else next_file(cold, "t", PREFIX, copies.copied_until("t"))
        if begun is not None and ends:
            resumed = resume_file(cold, *begun)
            found.extend(
                offset for part in resumed.parts for offset in range(part.first_queue_offset, part.next_queue_offset)
            )
            copies.apply(begun[0], held(begun[1].log_begin, begun[1].log_end))
        elif following is not None:
            copies.apply(following.key, following.row)
        return begun is not None or following is not None

    try:
        for number, (what, first, count) in enumerate(steps):
            rows = cold.stretches()[first : first + count]
            if what != "merge":
                copy(ends=what == "end")
            elif len(rows) > 1 and copies.may_join([row for _, row in rows]):
                merge(cold, rows, f"m{number}")
        while copy(ends=True):
            pass
    finally:
        column_map.MAX_FILE_BYTES = before
    assert found == [begin for begin, is_own in enumerate(own) if is_own]


def merge(cold: ColdMap, rows: list[tuple[str, ColdStretch]], name: str) -> None:
    """The rows become one. Each message has an object of its own, as if others lay between them."""
    objects = []
    for topic in ("t", "other"):
        parts = [part for _, row in rows for one in row.objects or () for part in one.parts if part.topic == topic]
        objects += [ColdObject(f"{name}/{topic}-{part.first_queue_offset}", 1, 0, (part,)) for part in parts]
    row = ColdStretch(
        0, rows[0][1].log_begin, rows[-1][1].log_end, tuple(objects), replaces=tuple(one for one, _ in rows)
    )
    cold.apply(f"{row.log_begin:020}-0000000000-{name}", row)
