"""Directories of modules as archives for the workers of a cluster."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from millstream.streams.errors import JobError
from millstream.streams.spark.runtime import shipping
from millstream.streams.spark.runtime.shipping import archive_of


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    (directory / "inner" / "__pycache__").mkdir(parents=True)
    (directory / ".git").mkdir()
    (directory / "first.py").write_text("from inner.second import NAME\n")
    (directory / "inner" / "__init__.py").write_text("")
    (directory / "inner" / "second.py").write_text("NAME = 'found'\n")
    (directory / "inner" / "__pycache__" / "second.pyc").write_bytes(b"x")
    (directory / ".git" / "config").write_text("x")
    return directory


@pytest.mark.process
def test_modules_can_be_imported_from_the_archive(code: Path, tmp_path: Path) -> None:
    archive = archive_of(code, tmp_path)
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import first; print(first.NAME)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "found\n"


def test_caches_and_hidden_files_stay_behind(code: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive_of(code, tmp_path, inside="pack")) as packed:
        assert packed.namelist() == ["pack/first.py", "pack/inner/__init__.py", "pack/inner/second.py"]


def test_directories_of_one_name_are_two_archives(code: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "code"
    other.mkdir(parents=True)
    assert archive_of(code, tmp_path) != archive_of(other, tmp_path)


def test_too_much_is_refused(code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "MAX_SHIPPED_BYTES", 10)
    with pytest.raises(JobError, match="has more than"):
        archive_of(code, tmp_path)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="none cannot be shipped"):
        archive_of(tmp_path / "none", tmp_path)
