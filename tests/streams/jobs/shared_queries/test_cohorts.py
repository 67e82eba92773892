"""Jobs that share a query: which may, and where each of them stands when it goes its own way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from millstream.streams.errors import JobError
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.identity import shared_query
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.pipeline import StreamPipeline
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.jobs.shared_queries.cohorts import Cohort, CohortMember, cohorts_of, leave
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.spark.source.position import Position
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE events (host STRING, port INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 'events', 'format' = 'json');
CREATE TABLE more (host STRING) WITH ('connector' = 'rocketmq', 'topic' = 'more', 'format' = 'json');
CREATE TABLE alerts (host STRING) WITH ('connector' = 'rocketmq', 'topic' = 'alerts', 'format' = 'json');
CREATE TABLE counts (host STRING, n BIGINT) WITH ('connector' = 'print');
"""
PLAIN = "INSERT INTO alerts SELECT host FROM events WHERE port = {};"


def plans(script: str) -> list[JobPlan | QueryPlan]:
    return [one for one in SqlSession().compile(TABLES + script) if isinstance(one, JobPlan | QueryPlan)]


def cohorts(script: str, root: Path) -> list[list[int]]:
    found = plans(script)
    return cohorts_of(found, [f"job-{number}" for number in range(len(found))], root)


def stand(directory: Path, offset: int, *, batches: int = 0) -> None:
    """A checkpoint that began at `offset`; each micro-batch has moved it by ten, and the last one is not over."""
    Checkpoint.open(directory, "", lambda: {"events": Position({"b/0": offset}, name="events")})
    for batch in range(batches):
        for place in ("offsets", "commits") if batch < batches - 1 else ("offsets",):
            (directory / "spark" / place).mkdir(parents=True, exist_ok=True)
            end = Position({"b/0": offset + 10 * (batch + 1)}, name="events").to_json()
            text = f"v1\n{{}}\n{msgspec.json.encode(end).decode()}"
            (directory / "spark" / place / str(batch)).write_text(text)


def at(directory: Path) -> int:
    found = Checkpoint.find(directory)
    assert found is not None
    return found.start("events").queues["b/0"]


class Query:
    """A pipeline that runs until it is stopped."""

    def __init__(self, members: Mapping[Path, list[Output]]) -> None:
        self.outputs = [output for outputs in members.values() for output in outputs]
        self.over = threading.Event()

    def progress(self) -> JobProgress:
        return JobProgress(rows_in=5, rows_out={"alerts": 2, "others": 3})

    def wait(self, timeout_s: float) -> bool:
        return self.over.wait(timeout_s)

    def failure(self) -> JobError | None:
        return None

    def stop(self) -> None:
        self.over.set()


def test_jobs_without_state_over_one_table_share_a_query(tmp_path: Path) -> None:
    script = PLAIN.format(1) + "INSERT INTO alerts SELECT host FROM more;" + PLAIN.format(2)
    assert cohorts(script, tmp_path) == [[0, 2], [1]]


@pytest.mark.parametrize(
    "other",
    [
        "SET 'millstream.task-type' = 'error-sensitive';" + PLAIN.format(2),
        "SET 'millstream.bad-cast' = 'fail';" + PLAIN.format(2),
        "SET 'execution.runtime-mode' = 'batch';" + PLAIN.format(2),
        "SET 'millstream.max-rows-per-trigger' = '10';" + PLAIN.format(2),
        "SELECT host FROM events;",
        "INSERT INTO counts SELECT host, COUNT(*) FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
        " GROUP BY host, window_start, window_end;",
    ],
)
def test_other_jobs_run_alone(tmp_path: Path, other: str) -> None:
    assert cohorts(PLAIN.format(1) + other, tmp_path) == [[0], [1]]


@pytest.mark.parametrize(
    "setting", ["'state.mirror' = 'topic'", "'execution.checkpointing.dir' = '/s'", "'state.checkpoints.dir' = '/s'"]
)
def test_jobs_whose_checkpoints_lie_elsewhere_run_alone(tmp_path: Path, setting: str) -> None:
    assert cohorts(f"SET {setting};" + PLAIN.format(1) + PLAIN.format(2), tmp_path) == [[0], [1]]


def test_jobs_that_stand_elsewhere_are_no_cohort(tmp_path: Path) -> None:
    stand(tmp_path / "job-0" / "events", 5)
    stand(tmp_path / "job-1" / "events", 5)
    stand(tmp_path / "job-2" / "events", 7)
    stand(tmp_path / "job-3" / "events", 5, batches=1)
    assert cohorts("".join(PLAIN.format(number) for number in range(5)), tmp_path) == [[0, 1], [2], [3], [4]]


