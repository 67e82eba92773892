"""Messages found by key through the store: indexed or not yet, after crashes, retention and deletion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles, HastyFiles
from store_samples import SMALL, crashed_copy

from millstream.model.clock import ManualClock
from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import decode_record
from millstream.store.message_store import MessageStore, PendingRecord

HOUR_MS = 3_600_000
EVER = 2**62


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def open_store(directory: Path, clock: ManualClock, **options: bool) -> MessageStore:
    return MessageStore.open(directory, replace(SMALL, **options), clock=clock, files=HastyFiles())  # type: ignore[arg-type]


def put(store: MessageStore, body: str, *, topic: str = "orders", **properties: str) -> None:
    store.put([PendingRecord(OutgoingMessage(topic, body.encode(), properties, born_host=Address("10.0.0.9", 4)), 0)])


def found(store: MessageStore, key: str, *, topic: str = "orders", begin_ms: int = 0, end_ms: int = EVER) -> list[str]:
    return [decode_record(record).body.decode() for record in store.find_by_key(topic, key, begin_ms, end_ms)]


@pytest.mark.parametrize("indexed", ["all", "some", "none"])
def test_each_word_of_the_keys_and_the_unique_key_lead_to_the_messages_newest_first(
    tmp_path: Path, clock: ManualClock, indexed: str
) -> None:
    store = open_store(tmp_path / "data", clock)
    put(store, "a", KEYS="k1 k2", UNIQ_KEY="U1")
    put(store, "b", KEYS="k2", UNIQ_KEY="U2")
    if indexed != "none":
        store.write_checkpoint()
    put(store, "c", KEYS="k2", topic="other")
    put(store, "d", KEYS="k3 k2")
    if indexed == "all":
        store.write_checkpoint()
    assert found(store, "k2") == ["d", "b", "a"]
    assert (found(store, "k1"), found(store, "U2"), found(store, "k")) == (["a"], ["b"], [])
    assert found(store, "k2", topic="other") == ["c"]
    crashed = crashed_copy(tmp_path / "data", tmp_path / "crashed")
    store.close()
    again = open_store(crashed, clock)
    assert found(again, "k2") == ["d", "b", "a"]
    again.close()


def test_what_is_not_visible_is_not_found(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path / "data", clock, sync_flush=True)
    put(store, "a", KEYS="k")
    assert found(store, "k") == []
    store.flush_log()
    assert found(store, "k") == ["a"]
    store.close()


def test_what_retention_or_deletion_took_is_not_found(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path / "data", clock)
    for number in range(40):
        put(store, f"{number}" + "." * 60, KEYS="k", topic="orders")
        put(store, f"{number}", KEYS="k", topic="short")
        put(store, f"{number}", KEYS="k", topic="gone")
        clock.advance_ms(HOUR_MS)
    store.write_checkpoint()
    store.delete_topic("gone")
    assert found(store, "k", topic="gone") == []
    store.retain({"short": 3 * HOUR_MS})
    assert found(store, "k", topic="short") == ["39", "38", "37"]
    clock.advance_ms(60 * HOUR_MS)
    assert store.retain().removed_segments > 0
    oldest = store.min_offset("orders", 0)
    left = store.find_by_key("orders", "k", 0, EVER, 64)
    assert [decode_record(record).queue_offset for record in left] == list(range(39, oldest - 1, -1))
    store.close()


def test_a_time_range_bounds_the_answer(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(tmp_path / "data", clock)
    start_ms = clock.now_ms()
    for number in range(6):
        put(store, str(number), KEYS="k")
        clock.advance_ms(1000)
    store.write_checkpoint()
    assert found(store, "k", begin_ms=start_ms + 1000, end_ms=start_ms + 3000) == ["3", "2", "1"]
    store.close()


def test_an_index_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path, clock: ManualClock) -> None:
    class NoRoomForIndex(FailingFiles):
        def open(self, path: Path, *, create: bool = False) -> int:
            if create and "index" in path.parts:
                raise OSError(28, "No space left on device")
            return super().open(path, create=create)

    store = MessageStore.open(tmp_path / "data", SMALL, clock=clock, files=NoRoomForIndex())
    put(store, "a", KEYS="k")
    store.write_checkpoint()
    assert found(store, "k") == ["a"]
    store.close()
