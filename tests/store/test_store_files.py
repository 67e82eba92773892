"""The file layer's own promises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles, RecordingFiles

from millstream.store.files import FileLayer, OpenFiles, SharedFiles


def test_a_write_that_the_system_cuts_short_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, pwrite = FileLayer(), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: pwrite(descriptor, data[:3], position))
    with files.open_descriptor(tmp_path / "f", create=True) as descriptor:
        files.pwrite(descriptor, b"0123456789", 2)
    assert (tmp_path / "f").read_bytes() == b"\0\0" + b"0123456789"


def test_a_map_shows_what_is_written_later(tmp_path: Path) -> None:
    files = FileLayer()
    with files.open_descriptor(tmp_path / "f", create=True) as descriptor:
        files.truncate(descriptor, 100)
        view = files.map(descriptor)
        files.pwrite(descriptor, b"later", 50)
    assert view[50:55] == b"later"
    assert view.readonly


def test_replace_syncs_the_content_before_the_name_and_the_name_before_it_returns(tmp_path: Path) -> None:
    files = RecordingFiles()
    (tmp_path / "f").write_bytes(b"a longer old content")
    files.replace(tmp_path / "f", b"new")
    assert [operation.name for operation in files.operations] == ["pwrite", "sync", "rename", "sync directory"]
    assert (tmp_path / "f").read_bytes() == b"new"


def test_a_new_directory_is_synced_in_the_one_above_it(tmp_path: Path) -> None:
    files = RecordingFiles()
    files.make_directory(tmp_path / "a" / "b")
    assert [operation.path for operation in files.operations] == [tmp_path, tmp_path / "a"]


def test_what_is_made_is_for_its_owner_and_what_is_shared_for_readers(tmp_path: Path) -> None:
    for files, modes in ((FileLayer(), (0o700, 0o600)), (SharedFiles(), (0o755, 0o644))):
        directory = tmp_path / type(files).__name__ / "below"
        files.make_directory(directory)
        files.replace(directory / "file", b"content")
        found = [path.stat().st_mode & 0o777 for path in (directory, directory / "file")]
        assert found == [mode & ~umask() for mode in modes]


def umask() -> int:
    before = os.umask(0o022)
    os.umask(before)
    return before


def test_open_files_close_the_one_not_used_for_longest(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    opened = OpenFiles(HastyFiles(), 2)
    first, second = opened.descriptor(f"{tmp_path}/a"), opened.descriptor(f"{tmp_path}/b")
    assert opened.descriptor(f"{tmp_path}/a") == first
    opened.descriptor(f"{tmp_path}/c")
    assert os.pread(first, 1, 0) == b"a"
    assert not _is_open_on(second, tmp_path / "b")
    opened.forget(tmp_path)
    assert not _is_open_on(first, tmp_path / "a")


def _is_open_on(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except OSError:
        return False
