"""A compacted queue keeps the last record of each key, its offset, and its tombstone for a while."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

import pytest
from compaction_samples import RETENTION_MS, LogQueue, content, opened, readable, record

from millstream.model.errors import StoreError
from millstream.store.compaction.generation import COMPACTED_BIT
from millstream.store.consume_queue import LOST_TAGS_CODE

NOW = 5_000


def test_the_last_record_of_each_key_stays_as_it_was_stored_and_keeps_its_offset(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b"5"))
    queue = opened(scratch, source)
    queue.compact(source, 5, NOW)
    source.first = 5
    assert readable(queue, source) == {number: record(number, *put) for number, put in _puts("a3 c4 b5", 2).items()}


def _puts(text: str, first: int) -> dict[int, tuple[str, bytes]]:
    return {number: (put[0], put[1:].encode()) for number, put in enumerate(text.split(), start=first)}


def test_only_the_first_word_of_keys_is_the_key(scratch: Path) -> None:
    source = LogQueue(("a x", b"1"), ("a y", b"2"), (" b a", b"3"))
    queue = opened(scratch, source)
    queue.compact(source, 3, NOW)
    assert content(queue, source) == {1: ("a", b"2"), 2: ("b", b"3")}


def test_a_pull_of_an_offset_that_is_gone_goes_on_at_the_next_one(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("b", b"3"), ("a", b"4"), ("c", b"5"))
    queue = opened(scratch, source)
    queue.compact(source, 4, NOW)
    for asked, expected in [(0, [2, 3, 4]), (2, [2, 3, 4]), (3, [3, 4]), (4, [4]), (5, [])]:
        assert list(content(queue, source, asked)) == expected
    assert [entry.queue_offset for entry in queue.entries(0, 2, source)] == [2, 3]
    assert (queue.min_offset(source), queue.end_offset) == (0, 4)


def test_what_lies_behind_the_generation_is_read_from_the_log(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("a", b"2"), ("a", b"3"))
    queue = opened(scratch, source)
    queue.compact(source, 2, NOW)
    compacted, ordinary = queue.entries(0, 10, source)
    assert compacted.log_offset & COMPACTED_BIT
    assert not ordinary.log_offset & COMPACTED_BIT
    assert content(queue, source) == {1: ("a", b"2"), 2: ("a", b"3")}


def test_the_tags_code_stays(scratch: Path) -> None:
    source = LogQueue()
    source.put("a", b"1", tag="paid")
    expected = source.entries(0, 1)[0].tags_code
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    queue.compact(source, 1, NOW)
    assert expected
    assert [entry.tags_code for entry in queue.entries(0, 10, source)] == [expected]


def test_a_tombstone_deletes_its_key_and_is_dropped_after_the_retention(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("a", b""))
    queue = opened(scratch, source)
    queue.compact(source, 3, NOW)
    assert content(queue, source) == {1: ("b", b"2"), 2: ("a", b"")}
    assert not queue.is_due(3, NOW + RETENTION_MS - 1)
    queue.compact(source, 3, NOW + RETENTION_MS - 1)
    assert content(queue, source) == {1: ("b", b"2"), 2: ("a", b"")}
    assert queue.is_due(3, NOW + RETENTION_MS)
    queue.compact(source, 3, NOW + RETENTION_MS)
    assert content(queue, source) == {1: ("b", b"2")}
    assert not queue.is_due(3, NOW + 10 * RETENTION_MS)


def test_a_tombstone_is_kept_from_its_first_compaction_on_however_old_it_is_then(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("a", b""))
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    queue.compact(source, 2, NOW + 10 * RETENTION_MS)
    assert content(queue, source) == {1: ("a", b"")}


def test_a_value_after_the_tombstone_brings_the_key_back(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("a", b""), ("a", b"2"))
    queue = opened(scratch, source)
    queue.compact(source, 2, NOW)
    queue.compact(source, 3, NOW + 10 * RETENTION_MS)
    assert content(queue, source) == {2: ("a", b"2")}
    assert queue.header is not None
    assert queue.header.forgotten_end == 0


def test_a_queue_of_which_nothing_is_left_keeps_its_offsets(scratch: Path) -> None:
    source = LogQueue(("a", b""))
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    queue.compact(source, 1, NOW + RETENTION_MS)
    source.first = 1
    for _ in range(2):
        assert content(queue, source) == {}
        assert (queue.min_offset(source), queue.end_offset) == (0, 1)
        queue = opened(scratch, source)


def test_more_keys_than_memory_takes_are_compacted_in_several_passes(scratch: Path) -> None:
    puts = [(f"key-{number * 7 % 40}", b"%d" % number) for number in range(100)]
    last = {key: number for number, (key, _) in enumerate(puts)}
    for max_keys in (1, 3, 39, 40, 1000):
        source = LogQueue(*puts)
        queue = opened(scratch / str(max_keys), source, max_keys=max_keys)
        queue.compact(source, 60, NOW)
        queue.compact(source, 100, NOW)
        assert content(queue, source) == {number: puts[number] for number in sorted(last.values())}, max_keys


def test_one_compaction_takes_a_bounded_number_of_records_and_the_next_goes_on_there(scratch: Path) -> None:
    source = LogQueue(*[("a", b"%d" % number) for number in range(25)])
    queue = opened(scratch, source, max_records=10)
    ends = []
    while queue.end_offset < 25:
        queue.compact(source, 25, NOW)
        ends.append(queue.end_offset)
    assert ends == [10, 20, 25]
    assert content(queue, source) == {24: ("a", b"24")}


def test_only_what_can_be_seen_is_compacted(scratch: Path) -> None:
    source = LogQueue(("a", b"1"))
    queue = opened(scratch, source)
    queue.compact(source, 100, NOW)
    assert queue.end_offset == 1


def test_what_arrives_after_a_compaction_began_belongs_to_the_next_one(scratch: Path) -> None:
    source = LogQueue(("a", b"1"))
    queue = opened(scratch, source)
    compaction = queue.begin_compaction(source, 10, NOW)
    source.put("a", b"2")
    assert compaction.step(100)
    assert queue.end_offset == 1
    assert content(queue, source) == {0: ("a", b"1"), 1: ("a", b"2")}


def test_the_data_is_only_that_of_the_records_that_stay(scratch: Path) -> None:
    source = LogQueue(*[(f"k{number % 7}", b"%d" % number * number) for number in range(40)])
    queue = opened(scratch, source)
    for end in (11, 17, 40):
        queue.compact(source, end, NOW)
        kept = [entry.size_bytes for entry in queue.entries(0, 7, source)]
        assert queue.header is not None
        assert queue.header.data_bytes == sum(kept) == (scratch / f"000000000{queue.header.number}/data").stat().st_size


def test_a_record_without_a_key_is_dropped_and_counted_in_the_log(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = LogQueue((None, b"1"), ("a", b"2"), (None, b""))
    queue = opened(scratch, source)
    queue.compact(source, 3, NOW)
    assert content(queue, source) == {1: ("a", b"2")}
    assert "2 have no key" in caplog.text


def test_a_record_that_was_damaged_in_the_log_is_named_at_its_offset_for_as_long_as_a_tombstone(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = LogQueue(("a", b"1"), ("a", b"2"), ("b", b"3"))
    source.damaged = {1}
    queue = opened(scratch, source)
    queue.compact(source, 3, NOW)
    assert "1 records are damaged" in caplog.text
    expected: dict[int, bytes | None] = {0: source.records[0], 1: None, 2: source.records[2]}
    assert readable(queue, source) == expected
    assert [entry.size_bytes for entry in queue.entries(1, 1, source)] == [0]
    assert [entry.tags_code for entry in queue.entries(1, 1, source)] == [LOST_TAGS_CODE]
    queue.compact(source, 3, NOW + RETENTION_MS - 1)
    assert readable(queue, source) == expected
    queue.compact(source, 3, NOW + RETENTION_MS)
    del expected[1]
    assert readable(queue, source) == expected


def test_offsets_that_the_log_lost_before_they_were_compacted_are_named(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = LogQueue(*[("a", b"%d" % number) for number in range(6)])
    queue = opened(scratch, source)
    queue.compact(source, 2, NOW)
    source.first = 4
    queue.compact(source, 3, NOW)
    assert queue.end_offset == 2
    queue.compact(source, 5, NOW)
    assert "from 2 up to 4" in caplog.text
    assert content(queue, source) == {4: ("a", b"4"), 5: ("a", b"5")}


def test_a_record_that_vanishes_while_it_is_compacted_ends_the_compaction_and_changes_nothing(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("c", b"3"))
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    compaction = queue.begin_compaction(source, 3, NOW)
    compaction.step(2)
    source.damaged = {2}
    with pytest.raises(StoreError):
        compaction.step(1000)
    assert compaction.is_over
    assert compaction.header is None
    assert [path.name for path in sorted(scratch.iterdir())] == ["0000000001", "current"]
    queue.compact(source, 3, NOW)
    assert list(readable(queue, source)) == [0, 1, 2]


def test_reads_are_the_same_at_every_step_of_a_compaction_until_it_switches(scratch: Path) -> None:
    source = LogQueue(*[(f"k{number % 5}", b"%d" % number) for number in range(20)])
    queue = opened(scratch, source)
    queue.compact(source, 8, NOW)
    before = content(queue, source)
    held = queue.entries(0, 100, source)
    compaction = queue.begin_compaction(source, 15, NOW)
    steps = 0
    while not compaction.step(1):
        assert content(queue, source) == before
        steps += 1
    assert steps > 25
    assert list(content(queue, source)) == list(range(10, 20))
    source.first = 15
    # What was found before the switch stays readable, although its files are gone.
    assert [path.name for path in sorted(scratch.iterdir())] == ["0000000002", "current"]
    for entry in held[:5]:
        assert bytes(entry.generation.read(entry)) == source.records[entry.queue_offset]  # type: ignore[attr-defined]


def test_a_thread_compacts_while_others_put_and_read(scratch: Path) -> None:
    source = LogQueue(*[(f"k{number % 50}", b"%d" % number) for number in range(600)])
    queue = opened(scratch, source)
    ends = []

    def compact() -> None:
        for end in range(100, 601, 20):
            queue.compact(source, end, NOW)
            ends.append(end)

    thread = threading.Thread(target=compact)
    thread.start()
    while thread.is_alive():
        number = source.put("new", b"%d" % len(source.records))
        found = content(queue, source)
        assert found[number] == ("new", b"%d" % number)
        assert {key for key, _ in found.values()} == {*(f"k{number}" for number in range(50)), "new"}
    thread.join()
    assert len(ends) == 26
    assert queue.end_offset == 600


def test_a_page_that_the_log_forgot_during_a_switch_is_read_from_the_new_generation(scratch: Path) -> None:
    source = LogQueue(*[(f"k{number}", b"%d" % number) for number in range(6)])
    queue = opened(scratch, source)
    queue.compact(source, 2, NOW)

    class SwitchingSource(LogQueue):
        def entries(self, queue_offset: int, max_count: int) -> list:  # type: ignore[type-arg]
            if source.first == 0:
                queue.compact(source, 4, NOW)
                source.first = 4
            return source.entries(queue_offset, max_count)

    assert [entry.queue_offset for entry in queue.entries(0, 100, SwitchingSource())] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("to_its_end", [True, False])
def test_a_compaction_that_is_over_does_not_keep_the_generation_before(scratch: Path, to_its_end: bool) -> None:
    source = LogQueue(("a", b"1"), ("a", b"2"))
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    before = weakref.ref(queue.generation())
    compaction = queue.begin_compaction(source, 2, NOW)
    if to_its_end:
        assert compaction.step(1000)
    else:
        compaction.step(1)
        compaction.abandon()
        queue.release()
    assert before() is None


def test_a_released_queue_opens_its_files_again(scratch: Path) -> None:
    source = LogQueue(("a", b"1"))
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    queue.release()
    assert content(queue, source) == {0: ("a", b"1")}


def test_a_second_compaction_at_the_same_time_is_refused(scratch: Path) -> None:
    source = LogQueue(("a", b"1"))
    queue = opened(scratch, source)
    compaction = queue.begin_compaction(source, 1, NOW)
    with pytest.raises(ValueError, match="already"):
        queue.begin_compaction(source, 1, NOW)
    compaction.abandon()
    assert compaction.is_over
    assert queue.compact(source, 1, NOW) is not None


def test_removing_a_queue_stops_its_compaction_and_leaves_no_file(scratch: Path) -> None:
    directory = scratch / "prices" / "0"
    source = LogQueue(*[(f"k{number}", b"%d" % number) for number in range(6)])
    queue = opened(directory, source)
    queue.compact(source, 2, NOW)
    held = queue.entries(0, 1, source)[0]
    compaction = queue.begin_compaction(source, 6, NOW)
    compaction.step(3)
    queue.remove()
    assert compaction.step(100)
    assert not directory.exists()
    assert bytes(held.generation.read(held)) == source.records[0]  # type: ignore[attr-defined]


def test_a_compaction_is_due_for_a_share_of_new_records(scratch: Path) -> None:
    source = LogQueue(*[(f"k{number}", b"") for number in range(4000)])
    queue = opened(scratch, source, max_records=10_000)
    assert [queue.is_due(end, 0) for end in (0, 999, 1000)] == [False, False, True]
    queue.compact(source, 4000, NOW)
    assert [queue.is_due(end, 0) for end in (4000, 5999, 6000)] == [False, False, True]
