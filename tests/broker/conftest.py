"""Fixtures of the broker's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from broker_bench import Bench, open_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path) as opened:
        yield opened


@pytest.fixture
def damage(bench: Bench) -> Callable[[int], None]:
    """Spoils a byte of each topic's record at an offset of queue 0, in the file."""

    def spoil(queue_offset: int) -> None:
        store = bench.broker.maintenance.store
        (segment,) = (bench.broker.directory / "store" / "commitlog").iterdir()
        with segment.open("r+b") as file:
            for entry in [found for topic in store.topics for found in store.entries(topic, 0, queue_offset, 1)]:
                file.seek(entry.log_offset + entry.size_bytes // 2)
                byte = file.read(1)[0]
                file.seek(-1, 1)
                file.write(bytes([byte ^ 1]))

    return spoil
