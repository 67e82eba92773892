"""What is to be done next for the jobs: by cases, and by properties over plans that are carried out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_records import job

from millstream.job_server.errors import JobServerError
from millstream.job_server.job_record import JobDemand, JobRecord
from millstream.job_server.plan_work import (
    COLLECT_S,
    DRIVER_OVERHEAD_MB,
    IDLE_S,
    LONGEST_COLLECT_S,
    Action,
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

LIMITS = Limits(cores=4, memory_mb=8_000, max_drivers=3)


def planned(
    *records: JobRecord,
    drivers: tuple[DriverView, ...] = (),
    waits_s: dict[str, float] | None = None,
    arrived_s: float = 0.0,
    now_s: float = 100.0,
    limits: Limits = LIMITS,
) -> list[Action]:
    """The actions for jobs that all came at one time."""
    jobs = {one.name: one for one in records}
    return plan_work(jobs, drivers, waits_s or {}, dict.fromkeys(jobs, arrived_s), now_s, limits)


def assigned(*records: JobRecord) -> tuple[AssignedJob, ...]:
    return tuple(AssignedJob(one.name, one.life, one.generation) for one in records)


def test_jobs_without_demands_are_started_together_in_one_driver() -> None:
    assert planned(job("a"), job("b")) == [StartDriver(True, 1, 1024, ("a", "b"))]


def test_jobs_that_come_one_after_the_other_wait_for_the_last_of_them() -> None:
    jobs = {name: job(name) for name in "ab"}
    arrivals_s = {"a": 97.0, "b": 99.0}
    assert plan_work(jobs, (), {}, arrivals_s, 99.0 + COLLECT_S - 0.1, LIMITS) == []
    assert plan_work(jobs, (), {}, arrivals_s, 99.0 + COLLECT_S, LIMITS) == [StartDriver(True, 1, 1024, ("a", "b"))]


def test_the_first_of_many_jobs_waits_no_longer_than_the_longest_time() -> None:
    jobs = {name: job(name) for name in "ab"}
    now_s = 10.0 + LONGEST_COLLECT_S
    assert plan_work(jobs, (), {}, {"a": 10.0, "b": now_s}, now_s, LIMITS) == [StartDriver(True, 1, 1024, ("a", "b"))]


def test_a_job_with_demands_gets_a_driver_of_its_own_at_once() -> None:
    assert planned(job("a", cores=2), arrived_s=100.0) == [StartDriver(False, 2, 1024, ("a",))]


def test_settings_of_spark_ask_for_a_driver_of_their_own() -> None:
    assert planned(job("a", settings={"spark.task.cpus": "1"})) == [StartDriver(False, 1, 1024, ("a",))]


def test_a_job_that_does_not_fit_waits_and_says_why() -> None:
    running = job("a", cores=3)
    driver = DriverView("1", False, 3, 1024, assigned(running))
    assert planned(running, job("b", cores=2), drivers=(driver,)) == [
        QueueJob("b", "It needs 2 cores; 1 of 4 are free.")
    ]


def test_no_later_job_goes_before_one_that_waits_for_room() -> None:
    running = job("a", cores=3)
    driver = DriverView("1", False, 3, 1024, assigned(running))
    actions = planned(running, job("large", cores=4, at_ms=1), job("small", cores=1, at_ms=2), drivers=(driver,))
    assert actions == [
        QueueJob("large", "It needs 4 cores; 1 of 4 are free."),
        QueueJob("small", "The job large was submitted before it and waits for room."),
    ]


def test_the_memory_beside_the_heap_is_reckoned() -> None:
    limits = replace(LIMITS, memory_mb=1024 + DRIVER_OVERHEAD_MB)
    assert planned(job("a", memory_mb=1024), limits=limits) == [StartDriver(False, 1, 1024, ("a",))]
    (queued,) = planned(job("a", memory_mb=1025), limits=limits)
    assert isinstance(queued, QueueJob)
    assert "1,625 MiB" in queued.reason
    driver = DriverView("1", True, 1, 1024)
    both = replace(LIMITS, memory_mb=2 * (1024 + DRIVER_OVERHEAD_MB))
    assert [type(one) for one in planned(job("a", cores=1), drivers=(driver,), limits=both)] == [StartDriver]
    less = replace(both, memory_mb=both.memory_mb - 1)
    assert [type(one) for one in planned(job("a", cores=1), drivers=(driver,), limits=less)] == [QueueJob]


def test_demands_that_the_machine_can_never_meet_are_refused() -> None:
    LIMITS.check(JobDemand(4, 7_400))
    for demand in (JobDemand(cores=5), JobDemand(memory_mb=7_401)):
        with pytest.raises(JobServerError) as refused:
            LIMITS.check(demand)
        assert refused.value.name == "JOB_DEMAND"


def test_a_job_is_not_started_before_its_wait_is_over() -> None:
    assert planned(job("a", cores=1), waits_s={"a": 100.5}) == []
    assert planned(job("a", cores=1), waits_s={"a": 100.5}, now_s=100.5) != []


@pytest.mark.parametrize("values", [{"wanted": "paused"}, {"wanted": "cancelled"}, {"generation": 2}, {"life": 2}])
def test_a_shared_job_that_is_to_run_no_more_or_otherwise_is_stopped_alone(values: dict[str, object]) -> None:
    before = (job("a"), job("b"))
    driver = DriverView("1", True, 1, 1024, assigned(*before))
    assert planned(job("a", **values), job("b"), drivers=(driver,)) == [StopJobs("1", ("a",))]


def test_a_stop_is_asked_for_once() -> None:
    driver = DriverView("1", True, 1, 1024, assigned(job("a"), job("b")), frozenset({"a"}))
    assert planned(job("a", wanted="paused"), job("b"), drivers=(driver,)) == []


def test_a_driver_of_its_own_ends_with_its_job() -> None:
    driver = DriverView("1", False, 1, 1024, assigned(job("a", cores=1)))
    assert planned(job("a", cores=1, wanted="paused"), drivers=(driver,)) == [StopDriver("1")]
    assert planned(job("a", cores=1, state="failed"), drivers=(replace(driver, jobs=()),)) == [StopDriver("1")]


def test_a_shared_driver_without_jobs_stays_for_a_while_and_takes_new_ones() -> None:
    driver = DriverView("1", True, 1, 1024, idle_since_s=100.0)
    assert planned(drivers=(driver,), now_s=100.0 + IDLE_S - 1) == []
    assert planned(drivers=(driver,), now_s=100.0 + IDLE_S) == [StopDriver("1")]
    assert planned(job("a"), drivers=(driver,), now_s=100.0 + IDLE_S) == [StartJobs("1", ("a",))]


def test_a_driver_that_ends_takes_its_room_until_it_has_ended() -> None:
    driver = DriverView("1", False, 4, 1024, ending=True)
    assert [type(one) for one in planned(job("a", cores=1), drivers=(driver,))] == [QueueJob]


# properties: plans are carried out on drivers that do what they are told


@dataclass
class Machine:
    """Drivers that do at once what is planned, and jobs that users change."""

    limits: Limits
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    drivers: dict[str, DriverView] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    now_s: float = 0.0

    def plan(self) -> list[Action]:
        arrivals_s = dict.fromkeys(self.jobs, self.now_s - LONGEST_COLLECT_S)
        return plan_work(self.jobs, list(self.drivers.values()), {}, arrivals_s, self.now_s, self.limits)

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartDriver(shared=shared, cores=cores, memory_mb=memory_mb, jobs=names):
                    id = str(next(self.numbers))
                    self.drivers[id] = DriverView(id, shared, cores, memory_mb, self._assigned(names))
                case StartJobs(driver=id, jobs=names):
                    view = self.drivers[id]
                    self.drivers[id] = replace(view, jobs=view.jobs + self._assigned(names), idle_since_s=None)
                case StopJobs(driver=id, jobs=names):
                    view = self.drivers[id]
                    left = tuple(one for one in view.jobs if one.name not in names)
                    self.drivers[id] = replace(view, jobs=left, idle_since_s=None if left else self.now_s)
                case StopDriver(driver=id):
                    del self.drivers[id]

    def _assigned(self, names: tuple[str, ...]) -> tuple[AssignedJob, ...]:
        return assigned(*(self.jobs[name] for name in names))


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.sampled_from(["submit", "own", "pause", "resume", "cancel", "update", "fail", "kill"]),
        st.integers(1, 3),
        st.floats(0, 40),
    ),
    max_size=30,
)


@given(CHANGES)
def test_work_comes_to_rest_within_the_limits_and_runs_just_what_is_wanted(
    changes: list[tuple[str, str, int, float]],
) -> None:
    machine = Machine(LIMITS)
    for number, (name, change, cores, passed_s) in enumerate(changes):
        machine.now_s += passed_s
        _change(machine, name, change, cores, number)
        for _ in range(8):
            actions = [one for one in machine.plan() if not isinstance(one, QueueJob)]
            if not actions:
                break
            machine.carry_out(actions)
            _check(machine)
        else:
            raise AssertionError(f"the work never comes to rest: {actions}")
        placed = [one.name for view in machine.drivers.values() for one in view.jobs]
        queued = {one.job for one in machine.plan() if isinstance(one, QueueJob)}
        wanted = {one.name for one in machine.jobs.values() if one.is_wanted}
        assert wanted == {*placed} | queued
        assert not {*placed} & queued


def _change(machine: Machine, name: str, change: str, cores: int, number: int) -> None:
    before = machine.jobs.get(name)
    if change == "kill":
        machine.drivers.pop(next(iter(machine.drivers), ""), None)
    elif change in ("submit", "own") and (before is None or before.is_over):
        life = 1 if before is None else before.life + 1
        machine.jobs[name] = job(name, cores=cores if change == "own" else 0, at_ms=number, life=life)
    elif before is not None and not before.is_over:
        values: dict[str, object] = {
            "pause": {"wanted": "paused"},
            "resume": {"wanted": "running", "state": "queued"},
            "cancel": {"wanted": "cancelled"},
            "update": {"generation": before.generation + 1, "demand": JobDemand(cores % 3)},
            "fail": {"state": "failed"},
        }.get(change, {})
        import msgspec

        machine.jobs[name] = msgspec.structs.replace(before, **values)


def _check(machine: Machine) -> None:
    views = list(machine.drivers.values())
    placed = [one.name for view in views for one in view.jobs]
    assert len(placed) == len({*placed}), "a job runs twice"
    assert len(views) <= machine.limits.max_drivers
    assert sum(view.cores for view in views) <= machine.limits.cores
    assert sum(view.memory_mb + DRIVER_OVERHEAD_MB for view in views) <= machine.limits.memory_mb
    assert sum(view.shared for view in views) <= 1
    assert all(len(view.jobs) <= 1 for view in views if not view.shared)
