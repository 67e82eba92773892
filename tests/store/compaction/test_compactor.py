"""Compacted topics of a store: in the background, before retention, over crashes, deleted and made again."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles
from store_samples import SMALL, crashed_copy, segments

from millstream.model.clock import ManualClock
from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import decode_record
from millstream.store.compaction.generation import CompactedEntry
from millstream.store.message_store import MessageStore, PendingRecord

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def open_store(directory: Path, clock: ManualClock) -> MessageStore:
    return MessageStore.open(directory, SMALL, clock=clock, files=HastyFiles())


def put(store: MessageStore, key: str, body: str, topic: str = "prices") -> None:
    message = OutgoingMessage(topic, body.encode(), {"KEYS": key}, born_host=Address("10.0.0.9", 4))
    store.put([PendingRecord(message, 0)])


def fill(store: MessageStore, count: int, keys: int, clock: ManualClock) -> None:
    for number in range(count):
        put(store, f"k{number % keys}", str(number))
        clock.advance_ms(1000)


def content(store: MessageStore, topic: str = "prices") -> dict[int, str]:
    start, end = store.min_offset(topic, 0), store.max_offset(topic, 0)
    return {
        entry.queue_offset: decode_record(store.read(entry)).body.decode()
        for entry in store.entries(topic, 0, start, end - start)
    }


def last_of(count: int, keys: int) -> dict[int, str]:
    return {number: str(number) for number in range(count - keys, count)}


def test_a_due_queue_is_compacted_and_goes_on_at_its_offsets(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path / "data", clock)
    fill(store, 1200, 3, clock)
    put(store, "k", "other", topic="orders")
    assert store.compact({"prices"}) == 1
    assert content(store) == last_of(1200, 3)
    assert store.compact({"prices"}) == 0, "nothing new"
    assert store.min_offset("prices", 0) == 0
    put(store, "k9", "new")
    assert content(store) == {**last_of(1200, 3), 1200: "new"}
    assert content(store, "orders") == {0: "other"}
    store.close()


def test_a_closed_store_lets_go_of_the_compacted_files(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path / "data", clock)
    fill(store, 1200, 3, clock)
    store.compact({"prices"})
    (entry,) = store.entries("prices", 0, 0, 1)
    assert isinstance(entry, CompactedEntry)
    generation = weakref.ref(entry.generation)
    del entry
    assert generation() is not None
    store.close()
    assert generation() is None


@pytest.mark.parametrize("loses", ["nothing", "checkpoint", "consumequeue"])
def test_a_crash_leaves_the_same(tmp_path: Path, clock: ManualClock, loses: str) -> None:
    store = open_store(tmp_path / "data", clock)
    fill(store, 1200, 3, clock)
    store.compact({"prices"})
    put(store, "k0", "later")
    expected = content(store)
    crashed = crashed_copy(tmp_path / "data", tmp_path / "crashed")
    store.close()
    if loses == "checkpoint":
        for path in crashed.glob("checkpoint*"):
            path.unlink()
    if loses == "consumequeue":
        for path in (crashed / "consumequeue").rglob("0000*"):
            path.unlink()
    again = open_store(crashed, clock)
    assert content(again) == expected
    again.close()


def test_retention_compacts_what_it_would_take_and_the_last_values_outlive_their_segments(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = open_store(tmp_path / "data", clock)
    fill(store, 60, 4, clock)
    store.compact({"prices"})
    assert len(content(store)) == 60, "too few to be due"
    for number in range(60):
        put(store, f"o{number}", "x" * 60, topic="orders")
    store.write_checkpoint()
    clock.advance_ms(100 * HOUR_MS)
    retained = store.retain()
    assert retained.removed_segments > 5
    assert content(store) == last_of(60, 4)
    put(store, "k0", "after")
    assert content(store)[60] == "after"
    crashed = crashed_copy(tmp_path / "data", tmp_path / "crashed")
    for path in crashed.glob("checkpoint*"):
        path.unlink()
    expected = content(store)
    store.close()
    again = open_store(crashed, clock)
    assert content(again) == expected
    assert len(segments(crashed)) < 20
    again.close()


def test_a_queue_of_which_the_log_has_nothing_goes_on_behind_its_generation(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path / "data", clock)
    fill(store, 1200, 3, clock)
    store.compact({"prices"})
    store.close()
    for name in ("commitlog", "consumequeue"):
        for path in (tmp_path / "data" / name).rglob("0000*"):
            path.unlink()
    for name in ("checkpoint", "flushed", "manifest"):
        for path in (tmp_path / "data").glob(f"{name}*"):
            path.unlink()
    again = open_store(tmp_path / "data", clock)
    assert content(again) == last_of(1200, 3)
    put(again, "k0", "new")
    assert content(again)[1200] == "new"
    again.close()


def test_a_deleted_topic_leaves_nothing_to_one_of_its_name(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path / "data", clock)
    fill(store, 1200, 3, clock)
    store.compact({"prices"})
    crashed = crashed_copy(tmp_path / "data" / "compaction", tmp_path / "compaction")
    store.delete_topic("prices")
    assert not (tmp_path / "data" / "compaction" / "prices").exists()
    put(store, "k0", "of the new one")
    store.close()
    crashed.rename(tmp_path / "data" / "compaction") if not (tmp_path / "data" / "compaction").exists() else (
        crashed / "prices"
    ).rename(tmp_path / "data" / "compaction" / "prices")
    again = open_store(tmp_path / "data", clock)
    assert content(again) == {0: "of the new one"}
    again.close()


def test_times_lead_to_offsets_over_the_gaps(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path / "data", clock)
    start_ms = clock.now_ms()
    fill(store, 1200, 3, clock)
    store.compact({"prices"})
    assert store.offset_by_time("prices", 0, start_ms + 1199_000) == 1199
    assert store.offset_by_time("prices", 0, start_ms + 1199_001) == 1200
    assert store.offset_by_time("prices", 0, start_ms + 1198_500, upper=True) == 1198
    found = store.offset_by_time("prices", 0, start_ms)
    assert store.entries("prices", 0, found, 1)[0].queue_offset == 1197
    assert store.last_store_timestamp_ms("prices", 0) == start_ms + 1199_000
    store.close()
