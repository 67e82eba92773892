"""The drivers of the leading server: carries out what `plan_work` returns, and records what drivers report."""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from millstream.job_server.driver import DriverOptions
from millstream.job_server.driver_messages import (
    JAVA_FULL,
    Ended,
    Event,
    Failed,
    JobOrder,
    JobsProgress,
    Order,
    SavepointFailed,
    SavepointWords,
    SavepointWritten,
    Start,
    Started,
    Stop,
    Stopped,
)
from millstream.job_server.driver_process import DriverProcess
from millstream.job_server.errors import JobServerError
from millstream.job_server.isolation import APART_S, after_driver_end
from millstream.job_server.job_record import MAX_RECORDED_EVENTS, JobFailure, JobRecord, RecordedEvent
from millstream.job_server.leadership import Leadership
from millstream.job_server.plan_work import (
    AssignedJob,
    DriverView,
    Limits,
    QueueJob,
    StartDriver,
    StartJobs,
    StopDriver,
    StopJobs,
    plan_work,
)
from millstream.job_server.savepoint_answers import SavepointAnswers
from millstream.model.backoff import Backoff
from millstream.model.catalogue import CATALOGUE
from millstream.model.clock import Clock
from millstream.model.errors import StartRefused

__all__ = [
    "FIRST_RESTART_S",
    "ISOLATED_WAIT_S",
    "LONGEST_RESTART_S",
    "STEADY_S",
    "Fleet",
    "FleetOptions",
    "MakeProcess",
]

_log = logging.getLogger(__name__)

FIRST_RESTART_S: Final = 1.0
"""Seconds before a job is started again whose driver has ended; twice as long each time."""

LONGEST_RESTART_S: Final = 60.0
"""Seconds before such a start at most."""

ISOLATED_WAIT_S: Final = 60.0
"""Seconds before the first start of a job that was isolated, so that those which it shared a driver with go first."""

STEADY_S: Final = 60.0
"""Seconds of running after which these waits start over."""

_BACKOFF: Final = Backoff(FIRST_RESTART_S, LONGEST_RESTART_S)
_TICK_S: Final = 0.25


class Process(Protocol):
    """A driver's process, as `DriverProcess` is one."""

    async def start(self) -> None: ...
    def tell(self, order: Order) -> None: ...
    def end(self) -> None: ...
    def kill(self) -> None: ...
    async def wait(self) -> None: ...


