"""A driver and what it tells, with a runner that is played."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.job_server.driver import DriverOptions, JobDriver, bind_order
from millstream.job_server.driver_messages import (
    Ended,
    Event,
    Failed,
    JobOrder,
    SaveJob,
    SavepointFailed,
    SavepointWritten,
    Start,
    Started,
    Stop,
    Stopped,
)
from millstream.model.errors import MillstreamError, Unreachable
from millstream.streams.errors import JobError
from millstream.streams.jobs.job_events import JobEvents
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.jobs.savepoints.savepoint import StagedSavepoint
from millstream.streams.jobs.savepoints.savepoint_parts import describe_parts
from patience import eventually_blocking


class PlayedHandle:
    """A job that does what the test says."""

    def __init__(self, name: str, query: str) -> None:
        self.name = name
        self.query = query
        self.failure: Exception | None = None
        self.has_ended = False
        self.stopped = False
        self.events = JobEvents()

    def wait(self, _timeout_s: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.has_ended

    def stop(self) -> None:
        self.stopped = True

    def progress(self) -> JobProgress:
        return JobProgress(rows_in=len(self.name), events=self.events.last())

    def stage_savepoint(self, target: Path, name: str) -> StagedSavepoint:
        if self.failure is not None:
            raise self.failure
        target.mkdir(parents=True)
        return StagedSavepoint(target, target, name, self.name, ())


class PlayedRunner:
    """Starts what it is given as one query; none of it where one of `bad` is among them."""

    def __init__(self) -> None:
        self.bad: dict[str, Exception] = {}
        self.handles: dict[str, PlayedHandle] = {}
        self.starts: list[tuple[str, ...]] = []

    def start_merged(self, plans: Sequence[Any], *, names: Sequence[str], on_rows: Any) -> list[PlayedHandle]:
        for name in names:
            if name in self.bad:
                raise self.bad[name]
        self.starts.append(tuple(names))
        made = [PlayedHandle(name, f"query-{len(self.starts)}") for name in names]
        self.handles.update({one.name: one for one in made})
        return made


class Watched:
    """A driver on a played runner, and what it told."""

    def __init__(self) -> None:
        self.runner = PlayedRunner()
        self.events: list[Event] = []
        self.plans = {"two": ["p", "q"]}
        self.has_java_ended = False
        self.driver = JobDriver(
            self.runner,  # type: ignore[arg-type]
            self.bind,
            self.events.append,
            has_java_ended=lambda: self.has_java_ended,
        )

    def bind(self, order: JobOrder) -> list[Any]:
        if order.text == "bad":
            raise JobError("JOB_FAILED", "It does not bind.")
        return self.plans.get(order.name, ["p"])

    def start(self, *names: str, bad: str = "") -> None:
        self.driver.obey(Start([JobOrder(name, "sql", "bad" if name == bad else "", {}, name) for name in names]))

    def told(self, kind: type) -> list[str]:
        return [one.name for one in self.events if isinstance(one, kind)]  # type: ignore[union-attr]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_jobs_of_one_order_are_started_together(watched: Watched) -> None:
    watched.start("a", "b")
    assert watched.runner.starts == [("a", "b")]
    assert [one.queries for one in watched.events if isinstance(one, Started)] == [["query-1"], ["query-1"]]


def test_each_plan_of_a_job_has_a_checkpoint_of_its_own(watched: Watched) -> None:
    watched.start("two")
    assert watched.runner.starts == [("two", "two+1")]
    assert watched.driver.progress().jobs["two"]["rows_in"] == len("two") + len("two+1")


def test_a_job_that_does_not_bind_keeps_no_other_from_its_start(watched: Watched) -> None:
    watched.start("a", "b", "c", bad="b")
    assert watched.runner.starts == [("a", "c")]
    assert watched.told(Failed) == ["b"]


def test_what_fails_because_java_has_ended_is_no_failure_of_the_job(watched: Watched) -> None:
    watched.has_java_ended = True
    watched.start("a", "b", bad="b")
    assert watched.told(Failed) == []


def test_the_job_that_does_not_start_is_found_and_all_others_run(watched: Watched) -> None:
    watched.runner.bad["e"] = Unreachable("gone")
    watched.start(*"abcdefgh")
    assert sorted(watched.told(Started)) == [*"abcdfgh"]
    (failed,) = [one for one in watched.events if isinstance(one, Failed)]
    assert (failed.name, failed.may_pass, failed.failure.code) == ("e", True, "UNREACHABLE")


def test_of_jobs_whose_query_fails_the_one_that_does_it_fails_and_the_others_run_again(watched: Watched) -> None:
    watched.start(*"abcd")
    watched.start("other")
    failure = JobError("SINK_FAILED", "full")
    watched.runner.bad["c"] = failure
    for name in "abcd":
        watched.runner.handles[name].failure = failure
    watched.driver.look()
    assert watched.told(Failed) == ["c"]
    assert sorted(watched.driver.progress().jobs) == ["a", "b", "d", "other"]
    assert not watched.runner.handles["other"].stopped
    watched.driver.look()
    assert watched.told(Failed) == ["c"]


def test_a_job_that_has_ended_is_told_once(watched: Watched) -> None:
    watched.start("a")
    watched.driver.look()
    assert watched.told(Ended) == []
    watched.runner.handles["a"].has_ended = True
    watched.driver.look()
    watched.driver.look()
    assert watched.told(Ended) == ["a"]


def test_a_stopped_job_is_told_also_where_it_does_not_run(watched: Watched) -> None:
    watched.start("a", "b")
    watched.driver.obey(Stop(["a", "nobody"]))
    assert watched.told(Stopped) == ["a", "nobody"]
    assert watched.runner.handles["a"].stopped
    assert not watched.runner.handles["b"].stopped
    watched.driver.stop()
    assert watched.runner.handles["b"].stopped


def test_a_savepoint_of_a_job_that_runs_has_a_part_for_each_plan_and_the_job_goes_on(
    watched: Watched, tmp_path: Path
) -> None:
    watched.start("two")
    watched.driver.obey(SaveJob("1", "two", str(tmp_path / "saved"), "before"))
    eventually_blocking(lambda: any(isinstance(one, SavepointWritten) for one in watched.events))
    (written,) = [one for one in watched.events if isinstance(one, SavepointWritten)]
    assert (written.id, written.savepoint.directory) == ("1", str(tmp_path / "saved"))
    assert [part.job for part in describe_parts(tmp_path / "saved")] == ["two", "two+1"]
    assert not watched.runner.handles["two"].stopped


def test_a_savepoint_that_fails_of_a_stopped_job_or_in_its_plan_leaves_nothing(
    watched: Watched, tmp_path: Path
) -> None:
    watched.start("two")
    watched.runner.handles["two+1"].failure = JobError("SAVEPOINT_REFUSED", "It shares a query.")
    for name in ("two", "nobody"):
        watched.driver.obey(SaveJob(name, name, str(tmp_path / "saved")))
    eventually_blocking(lambda: sum(isinstance(one, SavepointFailed) for one in watched.events) == 2)
    codes = {one.id: one.failure.code for one in watched.events if isinstance(one, SavepointFailed)}
    assert codes == {"two": "SAVEPOINT_REFUSED", "nobody": "JOB_STATE"}
    assert list(tmp_path.iterdir()) == []


def test_events_of_all_plans_of_a_job_are_told_once_and_in_their_order(watched: Watched) -> None:
    watched.start("two", "other")
    watched.runner.handles["two+1"].events.note("restarted", "first")
    watched.runner.handles["two"].events.note("restarted", "second")

    def told() -> list[str]:
        return [event["words"] for event in watched.driver.progress().jobs["two"]["events"]]

    assert told() == ["first", "second"]
    watched.runner.handles["two+1"].events.note("restarted", "third")
    assert told() == ["third"]
    assert told() == []


@pytest.mark.parametrize("end", ["sys.exit('nothing to do')", "exit()", "raise MemoryError"])
def test_a_program_that_ends_by_itself_ends_its_job_and_not_the_driver(end: str, tmp_path: Path) -> None:
    options = DriverOptions(1, 512, "127.0.0.1:1", str(tmp_path), str(tmp_path / "work"))
    order = JobOrder("bad", "program", f"import sys\n\ndef main():\n    {end}\n", {}, "bad")
    with pytest.raises(MillstreamError) as failed:
        bind_order(order, options)
    assert failed.value.name == "JOB_FAILED"
