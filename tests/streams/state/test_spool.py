"""Spools of workers' records: whole files or none, replaced by name, removed once they are used."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from millstream.streams.errors import JobError
from millstream.streams.state.spool import Spool


class Count(msgspec.Struct, frozen=True):
    """A record."""

    key: str
    number: int


@pytest.fixture
def spool(tmp_path: Path) -> Spool[Count]:
    return Spool(tmp_path / "spool", ".counts", Count)


def files(spool: Spool[Count]) -> list[str]:
    return sorted(path.name for path in spool.directory.glob("*"))


def test_the_driver_takes_what_workers_left_in_the_order_of_names_and_once(spool: Spool[Count]) -> None:
    spool.put("b/0", [Count("b", 1), Count("b", 2)])
    spool.put("a", [Count("a", 3)])
    assert files(spool) == ["a.counts", "b_0.counts"]
    assert list(spool.take()) == [Count("a", 3), Count("b", 1), Count("b", 2)]
    assert list(spool.take()) == []
    assert files(spool) == []


def test_a_repeated_piece_of_work_replaces_its_file(spool: Spool[Count]) -> None:
    spool.put("slice-0-5", [Count("a", 1)])
    spool.put("slice-0-5", [Count("a", 1)])
    assert list(spool.peek()) == [Count("a", 1)]
    assert list(spool.take()) == [Count("a", 1)]


def test_without_records_there_is_no_file(spool: Spool[Count]) -> None:
    spool.put("a", [])
    assert spool.file("b").finish() is None
    assert not spool.directory.exists()
    assert list(spool.take()) == []


def test_an_unfinished_file_is_not_seen_and_goes_with_a_clear(spool: Spool[Count]) -> None:
    file = spool.file("a")
    file.add(Count("a", 1))
    assert list(spool.take()) == []
    assert len(files(spool)) == 1
    spool.put("b", [Count("b", 1)])
    spool.clear()
    assert files(spool) == []


def test_two_writers_of_one_name_do_not_mix(spool: Spool[Count]) -> None:
    first, second = spool.file("a"), spool.file("a")
    first.add(Count("first", 1))
    second.add(Count("second", 1))
    second.finish()
    assert list(spool.peek()) == [Count("second", 1)]
    first.finish()
    assert list(spool.take()) == [Count("first", 1)]


def test_a_file_stays_until_its_last_record_was_used(spool: Spool[Count]) -> None:
    spool.put("a", [Count("a", 1)])
    spool.put("b", [Count("b", 1), Count("b", 2)])
    taken = spool.take()
    assert [next(taken), next(taken)] == [Count("a", 1), Count("b", 1)]
    taken.close()  # type: ignore[attr-defined]
    assert files(spool) == ["b.counts"]
    assert list(spool.take()) == [Count("b", 1), Count("b", 2)]


def test_spools_with_other_suffixes_share_a_directory(spool: Spool[Count]) -> None:
    other = Spool(spool.directory, ".texts", str)
    spool.put("a", [Count("a", 1)])
    other.put("a", ["text"])
    assert list(spool.take()) == [Count("a", 1)]
    other.clear()
    assert files(spool) == []


@pytest.mark.parametrize("content", [b"", b"MS", b'{"version":1}', msgspec.msgpack.encode([Count("a", 1)])])
def test_a_file_of_another_version_is_passed_over_and_removed(content: bytes, spool: Spool[Count]) -> None:
    spool.put("b", [Count("b", 1)])
    (spool.directory / "a.counts").write_bytes(content)
    assert list(spool.peek()) == [Count("b", 1)]
    assert list(spool.take()) == [Count("b", 1)]
    assert files(spool) == []


@pytest.mark.parametrize("lost", [1, 8, 11])
def test_a_damaged_file_is_refused_with_its_path(lost: int, spool: Spool[Count]) -> None:
    spool.put("a", [Count("a", 1)])
    path = spool.directory / "a.counts"
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(JobError, match=r"a\.counts") as refusal:
        list(spool.take())
    assert refusal.value.name == "CHECKPOINT_DAMAGED"
    assert files(spool) == ["a.counts"]


def test_a_file_that_is_removed_meanwhile_is_passed_over(spool: Spool[Count]) -> None:
    spool.put("a", [Count("a", 1)])
    spool.put("b", [Count("b", 1)])
    found = spool.peek()
    assert next(found) == Count("a", 1)
    spool.clear()
    assert list(found) == []


def test_one_file_is_read_by_its_path_and_missing_ones_are_told(spool: Spool[Count]) -> None:
    file = spool.file("attempt-7")
    file.add(Count("a", 1))
    path = file.finish()
    assert path == spool.directory / "attempt-7.counts"
    assert list(spool.read(path)) == [Count("a", 1)]
    path.write_bytes(b"")
    with pytest.raises(JobError, match=r"attempt-7\.counts"):
        list(spool.read(path))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(spool.read(path))


def test_a_spool_travels_to_workers(spool: Spool[Count]) -> None:
    copy = pickle.loads(pickle.dumps(spool))
    copy.put("a", [Count("a", 1)])
    assert list(spool.take()) == [Count("a", 1)]
