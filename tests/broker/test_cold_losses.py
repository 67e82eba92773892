"""Damaged and missing objects: readers go on behind them, as behind a damaged message of the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from broker_bench import Bench, bodies
from crash.faulty_objects import FaultyObjects, ObjectFault
from test_cold_tier import cold_bench, fill, make_cold, read_all

from millstream.broker.queues import reader
from millstream.model.clock import ManualClock
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, PopRequest, PullStatus
from millstream.tiered.cold_losses import LOSS_MS
from millstream.tiered.cold_map import ColdRange


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> FaultyObjects:
    monkeypatch.setattr(reader, "AWAY_PAUSE_S", 0.01)
    return FaultyObjects()


def damage(objects: FaultyObjects, key: str, how: str) -> None:
    data = objects.objects[key]
    match how:
        case "a block":
            objects.objects[key] = data[:20] + bytes([data[20] ^ 1]) + data[21:]
        case "its footer":
            objects.objects[key] = data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]
        case "its end":
            objects.objects[key] = data[:-100]
        case "all of it":
            del objects.objects[key]


def second_range(bench: Bench) -> ColdRange:
    return bench.broker.cold.map.ranges("t", 0)[1]


def without(names: list[str], lost: ColdRange) -> list[str]:
    return names[: lost.first_queue_offset] + names[lost.next_queue_offset :]


WAYS = ["a block", "its footer", "its end", "all of it"]


@pytest.mark.parametrize("how", WAYS)
async def test_pulls_go_on_behind_a_damaged_object_and_find_it_again_once_it_is_whole(
    tmp_path: Path, objects: FaultyObjects, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = [*await fill(bench), "last"]
        await make_cold(bench)
        lost = second_range(bench)
        whole = objects.objects[lost.key]
        damage(objects, lost.key, how)
        with caplog.at_level(logging.ERROR):
            assert await read_all(bench) == without(names, lost)
            assert await read_all(bench) == without(names, lost)
            assert bench.broker.cold.report().passed_over == 1
            bench.clock.advance_ms(LOSS_MS)
            assert await read_all(bench) == without(names, lost)
        assert bench.broker.cold.report().passed_over == 2
        assert len([one for one in caplog.messages if lost.key in one]) == 1
        objects.objects[lost.key] = whole
        assert await read_all(bench) == without(names, lost)
        bench.clock.advance_ms(LOSS_MS)
        assert await read_all(bench) == names


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("fifo", [False, True])
async def test_pops_go_on_behind_a_damaged_object(tmp_path: Path, objects: FaultyObjects, how: str, fifo: bool) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = [*await fill(bench), "last"]
        await make_cold(bench)
        lost = second_range(bench)
        damage(objects, lost.key, how)
        bench.broker.groups.create(GroupConfig("g", fifo=fifo))
        found: list[str] = []
        while popped := await pop(bench):
            found += bodies(popped)
            for one in popped:
                bench.broker.delivery.ack(AckRequest("g", "t", one.handle))
        assert found == without(names, lost)
        [progress] = [one for one in bench.broker.queues.own_progress("g", "t") if one.queue_id == 0]
        assert (progress.ready, progress.in_flight) == (0, 0)


async def pop(bench: Bench) -> list:  # type: ignore[type-arg]
    return await bench.broker.delivery.pop(PopRequest("g", "t", 60_000, queue_id=0, max_messages=32))


async def test_a_delivery_whose_message_is_lost_meanwhile_holds_up_no_fifo_group(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = [*await fill(bench), "last"]
        await make_cold(bench)
        bench.broker.groups.create(GroupConfig("g", fifo=True))
        assert bodies(await pop(bench))[:1] == names[:1]
        first = bench.broker.cold.map.ranges("t", 0)[0]
        damage(objects, first.key, "all of it")
        bench.broker.cold.blocks.forget(first.key)
        bench.clock.advance_ms(60_001)
        assert bodies(await pop(bench))[:1] == names[first.next_queue_offset :][:1]


async def test_a_block_that_is_whole_at_the_next_fetch_is_served(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = [*await fill(bench), "last"]
        await make_cold(bench)
        objects.plan.extend([None, None, ObjectFault.ALTERED, ObjectFault.ALTERED, ObjectFault.ALTERED])
        assert await read_all(bench) == names
        assert bench.broker.cold.report().passed_over == 0
        assert bench.broker.cold.report().damaged == 3


@pytest.mark.parametrize("fault", [ObjectFault.BEFORE, ObjectFault.DENIED])
async def test_a_store_that_does_not_answer_or_refuses_leads_nobody_on(
    tmp_path: Path, objects: FaultyObjects, fault: ObjectFault
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = [*await fill(bench), "last"]
        await make_cold(bench)
        objects.plan.extend([fault] * 100)
        result = await bench.pull(0, max_messages=4)
        assert (result.status, result.next_offset) == (PullStatus.NOTHING_NEW, 0)
        objects.plan.clear()
        assert await read_all(bench) == names


async def test_a_store_without_any_object_of_the_broker_leads_nobody_on(tmp_path: Path, objects: FaultyObjects) -> None:
    """As a directory whose disk is not mounted."""
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = [*await fill(bench), "last"]
        await make_cold(bench)
        kept, objects.objects = objects.objects, {}
        result = await bench.pull(0, max_messages=4)
        assert (result.status, result.next_offset) == (PullStatus.NOTHING_NEW, 0)
        objects.objects = kept
        assert await read_all(bench) == names


async def test_searches_by_time_and_by_key_pass_over_a_damaged_object(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        times = []
        for number in range(300):
            times.append(bench.clock.now_ms())
            message = OutgoingMessage("t", b"x" * 60, {"KEYS": f"k{number}"}, queue_id=0)
            await bench.broker.delivery.send([message])
            bench.clock.advance_ms(1000)
        await make_cold(bench)
        lost = second_range(bench)
        damage(objects, lost.key, "its footer")
        queues = bench.broker.queues
        wanted = lost.first_queue_offset + 1
        found = queues.offset_by_time("t", 0, times[wanted])
        assert not isinstance(found, int)
        assert await found == lost.first_queue_offset
        assert await queues.find_by_key("t", f"k{wanted}", 0, 1 << 60, 64) == []
        assert len(await queues.find_by_key("t", "k0", 0, 1 << 60, 64)) == 1