def shared(root: Path, names: str) -> tuple[Cohort, dict[str, CohortMember], list[Query]]:
    started: list[Query] = []

    def start(members: Mapping[Path, list[Output]]) -> Query:
        stand(root / "merged-1", 0, batches=0 if started else 3)
        started.append(Query(members))
        return started[-1]

    directories = {name: root / name / "events" for name in names}
    for directory in directories.values():
        stand(directory, 0)
    (plan,) = plans(PLAIN.format(1))
    assert isinstance(plan, JobPlan)
    output = Output(plan.sinks[0].input, sink=_Sink())  # type: ignore[arg-type]
    cohort = Cohort(root, "merged-1", {directory: [output] for directory in directories.values()}, start)
    return cohort, {name: CohortMember(cohort, directory, [output]) for name, directory in directories.items()}, started


class _Sink:
    name = "alerts"


def test_a_job_that_is_stopped_takes_the_position_of_its_query_along_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.streams.jobs.shared_queries.cohorts.SETTLE_S", 0.0)
    _cohort, members, started = shared(tmp_path, "abc")
    members["a"].stop()
    threads = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for thread in threads:
        thread.join(10)
    assert [len(query.outputs) for query in started] == [3, 2]
    assert started[0].over.is_set()
    assert not started[1].over.is_set()
    assert at(tmp_path / "a" / "events") == 20, "the last micro-batch is not over: it will be read again"
    assert shared_query(tmp_path / "a" / "events") is None
    assert shared_query(tmp_path / "b" / "events") == "merged-1"
    assert members["a"].progress().state == "ended"
    assert members["b"].progress().rows_out == {"alerts": 2}, "counts of others' sinks are not told"
    members["b"].stop()
    members["c"].stop()


def test_jobs_that_are_stopped_together_go_on_together(tmp_path: Path) -> None:
    _cohort, members, started = shared(tmp_path, "abc")
    for member in members.values():
        member.stop()
    assert len(started) == 1
    assert {shared_query(tmp_path / name / "events") for name in "abc"} == {"merged-1"}
    assert cohorts("".join(PLAIN.format(number) for number in range(3)), tmp_path) == [[0, 1, 2]]


def test_jobs_that_are_not_started_again_with_the_others_keep_their_place(tmp_path: Path) -> None:
    _cohort, members, _started = shared(tmp_path, "abc")
    for member in members.values():
        member.stop()
    directories = [tmp_path / name / "events" for name in "ab"]
    Cohort(tmp_path, "merged-1", {directory: [] for directory in directories}, Query)
    assert shared_query(tmp_path / "c" / "events") is None
    assert at(tmp_path / "c" / "events") == 20
    leave(directories, tmp_path)
    assert [at(directory) for directory in directories] == [20, 20]
    assert not (tmp_path / "merged-1").exists(), "nobody needs it any more"


class PausedQuery(StreamPipeline):
    """A query that notes when it was held; no Spark runs."""

    def __init__(self, held: list[str]) -> None:
        self._held = held

    @contextlib.contextmanager
    def between_batches(self) -> Iterator[None]:
        self._held.append("held")
        yield
        self._held.append("released")

    def progress(self) -> JobProgress:
        return JobProgress()

    def wait(self, timeout_s: float) -> bool:
        return True

    def stop(self) -> None:
        self._held.append("stopped")


def test_a_savepoint_of_a_job_holds_the_query_that_it_shares_and_nobody_leaves_meanwhile(tmp_path: Path) -> None:
    held: list[str] = []
    directory = tmp_path / "a" / "events"
    stand(directory, 0)
    stand(tmp_path / "merged-1", 0)
    cohort = Cohort(tmp_path, "merged-1", {directory: []}, lambda _outputs: PausedQuery(held))
    member = CohortMember(cohort, directory, [])
    handle = JobHandle("a", [member], query="merged-1", directory=tmp_path / "a")
    with pytest.raises(JobError, match="was written by an earlier release"):
        # The checkpoint of this test has no table of its state; it is looked at while it is held.
        handle.write_savepoint(tmp_path / "saved")
    assert held == ["held"]
    held.clear()
    with member.between_batches():
        leaving = threading.Thread(target=member.stop)
        leaving.start()
        leaving.join(0.05)
        assert held == ["held"]
    leaving.join(10)
    assert held == ["held", "released", "stopped"]


def test_a_shared_query_without_micro_batches_gives_no_savepoint(tmp_path: Path) -> None:
    _cohort, members, _started = shared(tmp_path, "ab")
    with pytest.raises(JobError, match="does not run in micro-batches") as refused:
        JobHandle("a", [members["a"]], directory=tmp_path / "a").write_savepoint(tmp_path / "saved")
    assert refused.value.name == "SAVEPOINT_REFUSED"
    for member in members.values():
        member.stop()
