"""A broker over an object store: what went up is read as if it had never left, whatever happens to either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from broker_bench import Bench, bodies
from crash.faulty_objects import FaultyObjects, ObjectFault

from millstream.broker import cold_tier
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import GRACE_MS, TieredOptions
from millstream.broker.queues import reader
from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullStatus, QueuePoint
from millstream.model.topic import TopicConfig
from millstream.store.message_store import StoreOptions
from millstream.store.retention import DiskState
from millstream.tiered.places import ObjectPlace

HOUR_MS = 3_600_000
SMALL = StoreOptions(segment_bytes=16 * 1024, consume_queue_entries=32, flush_interval_ms=20)
OPTIONS = TieredOptions(roll_s=0.0, stretch_bytes=8 * 1024, keep_hours=1000)


@asynccontextmanager
async def cold_bench(
    directory: Path,
    objects: FaultyObjects,
    clock: ManualClock,
    options: TieredOptions = OPTIONS,
    store: StoreOptions = SMALL,
) -> AsyncIterator[Bench]:
    broker = Broker(
        directory, options=BrokerOptions(store=store, tiered=options), clock=clock, open_objects=lambda: objects
    )
    await broker.start()
    try:
        broker.topics.create(TopicConfig("t"))
        await broker.cold.check_owner()
        yield Bench(broker, clock)
    finally:
        await broker.close()


@pytest.fixture
def objects() -> FaultyObjects:
    return FaultyObjects()


def chunks(objects: FaultyObjects) -> set[str]:
    """The keys of all objects that hold messages."""
    return {key for key in objects.objects if key.endswith(".msc")}


async def upload_all(bench: Bench) -> None:
    store = bench.broker.maintenance.store
    store.flush()
    while bench.broker.cold.report().behind_bytes:
        await bench.broker.cold.upload_due()


async def make_cold(bench: Bench) -> int:
    """Bring all up and let go of the log but for its last segment; the first offset of `t` that it still has."""
    await upload_all(bench)
    bench.clock.advance_ms(100 * HOUR_MS)
    await bench.send("last")
    store = bench.broker.maintenance.store
    store.write_checkpoint()
    await bench.broker.maintenance.retain()
    assert store.log_start > 0
    return local_min(bench)


def local_min(bench: Bench) -> int:
    """The first offset of `t` that the log has."""
    store = bench.broker.maintenance.store
    return store.offset_by_time("t", 0, 0)


async def fill(bench: Bench, count: int = 300) -> list[str]:
    names = [f"message {number} {'x' * 50}" for number in range(count)]
    for name in names:
        await bench.send(name)
    return names


async def read_all(bench: Bench) -> list[str]:
    found: list[str] = []
    offset = 0
    while True:
        result = await bench.pull(offset, max_messages=32)
        if result.status is not PullStatus.FOUND:
            return found
        found += [body_of(record) for record in result.records]
        assert result.next_offset > offset
        offset = result.next_offset


def body_of(record: bytes | memoryview) -> str:
    from millstream.protocol.record import decode_record

    return decode_record(record).body.decode()


async def test_pulls_cross_the_border_and_miss_nothing(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = await fill(bench)
        first_local = await make_cold(bench)
        assert 0 < first_local < len(names)
        assert bench.broker.maintenance.store.min_offset("t", 0) == 0
        assert await read_all(bench) == [*names, "last"]


async def test_pops_take_cold_messages_once_and_in_order(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = await fill(bench)
        await make_cold(bench)
        found: list[str] = []
        while popped := await bench.pop(max_messages=32):
            found += bodies(popped)
            bench.ack(*popped)
        assert found == [*names, "last"]


async def test_a_cold_message_that_was_not_acknowledged_comes_again(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = await fill(bench)
        await make_cold(bench)
        assert bodies(await bench.pop(max_messages=2, invisible_ms=10_000)) == names[:2]
        bench.clock.advance_ms(10_001)
        # Nothing of it is at hand any more.
        for key in list(objects.objects):
            bench.broker.cold.blocks.forget(key)
        assert bodies(await bench.pop(max_messages=2, invisible_ms=10_000)) == names[:2]


async def test_a_store_that_does_not_answer_moves_no_reader(
    tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "AWAY_PAUSE_S", 0.01)
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = await fill(bench)
        await make_cold(bench)
        objects.plan.extend([ObjectFault.BEFORE] * 40)
        result = await bench.pull(0, max_messages=4)
        assert (result.status, result.next_offset) == (PullStatus.NOTHING_NEW, 0)
        assert await bench.pop(max_messages=4) == []
        objects.plan.clear()
        assert bodies(await bench.pop(max_messages=2)) == names[:2]
        assert await read_all(bench) == [*names, "last"]


async def test_all_is_found_again_after_a_restart(tmp_path: Path, objects: FaultyObjects) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path, objects, clock) as bench:
        names = await fill(bench)
        await make_cold(bench)
    async with cold_bench(tmp_path, objects, clock) as bench:
        assert await read_all(bench) == [*names, "last"]


async def test_nothing_leaves_the_disk_before_it_is_in_the_object_store(tmp_path: Path, objects: FaultyObjects) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path, objects, clock, TieredOptions(roll_s=1e9, stretch_bytes=1 << 40)) as bench:
        await fill(bench)
        clock.advance_ms(1000 * HOUR_MS)
        store = bench.broker.maintenance.store
        store.flush()
        store.write_checkpoint()
        await bench.broker.maintenance.retain()
        assert store.log_start == 0


@pytest.mark.parametrize("drops", [False, True])
async def test_a_full_disk_drops_what_did_not_go_up_only_where_the_settings_say_so(
    tmp_path: Path, objects: FaultyObjects, drops: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = TieredOptions(roll_s=1e9, stretch_bytes=8 * 1024, keep_hours=1000, drops_unuploaded=drops)
    async with cold_bench(tmp_path, objects, ManualClock(), options) as bench:
        names = await fill(bench, 50)
        store = bench.broker.maintenance.store
        store.flush()
        await bench.broker.cold.upload_due()
        [first] = bench.broker.cold.map.ranges("t", 0)
        names += await fill(bench)
        store.flush()
        store.write_checkpoint()
        full = True
        store._retainer._disk = lambda: DiskState(1000, 0 if full else 900)
        for _ in range(2):
            await bench.broker.maintenance.retain()
        full = False
        await bench.broker.maintenance.retain()
        if not drops:
            assert store.log_start <= bench.broker.cold.map.uploaded_log_offset
            return
        assert store.log_start > bench.broker.cold.map.uploaded_log_offset
        kept = names[: first.next_queue_offset] + names[local_min(bench) :]
        assert await read_all(bench) == kept
        while await bench.broker.cold.upload_due():
            pass
        assert bench.broker.cold.report().dropped_bytes > 0
        assert len([one for one in caplog.messages if "let go before it went up" in one]) == 1
        assert await read_all(bench) == kept


async def test_what_an_upload_left_is_deleted_by_the_next(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = await fill(bench)
        bench.broker.maintenance.store.flush()
        objects.plan.extend([ObjectFault.AFTER, ObjectFault.DENIED])
        with pytest.raises(Exception, match="refuses"):
            await bench.broker.cold.upload_due()
        [left] = chunks(objects)
        objects.plan.clear()
        await make_cold(bench)
        assert left not in objects.objects
        assert {one.key for _, one in bench.broker.cold.map.objects} == chunks(objects)
        assert await read_all(bench) == [*names, "last"]


async def test_messages_go_when_their_time_is_over_and_their_objects_a_little_later(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with cold_bench(
        tmp_path, objects, ManualClock(), TieredOptions(keep_hours=200, roll_s=0.0, stretch_bytes=8 * 1024)
    ) as bench:
        names = await fill(bench)
        first_local = await make_cold(bench)
        bench.clock.advance_ms(150 * HOUR_MS)
        await bench.broker.cold.clean()
        assert bench.broker.maintenance.store.min_offset("t", 0) == first_local
        assert chunks(objects)
        bench.clock.advance_ms(GRACE_MS + 1)
        await bench.broker.cold.clean()
        assert not chunks(objects)
        assert bench.broker.cold.report().removed_objects == 0
        assert (await read_all_from(bench, first_local))[-1] == "last"
        assert len(names) > first_local


async def read_all_from(bench: Bench, offset: int) -> list[str]:
    result = await bench.broker.queues.pull(PullRequest("g", "t", 0, offset, max_messages=1000))
    return [body_of(record) for record in result.records]


async def test_a_topic_made_anew_has_nothing_of_the_one_that_was_deleted(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        await fill(bench)
        await make_cold(bench)
        bench.broker.topics.delete("t")
        bench.broker.topics.create(TopicConfig("t"))
        await bench.send("new")
        assert await read_all(bench) == ["new"]
        bench.clock.advance_ms(GRACE_MS + 1)
        await bench.broker.cold.clean()
        assert not chunks(objects)


async def test_a_topic_made_anew_within_one_stretch_goes_up(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(
        tmp_path, objects, ManualClock(), TieredOptions(roll_s=0.0, stretch_bytes=1 << 30, keep_hours=1000)
    ) as bench:
        await bench.send("of the topic that was deleted")
        bench.broker.topics.delete("t")
        bench.broker.topics.create(TopicConfig("t"))
        names = await fill(bench)
        assert await make_cold(bench) > 0
        assert await read_all(bench) == [*names, "last"]


async def test_compacted_and_system_topics_stay(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        bench.broker.topics.create(TopicConfig("compacted", attributes={"cleanup.policy": "COMPACTION"}))
        message = OutgoingMessage("compacted", b"value", {"KEYS": "k"}, queue_id=0)
        await bench.broker.delivery.send([message])
        await fill(bench)
        await upload_all(bench)
        assert {topic for topic, _ in bench.broker.cold.map.queues()} == {"t"}


async def test_many_readers_of_one_block_cost_one_request(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        await fill(bench)
        await make_cold(bench)
        objects.calls.clear()
        results = await asyncio.gather(*(bench.pull(0, max_messages=4) for _ in range(20)))
        assert len({tuple(map(bytes, result.records)) for result in results}) == 1
        assert len(objects.calls) == 3


async def test_a_time_is_found_on_both_sides_of_the_border(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        queues = bench.broker.queues
        times = []
        for number in range(300):
            times.append(bench.clock.now_ms())
            await bench.send(f"{number} {'x' * 60}")
            bench.clock.advance_ms(1000)
        first_local = await make_cold(bench)
        assert 0 < first_local < 300
        for number in (0, 1, 17, first_local - 1, first_local, 299):
            for found in (
                queues.offset_by_time("t", 0, times[number] - 500),
                queues.offset_by_time("t", 0, times[number]),
                queues.offset_by_time("t", 0, times[number] + 500, True),
                queues.find_offset("t", 0, QueuePoint.TIME, times[number]),
            ):
                assert not isinstance(found, int)
                assert await found == number
        objects.calls.clear()
        behind_border = queues.find_offset("t", 0, QueuePoint.TIME, times[first_local + 1])
        assert not isinstance(behind_border, int)
        assert await behind_border == first_local + 1
        assert objects.calls == []
        assert queues.first_stored_ms("t", 0) == times[0]
        assert queues.backlog_bytes("t", 0, 0) > 0
        await bench.pop(max_messages=1)
        [progress] = [one for one in queues.own_progress("g", "t") if one.queue_id == 0]
        assert (progress.ready, progress.in_flight, progress.oldest_ms) == (300, 1, times[0])


async def test_a_key_is_found_on_both_sides_of_the_border_once(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        for number in range(300):
            await bench.send(f"{number} {'x' * 60}", KEYS=f"k{number % 10} other")
            bench.clock.advance_ms(10)
        await make_cold(bench)
        found = await bench.broker.queues.find_by_key("t", "k7", 0, 1 << 60, 64)
        assert [body_of(record).split()[0] for record in found] == [str(n) for n in range(297, 0, -10)]
        assert len(await bench.broker.queues.find_by_key("t", "other", 0, 1 << 60, 40)) == 40
        assert await bench.broker.queues.find_by_key("t", "never", 0, 1 << 60, 64) == []


async def test_readers_hear_where_the_messages_lie_that_the_disk_has_let_go(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    place = ObjectPlace("s3://bucket/prefix", region="r")
    async with cold_bench(tmp_path, objects, ManualClock(), replace(OPTIONS, place=place)) as bench:
        await fill(bench)
        first_local = await make_cold(bench)
        found = bench.broker.cold.list_ranges("t", 0, 40, 10_000)
        assert (found.place, found.end_offset, found.disk_offset) == (place, 10_000, first_local)
        assert found.ranges[0].first_queue_offset <= 40 < found.ranges[0].next_queue_offset
        assert found.ranges[-1].first_queue_offset < first_local <= found.ranges[-1].next_queue_offset
        for one, following in pairwise(found.ranges):
            assert one.next_queue_offset == following.first_queue_offset
        assert all(len(objects.objects[one.key]) == one.size_bytes for one in found.ranges)
        # What is behind the disk's first offset is nobody's to fetch.
        assert bench.broker.cold.list_ranges("t", 0, first_local, 10_000).ranges == ()
        assert bench.broker.cold.list_ranges("missing", 0, 0, 10_000).ranges == ()


async def test_a_long_answer_ends_early_and_says_where(
    tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_tier, "MAX_LISTED_RANGES", 1)
    async with cold_bench(
        tmp_path, objects, ManualClock(), replace(OPTIONS, place=ObjectPlace("s3://bucket/prefix"))
    ) as bench:
        await fill(bench)
        first_local = await make_cold(bench)
        offset, keys = 0, []
        while offset < first_local:
            found = bench.broker.cold.list_ranges("t", 0, offset, first_local)
            keys += [one.key for one in found.ranges]
            assert found.end_offset > offset
            offset = found.end_offset
        assert len(keys) == len({*keys}) > 2


async def test_a_store_that_others_cannot_open_is_told_to_nobody(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        await fill(bench)
        await make_cold(bench)
        found = bench.broker.cold.list_ranges("t", 0, 0, 10_000)
        assert (found.place, found.ranges, found.end_offset) == (None, (), 10_000)
