"""Bits that flip on the disk are found on reading, and never served."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles
from store_samples import SMALL, bodies, crashed_copy, pending, segments

from millstream.model.errors import StoreError
from millstream.store.message_store import MessageStore

SENT = [b"a body of some length %d" % number for number in range(8)]


def _open(directory: Path) -> MessageStore:
    return MessageStore.open(directory, SMALL, files=HastyFiles())


def _filled(directory: Path) -> MessageStore:
    store = _open(directory)
    store.put([pending(body, tag="paid") for body in SENT])
    return store


def _readable(store: MessageStore) -> dict[int, bytes]:
    readable = {}
    for entry in store.entries("orders", 0, 0, 100):
        try:
            readable[entry.queue_offset] = bytes(store.read(entry))
        except StoreError as error:
            if error.name != "RECORD_DAMAGED":
                raise
    return readable


def test_each_flipped_bit_costs_its_own_record_and_no_other(scratch: Path) -> None:
    store = _filled(scratch)
    whole = _readable(store)
    assert len(whole) == len(SENT)
    with segments(scratch)[0].open("r+b", buffering=0) as log:
        content = log.read(store.written_log_offset)
        entries = store.entries("orders", 0, 0, 100)
        for entry in entries[:3]:
            for bit in range(entry.log_offset * 8, (entry.log_offset + entry.size_bytes) * 8):
                log.seek(bit // 8)
                log.write(bytes([content[bit // 8] ^ 1 << bit % 8]))
                with pytest.raises(StoreError) as caught:
                    store.read(entry)
                assert caught.value.name == "RECORD_DAMAGED", f"bit {bit}"
                log.seek(bit // 8)
                log.write(content[bit // 8 : bit // 8 + 1])
            assert bytes(store.read(entry)) == whole[entry.queue_offset]


@pytest.mark.long
def test_a_start_over_any_flipped_bit_succeeds_and_serves_nothing_altered(scratch: Path) -> None:
    """The log up to the checkpoint stays; only what is damaged is missing, whichever file the bit is in."""
    store = _filled(scratch / "store")
    whole = _readable(store)
    store.close()
    paths = [path for path in (scratch / "store").rglob("*") if path.is_file() and path.stat().st_size]
    choose = random.Random(5)
    for path in paths:
        size = min(path.stat().st_size, store.written_log_offset)
        for bit in choose.sample(range(size * 8), min(size * 8, 60)):
            directory = crashed_copy(scratch / "store", scratch / "damaged")
            target = directory / path.relative_to(scratch / "store")
            content = bytearray(target.read_bytes())
            content[bit // 8] ^= 1 << bit % 8
            target.write_bytes(content)
            damaged = _open(directory)
            readable = _readable(damaged)
            assert readable.items() <= whole.items(), f"bit {bit} of {path.name}"
            assert len(readable) >= len(whole) - (path.parent.name == "commitlog")
            assert damaged.put([pending()])[0].queue_offset == len(SENT)
            damaged.close()


def test_two_records_that_changed_places_are_both_found(scratch: Path) -> None:
    store = _filled(scratch)
    entries = store.entries("orders", 0, 0, 100)
    first, second = entries[1], entries[2]
    assert first.size_bytes == second.size_bytes
    with segments(scratch)[0].open("r+b", buffering=0) as log:
        content = log.read()
        for here, there in ((first, second), (second, first)):
            log.seek(here.log_offset)
            log.write(content[there.log_offset : there.log_offset + there.size_bytes])
    assert sorted(_readable(store)) == [0, 3, 4, 5, 6, 7]
    store.close()


def test_an_entry_made_up_by_a_caller_reads_nothing(scratch: Path) -> None:
    store = _filled(scratch)
    entry = store.entries("orders", 0, 3, 1)[0]
    for wrong in (
        entry._replace(log_offset=entry.log_offset + 1),
        entry._replace(log_offset=10**15),
        entry._replace(log_offset=-1),
        entry._replace(size_bytes=entry.size_bytes - 1),
        entry._replace(size_bytes=0),
        entry._replace(size_bytes=-5),
        entry._replace(queue_offset=4),
    ):
        with pytest.raises(StoreError):
            store.read(wrong)
    assert bodies(store)[3] == SENT[3]
    store.close()
