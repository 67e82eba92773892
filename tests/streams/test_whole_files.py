from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.streams.whole_files import put


@pytest.mark.parametrize("synced", [False, True])
def test_a_file_is_as_it_was_until_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: bool) -> None:
    file = tmp_path / "made" / "for it" / "file"
    put(file, b"before", synced=synced)

    def killed(unfinished: Path, target: Path) -> None:
        assert (target, file.read_bytes(), unfinished.read_bytes()) == (file, b"before", b"after")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            put(file, b"after", synced=synced)
    assert {one.name: one.read_bytes() for one in file.parent.iterdir()} == {
        "file": b"before",
        f".file.{os.getpid()}": b"after",
    }
    put(file, b"later", synced=synced)
    assert [(one.name, one.read_bytes()) for one in file.parent.iterdir()] == [("file", b"later")]


def test_a_file_that_is_to_outlive_a_crash_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    replace, sync = Path.replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (done.append("synced"), sync(number)))
    monkeypatch.setattr(Path, "replace", lambda one, other: (done.append("named"), replace(one, other)))
    put(tmp_path / "one", b"1")
    put(tmp_path / "two", b"2", synced=True)
    # The last one is of the directory, without which the name may be gone again.
    assert done == ["named", "synced", "named", "synced"]


def test_a_file_that_is_to_outlive_a_crash_has_its_name_and_its_directories_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(path_of(number)), sync(number)))
    put(tmp_path / "made" / "for it" / "file", b"1", synced=True)
    assert synced[1:] == [tmp_path / "made" / "for it", tmp_path / "made", tmp_path]


def path_of(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
