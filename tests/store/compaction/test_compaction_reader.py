"""Who reads a compacted queue from its start on has every key's last value, whatever compaction does meanwhile."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from compaction_samples import RETENTION_MS, LogQueue, Table, opened

NOW = 5_000


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
        table = Table()
        for reads, end in ((first, 12), (second, 14), (third, 20)):
            for _ in range(reads):
                table.read(queue, source, pieces)
            for key, body in puts[len(source.records) : end]:
                source.put(key, body)
            queue.compact(source, end, NOW)
            source.first = end
        for key, body in puts[20:]:
            source.put(key, body)
        table.read_all(queue, source, pieces)
        assert table.state == expected, (first, second, third)


def test_a_queue_of_which_nothing_is_left_is_no_end(scratch: Path) -> None:
    source = LogQueue(("a", b""))
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    queue.compact(source, 1, NOW + RETENTION_MS)
    source.put("b", b"2")
    table = Table()
    table.read_all(queue, source, 10)
    assert (table.state, table.next_offset) == ({b"b": b"2"}, 2)


@pytest.mark.parametrize(("away_ms", "is_forgotten"), [(RETENTION_MS - 1, False), (RETENTION_MS, True)])
def test_the_header_tells_a_reader_that_was_away_for_longer_than_tombstones_are_kept(
    scratch: Path, away_ms: int, is_forgotten: bool
) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"))
    queue = opened(scratch, source)
    queue.compact(source, 2, NOW)
    table = Table()
    table.read_all(queue, source, 10)
    assert table.state == {b"a": b"1", b"b": b"2"}
    source.put("a", b"")
    source.put("c", b"3")
    queue.compact(source, 4, NOW)
    queue.compact(source, 4, NOW + away_ms)
    source.first = 4
    assert queue.header is not None
    assert (table.next_offset < queue.header.forgotten_end) == is_forgotten
    table.read_all(queue, source, 10)
    assert table.state == {b"b": b"2", b"c": b"3"}
    assert table.restarts == is_forgotten
