"""Queries in some threads while another one extends, merges and trims, and the log grows."""

from __future__ import annotations

import threading
from pathlib import Path

from key_index_samples import ALL_TIMES, IndexedStore, keyed

PUTS = 150


def test_queries_are_right_while_the_index_changes_under_them(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    log = indexed.store._log
    stored: list[tuple[str, int, int]] = []  # key, log offset, end of the log behind it
    is_over = threading.Event()
    wrong: list[object] = []
    asked = []

    def ask(seed: int) -> None:
        number = seed
        while not is_over.is_set() or number < 50:
            number += 7
            known = list(stored)
            if not known:
                continue
            key, log_offset, end = known[number % len(known)]
            start = log.start
            found = indexed.index.find("orders", key, *ALL_TIMES, visible_log_offset=end)
            if found != [log_offset] and log_offset >= max(start, log.start):
                wrong.append((key, log_offset, found))
            common = indexed.index.find("orders", "same", *ALL_TIMES, 3, visible_log_offset=end)
            if common[:1] != [log_offset] and log_offset >= log.start:
                wrong.append(("same", log_offset, common))
            asked.append(key)

    def put_and_extend() -> None:
        for number in range(PUTS):
            (offset,) = indexed.put(keyed(f"k{number} same"))
            stored.append((f"k{number}", offset, indexed.end))
            assert indexed.extend()
            if number % 40 == 39:
                indexed.remove_oldest_segment()
                indexed.index.trim(log.start)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        put_and_extend()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert asked
    assert not any(run.is_damaged for run in indexed.index._runs)
    indexed.close()
