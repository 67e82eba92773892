"""The log's files: names, end marks, rolling, reserved room."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles, HastyFiles, RecordingFiles
from store_samples import SMALL, bodies, crashed_copy, pending, segments

from millstream.model.errors import MessageRefused, StoreError
from millstream.protocol.record import MAGIC_BLANK
from millstream.store import commit_log
from millstream.store.commit_log import BLANK_BYTES, CommitLog, Run
from millstream.store.message_store import MessageStore


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    return CommitLog(tmp_path / "commitlog", 1024, HastyFiles())


def test_a_segment_is_named_by_its_start_in_20_digits_and_has_its_full_size(log: CommitLog, tmp_path: Path) -> None:
    log.write([Run(0, [b"x" * 1000]), Run(1024, [b"y"])])
    assert [path.name for path in segments(tmp_path)] == ["00000000000000000000", "00000000000000001024"]
    assert {path.stat().st_size for path in segments(tmp_path)} == {1024}


def test_what_does_not_fit_rolls_behind_an_end_mark_that_counts_the_rest(log: CommitLog, tmp_path: Path) -> None:
    log.write([Run(0, [b"x" * 500, b"x" * 500]), Run(1024, [b"y" * 10])])
    first = segments(tmp_path)[0].read_bytes()
    assert first[1000:1008] == struct.pack(">ii", 24, MAGIC_BLANK)
    assert first[1008:] == bytes(16)
    assert log.end == 1034
    assert log.slice(1024, 10) == b"y" * 10


def test_a_slice_never_leads_out_of_its_segment(log: CommitLog) -> None:
    assert log.slice(0, 10) is None
    log.write([Run(0, [b"x" * 1000])])
    assert log.slice(1020, 4) == bytes(4)
    assert log.slice(1020, 5) is None
    assert log.slice(-1, 1) is None


def test_one_put_is_one_write_and_a_put_that_rolls_is_one_for_each_segment(tmp_path: Path) -> None:
    files = RecordingFiles()
    store = MessageStore.open(tmp_path, SMALL, files=files)
    store.put([pending(), pending(), pending()])
    assert files.of_log("pwrite") == ["pwrite"]
    store.put([pending(b"x" * 300) for _ in range(20)])
    assert len(files.of_log("pwrite")) == 1 + len(segments(tmp_path))
    assert bodies(store) == [b"body"] * 3 + [b"x" * 300] * 20
    store.close()


def test_every_size_of_record_rolls_properly(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, SMALL, files=HastyFiles())
    sent = [b"%d " % size + b"x" * size for size in range(0, 1500, 37)]
    appended = [store.put([pending(body)])[0] for body in sent]
    assert bodies(store) == sent
    for record in appended:
        room = SMALL.segment_bytes - record.log_offset % SMALL.segment_bytes
        assert record.size_bytes + BLANK_BYTES <= room
    store.close()
    reopened = MessageStore.open(tmp_path, SMALL, files=HastyFiles())
    assert bodies(reopened) == sent
    reopened.close()


def test_a_record_that_fills_a_segment_fits_and_a_larger_one_is_refused_without_a_trace(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, SMALL, files=HastyFiles())
    overhead = store.put([pending(b"")])[0].size_bytes
    largest = SMALL.segment_bytes - BLANK_BYTES - overhead
    with pytest.raises(MessageRefused) as caught:
        store.put([pending(b"innocent"), pending(b"x" * (largest + 1))])
    assert caught.value.name == "BODY_TOO_LARGE"
    assert bodies(store) == [b""]
    store.put([pending(b"x" * largest)])
    assert bodies(store) == [b"", b"x" * largest]
    store.close()


def test_room_is_reserved_ahead_of_writing_and_not_for_the_whole_segment(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path)
    store.put([pending()])
    status = segments(tmp_path)[0].stat()
    assert status.st_size == 1024**3
    assert status.st_blocks * 512 < 2 * commit_log.ALLOCATION_BYTES
    store.close()


def test_a_full_disk_refuses_and_is_not_final(tmp_path: Path) -> None:
    files = FailingFiles()
    store = MessageStore.open(tmp_path, SMALL, files=files)
    files.errors = {"preallocate": errno.ENOSPC}
    with pytest.raises(StoreError) as caught:
        store.put([pending(b"lost")])
    assert caught.value.name == "DISK_FULL"
    assert (store.written_log_offset, store.max_offset("orders", 0)) == (0, 0)
    files.errors = {}
    store.put([pending(b"kept")])
    assert bodies(store) == [b"kept"]
    store.close()


class NoRoomWithin(HastyFiles):
    """Takes `taken_bytes` of the next write to the log and then has no room, as file systems may that copy on write."""

    taken_bytes: int | None = None
    truncate_error = 0

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        if self.taken_bytes is None or len(data) <= self.taken_bytes:
            return super().pwrite(descriptor, data, position)
        super().pwrite(descriptor, bytes(data[: self.taken_bytes]), position)
        self.taken_bytes = None
        raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, descriptor: int, length: int) -> None:
        if self.truncate_error and self.taken_bytes is None:
            raise OSError(self.truncate_error, "no")
        super().truncate(descriptor, length)


@pytest.mark.parametrize(("size", "taken"), [(100, 2), (700, 1)])
def test_a_disk_full_within_reserved_room_refuses_whole_and_is_not_final(scratch: Path, size: int, taken: int) -> None:
    """Three records of one size, of which the disk takes some, the larger ones in two segments: nothing of them may
    come back behind the next one, which ends where one of them began."""
    files = NoRoomWithin()
    store = MessageStore.open(scratch / "store", SMALL, files=files)
    place = store.put([pending(b"b" * size)])[0]
    files.taken_bytes = taken * place.size_bytes + BLANK_BYTES
    with pytest.raises(StoreError) as caught:
        store.put([pending(b"n" * size) for _ in range(3)])
    assert caught.value.name == "DISK_FULL"
    assert (store.written_log_offset, store.max_offset("orders", 0)) == (place.size_bytes, 1)
    refused = crashed_copy(scratch / "store", scratch / "refused")
    store.put([pending(b"a" * size)])
    assert bodies(store) == [b"b" * size, b"a" * size]
    followed = crashed_copy(scratch / "store", scratch / "followed")
    store.close()
    for directory, wanted in ((refused, [b"b" * size]), (followed, [b"b" * size, b"a" * size])):
        again = MessageStore.open(directory, SMALL, files=HastyFiles())
        assert bodies(again) == wanted
        again.close()


def test_a_full_disk_whose_partial_write_cannot_be_cleared_is_final(scratch: Path) -> None:
    files = NoRoomWithin()
    store = MessageStore.open(scratch / "store", SMALL, files=files)
    store.put([pending(b"before")])
    files.taken_bytes, files.truncate_error = 10, errno.EIO
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            store.put([pending(b"never")])
        assert caught.value.name == "STORE_FAILED"
    assert bodies(store) == [b"before"]


def test_a_failed_write_is_final_but_reading_goes_on(tmp_path: Path) -> None:
    files = FailingFiles()
    store = MessageStore.open(tmp_path, SMALL, files=files)
    store.put([pending(b"before")])
    files.errors = {"pwrite": errno.EIO}
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            store.put([pending(b"never")])
        assert caught.value.name == "STORE_FAILED"
        files.errors = {}
    assert bodies(store) == [b"before"]
    store.close()
    reopened = MessageStore.open(tmp_path, SMALL)
    assert not reopened.was_clean_stop
    assert bodies(reopened) == [b"before"]
    reopened.close()


def test_a_roll_syncs_both_segments_and_the_directory_that_names_the_new_one(tmp_path: Path) -> None:
    files = RecordingFiles()
    store = MessageStore.open(tmp_path, SMALL, files=files)
    store.put([pending(b"x" * 1000)])
    store.flush_log()
    files.operations.clear()
    store.put([pending(b"x" * 1000)])
    store.flush_log()
    log = tmp_path / "commitlog"
    synced = [operation.path for operation in files.operations if operation.name.startswith("sync")]
    assert synced == [*segments(tmp_path), log]
    store.close()
