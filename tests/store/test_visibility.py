"""A reader never sees what a crash could take back: what is visible under which options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles, HastyFiles
from store_samples import SMALL, bodies, pending

from millstream.model.errors import StoreError
from millstream.store.message_store import MessageStore


def open_store(directory: Path, *, sync_flush: bool, replicated: bool) -> MessageStore:
    options = replace(SMALL, sync_flush=sync_flush, replicated=replicated)
    return MessageStore.open(directory, options, files=HastyFiles())


def test_under_async_flush_what_is_written_is_visible(tmp_path: Path) -> None:
    store = open_store(tmp_path, sync_flush=False, replicated=False)
    store.put([pending(b"a")])
    assert bodies(store) == [b"a"]
    store.close()


@pytest.mark.parametrize("flush_first", [True, False])
def test_with_replicas_and_sync_flush_both_must_have_it(tmp_path: Path, flush_first: bool) -> None:
    store = open_store(tmp_path, sync_flush=True, replicated=True)
    store.put([pending(b"a")])
    end = store.written_log_offset
    steps = [store.flush_log, lambda: store.confirm(end)]
    for step in steps if flush_first else reversed(steps):
        assert bodies(store) == []
        step()
    assert bodies(store) == [b"a"]
    store.close()


def test_what_is_confirmed_is_seen_record_by_record_and_never_taken_back(tmp_path: Path) -> None:
    store = open_store(tmp_path, sync_flush=False, replicated=True)
    places = [store.put([pending(body)])[0] for body in (b"a", b"b", b"c")]
    assert bodies(store) == []
    store.confirm(places[1].log_offset)
    assert bodies(store) == [b"a"]
    store.confirm(places[2].log_offset)
    assert bodies(store) == [b"a", b"b"]
    store.confirm(0)
    assert bodies(store) == [b"a", b"b"]
    assert store.visible_log_offset == places[2].log_offset
    store.close()


def test_what_a_failed_flush_left_is_never_shown(tmp_path: Path) -> None:
    files = FailingFiles()
    store = MessageStore.open(tmp_path, replace(SMALL, sync_flush=True), files=files)
    store.put([pending(b"a")])
    store.flush_log()
    store.put([pending(b"b")])
    files.errors["sync"] = 5
    with pytest.raises(StoreError, match="could not be flushed"):
        store.flush_log()
    files.errors.clear()
    with pytest.raises(StoreError, match="could not be flushed"):
        store.flush_log()
    assert bodies(store) == [b"a"]
    store.close()
