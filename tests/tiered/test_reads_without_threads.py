"""Blocks that the event loop reads without a thread: once for all who want them, and by a thread where that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from crash.faulty_objects import FaultyObjects

from millstream.model.message import OutgoingMessage
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions
from millstream.tiered.chunk import BlockInfo
from millstream.tiered.cold_blocks import ColdBlocks
from millstream.tiered.cold_map import ColdMap, ColdRange, ColdStretch, commit_stretch
from millstream.tiered.cold_work import BlockBytes, StretchName, WorkHere
from millstream.tiered.objects import ObjectStoreAway
from patience import eventually, within_patience


class SoonWork(WorkHere):
    """Work for an event loop that is done once `go_on` is set, and fails with `error`."""

    reads_soon = True  # type: ignore[misc]

    def __init__(self, objects: FaultyObjects) -> None:
        super().__init__(objects)
        self.go_on = asyncio.Event()
        self.asked = 0
        self.error: Exception | None = None

    async def read_soon(self, key: str, info: BlockInfo) -> BlockBytes:
        self.asked += 1
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return self.read_block(key, info)


class Bench:
    """An object of one queue whose footer is at hand."""

    def __init__(self, directory: Path) -> None:
        store = MessageStore.open(directory / "store", StoreOptions())
        for number in range(100):
            store.put([PendingRecord(OutgoingMessage("t", b"%d" % number, {}), 0)])
        store.flush()
        objects = FaultyObjects()
        self.work = SoonWork(objects)
        row = ColdStretch(0, 0, store.visible_log_offset)
        self.work.gather(store.walk_log(0, row.log_end), {"t": 0}, 1 << 30)
        cold = ColdMap()
        cold.apply("s", commit_stretch(row, self.work.put(StretchName("c", "b", "s"), row, {})))
        store.close()
        found = cold.find("t", 0, 0)
        assert found is not None
        self.where: ColdRange = found
        self.blocks = ColdBlocks(objects, self.work)
        self.blocks._footer(self.where.key)

    def is_at_hand(self) -> bool:
        return self.blocks.find_cached("t", 0, self.where, 0) is not None

    def fetch(self) -> asyncio.Task[bool]:
        return asyncio.ensure_future(self.blocks.fetch_soon("t", 0, self.where, 0))


async def test_a_block_is_read_once_for_all_who_want_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    fetches = [bench.fetch() for _ in range(3)]
    thread = asyncio.ensure_future(asyncio.to_thread(bench.blocks.fetch, "t", 0, bench.where, 0))
    await eventually(lambda: bench.work.asked)
    bench.work.go_on.set()
    assert await within_patience(asyncio.gather(*fetches)) == [True] * 3
    assert len(await within_patience(thread)) == 100
    assert bench.work.asked == 1
    assert bench.is_at_hand()
    counters = bench.blocks.counters
    assert (counters.blocks_wanted, counters.blocks_cached) == (4, 3)


async def test_a_read_that_fails_is_left_to_a_thread(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.work.error = ObjectStoreAway("it ended")
    bench.work.go_on.set()
    assert not await bench.fetch()
    assert not bench.is_at_hand()
    assert not bench.blocks.losses.passed_over
    bench.blocks.fetch("t", 0, bench.where, 0)
    assert bench.is_at_hand()


async def test_who_gives_up_leaves_the_others_an_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first, second = bench.fetch(), bench.fetch()
    await eventually(lambda: bench.work.asked)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    # A thread reads it for the second one.
    assert not await within_patience(second)


async def test_what_is_not_known_well_enough_is_left_to_a_thread(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.work.go_on.set()
    assert not await bench.blocks.fetch_soon("other", 0, bench.where, 0)
    assert not await bench.blocks.fetch_soon("t", 0, bench.where, 100)
    bench.blocks.forget(bench.where.key)
    assert not await bench.fetch()
    assert not bench.work.asked
