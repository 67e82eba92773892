"""A snapshot is the last document, whole, whatever happens to one of its two files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles

from millstream.model.errors import StoreError
from millstream.store.snapshot import Snapshot


def test_nothing_saved_is_nothing_loaded(tmp_path: Path) -> None:
    assert Snapshot(tmp_path / "topics").load() is None


@pytest.mark.parametrize("document", [b"", b"{}", b"line\nline\n", bytes(range(256)) * 100])
def test_the_last_document_is_loaded(tmp_path: Path, document: bytes) -> None:
    snapshot = Snapshot(tmp_path / "config" / "topics")
    snapshot.save(b"an earlier one that is longer than most of the others")
    snapshot.save(document)
    assert Snapshot(tmp_path / "config" / "topics").load() == document


def test_damage_at_any_byte_gives_way_to_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "topics"
    snapshot = Snapshot(path)
    snapshot.save(b"first")
    snapshot.save(b"second")
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x40]) + whole[position + 1 :])
        assert snapshot.load() == b"second", f"byte {position}"
        path.write_bytes(whole[:position])
        assert snapshot.load() == b"second", f"cut at {position}"
    path.unlink()
    assert snapshot.load() == b"second"


def test_the_first_document_has_a_copy_as_well(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "topics")
    snapshot.save(b"first")
    (tmp_path / "topics").write_bytes(b"noise")
    assert snapshot.load() == b"first"


def test_two_damaged_copies_are_named_and_not_taken_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "topics"
    path.write_bytes(b"noise")
    with pytest.raises(StoreError) as caught:
        Snapshot(path).load()
    assert caught.value.name == "STORE_FORMAT"
    assert str(path) in caught.value.message


def test_a_save_that_fails_leaves_the_document_that_was_there(tmp_path: Path) -> None:
    files = FailingFiles()
    snapshot = Snapshot(tmp_path / "topics", files)
    snapshot.save(b"first")
    for name in ("pwrite", "sync"):
        files.errors = {name: errno.ENOSPC}
        with pytest.raises(OSError, match="No space"):
            snapshot.save(b"second")
        assert snapshot.load() == b"first"
