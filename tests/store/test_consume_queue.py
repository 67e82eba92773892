"""Entries by queue offset: in memory, in files, and across their borders."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles
from hypothesis import given
from hypothesis import strategies as st
from store_samples import SMALL, bodies, pending

from millstream.model.errors import NameRefused, StoreError
from millstream.model.filter import java_hash_code
from millstream.store.consume_queue import IndexEntry
from millstream.store.message_store import MessageStore
from millstream.store.queue_table import QueueTable


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return MessageStore.open(tmp_path, SMALL, files=HastyFiles())


def test_an_entry_is_20_bytes_of_log_offset_size_and_tags_code(store: MessageStore, tmp_path: Path) -> None:
    plain, tagged = store.put([pending(), pending(tag="paid")])
    store.close()
    expected = struct.pack(">qiq", plain.log_offset, plain.size_bytes, 0)
    expected += struct.pack(">qiq", tagged.log_offset, tagged.size_bytes, java_hash_code("paid"))
    assert (tmp_path / "consumequeue" / "orders" / "0" / "00000000000000000000").read_bytes() == expected


def test_files_hold_a_fixed_number_of_entries_and_are_named_by_their_first_byte(
    store: MessageStore, tmp_path: Path
) -> None:
    store.put([pending() for _ in range(12)])
    store.close()
    found = sorted((tmp_path / "consumequeue" / "orders" / "0").iterdir())
    assert [(path.name, path.stat().st_size) for path in found] == [
        ("00000000000000000000", 100),
        ("00000000000000000100", 100),
        ("00000000000000000200", 40),
    ]


@given(written=st.integers(0, 17), start=st.integers(-3, 20), count=st.integers(0, 20))
def test_any_range_reads_the_same_wherever_files_and_memory_meet(
    tmp_path_factory: pytest.TempPathFactory, written: int, start: int, count: int
) -> None:
    table = QueueTable(tmp_path_factory.mktemp("queues"), 5, HastyFiles())
    queue = table.obtain("orders", 0)
    for number in range(17):
        queue.add(IndexEntry(number, 1000 + number, 100, number), 0)
    packed = bytes(queue.entry_files.tail[: written * 20])
    queue.entry_files.write(0, packed)
    queue.entry_files.forget_written(len(packed))
    queue.visible_offset = 15
    expected = [number for number in range(15) if max(start, 0) <= number < max(start, 0) + count]
    assert [tuple(entry)[:4] for entry in queue.entries(start, count)] == [(n, 1000 + n, 100, n) for n in expected]
    table.close()


def test_offsets_of_a_queue_that_does_not_exist_are_0(store: MessageStore) -> None:
    assert (store.min_offset("none", 0), store.max_offset("none", 0)) == (0, 0)
    assert store.entries("none", 0, 0, 10) == []
    assert store.last_store_timestamp_ms("none", 0) == 0
    assert store.offset_by_time("none", 0, 1) == 0


def test_a_file_that_vanishes_while_in_use_is_named(store: MessageStore, tmp_path: Path) -> None:
    store.put([pending()])
    store.write_checkpoint()
    path = tmp_path / "consumequeue" / "orders" / "0" / "00000000000000000000"
    path.unlink()
    with pytest.raises(StoreError, match=str(path)):
        bodies(store)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "x" * 256])
def test_a_topic_that_could_leave_the_directory_is_refused_without_a_trace(store: MessageStore, topic: str) -> None:
    with pytest.raises(NameRefused) as caught:
        store.put([pending(), pending(topic=topic)])
    assert caught.value.name == "ILLEGAL_TOPIC"
    assert store.written_log_offset == 0


def test_a_negative_queue_number_is_refused(store: MessageStore) -> None:
    with pytest.raises(NameRefused):
        store.put([pending(queue_id=-1)])


class CountedSyncs(HastyFiles):
    """Counts the directories that are synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[Path] = []

    def sync_directory(self, path: Path) -> None:
        self.synced.append(path)


def test_directories_of_very_many_queues_are_removed_with_one_sync(tmp_path: Path) -> None:
    names = [f"%LMQ%{number}" for number in range(20)]
    for removal in ("unlisted", "of topics"):
        for name in (*names, "kept"):
            for number in (0, 1):
                (tmp_path / name / str(number)).mkdir(parents=True, exist_ok=True)
        files = CountedSyncs()
        table = QueueTable(tmp_path, 5, files)
        table.obtain("kept", 0)
        if removal == "unlisted":
            table.remove_unlisted_files()
            assert sorted(files.synced) == [tmp_path, tmp_path / "kept"]
            assert [path.name for path in (tmp_path / "kept").iterdir()] == ["0"]
        else:
            table.remove_files(names)
            assert files.synced == [tmp_path]
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]
