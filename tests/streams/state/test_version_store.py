"""Versions that never change: whole or not there, counted once they are whole, damage told with the file."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from crash.file_twins import Died, FailingFiles, HastyFiles, MortalFiles

from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer
from millstream.streams.state.version_store import (
    VersionedDirectories,
    VersionedFiles,
    lock_store,
    refuse_unwritable,
)


class Head(msgspec.Struct, frozen=True):
    why: str


class Refused(Exception):
    """What a store of tests says."""


class Refusals:
    def explain_missing(self, number: int | None, numbers: list[int]) -> Refused:
        return Refused(f"no {number} of {numbers}")

    def explain_damage(self, path: Path, what: str) -> Refused:
        return Refused(f"{path.name} {what}")

    def explain_lock(self, holder: str, wait_s: float) -> Refused:
        return Refused(f"in use by {holder} for {wait_s}")

    def explain_unwritable(self, reason: str) -> Refused:
        return Refused(f"not writable: {reason}")


def versions_of(directory: Path, files: FileLayer | None = None) -> VersionedFiles[Head, Refused]:
    return VersionedFiles(
        directory / "versions", directory / "current", ".x", b"MAGIC 1", Head, Refusals(), files=files or HastyFiles()
    )


def directories_of(directory: Path) -> VersionedDirectories:
    versions = VersionedDirectories(directory / "versions", directory / "current", files=HastyFiles())
    versions.make_directory()
    return versions


def fill(number: int, directory: Path) -> int:
    (directory / "rows").write_text(str(number))
    return number


def test_the_version_that_was_added_last_counts_and_the_others_stay(tmp_path: Path) -> None:
    versions = versions_of(tmp_path)
    assert (versions.has_current(), versions.numbers()) == (False, [])
    versions.add(1, Head("first"), b"one\n\x00")
    versions.add(7, Head("second"), b"")
    assert (versions.has_current(), versions.current(), versions.numbers()) == (True, 7, [1, 7])
    assert (versions.read(1), versions.read(7)) == ((Head("first"), b"one\n\x00"), (Head("second"), b""))


def test_what_is_not_there_is_told_with_what_is(tmp_path: Path) -> None:
    versions = versions_of(tmp_path)
    with pytest.raises(Refused, match=r"no None of \[\]"):
        versions.current()
    versions.add(3, Head(""), b"")
    with pytest.raises(Refused, match=r"no 2 of \[3\]"):
        versions.read(2)


@pytest.mark.parametrize("place", [0, 9, 30, 80, -1])
def test_a_byte_that_is_not_as_it_was_written_is_damage(tmp_path: Path, place: int) -> None:
    versions = versions_of(tmp_path)
    versions.add(1, Head("why"), b"content")
    for path, read in ((versions.path(1), lambda: versions.read(1)), (tmp_path / "current", versions.current)):
        content = bytearray(path.read_bytes())
        at = max(-len(content), min(place, len(content) - 2))
        # The line break at the end of `current` is no part of what it says.
        at = -2 if path.name == "current" and at == -1 else at
        content[at] ^= 1
        path.write_bytes(content)
        with pytest.raises(Refused, match=f"{path.name} is damaged"):
            read()


def test_a_head_of_another_release_is_told(tmp_path: Path) -> None:
    class Other(msgspec.Struct):
        since: int

    other = VersionedFiles(
        tmp_path / "versions", tmp_path / "current", ".x", b"MAGIC 1", Other, Refusals(), files=HastyFiles()
    )
    other.add(1, Other(3), b"")
    with pytest.raises(Refused, match=r"1\.x cannot be read by this release"):
        versions_of(tmp_path).read(1)


@pytest.mark.parametrize("undone", [False, True])
@pytest.mark.parametrize("life", range(1, 12))
def test_a_writer_that_dies_leaves_the_version_before_or_the_one_after(tmp_path: Path, life: int, undone: bool) -> None:
    versions_of(tmp_path).add(1, Head(""), b"one")
    survives = True
    try:
        versions_of(tmp_path, MortalFiles(life, undone)).add(2, Head(""), b"two")
    except Died:
        survives = False
    versions = versions_of(tmp_path)
    assert versions.current() in ((2,) if survives else (1, 2))
    assert versions.read(versions.current())[1] == (b"one", b"two")[versions.current() - 1]
    versions.add(3, Head(""), b"three")
    assert {path.name for path in tmp_path.rglob("*")} <= {"versions", "current", "1.x", "2.x", "3.x"}


def test_a_disk_that_refuses_is_told_and_what_counted_counts(tmp_path: Path) -> None:
    files = FailingFiles()
    versions = versions_of(tmp_path, files)
    versions.add(1, Head(""), b"one")
    files.errors["sync"] = 28
    with pytest.raises(Refused, match="not writable: No space left"):
        versions.add(2, Head(""), b"two")
    assert (versions.current(), versions.numbers()) == (1, [1])


def test_versions_are_removed_one_by_one_or_all(tmp_path: Path) -> None:
    versions = versions_of(tmp_path)
    for number in (1, 2, 3):
        versions.add(number, Head(""), b"")
    versions.discard([1])
    assert versions.numbers() == [2, 3]
    versions.discard_all()
    assert (versions.has_current(), versions.numbers()) == (False, [])


def test_one_writer_at_a_time_has_the_store_and_is_named(tmp_path: Path) -> None:
    held = DirectoryLock(tmp_path, FileLayer())
    with (
        pytest.raises(Refused, match=f"in use by {os.getpid()} for 0"),
        lock_store(tmp_path, Refusals(), files=FileLayer(), wait_s=0.0),
    ):
        pass
    held.release()
    with lock_store(tmp_path, Refusals(), files=FileLayer(), wait_s=0.0):
        pass


def test_a_place_that_is_no_directory_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(Refused, match="not writable"),
        lock_store(tmp_path / "file", Refusals(), files=FileLayer(), wait_s=0.0),
    ):
        pass


def test_only_errors_of_the_disk_are_turned_into_refusals() -> None:
    with pytest.raises(KeyError), refuse_unwritable(Refusals()):
        raise KeyError
    with pytest.raises(Refused, match="not writable: no reason"), refuse_unwritable(Refusals()):
        raise OSError("no reason")


def test_a_directory_counts_once_it_is_filled_and_has_the_next_number(tmp_path: Path) -> None:
    versions = directories_of(tmp_path)
    assert versions.current() is None
    assert [versions.add(fill), versions.add(fill)] == [1, 2]
    assert (versions.current(), versions.numbers()) == (2, [1, 2])
    assert (versions.path(2) / "rows").read_text() == "2"
    assert (tmp_path / "current").read_bytes() == b"2"


def test_a_directory_that_could_not_be_filled_is_not_there(tmp_path: Path) -> None:
    versions = directories_of(tmp_path)
    versions.add(fill)

    def fails(number: int, directory: Path) -> None:
        fill(number, directory)
        raise Refused

    with pytest.raises(Refused):
        versions.add(fails)
    assert (versions.current(), os.listdir(tmp_path / "versions")) == (1, ["1"])


def test_no_number_of_a_directory_is_given_twice(tmp_path: Path) -> None:
    versions = directories_of(tmp_path)
    versions.add(fill)
    gone = versions.take_away(versions.add(fill))
    assert not (versions.path(2)).exists()
    assert (gone / "rows").read_text() == "2"
    assert versions.add(fill) == 3
    assert not gone.exists()