MakeProcess = Callable[[DriverOptions, Path, Path, Callable[[Event], None], Callable[[int], None]], Process]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Where drivers work, and what they may take. `directory` is the server's, `checkpoints` all servers' own."""

    directory: Path
    checkpoints: Path
    nameserver: str
    limits: Limits


@dataclass(slots=True)
class _Driver:
    view: DriverView
    process: Process
    queries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    savepoints: SavepointAnswers = field(default_factory=SavepointAnswers)

    heard: dict[str, int] = field(default_factory=dict)
    """The number of the last event that it told of each job."""


class Fleet:
    """Runs the jobs of `leadership` while it leads. Calls come from one event loop."""

    def __init__(
        self, options: FleetOptions, leadership: Leadership, clock: Clock, make: MakeProcess = DriverProcess
    ) -> None:
        self.progress: dict[str, dict[str, Any]] = {}
        """What the drivers told last of each job, by its name."""

        self._options = options
        self._leadership = leadership
        self._clock = clock
        self._make = make
        self._drivers: dict[str, _Driver] = {}
        self._waits_s: dict[str, float] = {}
        self._arrivals_s: dict[str, float] = {}
        self._noted: dict[tuple[str, int], deque[RecordedEvent]] = {}
        """Events that this server has noted, by name and life; a lead that is lost may take them with it."""

        self._last_queries: dict[str, tuple[str, ...]] = {}
        """The queries that each job ran in last, by its name."""

        self._noted_epoch = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._work(), name="jobs-work")

    def wake(self) -> None:
        """Something has changed."""
        self._wake.set()

    async def close(self) -> None:
        """End all drivers; returns when they have ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end_all()

    def log_of(self, record: JobRecord) -> Path:
        """The log of the driver that runs the job here."""
        name = f"job-{record.name}" if record.has_own_driver else "shared-apart" if record.is_apart else "shared"
        return self._options.directory / "logs" / f"{name}.log"

    def queries_of(self, name: str) -> tuple[str, ...]:
        """The Spark queries that a job runs in; jobs that share one have the same. Blank where it does not run."""
        return next((one.queries[name] for one in self._drivers.values() if name in one.queries), ())

    def has_driver(self, name: str) -> bool:
        """Whether a driver has the job, also one that is to stop it."""
        return any(job.name == name for view in self.drivers for job in view.jobs)

    async def write_savepoint(self, name: str, target: Path, label: str) -> SavepointWords:
        """Have the driver of a job write a savepoint of it, and wait for that.

        Raises JOB_STATE where no driver has the job, and what `SavepointAnswers.ask` raises.
        """
        driver = next((one for one in self._drivers.values() if any(job.name == name for job in one.view.jobs)), None)
        if driver is None:
            raise JobServerError("JOB_STATE", f"No driver has the job {name}.", remedy="Try again in a moment.")
        return await driver.savepoints.ask(driver.process.tell, name, target, label)

    def forget_wait(self, name: str) -> None:
        """Let a job be started at once, as its user wishes."""
        self._waits_s.pop(name, None)

    @property
    def drivers(self) -> list[DriverView]:
        """The drivers that have not ended."""
        return [one.view for one in self._drivers.values()]

    def note_savepoint(self, name: str, words: SavepointWords) -> None:
        """A savepoint of the job was written."""
        said = f"{words.directory}: {words.files} files, {words.size_bytes} bytes."
        self._note_events(name, RecordedEvent(words.time_ms, "savepoint_written", said))

    # inside

    async def _work(self) -> None:
        while True:
            try:
                if self._leadership.is_leading:
                    await self.tick()
                elif self._drivers:
                    self._note_lost_lead()
                    await self._end_all()
            except Exception:  # noqa: BLE001 - the supervisor's edge: what runs goes on
                _log.exception("The work on jobs failed; it is tried again.")
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def tick(self) -> None:
        """Do what is to be done now."""
        now_s, jobs = self._clock.monotonic_s(), self._leadership.book.jobs
        if now_s < self._leadership.starts_after_s:
            return
        self._note_again()
        placed = {job.name for view in self.drivers for job in view.jobs}
        self._settle(jobs.values(), placed, now_s)
        waiting = {name for name, record in jobs.items() if record.is_wanted and name not in placed}
        ready = {name for name in waiting if self._waits_s.get(name, now_s) <= now_s}
        self._arrivals_s = {name: self._arrivals_s.get(name, now_s) for name in ready}
        for action in plan_work(jobs, self.drivers, self._waits_s, self._arrivals_s, now_s, self._options.limits):
            match action:
                case StartDriver():
                    await self._start_driver(action)
                case StartJobs(driver=driver, jobs=names):
                    self._hand_over(self._drivers[driver], names)
                case StopJobs(driver=driver, jobs=names):
                    one = self._drivers[driver]
                    one.view = replace(one.view, stopping=one.view.stopping | {*names})
                    one.process.tell(Stop(list(names)))
                case StopDriver(driver=driver):
                    self._end(self._drivers[driver])
                case QueueJob(job=name, reason=reason):
                    self._note(name, state="queued", reason=reason)

    def _settle(self, records: Iterable[JobRecord], placed: set[str], now_s: float) -> None:
        """Note what is so by now: paused and cancelled jobs without a driver, and those that run well."""
        for record in list(records):
            if record.name not in placed and record.wanted != "running" and record.state != record.wanted:
                if not record.is_over:
                    self._note(record.name, state="paused", reason="")
                elif record.state != "ended":
                    self._note(record.name, state="cancelled", reason="")
            ran_ms = self._clock.now_ms() - (record.started_at_ms or self._clock.now_ms())
            if record.state == "running" and ran_ms >= APART_S * 1000 and (record.is_suspect or record.is_apart):
                self._note(record.name, is_suspect=False, is_apart=False)
            if record.attempts and record.state == "running" and ran_ms >= STEADY_S * 1000:
                self._note(record.name, attempts=0)
        for name in [name for name, until_s in self._waits_s.items() if until_s <= now_s]:
            del self._waits_s[name]

    async def _start_driver(self, action: StartDriver) -> None:
        options, id = self._options, uuid.uuid4().hex[:8]
        first = self._leadership.book.jobs[action.jobs[0]]
        settings = {name: value for name, value in first.settings.items() if name.startswith("spark.")}
        told = DriverOptions(
            action.cores,
            action.memory_mb,
            options.nameserver,
            str(options.checkpoints.resolve()),
            str((options.directory / "work" / id).resolve()),
            settings=settings if first.has_own_driver else {},
        )
        lock = options.directory / "drivers" / f"{id}.lock"
        process = self._make(
            told, lock, self.log_of(first), lambda event: self._hear(id, event), lambda code: self._note_end(id, code)
        )
        view = DriverView(id, action.shared, action.cores, action.memory_mb, apart=action.apart)
        driver = _Driver(view, process)
        try:
            await process.start()
        except StartRefused as error:
            failure = JobFailure(self._clock.now_ms(), error.name, error.label, error.message, error.remedy)
            self._again(action.jobs, failure)
            return
        self._drivers[id] = driver
        self._hand_over(driver, action.jobs)

    def _hand_over(self, driver: _Driver, names: Iterable[str]) -> None:
        records = [self._leadership.book.jobs[name] for name in names]
        assigned = tuple(AssignedJob(one.name, one.life, one.generation) for one in records)
        driver.view = replace(driver.view, jobs=(*driver.view.jobs, *assigned), idle_since_s=None)
        for record in records:
            self._note(record.name, state="starting", reason="", server=self._leadership.server)
        driver.process.tell(
            Start([JobOrder(one.name, one.kind, one.text, one.settings, one.directory) for one in records])
        )

    def _hear(self, id: str, event: Event) -> None:
        driver = self._drivers.get(id)
        if driver is None:
            return
        match event:
            case Started(name=name, queries=queries):
                driver.queries[name] = self._last_queries[name] = tuple(queries)
                self._note(name, state="running", reason="", started_at_ms=self._clock.now_ms())
            case Ended(name=name):
                self._release(driver, name)
                self._note(name, state="ended", reason="")
            case Stopped(name=name):
                self._release(driver, name)
                self._queue_wanted([name])
            case Failed(name=name, failure=failure, may_pass=may_pass):
                self._release(driver, name)
                self._again([name], failure) if may_pass else self._fail(name, failure)
            case SavepointWritten(name=name, savepoint=words):
                driver.savepoints.hear(event)
                self.note_savepoint(name, words)
            case SavepointFailed():
                driver.savepoints.hear(event)
            case JobsProgress(jobs=jobs):
                self._take_progress(driver, jobs)
        self._wake.set()

    def _queue_wanted(self, names: Iterable[str]) -> None:
        """Those that are to run wait for a driver."""
        for name in names:
            record = self._leadership.book.jobs.get(name)
            if record is not None and record.is_wanted:
                self._note(name, state="queued", reason="")

    def _take_progress(self, driver: _Driver, jobs: dict[str, dict[str, Any]]) -> None:
        for name, progress in jobs.items():
            self._take_events(driver, name, progress.pop("events", ()))
        self.progress.update(jobs)

    def _take_events(self, driver: _Driver, name: str, told: Iterable[dict[str, Any]]) -> None:
        """Keep the events that the driver has not told before."""
        heard = driver.heard.get(name, 0)
        news = [one for one in told if one["number"] > heard]
        if news:
            driver.heard[name] = news[-1]["number"]
            self._note_events(name, *(RecordedEvent(one["at_ms"], one["kind"], one["words"]) for one in news))

    def _note_events(self, name: str, *events: RecordedEvent) -> None:
        record = self._leadership.book.jobs.get(name)
        if record is not None:
            self._noted.setdefault((name, record.life), deque(maxlen=MAX_RECORDED_EVENTS)).extend(events)
            self._leadership.note(record.note(*events))

    def _note_lost_lead(self) -> None:
        """The broker that keeps the jobs was away for too long, or another server has them."""
        words = "This server could not renew its lock of the jobs, so its driver was stopped. Whoever leads goes on."
        for view in self.drivers:
            for job in view.jobs:
                self._note_events(job.name, RecordedEvent(self._clock.now_ms(), "restarted", words))

    def _note_again(self) -> None:
        """Once this server leads again, note what could not be written before it lost its lead."""
        if self._noted_epoch == self._leadership.book.epoch:
            return
        self._noted_epoch = self._leadership.book.epoch
        for (name, life), events in self._noted.items():
            record = self._leadership.book.jobs.get(name)
            if record is None or record.life != life:
                continue
            lost = [event for event in events if event not in record.events]
            if lost:
                merged = sorted((*record.events, *lost), key=lambda event: event.at_ms)
                self._leadership.note(msgspec.structs.replace(record, events=()).note(*merged))

    def _note_end(self, id: str, code: int) -> None:
        """A driver has ended: what it ran is started again, unless it was to end."""
        driver = self._drivers.pop(id, None)
        if driver is None:
            return
        shutil.rmtree(self._options.directory / "work" / id, ignore_errors=True)
        (self._options.directory / "drivers" / f"{id}.lock").unlink(missing_ok=True)
        names = [job.name for job in driver.view.jobs]
        driver.savepoints.end()
        for name in names:
            self.progress.pop(name, None)
        self._wake.set()
        if driver.view.ending or not self._leadership.is_leading:
            self._queue_wanted(names)
            return
        words = _end_of_driver(code, driver.view.memory_mb)
        entry = CATALOGUE["JOB_DRIVER_ENDED"]
        failure = JobFailure(self._clock.now_ms(), entry.name, f"MS-{entry.number}", words, entry.remedy)
        left = [name for name in names if name not in driver.view.stopping]
        if driver.view.shared:
            self._search_guilty(left)
        self._again(left, failure)

    def _search_guilty(self, names: Iterable[str]) -> None:
        """A shared driver has died: find the job that did it, where it dies again and again."""
        jobs, now_ms = self._leadership.book.jobs, self._clock.now_ms()
        dead = [one for name in names if (one := jobs.get(name)) is not None and one.is_wanted]
        others = [one for one in jobs.values() if one.name not in {record.name for record in dead}]
        # The one that died and a second one, of which one may run.
        count = 2 - any(view.shared and not view.ending for view in self.drivers)
        has_room = self._options.limits.has_room_for_shared(self.drivers, count)
        self._last_queries = {name: queries for name, queries in self._last_queries.items() if name in jobs}
        found = after_driver_end(dead, others, now_ms, has_room=has_room, queries=self._last_queries)
        for name, record in found.items():
            if record.isolation and not jobs[name].isolation:
                _log.warning("The job %s: %s", name, record.isolation)
                self._noted.setdefault((name, record.life), deque(maxlen=MAX_RECORDED_EVENTS)).append(record.events[-1])
            self._leadership.note(record)

    def _again(self, names: Iterable[str], failure: JobFailure) -> None:
        """Start jobs again after a wait, all at once: those that share a query stay together."""
        records = [one for name in names if (one := self._leadership.book.jobs.get(name)) is not None]
        wanted = [one for one in records if one.is_wanted]
        if not wanted:
            return
        shared_wait_s = _BACKOFF.wait_s(max(one.attempts for one in wanted))
        for record in wanted:
            # The others go first: queries that they have shared part when these start.
            wait_s = max(shared_wait_s, ISOLATED_WAIT_S if record.isolation and len(wanted) > 1 else 0.0)
            self._waits_s[record.name] = self._clock.monotonic_s() + wait_s
            event = RecordedEvent(failure.at_ms, "restarted", f"{failure.message} It is started again.")
            self._leadership.note(
                msgspec.structs.replace(
                    record.fail(failure).note(event),
                    state="queued",
                    reason=f"It is started again {wait_s:.0f} s after it failed.",
                    attempts=record.attempts + 1,
                    restarts=record.restarts + 1,
                    changed_at_ms=self._clock.now_ms(),
                )
            )

    def _fail(self, name: str, failure: JobFailure) -> None:
        record = self._leadership.book.jobs.get(name)
        if record is not None:
            event = RecordedEvent(failure.at_ms, "failed", failure.message)
            self._leadership.note(
                msgspec.structs.replace(
                    record.fail(failure).note(event), state="failed", reason="", changed_at_ms=self._clock.now_ms()
                )
            )

    def _note(self, name: str, **values: Any) -> None:
        """Note new values of a job, where they are any."""
        record = self._leadership.book.jobs.get(name)
        if record is None:
            return
        changed = msgspec.structs.replace(record, **values)
        if changed != record:
            self._leadership.note(msgspec.structs.replace(changed, changed_at_ms=self._clock.now_ms()))

    def _release(self, driver: _Driver, name: str) -> None:
        view = driver.view
        jobs = tuple(job for job in view.jobs if job.name != name)
        idle_since_s = None if jobs else self._clock.monotonic_s()
        driver.view = replace(view, jobs=jobs, stopping=view.stopping - {name}, idle_since_s=idle_since_s)
        driver.queries.pop(name, None)
        self.progress.pop(name, None)

    def _end(self, driver: _Driver) -> None:
        driver.view = replace(driver.view, ending=True)
        driver.process.end()

    async def _end_all(self) -> None:
        drivers = list(self._drivers.values())
        for driver in drivers:
            self._end(driver)
        for driver in drivers:
            await driver.process.wait()


def _end_of_driver(code: int, memory_mb: int) -> str:
    if code == JAVA_FULL:
        return f"The driver of the job ended: the heap of {memory_mb} MiB of its Java process was full."
    how = f"the signal {-code}" if code < 0 else f"the code {code}"
    return f"The driver of the job ended with {how}."
