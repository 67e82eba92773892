"""Torn ends, flipped bits and files of other releases: never an exception, never a timer lost or made up."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from store_samples import crashed_copy
from timer_samples import NOW_MS, History, open_small

from millstream.model.errors import StoreError
from millstream.store.file_head import file_head
from millstream.store.timer.hour import HOUR_MS
from millstream.store.timer.timer_log import CHECKPOINT_MAGIC, FORMAT_VERSION
from millstream.store.timer.timer_store import TimerStore


@pytest.fixture
def history(caplog: pytest.LogCaptureFixture) -> History:
    caplog.set_level(logging.ERROR)
    return History()


def _filled(directory: Path, history: History) -> TimerStore:
    """Two checkpoints, then timers and deliveries that none covers."""
    choose = random.Random(6)
    timers = open_small(directory, history)
    for turn in range(3):
        for _ in range(6):
            history.schedule(timers, NOW_MS + choose.randrange(2 * HOUR_MS))
        for queue_offset in choose.sample(sorted(history.pending), 3):
            history.done(timers, queue_offset)
        if turn < 2:
            history.checkpoint(timers)
    return timers


def _start(directory: Path, history: History, *, is_trusted: bool) -> TimerStore:
    timers = open_small(directory, history)
    assert timers.needs_rebuild != is_trusted
    history.replay(timers)
    history.assert_held_by(timers)
    return timers


def _start_over(directory: Path, history: History, *, is_trusted: bool) -> None:
    history.checkpoint(_start(directory, history, is_trusted=is_trusted))
    again = open_small(directory, history)
    assert not again.needs_rebuild
    history.assert_held_by(again)


@pytest.mark.long
def test_each_flipped_bit_is_found(scratch: Path, history: History) -> None:
    _filled(scratch / "timers", history)
    paths = sorted((scratch / "timers").iterdir())
    assert len(paths) > 4
    for path in paths:
        content = path.read_bytes()
        for bit in range(len(content) * 8):
            directory = crashed_copy(scratch / "timers", scratch / "copy")
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            (directory / path.name).write_bytes(damaged)
            _start(directory, history, is_trusted=False)
    _start_over(directory, history, is_trusted=False)


def test_a_file_cut_at_any_byte_that_was_saved_is_found(scratch: Path, history: History) -> None:
    _filled(scratch / "timers", history)
    for path in sorted((scratch / "timers").iterdir()):
        content = path.read_bytes()
        for length in range(len(content)):
            directory = crashed_copy(scratch / "timers", scratch / "copy")
            (directory / path.name).write_bytes(content[:length])
            _start_over(directory, history, is_trusted=False)


@pytest.mark.long
def test_the_torn_end_of_a_checkpoint_that_was_not_finished_does_not_count(scratch: Path, history: History) -> None:
    """What the next checkpoint appends is cut at each byte, also amid files that it makes, or followed by noise."""
    timers = _filled(scratch / "timers", history)
    before = crashed_copy(scratch / "timers", scratch / "before")
    history.checkpoint(timers)
    torn = 0
    for path in sorted((scratch / "timers").iterdir()):
        earlier = before / path.name
        old, new = earlier.read_bytes() if earlier.exists() else b"", path.read_bytes()
        if path.name == "checkpoint" or not new.startswith(old):
            continue
        for length in range(len(old), len(new)):
            for noise in (b"", b"\0" * 40, b"noise" * 5):
                directory = crashed_copy(before, scratch / "copy")
                (directory / path.name).write_bytes(new[:length] + noise)
                _start_over(directory, history, is_trusted=True)
                torn += 1
    for length in range((scratch / "timers" / "checkpoint").stat().st_size):
        directory = crashed_copy(before, scratch / "copy")
        partial = (scratch / "timers" / "checkpoint").read_bytes()[:length]
        (directory / "checkpoint.tmp").write_bytes(partial)
        _start_over(directory, history, is_trusted=True)
    assert torn > 100


def test_files_that_changed_places_are_found(scratch: Path, history: History) -> None:
    _filled(scratch, history)
    first, second = [path for path in sorted(scratch.iterdir()) if path.stat().st_size == 56][:2]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    _start_over(scratch, history, is_trusted=False)


def test_a_file_of_another_version_is_refused_and_left_as_it_is(scratch: Path, history: History) -> None:
    _filled(scratch / "timers", history)
    for path in sorted((scratch / "timers").iterdir()):
        for leave_checkpoint in (True, False):
            directory = crashed_copy(scratch / "timers", scratch / "copy")
            other = directory / path.name
            other.write_bytes(_of_version(FORMAT_VERSION + 1, path.read_bytes()))
            if not leave_checkpoint and path.name != "checkpoint":
                (directory / "checkpoint").unlink()
            before = {entry.name: entry.read_bytes() for entry in directory.iterdir()}
            with pytest.raises(StoreError) as caught:
                open_small(directory, history)
            assert caught.value.name == "STORE_FORMAT"
            assert str(other) in caught.value.message
            assert {entry.name: entry.read_bytes() for entry in directory.iterdir()} == before


def _of_version(version: int, content: bytes) -> bytes:
    return file_head(content[: len(CHECKPOINT_MAGIC)], version) + content[16:]


def test_files_of_others_in_the_directory_are_left_alone(scratch: Path, history: History) -> None:
    _filled(scratch, history)
    (scratch / "notes").write_bytes(b"mine")
    (scratch / "checkpoint").unlink()
    assert open_small(scratch, history).needs_rebuild
    assert [path.name for path in scratch.iterdir()] == ["notes"]
