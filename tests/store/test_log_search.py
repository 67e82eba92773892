"""Searching the log for records with certain bytes, stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import SMALL, pending

from millstream.protocol.record import decode_record
from millstream.store.message_store import MessageStore

MARK = b"marked"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Each third record has the mark; the log has several segments."""
    with closing(MessageStore.open(tmp_path / "store", SMALL)) as store:
        for number in range(40):
            store.put([pending(b"%d %s" % (number, MARK if number % 3 == 0 else b"-" * (number * 11 % 90)))])
        assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 2
        yield store


def search_all(store: MessageStore, max_bytes: int, start: int = 0) -> tuple[list[bytes], int]:
    """The bodies that were found, and in how many stretches."""
    found, position, stretches = [], start, 0
    while position < store.visible_log_offset:
        records, position = store.search(position, MARK, max_bytes)
        found += [decode_record(record).body for record in records]
        stretches += 1
    return found, stretches


MARKED = [b"%d %s" % (number, MARK) for number in range(0, 40, 3)]


@pytest.mark.parametrize("max_bytes", [1, 300, 1000, 1_000_000])
def test_stretches_of_any_size_find_all_marked_records_once(store: MessageStore, max_bytes: int) -> None:
    found, stretches = search_all(store, max_bytes)
    assert found == MARKED
    assert stretches >= 40 if max_bytes == 1 else stretches < 40


def test_the_log_may_begin_behind_the_start(store: MessageStore) -> None:
    assert search_all(store, 1000, start=-5)[0] == MARKED


@pytest.mark.parametrize("max_bytes", [1, 300, 1_000_000])
def test_damaged_records_are_passed_over(store: MessageStore, tmp_path: Path, max_bytes: int) -> None:
    entries = store.entries("orders", 0, 0, 40)
    segment = tmp_path / "store" / "commitlog" / f"{0:020}"
    with segment.open("r+b") as file:
        for number, damage in ((1, b"\x7f\xff\xff\xff"), (3, b"\0\0\0\1")):
            # The size of an unmarked record, and that of a marked one.
            file.seek(entries[number].log_offset)
            file.write(damage)
        file.seek(entries[6].log_offset + entries[6].size_bytes - 20)
        file.write(b"\xff")
    assert entries[6].log_offset < SMALL.segment_bytes
    assert search_all(store, max_bytes)[0] == [body for body in MARKED if body not in (MARKED[1], MARKED[2])]


def test_nothing_is_found_that_readers_do_not_see(tmp_path: Path) -> None:
    with closing(MessageStore.open(tmp_path / "replica", replace(SMALL, replicated=True))) as store:
        first, _ = store.put([pending(MARK + b" first"), pending(MARK + b" second")])
        store.confirm(first.size_bytes)
        records, end = store.search(0, MARK)
        assert [decode_record(record).body for record in records] == [MARK + b" first"]
        assert end == first.size_bytes
