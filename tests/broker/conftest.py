"""Fixtures of the broker's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from broker_bench import Bench, open_bench

from millstream.model.errors import StoreError
from millstream.store.message_store import IndexEntry, MessageStore


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path) as opened:
        yield opened


@pytest.fixture
def damage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the record at an offset of queue 0 fail its checksum from now on."""
    damaged: set[int] = set()
    read = MessageStore.read

    def read_or_fail(store: MessageStore, entry: IndexEntry) -> memoryview:
        if entry.queue_offset in damaged:
            raise StoreError("RECORD_DAMAGED", f"The record at log offset {entry.log_offset} is damaged.")
        return read(store, entry)

    monkeypatch.setattr(MessageStore, "read", read_or_fail)
    return damaged.add
