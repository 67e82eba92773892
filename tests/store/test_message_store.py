"""What the store promises its callers: offsets, visibility, times, deletion, its lock, and flushing."""

from __future__ import annotations

import errno
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles, HastyFiles, RecordingFiles
from store_samples import SMALL, bodies, crashed_copy, message, pending, queue_content

from millstream.model.clock import ManualClock
from millstream.model.errors import StartRefused, StoreError
from millstream.model.filter import java_hash_code
from millstream.store.durability import checkpoint_writer
from millstream.store.message_store import MessageStore
from millstream.store.snapshot import Snapshot
from millstream.store.write_batch import PendingRecord

SYNC = replace(SMALL, sync_flush=True)


def _open(directory: Path, **changed: object) -> MessageStore:
    return MessageStore.open(directory, SMALL, files=HastyFiles(), **changed)  # type: ignore[arg-type]


def test_queue_offsets_count_each_queue_by_itself(tmp_path: Path) -> None:
    store = _open(tmp_path)
    appended = store.put([pending(queue_id=0), pending(queue_id=1), pending(queue_id=0), pending(topic="other")])
    assert [record.queue_offset for record in appended] == [0, 0, 1, 0]
    assert [record.queue_offset for record in store.put([pending(queue_id=0), pending(queue_id=1)])] == [2, 1]
    assert (store.max_offset("orders", 0), store.max_offset("orders", 1), store.max_offset("other", 0)) == (3, 2, 1)


def test_log_offsets_follow_one_another_without_a_gap_inside_of_a_segment(tmp_path: Path) -> None:
    store = _open(tmp_path)
    first, second = store.put([pending(), pending()])
    assert (first.log_offset, second.log_offset) == (0, first.size_bytes)
    assert store.written_log_offset == first.size_bytes + second.size_bytes


def test_a_record_that_cannot_be_encoded_stores_none_of_its_put(tmp_path: Path) -> None:
    store = _open(tmp_path)
    too_many_properties = replace(message(), properties={"k": "v" * 40_000})
    with pytest.raises(ValueError, match="do not fit"):
        store.put([pending(b"innocent"), PendingRecord(too_many_properties, 0)])
    assert store.written_log_offset == 0
    assert [record.queue_offset for record in store.put([pending()])] == [0]


