"""Which version a micro-batch has: the first choice stays, older ones are forgotten, the last one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.streams.state.pinned_versions import BatchVersions, VersionCopies, take_or_fall_back


@pytest.mark.parametrize("suffix", ["", ".pin"])
def test_a_micro_batch_keeps_the_version_that_it_had_first(tmp_path: Path, suffix: str) -> None:
    batches = BatchVersions(tmp_path / "batches", suffix)
    assert (batches.find(0), batches.last(), batches.batches()) == (None, None, [])
    assert batches.pin(0, b"one") == b"one"
    assert BatchVersions(tmp_path / "batches", suffix).pin(0, b"two") == b"one"
    assert batches.find(0) == b"one"
    assert (tmp_path / "batches" / f"0{suffix}").read_bytes() == b"one"


def test_the_last_version_is_that_of_the_newest_micro_batch(tmp_path: Path) -> None:
    batches = BatchVersions(tmp_path)
    for batch in (9, 10, 2):
        batches.pin(batch, b"of %d" % batch)
    assert (batches.batches(), batches.last()) == ([2, 9, 10], b"of 10")


def test_old_micro_batches_are_forgotten_and_a_run_that_begins_anew_has_none(tmp_path: Path) -> None:
    batches = BatchVersions(tmp_path, ".pin")
    (tmp_path / "other").write_bytes(b"")
    for batch in range(4):
        batches.pin(batch, b"")
    batches.forget_until(1)
    assert batches.batches() == [2, 3]
    batches.forget_all()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_directory_can_be_there_before_any_micro_batch_has_a_version(tmp_path: Path) -> None:
    batches = BatchVersions(tmp_path / "job" / "pins")
    batches.make_directory()
    assert (tmp_path / "job" / "pins").is_dir()
    assert batches.batches() == []


def test_copies_stay_until_no_micro_batch_asks_for_them(tmp_path: Path) -> None:
    copies = VersionCopies(tmp_path / "versions", ".copy")
    assert not copies.has("1")
    copies.keep("1", b"one")
    copies.keep("2", b"two")
    (tmp_path / "versions" / ".3.copy").write_bytes(b"half")
    assert (copies.has("1"), copies.read("2"), sorted(copies.names())) == (True, b"two", ["1", "2"])
    copies.forget_all_but({"2"})
    assert copies.names() == ["2"]
    with pytest.raises(FileNotFoundError):
        copies.read("1")


def test_the_last_version_goes_on_where_none_can_be_taken() -> None:
    error = KeyError("gone")

    def refuse() -> int:
        raise error

    assert take_or_fall_back(lambda: 2, lambda: 1, KeyError) == (2, None)
    assert take_or_fall_back(refuse, lambda: 1, KeyError) == (1, error)
    with pytest.raises(KeyError, match="gone"):
        take_or_fall_back(refuse, lambda: None, KeyError)
    with pytest.raises(KeyError, match="gone"):
        take_or_fall_back(refuse, lambda: 1, OSError)
