"""Cold objects of many quiet queues become few: each message stays where it was, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from broker_bench import Bench
from crash.faulty_objects import FaultyObjects
from test_cold_tier import chunks, cold_bench, make_cold

from millstream.broker import cold_tier
from millstream.broker.cold_tier import GRACE_MS, TieredOptions
from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.server.restoring import restore_broker
from millstream.store.message_store import StoreOptions
from millstream.tiered import cold_work
from millstream.tiered.manifests import Manifests
from millstream.tiered.merge_plan import MERGE_AGE_MS, MERGED_ROWS
from millstream.tiered.merging import merge_objects

TOPICS = [f"quiet-{number}" for number in range(20)]
ROUNDS = 20
STORE = StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=32, flush_interval_ms=60_000)
OPTIONS = TieredOptions(roll_s=0.0, keep_hours=1000)


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UPLOAD_INTERVAL_S", "CLEAN_INTERVAL_S"):
        monkeypatch.setattr(cold_tier, name, 1e6)


@pytest.fixture
def objects() -> FaultyObjects:
    return FaultyObjects()


async def send_by_rounds(bench: Bench, rounds: int = ROUNDS) -> None:
    """One message to each topic, then an upload, by rounds a minute apart."""
    for topic in TOPICS:
        if bench.broker.topics.find(topic) is None:
            bench.broker.topics.create(TopicConfig(topic))
    for number in range(rounds):
        for topic in TOPICS:
            message = OutgoingMessage(topic, f"{topic} {number}".encode(), {"KEYS": f"k{number}"}, queue_id=0)
            await bench.broker.delivery.send([message])
        bench.clock.advance_ms(60_000)
        bench.broker.maintenance.store.flush()
        await bench.broker.cold.upload_due()


async def merge_all(bench: Bench) -> int:
    bench.clock.advance_ms(MERGE_AGE_MS + 1)
    assert bench.broker.cold._merges is not None
    bench.broker.cold._merges._looked_s = None
    count = 0
    while await bench.broker.cold.merge_due():
        count += 1
    return count


async def put_manifest(bench: Bench) -> None:
    bench.clock.advance_ms(1)
    bench.broker.cold._changes_unsaid += 1
    while bench.broker.cold._changes_unsaid:
        await bench.broker.cold.upload_due()


async def let_go(bench: Bench) -> None:
    """Say in manifests what was merged, and delete what nobody needs any more."""
    await put_manifest(bench)
    await put_manifest(bench)
    bench.clock.advance_ms(GRACE_MS + 1)
    await bench.broker.cold.clean()


async def read(bench: Bench, topic: str) -> list[str]:
    found: list[str] = []
    while True:
        result = await bench.broker.queues.pull(PullRequest("r", topic, 0, len(found), max_messages=32))
        if result.status is not PullStatus.FOUND:
            return found
        found += [decode_record(record).body.decode() for record in result.records]
        assert result.next_offset == len(found)


async def assert_whole(bench: Bench, rounds: int = ROUNDS, topics: list[str] = TOPICS) -> None:
    for topic in topics:
        assert await read(bench, topic) == [f"{topic} {number}" for number in range(rounds)]


def ranges_of(bench: Bench, topic: str) -> int:
    return len(bench.broker.cold.map.ranges(topic, 0))


async def test_a_days_packs_become_few_and_each_message_is_read_once(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock(), OPTIONS, STORE) as bench:
        await send_by_rounds(bench, 70)
        await make_cold(bench)
        before = len(chunks(objects))
        assert ranges_of(bench, TOPICS[0]) == 70
        read_before = bench.broker.cold.report().bytes_read
        merges = await merge_all(bench)
        # Each of the packs, which are small, was read whole but for its magic numbers.
        assert bench.broker.cold.report().bytes_read - read_before > 64 * 500
        assert merges == bench.broker.cold.report().merges == 8 + 1
        # Eight of the first generation are one of the second.
        assert ranges_of(bench, TOPICS[0]) == 1 + 6
        await assert_whole(bench, 70)
        await let_go(bench)
        assert len(chunks(objects)) <= before // MERGED_ROWS + MERGED_ROWS
        assert {one.key for _, one in bench.broker.cold.map.objects} == chunks(objects)
        await assert_whole(bench, 70)
    async with cold_bench(tmp_path, objects, ManualClock(), OPTIONS, STORE) as bench:
        await assert_whole(bench, 70)


async def test_who_holds_the_map_as_it_was_reads_on_until_the_grace_is_over(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock(), OPTIONS, STORE) as bench:
        await send_by_rounds(bench)
        cold = bench.broker.cold
        held = cold.map.find(TOPICS[0], 0, 3)
        assert held is not None
        assert await merge_all(bench) == ROUNDS // MERGED_ROWS
        now = cold.map.find(TOPICS[0], 0, 3)
        assert now is not None
        assert now.key != held.key
        bench.clock.advance_ms(GRACE_MS)
        await cold.clean()
        block = await asyncio.to_thread(cold.blocks.fetch, TOPICS[0], 0, held, 3)
        assert [decode_record(record).body.decode() for record in block.records] == [f"{TOPICS[0]} 3"]


async def test_merged_objects_stay_while_a_manifest_of_the_last_two_leads_to_them(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock, OPTIONS, STORE) as bench:
        await send_by_rounds(bench)
        await put_manifest(bench)
        assert await merge_all(bench)
        clock.advance_ms(2 * GRACE_MS)
        await bench.broker.cold.clean()
        await restore_and_read(tmp_path / "from-the-one-before", objects)
        await put_manifest(bench)
        clock.advance_ms(2 * GRACE_MS)
        await bench.broker.cold.clean()
    newest = Manifests(objects, "DefaultCluster", "broker-a").keys()[-1]
    whole = objects.objects[newest]
    objects.objects[newest] = whole[:-4]
    await restore_and_read(tmp_path / "from-the-last-but-one", objects)
    objects.objects[newest] = whole
    await restore_and_read(tmp_path / "from-the-last", objects)


async def restore_and_read(directory: Path, objects: FaultyObjects) -> None:
    restore_broker(objects, directory, segment_bytes=STORE.segment_bytes)
    seen = FaultyObjects()
    for key, data in objects.objects.items():
        seen.put(key, data)
    async with cold_bench(directory, seen, ManualClock(), OPTIONS, STORE) as bench:
        await assert_whole(bench)


async def test_messages_are_found_by_key_and_by_time_in_merged_objects(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock(), OPTIONS, STORE) as bench:
        await send_by_rounds(bench)
        await make_cold(bench)
        assert await merge_all(bench)
        store = bench.broker.maintenance.store
        assert store.cold is not None
        for number in range(ROUNDS):
            [record] = store.cold.find_by_key(TOPICS[3], f"k{number}", 0, 1 << 60, 9)
            stored = decode_record(record)
            assert stored.body.decode() == f"{TOPICS[3]} {number}"
            assert store.cold.offset_at(TOPICS[3], 0, stored.store_timestamp_ms) == number
            found = store.cold.find_record(stored.log_offset)
            assert found is not None
            assert bytes(found) == bytes(record)


@pytest.mark.parametrize("step", [1, 2, 3])
async def test_a_merge_that_was_cut_off_is_made_again(tmp_path: Path, objects: FaultyObjects, step: int) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path, objects, clock, OPTIONS, STORE) as bench:
        await send_by_rounds(bench)
        await make_cold(bench)
        before = chunks(objects)
        cold, left, write = bench.broker.cold, step, bench.broker.cold.write

        def fail_at_step(rows: object) -> None:
            nonlocal left
            changes = list(rows)  # type: ignore[call-overload]
            left -= 1 if changes else 0
            if not left:
                raise KeyboardInterrupt
            write(changes)

        cold.write = fail_at_step  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            await merge_all(bench)
        cold.write = write  # type: ignore[method-assign]
        await assert_whole(bench)
        assert before <= chunks(objects)
    async with cold_bench(tmp_path, objects, clock, OPTIONS, STORE) as bench:
        await assert_whole(bench)
        await merge_all(bench)
        await assert_whole(bench)
        assert ranges_of(bench, TOPICS[0]) == ROUNDS // MERGED_ROWS + ROUNDS % MERGED_ROWS
        await let_go(bench)
        assert {one.key for _, one in bench.broker.cold.map.objects} == chunks(objects)
        assert not bench.broker.cold.map.begun
        await assert_whole(bench)


class Meanwhile:
    """What is done in the event loop once all objects of a merge are put, before it is committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
        self._loop, self._act = asyncio.get_running_loop(), act
        monkeypatch.setattr(cold_work, "merge_objects", self)

    def __call__(self, *words: Any) -> Any:
        merged = merge_objects(*words)
        act, self._act = self._act, _nothing
        asyncio.run_coroutine_threadsafe(_await(act), self._loop).result()
        return merged


