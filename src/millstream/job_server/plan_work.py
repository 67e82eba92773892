"""Plans the next actions from desired jobs, running jobs and free resources. Pure: time is passed in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.job_server.errors import JobServerError
from millstream.job_server.job_record import JobDemand, JobRecord

__all__ = [
    "COLLECT_S",
    "DRIVER_OVERHEAD_MB",
    "IDLE_S",
    "LONGEST_COLLECT_S",
    "Action",
    "AssignedJob",
    "DriverView",
    "Limits",
    "QueueJob",
    "StartDriver",
    "StartJobs",
    "StopDriver",
    "StopJobs",
    "plan_work",
]

COLLECT_S: Final = 2.0
"""Seconds without another job after which the jobs that came for the shared driver are started together."""

LONGEST_COLLECT_S: Final = 30.0
"""Seconds that the first of them waits at most."""

IDLE_S: Final = 60.0
"""Seconds for which the shared driver stays without a job, as one may come: Spark takes ten seconds to start."""

DRIVER_OVERHEAD_MB: Final = 600
"""MiB that are reckoned for a driver beside its heap: Java itself, and the Python processes of one query."""

_DEFAULT_MEMORY_MB: Final = 1_024
_DEFAULT_CORES: Final = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What drivers may take of the machine together, and what the shared one takes. Memory is in MiB."""

    cores: int
    memory_mb: int
    max_drivers: int
    shared_cores: int = 1
    shared_memory_mb: int = _DEFAULT_MEMORY_MB

    def has_room_for_shared(self, drivers: Sequence[DriverView], count: int) -> bool:
        """Whether so many shared drivers find room beside those that there are."""
        cores = self.cores - sum(one.cores for one in drivers)
        memory_mb = self.memory_mb - sum(one.memory_mb + DRIVER_OVERHEAD_MB for one in drivers)
        return (
            self.max_drivers - len(drivers) >= count
            and cores >= count * self.shared_cores
            and memory_mb >= count * (self.shared_memory_mb + DRIVER_OVERHEAD_MB)
        )

    def check(self, demand: JobDemand) -> None:
        """Refuse demands that this machine can never meet. Raises JobServerError JOB_DEMAND."""
        cores, memory_mb = demand.cores or _DEFAULT_CORES, (demand.memory_mb or _DEFAULT_MEMORY_MB) + DRIVER_OVERHEAD_MB
        if cores > self.cores:
            raise JobServerError("JOB_DEMAND", f"The job asks for {cores} cores; the server has {self.cores}.")
        if memory_mb > self.memory_mb:
            words = f"The job needs {memory_mb:,} MiB, {DRIVER_OVERHEAD_MB} of them beside its heap; the server has "
            raise JobServerError("JOB_DEMAND", f"{words}{self.memory_mb:,} MiB.")


@dataclass(frozen=True, slots=True)
class AssignedJob:
    """A job in a driver, as of when it was handed over."""

    name: str
    life: int
    generation: int


