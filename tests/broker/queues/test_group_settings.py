"""What a group's settings do to its consumers: where they begin, and whether they receive at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from broker_bench import Bench, bodies, open_bench

from millstream.model.errors import NameRefused
from millstream.model.group import FirstPosition, GroupConfig


async def test_a_new_group_begins_with_all_that_is_there(bench: Bench) -> None:
    await bench.send("a", "b")
    assert bodies(await bench.pop()) == ["a", "b"]


async def test_a_group_that_begins_at_the_end_gets_what_comes_later_in_every_queue(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("g", first_position=FirstPosition.LAST))
    await bench.send("old")
    assert await bench.pop() == []
    for queue_id in range(4):
        await bench.send(f"new {queue_id}", queue_id=queue_id)
    assert sorted(bodies(await bench.pop())) == ["new 0", "new 1", "new 2", "new 3"]


async def test_where_a_group_began_at_the_end_is_kept_over_a_crash(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "a") as bench:
        bench.broker.groups.create(GroupConfig("g", first_position=FirstPosition.LAST))
        await bench.send("old")
        await bench.pop()
        await bench.send("new")
        # As a crash leaves it: nothing is saved after the first receive.
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    async with open_bench(tmp_path / "b") as bench:
        assert bodies(await bench.pop()) == ["new"]


async def test_a_group_may_begin_at_a_time(bench: Bench) -> None:
    await bench.send("before")
    bench.clock.advance_ms(1000)
    begin_ms = bench.clock.now_ms()
    await bench.send("after")
    bench.broker.groups.create(GroupConfig("g", first_position=FirstPosition.TIME, first_time_ms=begin_ms))
    assert bodies(await bench.pop()) == ["after"]


async def test_a_group_that_is_switched_off_receives_nothing_and_may_still_acknowledge(bench: Bench) -> None:
    await bench.send("a", "b")
    (first,) = await bench.pop(max_messages=1)
    bench.broker.groups.update(GroupConfig("g", enabled=False))
    for consume in (bench.pop, lambda: bench.pull(0)):
        with pytest.raises(NameRefused) as refused:
            await consume()
        assert refused.value.name == "GROUP_DISABLED"
    bench.ack(first)
    bench.broker.groups.update(GroupConfig("g"))
    assert bodies(await bench.pop()) == ["b"]


async def test_a_group_that_begins_to_keep_order_goes_on_with_what_it_has_in_flight(bench: Bench) -> None:
    await bench.send("a", "b")
    (first,) = await bench.pop(max_messages=1)
    bench.broker.groups.update(GroupConfig("g", fifo=True))
    assert await bench.pop() == []
    bench.ack(first)
    assert bodies(await bench.pop()) == ["b"]
