"""Readers, puts, searches and retention at the same time: what is read is right or gone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles
from store_samples import SMALL

from millstream.model.clock import ManualClock
from millstream.model.errors import StoreError
from millstream.model.message import OutgoingMessage
from millstream.protocol.record import decode_record
from millstream.store.message_store import IndexEntry, MessageStore, PendingRecord

ROUNDS = 300


def put(store: MessageStore, number: int) -> None:
    body = b"%06d" % number + b"." * 60
    store.put([PendingRecord(OutgoingMessage("orders", body, {"KEYS": f"k{number % 7}"}), 0)])


def read_all(store: MessageStore, stop: threading.Event) -> int:
    """Read and search until told to stop; how many records were read."""
    seen = 0
    while not stop.is_set():
        first = store.min_offset("orders", 0)
        for entry in store.entries("orders", 0, first, 50):
            record = read_or_gone(store, entry)
            if record is not None:
                seen += 1
                assert int(decode_record(record).body[:6]) == entry.queue_offset
        for record in store.find_by_key("orders", "k3", 0, 2**62, 5):
            assert int(decode_record(record).body[:6]) % 7 == 3
    return seen


def read_or_gone(store: MessageStore, entry: IndexEntry) -> memoryview | None:
    try:
        return store.read(entry)
    except StoreError:
        if store.min_offset("orders", 0) <= entry.queue_offset:
            raise
        return None


@pytest.mark.parametrize("readers", [3])
def test_readers_never_meet_a_wrong_record_while_segments_go(tmp_path: Path, readers: int) -> None:
    clock = ManualClock()
    store = MessageStore.open(tmp_path, SMALL, clock=clock, files=HastyFiles())
    stop = threading.Event()
    pool = ThreadPoolExecutor(readers)
    reading = [pool.submit(read_all, store, stop) for _ in range(readers)]
    removed = 0
    for number in range(ROUNDS):
        put(store, number)
        clock.advance_ms(3_600_000)
        if number % 10 == 9:
            store.write_checkpoint()
            removed += store.retain().removed_segments
    stop.set()
    pool.shutdown()
    assert all(future.result() for future in reading)
    assert removed > 5
    store.close()