@dataclass(frozen=True, slots=True)
class DriverView:
    """A driver that has been started and has not ended. `ending` ones take no more jobs, and still take their room."""

    id: str
    shared: bool
    cores: int
    memory_mb: int
    jobs: tuple[AssignedJob, ...] = ()
    stopping: frozenset[str] = frozenset()
    """Names of those of its jobs that it has been told to stop."""

    apart: bool = False
    """Whether it is the second shared driver, for jobs that are apart."""

    ending: bool = False
    idle_since_s: float | None = None
    """Since when it has no job; None while it has one."""


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Start a process with so many cores and a heap of so many MiB, and hand it these jobs together."""

    shared: bool
    cores: int
    memory_mb: int
    jobs: tuple[str, ...]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class StartJobs:
    """Hand these jobs together to a driver that runs."""

    driver: str
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopJobs:
    """Have a driver stop these jobs; the others in it go on."""

    driver: str
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopDriver:
    """End a driver."""

    driver: str


@dataclass(frozen=True, slots=True)
class QueueJob:
    """The job waits, for that reason."""

    job: str
    reason: str


Action = StartDriver | StartJobs | StopJobs | StopDriver | QueueJob


@dataclass(slots=True)
class _Room:
    """What is left of the machine. Once something does not fit, nothing that came later goes before it."""

    limits: Limits
    cores: int
    memory_mb: int
    drivers: int
    first_waiting: str = ""

    @classmethod
    def of(cls, limits: Limits, drivers: Sequence[DriverView]) -> _Room:
        cores = limits.cores - sum(one.cores for one in drivers)
        memory_mb = limits.memory_mb - sum(one.memory_mb + DRIVER_OVERHEAD_MB for one in drivers)
        return cls(limits, cores, memory_mb, limits.max_drivers - len(drivers))

    def take(self, job: str, cores: int, memory_mb: int) -> str:
        """Give the job room for a driver; blank if there was room, else why it has to wait."""
        whole_mb = memory_mb + DRIVER_OVERHEAD_MB
        missing = self._missing(cores, whole_mb)
        if missing:
            self.first_waiting = self.first_waiting or job
            return missing
        self.cores, self.memory_mb, self.drivers = self.cores - cores, self.memory_mb - whole_mb, self.drivers - 1
        return ""

    def _missing(self, cores: int, whole_mb: int) -> str:
        if self.first_waiting:
            return f"The job {self.first_waiting} was submitted before it and waits for room."
        if self.drivers < 1:
            return f"All {self.limits.max_drivers} drivers of the server are in use."
        if cores > self.cores:
            return f"It needs {cores} cores; {max(self.cores, 0)} of {self.limits.cores} are free."
        if whole_mb > self.memory_mb:
            free_mb = max(self.memory_mb, 0)
            return f"It needs {whole_mb:,} MiB; {free_mb:,} of {self.limits.memory_mb:,} MiB are free."
        return ""


@dataclass(slots=True)
class _Work:
    limits: Limits
    room: _Room
    now_s: float
    actions: list[Action] = field(default_factory=list)


def plan_work(
    records: Mapping[str, JobRecord],
    drivers: Sequence[DriverView],
    waits_s: Mapping[str, float],
    arrivals_s: Mapping[str, float],
    now_s: float,
    limits: Limits,
) -> list[Action]:
    """The actions of this moment, in their order. Once they are done there are none until something changes.

    `waits_s` are the times before which jobs are not started again, by name; `arrivals_s` since when those that are to
    run wait for a driver. A job that asks for nothing goes to the one shared driver; those that are apart go to a
    second one, once the suspects of the first run: they may have shared queries, which part then. So an isolated job
    waits for those that were in the driver with it. Jobs that
    need a driver of their own get it in the order of their submission; one that does not fit lets no later one go
    before it.
    """
    work = _Work(limits, _Room.of(limits, drivers), now_s)
    placed = _stop_unwanted(work, records, drivers)
    open_jobs = [one for one in records.values() if one.is_wanted and one.name not in placed]
    open_jobs.sort(key=lambda one: (one.submitted_at_ms, one.name))
    ready = [one for one in open_jobs if waits_s.get(one.name, -math.inf) <= now_s]
    firsts: dict[str, list[JobRecord]] = {}
    for apart in (False, True):
        shared = [one for one in ready if not one.has_own_driver and one.is_apart is apart]
        if apart and any(map(_is_awaited_suspect, records.values())):
            continue
        driver = next((one for one in drivers if one.shared and one.apart is apart and not one.ending), None)
        if driver is not None:
            _place_in_running(work, driver, shared, arrivals_s)
        elif shared:
            firsts[shared[0].name] = shared
    for record in ready:
        if record.isolation and any(_goes_before(one, record) for one in records.values()):
            continue
        if record.has_own_driver:
            cores, memory_mb = record.demand.cores or _DEFAULT_CORES, record.demand.memory_mb or _DEFAULT_MEMORY_MB
            reason = work.room.take(record.name, cores, memory_mb)
            start = StartDriver(False, cores, memory_mb, (record.name,))
            work.actions.append(QueueJob(record.name, reason) if reason else start)
        elif record.name in firsts:
            _place_in_new(work, firsts[record.name], arrivals_s)
    return work.actions


def _is_awaited_suspect(record: JobRecord) -> bool:
    """Whether those that are apart wait for it: it has not parted from the queries that it shared with them."""
    return record.is_wanted and record.is_suspect and not record.is_apart and record.state != "running"


def _goes_before(record: JobRecord, isolated: JobRecord) -> bool:
    """Whether an isolated job waits for one that was in the driver with it, and has not parted from its query."""
    is_other = record.is_wanted and not record.has_own_driver and record.state != "running"
    return is_other and record.driver_ended_at_ms == isolated.driver_ended_at_ms


def _stop_unwanted(work: _Work, records: Mapping[str, JobRecord], drivers: Sequence[DriverView]) -> set[str]:
    """Stop what is to run no more, or otherwise; the names of the jobs that are in a driver still."""
    placed: set[str] = set()
    for driver in drivers:
        placed |= {job.name for job in driver.jobs}
        if driver.ending:
            continue
        unwanted = tuple(job.name for job in driver.jobs if not _goes_on(records.get(job.name), job, driver))
        if not driver.jobs:
            idle_s = 0.0 if driver.idle_since_s is None else work.now_s - driver.idle_since_s
            if not driver.shared or idle_s >= IDLE_S:
                work.actions.append(StopDriver(driver.id))
        elif not driver.shared and unwanted:
            work.actions.append(StopDriver(driver.id))
        elif found := tuple(name for name in unwanted if name not in driver.stopping):
            work.actions.append(StopJobs(driver.id, found))
    return placed


def _goes_on(record: JobRecord | None, job: AssignedJob, driver: DriverView) -> bool:
    if record is None or not record.is_wanted or record.has_own_driver is driver.shared:
        return False
    if driver.shared and record.is_apart is not driver.apart:
        return False
    return (record.life, record.generation) == (job.life, job.generation)


def _is_collected(shared: Sequence[JobRecord], arrivals_s: Mapping[str, float], now_s: float) -> bool:
    """Whether enough time has passed for those that came together."""
    times_s = [arrivals_s.get(one.name, now_s) for one in shared]
    return now_s - max(times_s) >= COLLECT_S or now_s - min(times_s) >= LONGEST_COLLECT_S


def _place_in_running(
    work: _Work, driver: DriverView, shared: Sequence[JobRecord], arrivals_s: Mapping[str, float]
) -> None:
    if not shared or not _is_collected(shared, arrivals_s, work.now_s):
        return
    # One that is about to end for want of jobs takes these in its stead.
    work.actions = [one for one in work.actions if one != StopDriver(driver.id)]
    work.actions.append(StartJobs(driver.id, tuple(one.name for one in shared)))


def _place_in_new(work: _Work, shared: Sequence[JobRecord], arrivals_s: Mapping[str, float]) -> None:
    names, limits = tuple(one.name for one in shared), work.limits
    if not _is_collected(shared, arrivals_s, work.now_s):
        return
    reason = work.room.take(names[0], limits.shared_cores, limits.shared_memory_mb)
    if reason:
        work.actions += [QueueJob(name, reason) for name in names]
    else:
        apart = shared[0].is_apart
        work.actions.append(StartDriver(True, limits.shared_cores, limits.shared_memory_mb, names, apart))
