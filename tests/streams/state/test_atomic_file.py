from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from crash.file_twins import Died, FailingFiles, HastyFiles, RecordingFiles

from millstream.store.files import FileLayer
from millstream.streams.state.atomic_file import create_file, discard_unfinished, write_file


class DiesBeforeRename(HastyFiles):
    """The process ends where a file would get its name."""

    def rename(self, source: Path, target: Path) -> None:
        raise Died


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def operations(files: RecordingFiles) -> list[tuple[str, str]]:
    """What was done, and to which file; `*` is one that has no name yet."""
    return [(one.name, "*" if one.path.name.startswith(".") else one.path.name) for one in files.operations]


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_as_it_was_until_it_is_whole(tmp_path: Path, durable: bool) -> None:
    file = tmp_path / "made" / "for it" / "file"
    write_file(file, b"before", durable=durable)
    with pytest.raises(Died):
        write_file(file, b"after", durable=durable, files=DiesBeforeRename())
    assert file.read_bytes() == b"before"
    assert len(names(file.parent)) == 2
    discard_unfinished(file.parent)
    write_file(file, b"later", durable=durable)
    assert (file.read_bytes(), names(file.parent)) == (b"later", ["file"])


def test_a_durable_file_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(tmp_path: Path) -> None:
    files = RecordingFiles()
    write_file(tmp_path / "one", b"1", files=files)
    assert operations(files) == [
        ("pwrite", "*"),
        ("sync", "*"),
        ("rename", "one"),
        ("sync directory", tmp_path.name),
    ]


def test_a_file_that_need_not_be_durable_waits_for_no_disk(tmp_path: Path) -> None:
    files = RecordingFiles()
    write_file(tmp_path / "one", b"1", durable=False, files=files)
    assert operations(files) == [("pwrite", "*"), ("rename", "one")]


@pytest.mark.parametrize("durable", [False, True])
def test_names_of_directories_that_are_made_are_on_the_disk(tmp_path: Path, durable: bool) -> None:
    files = RecordingFiles()
    write_file(tmp_path / "a" / "b" / "file", b"1", durable=durable, files=files)
    synced = [one.path for one in files.operations if one.name == "sync directory"]
    assert synced[:2] == [tmp_path, tmp_path / "a"]


@pytest.mark.parametrize("name", ["pwrite", "sync"])
def test_a_disk_that_refuses_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path, name: str) -> None:
    write_file(tmp_path / "file", b"before")
    files = FailingFiles()
    files.errors[name] = errno.ENOSPC
    for write in (write_file, create_file):
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path / "file", b"after", files=files)
    assert ((tmp_path / "file").read_bytes(), names(tmp_path)) == (b"before", ["file"])


@pytest.mark.parametrize("has_links", [True, False])
def test_the_first_of_two_that_make_a_file_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", _refuse_link)
    file = tmp_path / "made" / "file"
    assert create_file(file, b"first")
    assert not create_file(file, b"second")
    assert (file.read_bytes(), names(file.parent)) == (b"first", ["file"])


def test_who_finds_a_file_made_syncs_its_name_too(tmp_path: Path) -> None:
    write_file(tmp_path / "file", b"1", durable=False)
    files = RecordingFiles()
    assert not create_file(tmp_path / "file", b"2", files=files)
    assert operations(files)[-1] == ("sync directory", tmp_path.name)


def test_the_umask_decides_who_may_read_a_file(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        write_file(tmp_path / "of a job" / "file", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "of a job" / "file").stat().st_mode & 0o777 == 0o664
    assert (tmp_path / "of a job").stat().st_mode & 0o777 == 0o775


def test_only_unfinished_files_are_discarded(tmp_path: Path) -> None:
    for name in ("current", "removed", "1.model", ".hidden", "lock"):
        write_file(tmp_path / name, b"")
    # As earlier releases called them.
    (tmp_path / "2.model.tmp").write_bytes(b"half")
    (tmp_path / ".2.model.4321.0123abcd").write_bytes(b"half")
    discard_unfinished(tmp_path, files=FileLayer())
    assert names(tmp_path) == [".hidden", "1.model", "current", "lock", "removed"]


def _refuse_link(*_: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))