async def _nothing() -> None:
    pass


async def _await(act: Callable[[], Awaitable[None]]) -> None:
    await act()


async def test_a_topic_that_is_deleted_during_a_merge_is_gone_and_its_successor_empty(
    tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock(), OPTIONS, STORE) as bench:
        await send_by_rounds(bench)

        async def delete() -> None:
            bench.broker.topics.delete(TOPICS[5])
            bench.broker.topics.create(TopicConfig(TOPICS[5]))

        Meanwhile(monkeypatch, delete)
        assert await merge_all(bench)
        assert ranges_of(bench, TOPICS[5]) == 0
        await assert_whole(bench, 0, [TOPICS[5]])
        await assert_whole(bench, topics=[topic for topic in TOPICS if topic != TOPICS[5]])


async def test_messages_whose_time_is_over_during_a_merge_do_not_come_back(
    tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock(), OPTIONS, STORE) as bench:
        await send_by_rounds(bench)

        async def expire() -> None:
            bench.clock.advance_ms(1001 * 3_600_000)
            await bench.broker.cold.clean()

        Meanwhile(monkeypatch, expire)
        assert not await merge_all(bench)
        assert ranges_of(bench, TOPICS[0]) == 0
        await bench.broker.cold.merge_due()
        assert not bench.broker.cold.map.begun


async def test_rows_with_a_damaged_object_are_left_as_they_are(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock(), OPTIONS, STORE) as bench:
        await send_by_rounds(bench)
        where = bench.broker.cold.map.find(TOPICS[0], 0, 2)
        assert where is not None
        whole = objects.objects[where.key]
        objects.objects[where.key] = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
        assert await merge_all(bench) == 0
        assert await merge_all(bench) == 2
        after = bench.broker.cold.map.find(TOPICS[0], 0, 2)
        assert after is not None
        assert after.key == where.key
        objects.objects[where.key] = whole
        await assert_whole(bench)


async def test_a_restored_broker_has_what_was_merged(tmp_path: Path, objects: FaultyObjects) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock, OPTIONS, STORE) as bench:
        await send_by_rounds(bench)
        assert await merge_all(bench)
        await let_go(bench)
    restore_broker(objects, tmp_path / "new", segment_bytes=STORE.segment_bytes)
    async with cold_bench(tmp_path / "new", objects, clock, OPTIONS, STORE) as bench:
        await assert_whole(bench)
