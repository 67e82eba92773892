"""Queues whose records hold several messages each: found by any of their offsets, recovered, trimmed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import SMALL, crashed_copy, message

from example_counts import scaled
from millstream.protocol.record import decode_record
from millstream.store.batch_queue import BatchQueue
from millstream.store.consume_queue import LOST_TAGS_CODE, IndexEntry
from millstream.store.entry_files import EntryFiles
from millstream.store.files import OpenFiles
from millstream.store.message_store import MessageStore, PendingRecord

FILES = HastyFiles()
COUNTS = st.lists(st.integers(1, 7), min_size=1, max_size=12)


def open_store(directory: Path) -> MessageStore:
    return MessageStore.open(directory, SMALL, files=HastyFiles())


def batch(count: int, body: bytes = b"batch") -> PendingRecord:
    return PendingRecord(message(body), 0, count)


def by_offset(store: MessageStore) -> dict[int, bytes]:
    """For each message offset of the queue the body of the record that holds it."""
    found = {}
    for offset in range(store.min_offset("orders", 0), store.max_offset("orders", 0)):
        [entry] = store.entries("orders", 0, offset, 1)
        assert entry.queue_offset <= offset < entry.queue_offset + entry.message_count
        if entry.size_bytes:
            found[offset] = decode_record(store.read(entry)).body
    return found


def expected(counts: list[int]) -> dict[int, bytes]:
    numbers = [number for number, count in enumerate(counts) for _ in range(count)]
    return {offset: b"batch %d" % number for offset, number in enumerate(numbers)}


def test_an_entry_is_46_bytes_with_base_offset_and_count(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first, second = store.put([batch(3), batch(5)])
    store.close()
    assert (first.queue_offset, second.queue_offset) == (0, 3)
    packed = (tmp_path / "consumequeue" / "orders" / "0" / "00000000000000000000").read_bytes()
    layout = struct.Struct(">qiqqqhii")
    assert [layout.unpack_from(packed, at)[4:6] for at in (0, 46)] == [(0, 3), (3, 5)]
    assert layout.unpack_from(packed, 46)[:4] == (second.log_offset, second.size_bytes, 0, second.store_timestamp_ms)


@settings(max_examples=scaled(60), deadline=None)
@given(counts=COUNTS, checkpoint_after=st.integers(0, 12), how=st.sampled_from(["stop", "crash", "no queue files"]))
def test_every_offset_leads_to_its_batch_whatever_happened_before(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], checkpoint_after: int, how: str
) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = open_store(directory)
    for number, count in enumerate(counts):
        if number == checkpoint_after:
            store.write_checkpoint()
        store.put([batch(count, b"batch %d" % number)])
    assert by_offset(store) == expected(counts)
    if how == "stop":
        store.close()
    else:
        directory = crashed_copy(directory, directory.with_name(directory.name + "-crashed"))
        store.close()
    if how == "no queue files":
        for path in (directory / "consumequeue").rglob("0000*"):
            path.unlink()
    again = open_store(directory)
    assert by_offset(again) == expected(counts)
    assert again.put([batch(2)])[0].queue_offset == sum(counts)
    again.close()


def test_files_made_again_from_the_log_are_what_they_were(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for count in (3, 1, 5, 2, 7, 1):
        store.put([batch(count)])
    store.close()
    paths = sorted((tmp_path / "consumequeue" / "orders" / "0").iterdir())
    before = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    open_store(tmp_path).close()
    assert [path.read_bytes() for path in paths] == before


def test_a_file_torn_at_any_byte_of_its_last_two_entries_costs_nothing(tmp_path: Path) -> None:
    counts = [3, 1, 5, 2]
    store = open_store(tmp_path / "store")
    for number, count in enumerate(counts):
        store.put([batch(count, b"batch %d" % number)])
    store.write_checkpoint()
    crashed = crashed_copy(tmp_path / "store", tmp_path / "crashed")
    store.close()
    name = Path("consumequeue/orders/0/00000000000000000000")
    whole = (crashed / name).read_bytes()
    for cut in range(len(whole) - 2 * BatchQueue.entry_bytes, len(whole)):
        for behind in (b"", bytes(len(whole) - cut)):
            directory = crashed_copy(crashed, tmp_path / "torn")
            (directory / name).write_bytes(whole[:cut] + behind)
            again = open_store(directory)
            assert by_offset(again) == expected(counts), (cut, behind)
            again.close()
            assert (directory / name).read_bytes() == whole


def test_a_queue_is_of_the_kind_of_its_first_record(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put([batch(2)])
    store.put([PendingRecord(message(), 1)])
    with pytest.raises(ValueError, match="holds batches"):
        store.put([PendingRecord(message(), 0)])
    with pytest.raises(ValueError, match="holds single messages"):
        store.put([PendingRecord(message(), 1, 4)])
    with pytest.raises(ValueError, match="a record of 0"):
        store.put([batch(0)])
    assert (store.max_offset("orders", 0), store.max_offset("orders", 1)) == (2, 1)
    store.close()


def make_queue(tmp_path: Path, opened: OpenFiles) -> BatchQueue:
    return BatchQueue("orders", 0, EntryFiles(str(tmp_path), BatchQueue.entry_bytes, 5, FILES, opened))


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenFiles]:
    """The open files of all queues, at most four at a time."""
    files = OpenFiles(FILES, 4)
    yield files
    files.close()


def test_lost_batches_are_one_entry_for_all_their_messages(tmp_path: Path, opened: OpenFiles) -> None:
    queue = make_queue(tmp_path, opened)
    queue.add(IndexEntry(0, 100, 50, 0, 3), 1)
    queue.add(IndexEntry(70_000, 900, 50, 0, 2), 2)
    queue.visible_offset = queue.next_offset
    lost = [entry for entry in queue.entries(3, 100) if not entry.size_bytes]
    assert [(entry.queue_offset, entry.message_count) for entry in lost] == [(3, 32767), (32770, 32767), (65537, 4463)]
    assert {(entry.log_offset, entry.tags_code) for entry in lost} == {(900, LOST_TAGS_CODE)}
    assert queue.entry(70_001) == IndexEntry(70_000, 900, 50, 0, 2)


@given(counts=COUNTS, trim_at=st.integers(0, 90), written=st.integers(0, 12))
def test_a_trim_leaves_the_batch_that_holds_the_offset(
    tmp_path_factory: pytest.TempPathFactory, opened: OpenFiles, counts: list[int], trim_at: int, written: int
) -> None:
    queue = make_queue(tmp_path_factory.mktemp("queue"), opened)
    bases = []
    for number, count in enumerate(counts):
        bases.append(queue.next_offset)
        queue.add(IndexEntry(queue.next_offset, 1000 * number, 10, 0, count), number)
    queue.visible_offset = total = queue.next_offset
    packed = bytes(queue.entry_files.tail[: written * 46])
    queue.entry_files.write(0, packed)
    queue.entry_files.forget_written(len(packed))
    queue.trim(trim_at)
    queue.remove_trimmed_files()
    wanted = max((base for base in bases if base <= trim_at), default=0) if trim_at < total else total
    assert queue.min_offset == wanted
    assert [entry.queue_offset for entry in queue.entries(0, 1000)] == [base for base in bases if base >= wanted]
    for number, base in enumerate(bases):
        if base >= wanted:
            assert queue.first_offset_in_log(1000 * number) == base
    assert queue.first_offset_in_log(1_000_000) == total
