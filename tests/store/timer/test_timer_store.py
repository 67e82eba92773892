"""What the files keep, when they go, and what stops a checkpoint."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles, RecordingFiles
from store_samples import crashed_copy
from timer_samples import NOW_MS, SMALL_FILE_BYTES, History, open_small

from millstream.store.timer import timer_log, timer_store
from millstream.store.timer.hour import HOUR_MS
from millstream.store.timer.timer_store import TimerStore

BOUNDS_S = (0, 60, 3600, 86_400)


@pytest.fixture
def directory(scratch: Path) -> Path:
    return scratch / "timers"


def _timer_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if "-" in path.name)


def test_a_new_directory_has_no_timers_and_nothing_to_rebuild(directory: Path) -> None:
    timers = open_small(directory, History())
    assert (len(timers), timers.needs_rebuild) == (0, False)
    assert (timers.covered_queue_offset, timers.covered_log_offset) == (0, 0)


def test_a_missing_checkpoint_over_a_timer_topic_asks_for_a_rebuild(directory: Path) -> None:
    history = History([(NOW_MS, 0)])
    timers = open_small(directory, history)
    assert timers.needs_rebuild
    history.replay(timers)
    history.checkpoint(timers)
    assert not timers.needs_rebuild
    assert not open_small(directory, history).needs_rebuild


def test_timers_survive_a_checkpoint_and_a_start_in_several_files(directory: Path) -> None:
    choose, history = random.Random(3), History()
    timers = open_small(directory, history)
    for _ in range(4):
        for _ in range(30):
            history.schedule(timers, NOW_MS + choose.randrange(3 * HOUR_MS))
        for queue_offset in choose.sample(sorted(history.pending), 15):
            history.done(timers, queue_offset)
        history.checkpoint(timers)
    assert len(_timer_files(directory)) > 12
    assert max(path.stat().st_size for path in _timer_files(directory)) == SMALL_FILE_BYTES
    again = open_small(directory, history)
    assert again.covered_queue_offset == again.next_queue_offset == history.queue_end
    assert again.covered_log_offset == len(history.log)
    history.assert_held_by(again)


def test_what_was_missed_while_down_is_due_at_once(directory: Path) -> None:
    history = History()
    timers = open_small(directory, history)
    for delay_ms in (3 * HOUR_MS, 5, 48 * HOUR_MS, 72 * HOUR_MS):
        history.schedule(timers, NOW_MS + delay_ms)
    history.checkpoint(timers)
    again = open_small(directory, history)
    assert again.due(NOW_MS + 50 * HOUR_MS, 10) == [1, 0, 2]


def test_files_go_when_all_of_their_timers_are_done(directory: Path) -> None:
    history = History()
    timers = open_small(directory, history)
    for hour in range(5):
        for _ in range(8):
            history.schedule(timers, NOW_MS + hour * HOUR_MS)
    history.checkpoint(timers)
    assert len(_timer_files(directory)) == 10
    for queue_offset in range(17):
        history.done(timers, queue_offset)
    history.checkpoint(timers)
    assert {path.name.split("-")[0] for path in _timer_files(directory)} == {
        f"{(NOW_MS // HOUR_MS + hour):010}" for hour in (2, 3, 4)
    }
    history.schedule(timers, NOW_MS)
    for queue_offset in range(17, 40):
        history.done(timers, queue_offset)
    history.checkpoint(timers)
    history.assert_held_by(open_small(directory, history))
    history.done(timers, 40)
    history.checkpoint(timers)
    assert _timer_files(directory) == []
    history.assert_held_by(open_small(directory, history))


def test_short_timers_that_are_done_before_a_checkpoint_write_no_file(directory: Path) -> None:
    history = History()
    timers = open_small(directory, history)
    for _ in range(20):
        history.done(timers, history.schedule(timers, NOW_MS))
    history.checkpoint(timers)
    assert _timer_files(directory) == []
    again = open_small(directory, history)
    assert not again.schedule(NOW_MS, 19)
    assert len(again) == 0


def test_an_hour_with_many_done_timers_is_copied_to_fewer_files(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_log, "MIN_COPIED_ENTRIES", 20)
    history = History()
    timers = open_small(directory, history)
    history.schedule(timers, NOW_MS)
    history.schedule(timers, NOW_MS + HOUR_MS)
    for _ in range(40):
        for _ in range(3):
            history.schedule(timers, NOW_MS)
        for queue_offset in range(history.queue_end - 6, history.queue_end - 3):
            if queue_offset in history.pending and queue_offset > 1:
                history.done(timers, queue_offset)
        history.checkpoint(timers)
        pending = len(history.pending)
        entries = sum((path.stat().st_size - 16) // 8 for path in _timer_files(directory))
        assert entries <= timer_log.MAX_DONE_SHARE * pending + 20
        history.assert_held_by(open_small(crashed_copy(directory, directory.parent / "copy"), history))
    assert timers.oldest_pending() == 0


def test_files_are_on_the_disk_before_the_checkpoint_names_them_and_the_log_before_both(directory: Path) -> None:
    files, history = RecordingFiles(), History()
    timers = open_small(directory, history, files)
    history.schedule(timers, NOW_MS)
    files.operations.clear()
    timers.checkpoint(1, lambda: files.operations.clear())
    (path,) = _timer_files(directory)
    partial = directory / "checkpoint.tmp"
    assert [operation[:2] for operation in files.operations] == [
        ("pwrite", path),
        ("sync", path),
        ("sync directory", directory),
        ("pwrite", partial),
        ("sync", partial),
        ("rename", directory / "checkpoint"),
        ("sync directory", directory),
    ]


@pytest.mark.parametrize("call", ["pwrite", "sync"])
def test_a_checkpoint_that_fails_loses_nothing_and_the_next_one_saves_it(directory: Path, call: str) -> None:
    files, history = FailingFiles(), History()
    timers = open_small(directory, history, files)
    for due_ms in (NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS):
        history.schedule(timers, due_ms)
    history.checkpoint(timers)
    history.done(timers, 0)
    history.schedule(timers, NOW_MS)
    history.schedule(timers, NOW_MS + 5 * HOUR_MS)
    for error in (errno.ENOSPC, errno.EIO):
        files.errors = {call: error}
        with pytest.raises(OSError, match=os.strerror(error)):
            history.checkpoint(timers)
        assert (timers.covered_queue_offset, timers.covered_log_offset) == (3, 3)
        crashed = open_small(crashed_copy(directory, directory.parent / "copy"), history)
        assert crashed.covered_queue_offset == 3
        history.replay(crashed)
        history.assert_held_by(crashed)
        history.schedule(timers, NOW_MS + 5 * HOUR_MS)
    files.errors = {}
    history.checkpoint(timers)
    history.assert_held_by(timers)
    history.assert_held_by(open_small(directory, history))


def test_a_log_that_cannot_be_flushed_stops_the_checkpoint(directory: Path) -> None:
    history = History()
    timers = open_small(directory, history)
    history.schedule(timers, NOW_MS)

    def fail() -> None:
        raise OSError(errno.EIO, "no disk")

    with pytest.raises(OSError, match="no disk"):
        timers.checkpoint(1, fail)
    assert _timer_files(directory) == []
    history.checkpoint(timers)
    history.assert_held_by(open_small(directory, history))


def test_what_happens_during_a_checkpoint_goes_into_the_next_one(directory: Path) -> None:
    history = History()
    timers = open_small(directory, history)
    for _ in range(4):
        history.schedule(timers, NOW_MS)

    def deliver_meanwhile() -> None:
        history.flush()
        for queue_offset in (1, 0, 2, 3):
            history.done(timers, queue_offset)
        history.schedule(timers, NOW_MS)

    timers.checkpoint(len(history.log), deliver_meanwhile)
    again = open_small(directory, history)
    assert (again.covered_queue_offset, again.covered_log_offset, len(again)) == (4, 4, 4)
    history.replay(again)
    history.assert_held_by(again)
    history.checkpoint(timers)
    history.assert_held_by(open_small(directory, history))


def test_checkpoints_in_a_thread_and_a_running_wheel_do_not_disturb_each_other(directory: Path) -> None:
    choose, history, stopped = random.Random(4), History(), threading.Event()
    timers = open_small(directory, history)
    delivered = threading.Lock()
    failures: list[BaseException] = []

    def checkpoints() -> None:
        try:
            while not stopped.is_set():
                with delivered:
                    covered = len(history.log)
                timers.checkpoint(covered, lambda: None)
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=checkpoints)
    thread.start()
    now_ms, done = NOW_MS, 0
    try:
        for queue_offset in range(3000):
            with delivered:
                history.schedule(timers, now_ms + choose.randrange(3000), queue_offset)
            now_ms += choose.randrange(4)
            for due in timers.due(now_ms, 5):
                with delivered:
                    history.done(timers, due)
                done += 1
    finally:
        stopped.set()
        thread.join()
    assert not failures
    assert done > 1000
    history.assert_held_by(timers)
    again = open_small(crashed_copy(directory, directory.parent / "copy"), history)
    history.replay(again)
    history.assert_held_by(again)


def test_a_replay_over_all_of_the_log_changes_nothing(directory: Path) -> None:
    choose, history = random.Random(5), History()
    timers = open_small(directory, history)
    for _ in range(50):
        history.schedule(timers, NOW_MS + choose.randrange(HOUR_MS))
    for queue_offset in choose.sample(range(50), 20):
        history.done(timers, queue_offset)
    history.checkpoint(timers)
    again = open_small(directory, history)
    for entry in history.log:
        assert not (again.schedule(*entry) if isinstance(entry, tuple) else again.finish(entry))
    history.assert_held_by(again)


@pytest.mark.parametrize("shorter", ["queue", "log"])
def test_a_checkpoint_that_covers_more_than_there_is_of_the_log_is_not_trusted(directory: Path, shorter: str) -> None:
    history = History()
    timers = open_small(directory, history)
    for _ in range(3):
        history.schedule(timers, NOW_MS)
    history.done(timers, 2)
    history.checkpoint(timers)
    ends = {"queue_end": 3, "log_end": 4}
    assert not TimerStore.open(crashed_copy(directory, directory.parent / "copy"), **ends).needs_rebuild
    ends["queue_end" if shorter == "queue" else "log_end"] -= 1
    again = TimerStore.open(directory, **ends)
    assert (again.needs_rebuild, again.covered_queue_offset, again.covered_log_offset) == (True, 0, 0)
    assert [*directory.iterdir()] == [], "the old checkpoint must not be trusted by the start after this one"


def test_a_store_says_when_it_is_full_and_when_much_is_unsaved(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_store, "MAX_PENDING", 3)
    monkeypatch.setattr(timer_store, "UNSAVED_LIMIT", 4)
    history = History()
    timers = open_small(directory, history)
    for _ in range(3):
        assert not timers.is_full
        history.schedule(timers, NOW_MS)
    assert timers.is_full
    assert not timers.needs_checkpoint
    history.done(timers, 1)
    assert not timers.is_full
    assert timers.needs_checkpoint
    history.checkpoint(timers)
    assert not timers.needs_checkpoint


def test_a_store_tells_what_its_wheel_counts(directory: Path) -> None:
    history = History()
    timers = open_small(directory, history)
    history.schedule(timers, NOW_MS - 2000)
    history.schedule(timers, NOW_MS + 2000)
    assert timers.counts(NOW_MS, BOUNDS_S) == [1, 1, 0, 0, 0]
    history.checkpoint(timers)
    assert open_small(directory, history).counts(NOW_MS, BOUNDS_S) == [1, 1, 0, 0, 0]
