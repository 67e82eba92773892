"""A replica deletes topics as of the place in the log where it reads that they were deleted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from crash.traced_files import HASTY
from store_samples import SMALL, bodies, crashed_copy, pending

from millstream.store.message_store import MessageStore, StoreOptions

REPLICATED = replace(SMALL, replicated=True)


def open_store(directory: Path, options: StoreOptions = SMALL) -> MessageStore:
    return MessageStore.open(directory, options, files=HASTY)


def fill(directory: Path, options: StoreOptions = SMALL) -> tuple[MessageStore, int]:
    """A store with records of a topic before and behind a place; and the place."""
    store = open_store(directory, options)
    for body in (b"old 0", b"old 1"):
        store.put([pending(body)])
    place = store.written_log_offset
    for body in (b"new 2", b"new 3"):
        store.put([pending(body, key="k")])
    return store, place


@pytest.mark.parametrize("checkpoints", ["none", "before", "behind"])
def test_records_behind_the_place_of_a_deletion_stay(tmp_path: Path, checkpoints: str) -> None:
    store, place = fill(tmp_path / "data")
    if checkpoints == "behind":
        store.write_checkpoint()
    store.delete_topics(["orders"], log_offset=place)
    assert bodies(store) == [b"new 2", b"new 3"]
    assert store.min_offset("orders", 0) == 2
    if checkpoints == "before":
        store.write_checkpoint()
    crashed = open_store(crashed_copy(tmp_path / "data", tmp_path / "crashed"))
    assert bodies(crashed) == [b"new 2", b"new 3"]
    crashed.close()
    store.put([pending(b"new 4")])
    store.close()
    again = open_store(tmp_path / "data")
    assert bodies(again) == [b"new 2", b"new 3", b"new 4"]
    again.close()


def test_a_deletion_asked_for_twice_is_the_same_as_once(tmp_path: Path) -> None:
    store, place = fill(tmp_path)
    for _ in range(2):
        store.delete_topics(["orders"], log_offset=place)
    assert bodies(store) == [b"new 2", b"new 3"]
    store.close()


def test_a_deletion_before_one_that_was_carried_out_brings_nothing_back(tmp_path: Path) -> None:
    store, place = fill(tmp_path)
    store.delete_topic("orders")
    store.put([pending(b"newest")])
    store.delete_topics(["orders"], log_offset=place)
    assert bodies(store) == [b"newest"]
    store.close()


def test_the_place_of_a_deletion_is_in_the_log(tmp_path: Path) -> None:
    store, _ = fill(tmp_path)
    with pytest.raises(ValueError, match="nothing can be deleted as of"):
        store.delete_topics(["orders"], log_offset=store.written_log_offset + 1)
    assert len(bodies(store)) == 4
    store.close()


def test_what_stays_and_is_not_confirmed_is_shown_once_it_is(tmp_path: Path) -> None:
    store, place = fill(tmp_path, REPLICATED)
    store.put([pending(b"other", topic="other")])
    first = store.find_by_key("orders", "k")
    assert first == []
    store.delete_topics(["orders"], log_offset=place)
    assert bodies(store) == []
    assert store.max_offset("orders", 0) == 2
    ends = [record.log_offset for record in store.put([pending(b"new 4")])]
    store.confirm(ends[0])
    assert bodies(store) == [b"new 2", b"new 3"]
    assert bodies(store, "other") == [b"other"]
    store.confirm(store.written_log_offset)
    assert bodies(store) == [b"new 2", b"new 3", b"new 4"]
    store.close()


def test_a_topic_that_was_deleted_and_not_made_again_is_gone(tmp_path: Path) -> None:
    store, _ = fill(tmp_path)
    place = store.written_log_offset
    store.put([pending(b"other", topic="other")])
    store.delete_topics(["orders"], log_offset=place)
    assert store.topics == ["other"]
    store.close()


def test_a_topic_made_again_behind_the_place_begins_anew_over_a_crash_too(tmp_path: Path) -> None:
    """A replica has taken in the new topic's records before it hears that the old one was deleted."""
    store = open_store(tmp_path / "master")
    for body in (b"old 0", b"old 1"):
        store.put([pending(body)])
    place = store.written_log_offset
    store.delete_topic("orders")
    store.put([pending(b"new 0")])
    store.close()
    for path in (tmp_path / "master").iterdir():
        if path.name not in ("commitlog", "format"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    replica = open_store(tmp_path / "master")
    assert bodies(replica) == [b"old 0", b"old 1"]
    replica.delete_topics(["orders"], log_offset=place)
    assert bodies(replica) == [b"new 0"]
    crashed = open_store(crashed_copy(tmp_path / "master", tmp_path / "crashed"))
    assert bodies(crashed) == [b"new 0"]
    crashed.close()
    replica.close()