def test_an_entry_carries_the_tags_java_hash_code(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.put([pending(b"a", tag="paid"), pending(b"b"), pending(b"c", tag="näher")])
    expected = [(b"a", java_hash_code("paid")), (b"b", 0), (b"c", java_hash_code("näher"))]
    assert queue_content(store, "orders", 0) == expected


def test_the_store_timestamp_never_goes_backward_not_even_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(5000)
    store = _open(tmp_path, clock=clock)
    assert [record.store_timestamp_ms for record in store.put([pending(), pending()])] == [5000, 5000]
    copy = crashed_copy(tmp_path, tmp_path.with_name("copy"))
    for directory in (copy, tmp_path):
        if directory is tmp_path:
            store.close()
        reopened = _open(directory, clock=ManualClock(3000))
        assert reopened.put([pending()])[0].store_timestamp_ms == 5000
        reopened.close()


def test_offset_by_time_is_the_first_not_before_or_the_last_not_after(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    store = _open(tmp_path, clock=clock)
    for _ in range(3):  # offsets 0 1 | 2 3 | 4 5 at 1000, 1010, 1020
        store.put([pending(), pending()])
        clock.advance_ms(10)
    for timestamp_ms, lower, upper in (
        (999, 0, 0),
        (1000, 0, 1),
        (1001, 2, 1),
        (1010, 2, 3),
        (1020, 4, 5),
        (1021, 6, 5),
    ):
        assert store.offset_by_time("orders", 0, timestamp_ms) == lower
        assert store.offset_by_time("orders", 0, timestamp_ms, upper=True) == upper
    assert store.last_store_timestamp_ms("orders", 0) == 1020


def test_under_sync_flush_nothing_is_visible_before_it_is_on_the_disk(tmp_path: Path) -> None:
    files = RecordingFiles()
    store = MessageStore.open(tmp_path, SYNC, files=files)
    store.put([pending(b"one")])
    files.operations.clear()
    assert (store.max_offset("orders", 0), store.entries("orders", 0, 0, 10)) == (0, [])
    assert store.last_store_timestamp_ms("orders", 0) == 0
    assert (store.visible_log_offset, store.flushed_log_offset) == (0, 0)
    store.flush()
    assert files.of_log() == ["sync"]
    assert bodies(store) == [b"one"]
    assert store.visible_log_offset == store.written_log_offset
    store.close()


def test_under_async_flush_a_record_is_visible_at_once(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.put([pending(b"one")])
    assert bodies(store) == [b"one"]
    assert store.visible_log_offset == store.written_log_offset > store.flushed_log_offset


def test_a_failed_sync_is_final_and_shows_nothing_that_was_not_synced(tmp_path: Path) -> None:
    files = FailingFiles()
    store = MessageStore.open(tmp_path, SYNC, files=files)
    store.put([pending()])
    files.errors = {"sync": errno.EIO}
    with pytest.raises(StoreError, match="could not be flushed"):
        store.flush()
    files.errors = {}
    for refused in (store.flush, store.write_checkpoint, lambda: store.put([pending()])):
        with pytest.raises(StoreError) as caught:
            refused()
        assert caught.value.name == "STORE_FAILED"
    assert store.max_offset("orders", 0) == 0
    store.close()


def test_a_full_disk_puts_a_checkpoint_off_and_stops_nothing(tmp_path: Path) -> None:
    files = FailingFiles()
    store = MessageStore.open(tmp_path, SMALL, files=files)
    store.put([pending(b"one")])
    store.flush_log()
    files.errors = {"pwrite": errno.ENOSPC}
    with pytest.raises(StoreError) as caught:
        store.write_checkpoint()
    assert caught.value.name == "DISK_FULL"
    files.errors = {}
    store.put([pending(b"two")])
    store.close()
    reopened = _open(tmp_path)
    assert reopened.was_clean_stop
    assert bodies(reopened) == [b"one", b"two"]


def test_a_checkpoint_is_due_by_time_or_by_volume_and_only_after_something_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    store = _open(tmp_path, clock=clock)
    clock.advance_ms(60_000)
    assert not store.checkpoint_is_due
    store.put([pending()])
    store.flush()
    assert not store.checkpoint_is_due, "the flush has written it"
    store.put([pending()])
    store.flush()
    assert not store.checkpoint_is_due
    clock.advance_ms(10_000)
    assert store.checkpoint_is_due
    store.write_checkpoint()
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_LOG_BYTES", 100)
    store.put([pending()])
    store.flush_log()
    assert store.checkpoint_is_due


def test_a_deleted_topic_starts_again_at_0_and_never_gets_its_old_messages_back(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.put([pending(b"old"), pending(b"old", queue_id=3), pending(b"other", topic="other")])
    store.write_checkpoint()
    store.put([pending(b"old")])
    store.delete_topic("orders")
    assert (store.max_offset("orders", 0), store.entries("orders", 0, 0, 9)) == (0, [])
    assert not (tmp_path / "consumequeue" / "orders").exists()
    after_deletion = crashed_copy(tmp_path, tmp_path.with_name("after-deletion"))
    store.put([pending(b"new")])
    after_putting = crashed_copy(tmp_path, tmp_path.with_name("after-putting"))
    store.close()
    without_queues = crashed_copy(tmp_path, tmp_path.with_name("without-queues"))
    (without_queues / "checkpoint").unlink()
    (without_queues / "checkpoint.bak").unlink()
    for directory, expected in (
        (after_deletion, []),
        (after_putting, [b"new"]),
        (tmp_path, [b"new"]),
        (without_queues, [b"new"]),
    ):
        reopened = _open(directory)
        assert bodies(reopened) == expected, directory.name
        assert bodies(reopened, queue_id=3) == []
        assert bodies(reopened, "other") == [b"other"]
        assert reopened.put([pending(b"next")])[0].queue_offset == len(expected)
        reopened.close()


def test_a_deletion_that_a_power_loss_overtakes_hides_no_later_record(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.put([pending(b"old")])
    store.write_checkpoint()
    kept = store.written_log_offset
    store.put([pending(b"unflushed")])
    store.delete_topic("orders")
    copy = crashed_copy(tmp_path, tmp_path.with_name("copy"))
    store.close()
    with (copy / "commitlog" / f"{0:020}").open("r+b") as log:
        log.truncate(kept)
    after_loss = _open(copy)
    assert bodies(after_loss) == []
    after_loss.put([pending(b"new")])
    again = _open(crashed_copy(copy, tmp_path.with_name("again")))
    assert bodies(again) == [b"new"]


def test_closing_twice_is_no_error_and_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.put([pending()])
    view = store.read(store.entries("orders", 0, 0, 1)[0])
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.put([pending()])
    assert int.from_bytes(view[:4], "big") == len(view), "a view handed out stays readable"


def test_the_abort_marker_tells_a_crash_from_a_clean_stop(tmp_path: Path) -> None:
    store = _open(tmp_path)
    assert store.was_clean_stop
    crashed = _open(crashed_copy(tmp_path, tmp_path.with_name("copy")))
    assert not crashed.was_clean_stop
    store.close()
    assert not (tmp_path / "abort").exists()
    assert _open(tmp_path).was_clean_stop


HOLDER = """
import sys, pathlib
from millstream.store.message_store import MessageStore
store = MessageStore.open(pathlib.Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_a_directory_in_use_is_refused_by_name_and_pid_and_free_after_kill_9(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StartRefused) as caught:
            _open(tmp_path)
        assert caught.value.name == "DATA_DIRECTORY_IN_USE"
        assert str(tmp_path) in caught.value.message
        assert str(holder.pid) in caught.value.message
        holder.kill()
    store = _open(tmp_path)
    with pytest.raises(StartRefused):
        _open(tmp_path)
    store.close()


def test_a_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StartRefused) as caught:
        _open(tmp_path / "file" / "store")
    assert caught.value.name == "DATA_DIRECTORY_NOT_WRITABLE"
    assert str(tmp_path / "file") in caught.value.message


def test_a_checkpoint_of_a_later_format_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    store = _open(tmp_path)
    store.put([pending()])
    store.close()
    content = (tmp_path / "checkpoint").read_bytes().partition(b"\n")[2]
    Snapshot(tmp_path / "checkpoint", HastyFiles()).save(content.replace(b'"format_version":1', b'"format_version":2'))
    log = (tmp_path / "commitlog" / f"{0:020}").read_bytes()
    with pytest.raises(StoreError) as caught:
        _open(tmp_path)
    assert caught.value.name == "STORE_FORMAT"
    assert (tmp_path / "commitlog" / f"{0:020}").read_bytes() == log
