"""Whatever a crash or the disk leaves of a compacted queue: it starts, and serves nothing wrong."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from compaction_samples import RETENTION_MS, CrashingFiles, LogQueue, content, opened, readable
from crash.disk_model import random_choice
from crash.file_twins import RecordingFiles
from crash.traced_files import TracedFiles, crash_state, lay_out
from store_samples import crashed_copy

from millstream.model.errors import StoreError
from millstream.store.compaction.compacted_queue import CompactedQueue
from millstream.store.compaction.row import ROW_BYTES

NOW = 5_000
LAST_ENTRIES = 2


def _filled(directory: Path) -> tuple[LogQueue, CompactedQueue]:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b""), ("d", b"5"), ("b", b"6"))
    queue = opened(directory, source)
    queue.compact(source, 6, NOW)
    return source, queue


def _assert_nothing_wrong(directory: Path, source: LogQueue, whole: dict[int, bytes | None]) -> dict[int, bytes | None]:
    """Start on the directory; each record is the right one or named as damaged, the offsets are kept."""
    queue = opened(directory, source)
    found = readable(queue, source)
    for number, record in found.items():
        assert number in whole
        assert record in (whole[number], None)
    return found


def _assert_it_goes_on(directory: Path, source: LogQueue) -> None:
    queue = opened(directory, source)
    end = max(queue.end_offset, source.end_offset())
    before = readable(queue, source)
    queue.compact(source, end, NOW)
    assert readable(queue, source) == before


@pytest.mark.parametrize("is_trimmed", [True, False])
@pytest.mark.parametrize("name", ["0000000001/data", "0000000001/index", "0000000001/header", "current"])
def test_a_file_torn_at_any_byte_of_the_last_entries_costs_no_more_than_those(
    scratch: Path, name: str, is_trimmed: bool
) -> None:
    source, queue = _filled(scratch / "queue")
    whole = readable(queue, source)
    if is_trimmed:
        source.first = 6
    size = (scratch / "queue" / name).stat().st_size
    last = {"data": sum(len(source.records[number]) for number in (4, 5)), "index": LAST_ENTRIES * ROW_BYTES}
    for cut in range(size - last.get(name[11:], size), size):
        directory = crashed_copy(scratch / "queue", scratch / "torn")
        (directory / name).write_bytes((directory / name).read_bytes()[:cut])
        found = _assert_nothing_wrong(directory, source, whole)
        missing = [number for number, record in found.items() if record is None]
        if not name.endswith("data"):
            assert found == whole, cut
            assert (directory / "current").read_bytes() == (scratch / "queue" / "current").read_bytes()
        else:
            assert list(found) == list(whole)
            assert missing == ([5] if cut >= size - len(source.records[5]) else [4, 5])
        _assert_it_goes_on(directory, source)


@pytest.mark.long
def test_any_flipped_bit_is_found_and_nothing_wrong_is_served(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("a", b"2"), ("b", b""))
    queue = opened(scratch / "queue", source)
    queue.compact(source, 3, NOW)
    whole = readable(queue, source)
    source.first = 3
    damaged = 0
    for name in ("0000000001/data", "0000000001/index", "0000000001/header", "current"):
        content_before = (scratch / "queue" / name).read_bytes()
        for bit in range(len(content_before) * 8):
            directory = crashed_copy(scratch / "queue", scratch / "flipped")
            flipped = bytearray(content_before)
            flipped[bit // 8] ^= 1 << bit % 8
            (directory / name).write_bytes(flipped)
            found = _assert_nothing_wrong(directory, source, whole)
            assert list(found) == list(whole)
            missing = [number for number, record in found.items() if record is None]
            assert len(missing) == (1 if name.endswith("data") else 0), (name, bit)
            damaged += len(missing)
    assert damaged == sum(len(record) for record in whole.values() if record is not None) * 8


def test_a_bit_that_flips_while_the_files_are_in_use_is_never_served(scratch: Path) -> None:
    source, queue = _filled(scratch)
    whole = readable(queue, source)
    source.first = 6
    for name in ("data", "index"):
        with (scratch / "0000000001" / name).open("r+b", buffering=0) as file:
            before = file.read()
            for bit in range(0, len(before) * 8, 3):
                file.seek(bit // 8)
                file.write(bytes([before[bit // 8] ^ 1 << bit % 8]))
                for entry in queue.entries(0, 100, source):
                    try:
                        record = bytes(entry.generation.read(entry))  # type: ignore[attr-defined]
                    except StoreError:
                        continue
                    assert record == whole[entry.queue_offset]
                file.seek(bit // 8)
                file.write(before[bit // 8 : bit // 8 + 1])


def test_a_missing_or_damaged_index_is_made_again_and_a_tombstone_is_kept_longer(scratch: Path) -> None:
    source, queue = _filled(scratch)
    whole = readable(queue, source)
    queue.compact(source, 6, NOW + RETENTION_MS - 1)
    source.first = 6
    (scratch / "0000000002" / "index").unlink()
    queue = opened(scratch, source)
    assert readable(queue, source) == whole
    queue.compact(source, 6, NOW + RETENTION_MS)
    assert readable(queue, source) == whole
    queue.compact(source, 6, NOW + 2 * RETENTION_MS)
    assert sorted(readable(queue, source)) == [2, 4, 5]


def test_with_index_and_data_damaged_the_whole_records_stay_and_the_number_is_named(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, queue = _filled(scratch)
    whole = readable(queue, source)
    source.first = 6
    data = bytearray((scratch / "0000000001" / "data").read_bytes())
    data[len(source.records[2]) + 20] ^= 1
    (scratch / "0000000001" / "data").write_bytes(data)
    (scratch / "0000000001" / "index").unlink()
    del whole[3]
    queue = opened(scratch, source)
    assert "3 of 4 records" in caplog.text
    for _ in range(2):
        assert readable(queue, source) == whole
        queue.release()
    assert readable(opened(scratch, source), source) == whole
    queue.compact(source, 6, NOW)
    assert readable(queue, source) == whole


def test_a_record_that_is_missing_from_the_data_is_named_for_as_long_as_a_tombstone(scratch: Path) -> None:
    source, queue = _filled(scratch)
    whole = readable(queue, source)
    source.first = 6
    data = scratch / "0000000001" / "data"
    data.write_bytes(data.read_bytes()[:-1])
    queue = opened(scratch, source)
    for now_ms in (NOW, NOW + 1, NOW + RETENTION_MS - 1):
        queue.compact(source, 6, now_ms)
        assert readable(queue, source) == whole | {5: None}
    queue.compact(source, 6, NOW + RETENTION_MS)
    assert sorted(readable(queue, source)) == [2, 4]


def test_a_whole_generation_is_kept_although_the_log_no_longer_reaches_its_end(scratch: Path) -> None:
    source = LogQueue(("a", b""), ("b", b"2"), ("c", b"3"))
    queue = opened(scratch, source)
    queue.compact(source, 1, NOW)
    queue.compact(source, 1, NOW + RETENTION_MS)
    source.first = 2
    queue = opened(scratch, source)
    assert (queue.min_offset(source), queue.end_offset) == (0, 1)
    assert content(queue, source) == {2: ("c", b"3")}


@pytest.mark.parametrize("lost", ["0000000001", "0000000001/data"])
def test_a_lost_generation_leaves_what_the_log_still_has_and_is_named(
    scratch: Path, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, _ = _filled(scratch)
    source.first = 4
    path = scratch / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    queue = opened(scratch, source)
    assert "lost its generation 1" in caplog.text
    assert content(queue, source) == {4: ("d", b"5"), 5: ("b", b"6")}
    assert queue.end_offset == 0
    queue.compact(source, 6, NOW)
    assert content(queue, source) == {4: ("d", b"5"), 5: ("b", b"6")}
    assert content(opened(scratch, source), source) == {4: ("d", b"5"), 5: ("b", b"6")}


def test_the_generation_before_is_taken_if_the_last_one_is_damaged_and_the_log_still_reaches_its_end(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for is_trimmed in (False, True):
        source = LogQueue(("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", b"4"))
        directory = scratch / str(is_trimmed)
        queue = opened(directory, source)
        queue.compact(source, 2, NOW)
        kept = shutil.copytree(directory / "0000000001", scratch / f"kept-{is_trimmed}")
        queue.compact(source, 4, NOW)
        shutil.copytree(kept, directory / "0000000001")
        data = directory / "0000000002" / "data"
        data.write_bytes(data.read_bytes()[:-1])
        source.first = 4 if is_trimmed else 2
        queue = opened(directory, source)
        if is_trimmed:
            assert readable(queue, source) == {2: source.records[2], 3: None}
        else:
            assert content(queue, source) == {0: ("a", b"1"), 1: ("b", b"2"), 2: ("a", b"3"), 3: ("b", b"4")}
            assert "lost its generation 2" in caplog.text
            assert (directory / "0000000002.damaged" / "data").exists()
            queue.compact(source, 4, NOW)
            assert [path.name for path in sorted(directory.iterdir())] == [
                "0000000002.damaged",
                "0000000003",
                "current",
            ]


@pytest.mark.parametrize("name", ["0000000001/header", "current"])
def test_files_of_a_newer_release_are_refused_and_left_as_they_are(scratch: Path, name: str) -> None:
    source, _ = _filled(scratch)
    newer = bytearray((scratch / name).read_bytes()[:-4])
    newer[8:12] = struct.pack(">I", 2)
    (scratch / name).write_bytes(newer + struct.pack(">I", crc32(newer)))
    (scratch / "0000000007").mkdir()
    before = {path: path.read_bytes() for path in scratch.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="has the format 2, not 1") as caught:
        opened(scratch, source)
    assert caught.value.name == "STORE_FORMAT"
    assert {path: path.read_bytes() for path in scratch.rglob("*") if path.is_file()} == before
    assert (scratch / "0000000007").exists()


def test_the_directory_of_another_queue_is_not_taken(scratch: Path) -> None:
    _filled(scratch)
    queue = CompactedQueue("prices", 1, scratch, CrashingFiles(1000))
    queue.recover(0)
    assert queue.header is None
    assert (scratch / "0000000001.damaged" / "data").exists()


def _crashes(directory: Path, source: LogQueue, end: int) -> Iterator[tuple[CompactedQueue, bool]]:
    """The queue as the next start finds it, for a crash at each operation of a compaction, and whether it was done."""
    for operations in range(1000):
        target = crashed_copy(directory, directory.with_name("crashed"))
        queue = opened(target, source)
        queue._files = CrashingFiles(operations)
        is_done = True
        try:
            queue.compact(source, end, NOW)
        except OSError:
            is_done = False
        yield opened(target, source), is_done and queue._files.left >= 0
        if queue._files.left >= 0:
            return


def test_a_crash_at_any_operation_of_a_compaction_leaves_the_old_or_the_new_generation(scratch: Path) -> None:
    source, _ = _filled(scratch / "queue")
    for number in range(12):
        source.put("ab"[number % 2], b"new %d" % number)
    before = content(opened(scratch / "queue", source), source)
    after = {number: put for number, put in before.items() if number in (3, 4, 16, 17)}
    ends = []
    for queue, is_done in _crashes(scratch / "queue", source, 18):
        found = content(queue, source)
        ends.append(queue.end_offset)
        assert found == (before if queue.end_offset == 6 else after)
        numbers = [path.name for path in queue.directory.iterdir() if path.is_dir()]
        assert len(numbers) == 1, "what the crash left unfinished is removed"
        assert queue.end_offset == 18 or not is_done
        queue.compact(source, 18, NOW)
        assert content(queue, source) == after
    assert len(ends) > 15
    assert ends == sorted(ends)
    assert set(ends) == {6, 18}


def test_a_power_failure_after_the_switch_loses_nothing_of_it(scratch: Path) -> None:
    for seed in range(20):
        directory = scratch / str(seed)
        source = LogQueue(*[(f"k{number % 5}", b"%d" % number * 50) for number in range(20)])
        files = TracedFiles(directory)
        queue = CompactedQueue("prices", 0, directory, files)
        queue.recover(0)
        queue.compact(source, 10, NOW)
        queue.compact(source, 20, NOW)
        source.first = 20
        choose = random.Random(seed)
        lay_out(crash_state(files, random_choice(choose, choose.random())), scratch / "after")
        assert list(content(opened(scratch / "after", source), source)) == [15, 16, 17, 18, 19]


def test_the_directory_entries_are_on_the_disk_before_the_switch(scratch: Path) -> None:
    files = RecordingFiles()
    source = LogQueue(("a", b"1"))
    queue = CompactedQueue("prices", 0, scratch / "queue", files)
    queue.recover(0)
    queue.compact(source, 1, NOW)
    generation, current = scratch / "queue" / "0000000001", scratch / "queue" / "current"
    operations = [(operation.name, operation.path) for operation in files.operations]
    switch = operations.index(("rename", current))
    assert ("sync directory", scratch / "queue") in operations[:switch]
    sealed = operations.index(("rename", generation / "header"))
    assert {("sync", generation / "data"), ("sync", generation / "index")} <= {*operations[:sealed]}
    assert ("sync directory", generation) in operations[sealed:switch]
    assert ("sync directory", scratch / "queue") in operations[switch:]


def test_a_full_disk_ends_a_compaction_and_the_next_one_succeeds(scratch: Path) -> None:
    source, _ = _filled(scratch)
    source.put("a", b"new")
    files = CrashingFiles(6)
    queue = opened(scratch, source)
    queue._files = files
    with pytest.raises(OSError, match="gone"):
        queue.compact(source, 7, NOW)
    assert content(queue, source)[6] == ("a", b"new")
    files.left = 1000
    queue.compact(source, 7, NOW)
    assert content(queue, source) == {3: ("c", b""), 4: ("d", b"5"), 5: ("b", b"6"), 6: ("a", b"new")}
    assert [path.name for path in sorted(scratch.iterdir())] == ["0000000003", "current"]


class WatchedFiles(CrashingFiles):
    """Knows which descriptors are open."""

    def __init__(self, left: int) -> None:
        super().__init__(left)
        self.descriptors: set[int] = set()

    def open(self, path: Path, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        self.descriptors.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self.descriptors.remove(descriptor)


def test_a_compaction_that_fails_at_any_operation_leaves_no_file_open(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("b", b"2"), ("a", b"3"))
    for left in range(100):
        files = WatchedFiles(left)
        try:
            opened(scratch / str(left), source, files=files).compact(source, 3, 1)
        except OSError:
            assert not files.descriptors, left
        else:
            assert not files.descriptors
            assert left > 5
            return
    raise AssertionError("no compaction succeeded")
