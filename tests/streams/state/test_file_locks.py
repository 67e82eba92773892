from __future__ import annotations

import threading
from pathlib import Path

import pytest

from millstream.streams.state.file_locks import FileLock, hold_lock


def test_one_holder_keeps_others_out_until_it_releases(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock.take(path)
    assert lock is not None
    assert FileLock.take(path, wait=False) is None
    assert FileLock.take(path, wait=False, shared=True) is None
    lock.release()
    lock.release()
    again = FileLock.take(path, wait=False)
    assert again is not None
    again.release()


def test_any_number_holds_a_lock_shared_and_keeps_writers_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    readers = [FileLock.take(path, shared=True, wait=False) for _ in range(3)]
    assert None not in readers
    assert FileLock.take(path, wait=False) is None
    for reader in readers:
        assert reader is not None
        reader.release()
    with hold_lock(path):
        assert FileLock.take(path, wait=False) is None


def test_who_waited_for_a_lock_whose_file_was_removed_takes_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock.take(path)
    assert first is not None
    taken: list[FileLock | None] = []
    waiter = threading.Thread(target=lambda: taken.append(FileLock.take(path)))
    waiter.start()
    path.unlink()
    first.release()
    waiter.join()
    (second,) = taken
    assert second is not None
    assert path.exists()
    assert FileLock.take(path, wait=False) is None
    second.release()


def test_a_lock_in_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock.take(tmp_path / "gone" / "lock")
