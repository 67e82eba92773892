"""What is known to be confirmed outlives what happens to its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from crash.traced_files import HASTY
from store_samples import SMALL, bodies, crashed_copy, pending

from millstream.broker.data_directory import STORE, accept_losses
from millstream.model.errors import StartRefused
from millstream.store.damage.integrity import CONFIRMED
from millstream.store.durability.flush_mark import FlushMark
from millstream.store.message_store import MessageStore

REPLICATED = replace(SMALL, replicated=True)


def open_store(directory: Path) -> MessageStore:
    return MessageStore.open(directory / STORE, REPLICATED, files=HASTY)


def fill(directory: Path) -> None:
    """Three records, of which two are confirmed, one of them before the last checkpoint."""
    store = open_store(directory)
    for body in (b"a", b"b", b"c"):
        appended = store.put([pending(body)])[0]
        if body == b"b":
            store.confirm(appended.log_offset)
            store.write_checkpoint()
    store.confirm(appended.log_offset)
    crashed_copy(directory, directory.with_name("crashed"))
    store.close()


def shown(directory: Path) -> list[bytes]:
    store = open_store(directory)
    try:
        return bodies(store)
    finally:
        store.close()


def test_a_replicated_store_without_its_mark_of_the_confirmed_does_not_start(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "data" / STORE / CONFIRMED).unlink()
    with pytest.raises(StartRefused) as refused:
        open_store(tmp_path / "data")
    assert refused.value.name == "DATA_MISSING"
    assert "only what the checkpoint names counts as confirmed" in str(refused.value)
    assert "--accept-loss store/confirmed" in str(refused.value)


def test_once_the_loss_is_accepted_what_the_checkpoint_names_is_shown(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "crashed" / STORE / CONFIRMED).unlink()
    accept_losses(tmp_path / "crashed", [f"{STORE}/{CONFIRMED}"])
    assert shown(tmp_path / "crashed") == [b"a"]
    (tmp_path / "crashed" / STORE / CONFIRMED).unlink()
    with pytest.raises(StartRefused):
        open_store(tmp_path / "crashed")


@pytest.mark.parametrize("content", [b"", b"MSFLUSH1" + bytes(1016)])
def test_a_damaged_mark_gives_way_to_the_checkpoint(tmp_path: Path, content: bytes) -> None:
    fill(tmp_path / "data")
    (tmp_path / "crashed" / STORE / CONFIRMED).write_bytes(content)
    assert shown(tmp_path / "crashed") == [b"a"]


def test_an_older_mark_gives_way_to_the_checkpoint_and_a_later_one_counts(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    assert shown(crashed_copy(tmp_path / "crashed", tmp_path / "later")) == [b"a", b"b"]
    mark = FlushMark(tmp_path / "crashed" / STORE / CONFIRMED, HASTY)
    mark.reset(0)
    mark.close()
    assert shown(tmp_path / "crashed") == [b"a"]


def test_without_mark_and_checkpoint_nothing_is_shown_before_replicas_confirm_it(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    for name in (CONFIRMED, "checkpoint", "checkpoint.bak"):
        (tmp_path / "data" / STORE / name).write_bytes(b"")
    store = open_store(tmp_path / "data")
    assert bodies(store) == []
    store.confirm(store.written_log_offset)
    assert bodies(store) == [b"a", b"b", b"c"]
    store.close()


def test_a_store_that_was_never_replicated_asks_for_no_mark(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, SMALL, files=HASTY)
    store.put([pending(b"a")])
    store.close()
    again = MessageStore.open(tmp_path, SMALL, files=HASTY)
    assert not (tmp_path / CONFIRMED).exists()
    again.close()


def test_a_mark_torn_at_any_byte_shows_what_was_confirmed_and_never_more(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    path = tmp_path / "crashed" / STORE / CONFIRMED
    whole = path.read_bytes()
    for cut in [*range(24), *range(500, 540), len(whole) - 1]:
        for behind in (b"", bytes(len(whole) - cut), b"\xff" * (len(whole) - cut)):
            torn = crashed_copy(tmp_path / "crashed", tmp_path / "torn")
            (torn / STORE / CONFIRMED).write_bytes(whole[:cut] + behind)
            assert shown(torn) in ([b"a"], [b"a", b"b"])
