"""A broker whose cold work is done by a process of its own: no message is lost or comes twice however that ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from broker_bench import Bench

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import ColdTier, TieredOptions
from millstream.broker.queues import reader
from millstream.model.backoff import Backoff
from millstream.model.clock import ManualClock
from millstream.model.operations import PullResult, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.store.message_store import StoreOptions
from millstream.tiered.objects import ObjectStoreAway
from millstream.tiered.places import ObjectPlace
from millstream.tiered.process import cold_process
from patience import eventually

pytestmark = pytest.mark.process

HOUR_MS = 3_600_000
COUNT = 400


@asynccontextmanager
async def cold_bench(directory: Path) -> AsyncIterator[Bench]:
    place = ObjectPlace(f"file://{directory}/objects")
    tiered = TieredOptions(roll_s=0.0, stretch_bytes=8 * 1024, keep_hours=1000, place=place, own_process=True)
    store = StoreOptions(segment_bytes=16 * 1024, consume_queue_entries=32, flush_interval_ms=20)
    clock = ManualClock()
    options = BrokerOptions(store=store, tiered=tiered)
    broker = Broker(directory / "data", options=options, clock=clock, open_objects=place.open)
    await broker.start()
    try:
        broker.topics.create(TopicConfig("t"))
        await broker.cold.check_owner()
        yield Bench(broker, clock)
    finally:
        await broker.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "AWAY_PAUSE_S", 0.01)
    monkeypatch.setattr(cold_process, "_RESTARTS", Backoff(0.01, 0.01))


async def upload_all(bench: Bench) -> None:
    bench.broker.maintenance.store.flush()
    while bench.broker.cold.report().behind_bytes:
        await bench.broker.cold.upload_due()


async def make_cold(bench: Bench) -> list[str]:
    """Messages of which all but the last ones are in the object store alone."""
    names = [f"message {number} {'x' * 50}" for number in range(COUNT)]
    for name in names:
        await bench.send(name)
    await upload_all(bench)
    bench.clock.advance_ms(100 * HOUR_MS)
    await bench.send("last")
    store = bench.broker.maintenance.store
    store.write_checkpoint()
    await bench.broker.maintenance.retain()
    assert store.log_start > 0
    return [*names, "last"]


def stop(bench: Bench, sign: int) -> None:
    pid = bench.broker.cold.report().process
    assert pid is not None
    os.kill(pid, sign)


def is_under_way(cold: ColdTier, pull: asyncio.Future[PullResult]) -> bool:
    """Whether it waits for the process, or is done already."""
    return pull.done() or waits(cold)


def waits(cold: ColdTier) -> bool:
    """Whether the process has something under way."""
    run = cold._work._run  # type: ignore[attr-defined]
    return run is not None and bool(run.waiting)


async def test_pulls_miss_nothing_and_read_nothing_twice_while_it_is_killed(tmp_path: Path) -> None:
    async with cold_bench(tmp_path) as bench:
        names = await make_cold(bench)
        found: list[str] = []
        cold = bench.broker.cold
        while len(found) < len(names):
            for key in {one.key for _, one in cold.map.objects}:
                cold.blocks.forget(key)
            is_first = len(found) % 3 == 0 and cold.report().process is not None
            if is_first:
                stop(bench, signal.SIGSTOP)
            pull = asyncio.ensure_future(bench.pull(len(found), max_messages=32, wait_ms=60_000))
            if is_first:
                await eventually(partial(is_under_way, cold, pull))
                stop(bench, signal.SIGKILL)
            result = await pull
            assert result.status is PullStatus.FOUND
            found += [decode_record(record).body.decode() for record in result.records]
        assert found == names
        assert cold.report().process_starts > 1


async def test_an_upload_during_which_it_is_killed_is_made_again(tmp_path: Path) -> None:
    async with cold_bench(tmp_path) as bench:
        for number in range(COUNT):
            await bench.send(f"message {number} {'x' * 50}")
        bench.broker.maintenance.store.flush()
        cold = bench.broker.cold
        await cold.upload_due()
        assert cold.map.uploaded_log_offset > 0
        before = cold.map.uploaded_log_offset
        stop(bench, signal.SIGSTOP)
        upload = asyncio.ensure_future(cold.upload_due())
        await eventually(lambda: waits(cold))
        stop(bench, signal.SIGKILL)
        with pytest.raises(ObjectStoreAway):
            await upload
        assert cold.map.uploaded_log_offset == before
        await asyncio.sleep(0.02)
        await upload_all(bench)
        assert not cold.map.begun
        assert cold.report().process_starts == 2


async def test_it_ends_with_its_broker_and_is_not_there_before_it_is_needed(tmp_path: Path) -> None:
    async with cold_bench(tmp_path) as bench:
        assert bench.broker.cold.report().process is None
        await make_cold(bench)
        pid = bench.broker.cold.report().process
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
