"""A load, on a clock that moves when it is slept on or when a call takes its time."""

from __future__ import annotations

import asyncio

import pytest

from millstream.cli.bench.load import MAX_ERRORS, Exhausted, Load, LoadPlan
from millstream.model.errors import Unreachable


class Time:
    """One worker's time: nothing else happens while it sleeps or calls."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[float] = []

    def read(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


async def run(plan: LoadPlan, time: Time, takes_s: dict[int, float], usually_s: float = 0.001) -> Load:
    async def call(_worker: int, number: int, due_s: float) -> int:
        time.due.append(due_s)
        time.now_s += takes_s.get(number, usually_s)
        return 1

    load = Load(plan, call, lambda: None, time.read, time.sleep)
    await load.run(asyncio.Event())
    return load


async def test_a_pause_counts_for_every_call_that_it_held_up() -> None:
    load = await run(LoadPlan(1, 10.0, 0.0, rate=10), Time(), {50: 1.0})
    assert load.latency.count == 100
    # The calls due in the second of the pause waited for its end: 1.0 s, 0.9 s and so on, not one of them 1 ms.
    over_half = [percent for percent in range(1, 101) if (load.latency.percentile_ms(percent) or 0) > 500]
    assert len(over_half) == pytest.approx(6, abs=1)
    assert load.latency.max_ms == pytest.approx(1000)


async def test_without_a_rate_the_pause_counts_once() -> None:
    load = await run(LoadPlan(1, 10.0, 0.0), Time(), {50: 1.0})
    assert load.latency.max_ms == pytest.approx(1000)
    assert (load.latency.percentile_ms(99) or 0) < 2
    assert load.messages == load.latency.count


async def test_calls_begin_at_even_distances() -> None:
    time = Time()
    await run(LoadPlan(1, 1.0, 0.0, rate=4), time, {})
    assert time.due == [0.0, 0.25, 0.5, 0.75]


async def test_calls_that_could_not_begin_are_told() -> None:
    load = await run(LoadPlan(1, 10.0, 0.0, rate=100), Time(), {}, usually_s=0.125)
    assert load.messages == 80
    assert load.not_started == pytest.approx(920, abs=1)


async def test_what_fails_all_the_time_ends_the_load() -> None:
    async def fail(_worker: int, _number: int, _due_s: float) -> int:
        raise Unreachable("gone")

    load = Load(LoadPlan(4, 3600.0, 0.0), fail, lambda: None)
    await load.run(asyncio.Event())
    assert MAX_ERRORS <= load.errors <= MAX_ERRORS + 4
    assert str(load.first_error).startswith("gone")
    assert (load.messages, load.latency.count) == (0, 0)


async def test_an_exhausted_load_ends_before_its_time() -> None:
    async def call(_worker: int, number: int, _due_s: float) -> int:
        if number >= 10:
            raise Exhausted
        return 1

    load = Load(LoadPlan(2, 3600.0, 0.0), call, lambda: None)
    await load.run(asyncio.Event())
    assert (load.messages, load.errors) == (10, 0)


async def test_a_stopped_load_ends_with_what_it_has() -> None:
    stopped, taken = asyncio.Event(), []

    async def call(_worker: int, number: int, _due_s: float) -> int:
        if number == 5:
            stopped.set()
        await asyncio.sleep(0)
        return 1

    load = Load(LoadPlan(1, 3600.0, 0.0), call, lambda: taken.append(1))
    await load.run(stopped)
    assert load.messages >= 5
    assert len(taken) == 2
