"""A load: calls at a steady rate or with a fixed concurrency, timed and counted."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from millstream.model.errors import MillstreamError
from millstream.telemetry.counters import LatencyRecorder

__all__ = ["MAX_ERRORS", "Exhausted", "Load", "LoadPlan", "Pace"]


@dataclass(frozen=True, slots=True)
class Pace:
    """`per_second` messages from `start_s` on, at even distances. What came late is made up for as fast as can be."""

    per_second: float
    start_s: float

    def due_s(self, number: int) -> float:
        """When message `number` (from 0 on) is due, on the clock of `start_s`."""
        return self.start_s + number / self.per_second

    def pause_s(self, number: int, now_s: float) -> float:
        """How long to wait until message `number` is due; 0 where it is."""
        return max(0.0, self.due_s(number) - now_s)

    def due_count(self, now_s: float) -> int:
        """How many messages are due until now; the first one is due at once."""
        return 0 if now_s < self.start_s else int((now_s - self.start_s) * self.per_second) + 1


MAX_ERRORS: Final = 100
"""Failed calls after which a load ends: what fails so often is not worth measuring."""

_LAST_CALLS_S: Final = 10.0
"""How long the calls under way at the end are waited for, so that their times count too."""


class Exhausted(Exception):
    """There is nothing more to do; the worker that meets it ends."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """`rate` is in calls per second, None for a closed loop. What begins in the warm-up is not measured."""

    in_flight: int
    duration_s: float
    warm_up_s: float
    rate: float | None = None


Call = Callable[[int, int, float], Awaitable[int]]
"""Worker, number of the call and the moment from which its time runs; answers how many messages it moved."""


@dataclass
class Load:
    """One run. `on_measure` is told when the measured time begins and when it ends."""

    plan: LoadPlan
    call: Call
    on_measure: Callable[[], None]
    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    latency: LatencyRecorder = field(default_factory=LatencyRecorder)
    lateness: LatencyRecorder = field(default_factory=LatencyRecorder)
    """How much after its moment a call began for which a worker was free: the generator's own share of the times."""
    messages: int = 0
    errors: int = 0
    first_error: MillstreamError | None = None
    not_started: int = 0
    """Calls that were due and could not begin before the end: the rate was too high."""
    seconds: float = 0.0
    measured_from_s: float = math.inf

    async def run(self, stopped: asyncio.Event) -> None:
        """Call until the time is over, there is nothing more to do, or `stopped` is set."""
        start_s = self.now_s()
        self.measured_from_s, self._end_s = start_s + self.plan.warm_up_s, start_s + self._whole_s
        self._pace = Pace(self.plan.rate, start_s) if self.plan.rate is not None else None
        self._numbers = count()
        self._started = 0
        self._is_measuring = False
        work = asyncio.ensure_future(self._work_all())
        stop = asyncio.ensure_future(stopped.wait())
        try:
            if self.plan.warm_up_s:
                await _first_of(work, stop, timeout_s=self.plan.warm_up_s)
            begun_s, self._is_measuring = self.now_s(), True
            self.on_measure()
            await _first_of(work, stop, timeout_s=max(0.0, self._end_s - self.now_s()))
            self._is_measuring = False
            self.on_measure()
            ended_s = self._end_s = self.now_s()
            self.seconds = ended_s - begun_s
            if self._pace is not None and self.errors < MAX_ERRORS:
                due = self._pace.due_count(min(ended_s, start_s + self._whole_s) - 1 / self._pace.per_second)
                self.not_started = max(0, due - self._started)
            await _first_of(work, timeout_s=_LAST_CALLS_S)
            if work.done():
                work.result()
        finally:
            work.cancel()
            stop.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)

    @property
    def _whole_s(self) -> float:
        return self.plan.warm_up_s + self.plan.duration_s

    async def _work_all(self) -> None:
        await asyncio.gather(*(self._work(worker) for worker in range(self.plan.in_flight)))

    async def _work(self, worker: int) -> None:
        while True:
            number, began_s = next(self._numbers), self.now_s()
            due_s = began_s if self._pace is None else self._pace.due_s(number)
            if max(due_s, began_s) >= self._end_s or self.errors >= MAX_ERRORS:
                return
            if due_s > began_s:
                await self.sleep(due_s - began_s)
                if self.now_s() >= self._end_s:
                    return
                self.lateness.add(self.now_s() - due_s)
            self._started += 1
            try:
                moved = await self.call(worker, number, due_s)
            except Exhausted:
                return
            except MillstreamError as error:
                self.errors += 1
                self.first_error = self.first_error or error
                continue
            if self._is_measuring:
                self.messages += moved
            if due_s >= self.measured_from_s and moved:
                self.latency.add(self.now_s() - due_s)


async def _first_of(*tasks: asyncio.Future[Any], timeout_s: float) -> None:
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
