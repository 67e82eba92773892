"""At which log offsets topics were deleted, over a cut, retention, and the files of earlier releases."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.traced_files import HASTY
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import StoreError
from millstream.store.deleted_topics import DeletedTopics
from millstream.store.snapshot import Snapshot


class InMemory(Snapshot):
    """A snapshot without a disk."""

    def __init__(self) -> None:
        self.document: bytes | None = None

    def save(self, document: bytes) -> None:
        self.document = document

    def load(self) -> bytes | None:
        return self.document


def deleted_topics(path: Path, *deletions: tuple[str, int]) -> DeletedTopics:
    deleted = DeletedTopics(path, HASTY)
    for topic, log_offset in deletions:
        deleted.add([topic], log_offset)
    return deleted


def test_a_deletion_behind_a_cut_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    deleted = deleted_topics(tmp_path / "deleted", ("a", 10), ("a", 30), ("b", 30))
    assert (deleted.log_offset("a"), deleted.log_offset("b"), deleted.last_log_offset) == (30, 30, 30)
    deleted.take_back(30)
    assert deleted.log_offset("a") == 30, "what stands at the cut is not behind it"
    deleted.take_back(29)
    again = DeletedTopics(tmp_path / "deleted", HASTY)
    assert (again.log_offset("a"), again.log_offset("b"), again.last_log_offset) == (10, 0, 10)


def test_the_file_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    Snapshot(tmp_path / "deleted", HASTY).save(b'{"a": 7}')
    assert DeletedTopics(tmp_path / "deleted", HASTY).log_offset("a") == 7


def test_a_topic_deleted_once_is_noted_as_earlier_releases_read_it(tmp_path: Path) -> None:
    deleted_topics(tmp_path / "deleted", ("a", 7), ("a", 7))
    assert Snapshot(tmp_path / "deleted", HASTY).load() == b'{"a":7}'


def test_a_file_that_says_something_else_is_refused(tmp_path: Path) -> None:
    Snapshot(tmp_path / "deleted", HASTY).save(b'{"a": "7"}')
    with pytest.raises(StoreError) as refused:
        DeletedTopics(tmp_path / "deleted", HASTY)
    assert refused.value.name == "STORE_FORMAT"


@given(
    offsets=st.lists(st.integers(1, 50), max_size=6).map(sorted),
    start=st.integers(0, 50),
    end=st.integers(0, 50),
)
def test_what_counts_is_what_the_deletions_within_the_log_say(offsets: list[int], start: int, end: int) -> None:
    deleted = DeletedTopics.__new__(DeletedTopics)
    deleted._snapshot, deleted._offsets = InMemory(), {}
    for offset in offsets:
        deleted.add(["a"], offset)
    deleted.take_back(end)
    deleted.prune(start)
    assert deleted.log_offset("a") == max((each for each in offsets if start < each <= end), default=0)
    deleted.limit(start)
    assert deleted.last_log_offset <= start
