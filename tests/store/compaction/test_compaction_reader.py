"""A snapshot and its tail give every key's last value, whatever compaction does meanwhile."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from compaction_samples import RETENTION_MS, LogQueue, opened

from millstream.store.compaction.snapshot_reader import SnapshotReader
from millstream.store.consume_queue import IndexEntry

NOW = 5_000


def _apply(reader: SnapshotReader, state: dict[bytes, bytes], max_records: int) -> bool:
    """One piece into the state; whether there was any."""
    piece = reader.read(max_records)
    if piece.starts_over:
        state.clear()
    for change in piece.changes:
        if change.value is None:
            state.pop(change.key, None)
        else:
            state[change.key] = bytes(change.value)
    return bool(piece.changes) or piece.starts_over


def test_a_snapshot_is_the_last_value_of_each_key_up_to_where_it_was_opened_then_comes_the_tail(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b""))
    queue = opened(scratch, source)
    queue.compact(source, 3, NOW)
    reader = SnapshotReader(queue, source)
    source.put("a", b"5")
    assert reader.read_snapshot() == {b"a": b"3", b"c": b"4"}
    assert (reader.snapshot_end, reader.next_offset) == (5, 5)
    assert reader.read(10).changes == [(b"a", b"5", 5)]
    assert reader.read(10).changes == []
    source.put("c", b"")
    assert reader.read(10).changes == [(b"c", None, 6)]


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_compactions_and_trims_at_any_moment_of_a_reading_change_nothing_of_its_end(scratch: Path, pieces: int) -> None:
    puts = [(f"k{number * 5 % 7}", b"" if number % 4 == 3 else b"%d" % number) for number in range(24)]
    expected = {key.encode(): body for key, body in puts}
    expected = {key: body for key, body in expected.items() if body}
    for run, (first, second, third) in enumerate(itertools.product((0, 1, 3, 9), repeat=3)):
        source = LogQueue(*puts[:14])
        queue = opened(scratch / str(run), source)
        queue.compact(source, 9, NOW)
        source.first = 9
        reader = SnapshotReader(queue, source)
        state: dict[bytes, bytes] = {}
        for reads, end in ((first, 12), (second, 14), (third, 20)):
            for _ in range(reads):
                _apply(reader, state, pieces)
            for key, body in puts[len(source.records) : end]:
                source.put(key, body)
            queue.compact(source, end, NOW)
            source.first = end
        for key, body in puts[20:]:
            source.put(key, body)
        while _apply(reader, state, pieces):
            pass
        assert state == expected, (first, second, third)
        assert reader.lost_records == 0


def test_a_snapshot_that_a_compaction_overtakes_ends_at_that_ones_end(scratch: Path) -> None:
    source = LogQueue(*[(f"k{number % 3}", b"%d" % number) for number in range(4)])
    queue = opened(scratch, source)
    reader = SnapshotReader(queue, source)
    state: dict[bytes, bytes] = {}
    _apply(reader, state, 1)
    for number in range(4, 12):
        source.put(f"k{number % 3}", b"%d" % number)
    queue.compact(source, 10, NOW)
    source.first = 10
    while not reader.is_snapshot_read:
        _apply(reader, state, 1)
    assert (reader.snapshot_end, reader.next_offset) == (10, 10)
    assert state == {b"k0": b"9", b"k1": b"7", b"k2": b"8"}


def test_a_generation_that_is_being_read_is_read_to_its_end(scratch: Path) -> None:
    source = LogQueue(*[(f"k{number}", b"" if number == 3 else b"%d" % number) for number in range(6)])
    queue = opened(scratch, source)
    queue.compact(source, 6, NOW)
    reader = SnapshotReader(queue, source)
    reader.read(2)
    queue.compact(source, 6, NOW + RETENTION_MS)
    piece = reader.read(10)
    assert not piece.starts_over
    assert [change.key for change in piece.changes] == [b"k2", b"k3", b"k4", b"k5"]


def test_what_the_log_forgets_just_before_it_is_read_is_read_from_the_new_generation(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("c", b"3"))
    queue = opened(scratch, source)
    reader = SnapshotReader(queue, source)
    reader.read(1)
    entries = source.entries

    def forgetful_entries(queue_offset: int, max_count: int) -> list[IndexEntry]:
        if not source.first:
            source.first = 3
            queue.compact(whole, 3, NOW)
        return entries(queue_offset, max_count)

    whole = LogQueue(("a", b"1"), ("b", b"2"), ("c", b"3"))
    source.entries = forgetful_entries  # type: ignore[method-assign]
    assert [change.key for change in reader.read(10).changes] == [b"b", b"c"]
    assert reader.lost_records == 0


def test_a_record_that_the_log_forgets_while_it_is_read_is_read_from_the_new_generation(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("c", b"3"))
    whole = LogQueue(("a", b"1"), ("b", b"2"), ("c", b"3"))
    queue = opened(scratch, source)
    reader = SnapshotReader(queue, source)
    read = source.read

    def forgetful_read(entry: IndexEntry) -> memoryview:
        if entry.queue_offset == 1:
            source.first = 3
            queue.compact(whole, 3, NOW)
        return read(entry)

    source.read = forgetful_read  # type: ignore[method-assign]
    assert reader.read_snapshot() == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert reader.lost_records == 0


def test_a_generation_without_records_is_no_end(scratch: Path) -> None:
    source = LogQueue(("a", b""))
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    queue.compact(source, 1, NOW + RETENTION_MS)
    source.put("b", b"2")
    assert SnapshotReader(queue, source).read(10).changes == [(b"b", b"2", 1)]


def test_a_reader_that_was_away_for_longer_than_tombstones_are_kept_starts_over(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"))
    queue = opened(scratch, source)
    queue.compact(source, 2, NOW)
    reader = SnapshotReader(queue, source)
    state = reader.read_snapshot()
    source.put("a", b"")
    source.put("c", b"3")
    queue.compact(source, 4, NOW)
    queue.compact(source, 4, NOW + RETENTION_MS)
    source.first = 4
    piece = reader.read(10)
    assert piece.starts_over
    assert state == {b"a": b"1", b"b": b"2"}
    assert [change.key for change in piece.changes] == [b"b", b"c"]
    assert not reader.read(10).starts_over


@pytest.mark.parametrize(("away_ms", "starts_over"), [(RETENTION_MS - 1, False), (RETENTION_MS, True)])
def test_who_kept_the_state_resumes_where_the_reading_ended(scratch: Path, away_ms: int, starts_over: bool) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"))
    queue = opened(scratch, source)
    state = SnapshotReader(queue, source).read_snapshot()
    source.put("a", b"")
    queue.compact(source, 3, NOW)
    queue.compact(source, 3, NOW + away_ms)
    reader = SnapshotReader(queue, source, resume_offset=2)
    piece = reader.read(10)
    assert piece.starts_over == starts_over
    assert state == {b"a": b"1", b"b": b"2"}
    assert [change[:2] for change in piece.changes] == ([(b"b", b"2")] if starts_over else [(b"a", None)])


def test_damaged_and_vanished_records_are_counted_and_do_not_end_the_reading(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = LogQueue(*[(f"k{number}", b"%d" % number) for number in range(8)])
    source.damaged = {1, 6}
    queue = opened(scratch, source)
    queue.compact(source, 3, NOW)
    source.first = 5
    reader = SnapshotReader(queue, source)
    assert list(reader.read_snapshot()) == [b"k0", b"k2", b"k5", b"k7"]
    assert reader.lost_records == 4
    assert "2 records are no longer in the log" in caplog.text


def test_a_log_that_lost_everything_ends_the_snapshot(scratch: Path) -> None:
    source = LogQueue(*[(f"k{number}", b"%d" % number) for number in range(4)])
    queue = opened(scratch, source)
    queue.compact(source, 2, NOW)
    source.first = 4
    reader = SnapshotReader(queue, source)
    assert list(reader.read_snapshot()) == [b"k0", b"k1"]
    assert (reader.next_offset, reader.lost_records) == (4, 2)
    source.put("k9", b"9")
    assert reader.read(1).changes == [(b"k9", b"9", 4)]
