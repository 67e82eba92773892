"""What tools ask of a broker over an object store: what is there, whether it is whole, what nobody needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bench import Bench
from crash.faulty_objects import FaultyObjects
from test_cold_tier import cold_bench, fill, make_cold

from millstream.broker import cold_checks
from millstream.model.clock import ManualClock
from millstream.protocol.remoting.administration.cold_checks import ColdProblem
from millstream.tiered.verification import ORPHAN_MS


@pytest.fixture
def objects() -> FaultyObjects:
    return FaultyObjects()


async def verify_all(bench: Bench, step: int = 1) -> tuple[int, list[ColdProblem]]:
    checked, problems, after = 0, [], ""
    while True:
        found = await bench.broker.cold.checks.verify(after, step)
        checked, problems, after = checked + found.objects, problems + found.problems, found.after
        if not after:
            return checked, problems


async def test_a_status_tells_which_offsets_are_cold_and_how_many_are_not(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        names = await fill(bench)
        await make_cold(bench)
        status = bench.broker.cold.status()
        [queue] = status.queues
        assert (queue.topic, queue.queue_id, queue.first_offset, queue.last_offset) == ("t", 0, 0, len(names) - 1)
        assert (queue.messages, queue.behind_messages, queue.objects) == (len(names), 1, status.objects)
        assert queue.bytes == bench.broker.cold.report().bytes


async def test_verifying_names_each_object_that_is_damaged_or_missing(
    tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        await fill(bench)
        await make_cold(bench)
        keys = sorted(one.key for _, one in bench.broker.cold.map.objects)
        assert await verify_all(bench) == (len(keys), [])
        objects.objects[keys[1]] = objects.objects[keys[1]][:-1] + b"?"
        del objects.objects[keys[-1]]
        checked, problems = await verify_all(bench)
        assert (checked, [one.key for one in problems]) == (len(keys), [keys[1], keys[-1]])
        assert problems[0].topics == ["t"]
        monkeypatch.setattr(cold_checks, "VERIFIED_OBJECTS", 1)
        checked, problems = await verify_all(bench, step=2)
        assert checked == len(keys[::2])
        assert [one.key for one in problems] == [key for key in (keys[1], keys[-1]) if key in keys[::2]]


async def test_orphans_are_shown_and_deleted_and_nothing_else_is(tmp_path: Path, objects: FaultyObjects) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path, objects, clock) as bench:
        await fill(bench)
        await make_cold(bench)
        own = {*objects.objects}
        prefix = next(key for key in own if "/log/" in key).rsplit("/", 2)[0]
        orphan, other = f"{prefix}/0-0-lost/00000.msc", "ms1/DefaultCluster/broker-b/log/0-0-x/00000.msc"
        for key in (orphan, other):
            objects.put(key, b"lost")
        # The store counts its changes in milliseconds.
        clock.advance_ms(max(0, ORPHAN_MS + 1000 - clock.now_ms()))
        shown = await bench.broker.cold.collect("", deletes=False)
        assert [one.key for one in shown.orphans] == [orphan]
        assert {*objects.objects} == {*own, orphan, other}
        deleted = await bench.broker.cold.collect("", deletes=True)
        assert [one.key for one in deleted.orphans] == [orphan]
        assert {*objects.objects} == {*own, other}
