"""The steps by which a query of a job is put together, each without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.print.sink import BlackholeSink
from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.errors import JobError
from millstream.streams.jobs import assembly
from millstream.streams.jobs.assembly import Inputs, PipelineBuilder, Translated
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.environment import JobEnvironment
from millstream.streams.jobs.optimized import Optimized, optimize_outputs
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.restarts import BOUNDED_ATTEMPTS
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.side_outputs import SideOutputs
from millstream.streams.plan.aggregates import AggregateCall, WindowAggregate
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import Node, Scan
from millstream.streams.plan.tables import PhysicalColumn, Table, Watermark
from millstream.streams.plan.types import BIGINT, INT, DataType, TypeKind
from millstream.streams.plan.windows import Tumble
from millstream.streams.spark.operators.operator_reports import QueueTimes, times_spool
from millstream.streams.spark.source.dead_letters import DeadLetters, malformed_spool
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.reading import Reading, Source
from millstream.streams.spark.translation.batch_relations import UntimedRows

COLUMNS = (PhysicalColumn("id", INT), PhysicalColumn("ts", DataType(TypeKind.TIMESTAMP, precision=3)))
SETTINGS = JobSettings.of({}, "127.0.0.1:1")
SPARK = cast(SparkSession, SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)))


def scan(name: str = "t", connector: str = "rocketmq") -> Scan:
    return Scan(Table(name, COLUMNS, {"connector": connector, "topic": name}, Watermark("ts", 0)), ("id", "ts"))


def count_of(node: Node) -> WindowAggregate:
    calls = (("n", AggregateCall("COUNT", Column("id", INT), BIGINT)),)
    return WindowAggregate(node, Tumble("ts", 1000), (("id", Column("id", INT)),), calls)


def outputs_of(*nodes: Node) -> list[Output]:
    return [Output(node, BlackholeSink(f"out{number}", node.schema)) for number, node in enumerate(nodes)]


@dataclass
class Guard:
    """A guard that knows how often it was resumed."""

    table: Table
    directory: Path
    resumed: int = 0

    def resume(self) -> None:
        self.resumed += 1


@dataclass
class FakeSource:
    """A source of a test: begins behind seven messages of one queue."""

    table: Table
    guarded: Guard | None = None
    refuses: bool = False
    has_malformed: bool = True

    def beginning(self) -> Position:
        return Position({"b/0": 7}, name=self.table.name)

    def end(self) -> Position:
        return Position({"b/0": 9}, name=self.table.name)

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        raise AnalysisException("no such thing") if self.refuses else NotImplementedError

    def letters(self, spool: Path) -> DeadLetters | None:
        return DeadLetters(malformed_spool(spool), "t", None, "", 0.0) if self.has_malformed else None

    def guard(self, reading: Reading, job: str) -> RuleGuard | None:
        return cast(RuleGuard | None, self.guarded)


@dataclass
class FakeEnvironment(JobEnvironment):
    """Sources by the names of their tables; others have nothing special."""

    sources: dict[str, FakeSource] = field(default_factory=dict)

    def source(self, table: Table, settings: JobSettings) -> Source:
        return self.sources.get(table.name) or FakeSource(table)


def builder(tmp_path: Path, *nodes: Node, settings: JobSettings = SETTINGS, **more: Any) -> PipelineBuilder:
    values: dict[str, Any] = {"environment": FakeEnvironment(), "bounded": False, **more}
    return PipelineBuilder(SPARK, settings=settings, job="j", directory=tmp_path / "c", outputs=outputs_of(*nodes),
                           **values)  # fmt: skip


def opened(build: PipelineBuilder) -> tuple[Inputs, Checkpoint, Optimized]:
    """What the first steps give."""
    inputs = build.open_sources()
    return inputs, build.open_checkpoint(inputs)[0], optimize_outputs(build.outputs, "auto", inputs.timed)


def has_sent_its_end(checkpoint: Checkpoint, *names: str) -> None:
    """Leave Spark's log of a micro-batch that ended event time."""
    offsets = checkpoint.spark / "offsets"
    offsets.mkdir(parents=True)
    ends = [msgspec.json.encode(Position(ended=True, name=name).to_json()).decode() for name in names]
    (offsets / "0").write_text("\n".join(["v1", "{}", *ends]))


def test_each_table_is_opened_once_and_numbered_in_the_order_of_the_plan(tmp_path: Path) -> None:
    inputs = builder(tmp_path, scan("b"), count_of(scan("a")), scan("b")).open_sources()
    assert inputs.numbers == {"b": 0, "a": 1}
    assert (inputs.is_batch, inputs.is_bounded) == (False, False)


def test_a_query_ends_where_it_is_told_to_or_all_its_tables_do(tmp_path: Path) -> None:
    files = scan("f", "filesystem")
    assert builder(tmp_path, scan(), bounded=True).open_sources().is_bounded
    assert builder(tmp_path, files).open_sources().is_bounded
    assert not builder(tmp_path, files, scan()).open_sources().is_bounded


def test_a_batch_job_is_one_pass(tmp_path: Path) -> None:
    assert builder(tmp_path, scan(), settings=replace(SETTINGS, batch=True)).open_sources().is_batch


def test_a_fresh_checkpoint_begins_where_its_sources_do_and_goes_on_there(tmp_path: Path) -> None:
    build = builder(tmp_path, scan(), notices=("seen before",))
    checkpoint, notices = build.open_checkpoint(build.open_sources())
    assert checkpoint.start("t") == Position({"b/0": 7}, name="t")
    assert notices == ["seen before"]
    again, _ = build.open_checkpoint(build.open_sources())
    assert again.job_id == checkpoint.job_id


def test_a_checkpoint_of_another_plan_is_refused(tmp_path: Path) -> None:
    build = builder(tmp_path, count_of(scan()))
    build.open_checkpoint(build.open_sources())
    other = builder(tmp_path, replace(count_of(scan()), window=Tumble("ts", 2000)))
    with pytest.raises(JobError) as refusal:
        other.open_checkpoint(other.open_sources())
    assert refusal.value.name == "CHECKPOINT_MISMATCH"


def test_a_query_that_jobs_share_begins_where_they_do_and_takes_other_outputs(tmp_path: Path) -> None:
    starts = {"t": Position({"b/0": 3}, name="t")}
    build = builder(tmp_path, scan(), starts=starts)
    checkpoint, _ = build.open_checkpoint(build.open_sources())
    assert checkpoint.start("t") == starts["t"]
    other = builder(tmp_path, count_of(scan()), starts=starts)
    assert other.open_checkpoint(other.open_sources())[0].job_id == checkpoint.job_id


def test_who_goes_on_behind_a_bounded_run_is_told_that_windows_were_closed(tmp_path: Path) -> None:
    build = builder(tmp_path, count_of(scan()))
    checkpoint, notices = build.open_checkpoint(build.open_sources())
    assert notices == []
    has_sent_its_end(checkpoint, "t")
    (notice,) = build.open_checkpoint(build.open_sources())[1]
    assert "closed all windows" in notice


@pytest.mark.parametrize(
    ("bounded", "closes", "node", "ends"),
    [
        (True, True, count_of(scan()), True),
        (True, True, scan(), False),
        (True, False, count_of(scan()), False),
        (False, True, count_of(scan()), False),
    ],
)
def test_a_bounded_run_with_windows_ends_event_time(
    bounded: bool, closes: bool, node: Node, ends: bool, tmp_path: Path
) -> None:
    build = builder(tmp_path, node, settings=replace(SETTINGS, closes_windows=closes), bounded=bounded)
    assert build.plan_reads(*opened(build))["t"].final_tick is ends


def test_a_table_has_its_own_spool_and_shares_what_is_kept(tmp_path: Path) -> None:
    build = builder(tmp_path, scan("a"), count_of(scan("b")))
    reads = build.plan_reads(*opened(build))
    assert [reads[name].spool.name for name in ("a", "b")] == ["a", "b"]
    assert reads["a"].notes == reads["b"].notes
    assert reads["a"].start == Position({"b/0": 7}, name="a")


def test_an_idle_table_wakes_operators_and_nothing_else(tmp_path: Path) -> None:
    settings = replace(SETTINGS, idle_ms=5_000)
    with_windows = builder(tmp_path / "1", count_of(scan()), settings=settings)
    without = builder(tmp_path / "2", scan(), settings=settings)
    assert with_windows.plan_reads(*opened(with_windows))["t"].wake_after_ms == 5_000
    assert without.plan_reads(*opened(without))["t"].wake_after_ms == 0


def test_guards_are_resumed_before_anything_runs(tmp_path: Path) -> None:
    guard = Guard(scan("a").table, tmp_path)
    environment = FakeEnvironment(sources={"a": FakeSource(scan("a").table, guarded=guard)})
    build = builder(tmp_path, scan("a"), scan("b"), environment=environment)
    inputs, checkpoint, work = opened(build)
    reads = build.plan_reads(inputs, checkpoint, work)
    assert build.guard_rules(inputs, reads, work) == [cast(RuleGuard, guard)]
    assert guard.resumed == 1


def test_what_spark_refuses_is_an_error_of_the_job(tmp_path: Path) -> None:
    environment = FakeEnvironment(sources={"t": FakeSource(scan().table, refuses=True)})
    build = builder(tmp_path, scan(), environment=environment)
    inputs, checkpoint, work = opened(build)
    with pytest.raises(JobError, match="cannot run on Spark: no such thing") as failure:
        build.translate(inputs, checkpoint, work, build.plan_reads(inputs, checkpoint, work))
    assert failure.value.name == "JOB_FAILED"


def side_outputs_of(build: PipelineBuilder, guards: Sequence[RuleGuard] = ()) -> SideOutputs:
    inputs, checkpoint, _ = opened(build)
    translated = Translated(cast(DataFrame, None), build.operator_host(inputs, checkpoint), [], UntimedRows())
    return build.side_outputs(inputs, checkpoint, translated, guards, ["said"])


def test_side_outputs_are_those_of_the_tables_and_operators(tmp_path: Path) -> None:
    clean = FakeSource(scan("a").table, has_malformed=False)
    side = side_outputs_of(builder(tmp_path, scan("a"), scan("b"), environment=FakeEnvironment(sources={"a": clean})))
    assert [one.spool.directory.name for one in side.dead_letters] == ["b"]
    assert side.notices == ["said"]
    times_spool(side.reports).put("0-rank", [QueueTimes(5, {1: {"b/0": 6}})])
    assert side.take_event_times() == (5, {("b", "b/0"): 6}, {})
    assert side.take_open_ends() == {}


def test_the_first_trouble_of_rules_is_told_before_that_of_tables(tmp_path: Path) -> None:
    guards = [SimpleNamespace(trouble=lambda: None), SimpleNamespace(trouble=lambda: "the store is read-only")]
    assert side_outputs_of(builder(tmp_path, scan())).trouble() is None
    assert side_outputs_of(builder(tmp_path, scan()), cast(Any, guards)).trouble() == "the store is read-only"


def started_with(build: PipelineBuilder, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the query is started with."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(assembly.StreamPipeline, "run", lambda *_args, **more: seen.update(more))
    monkeypatch.setattr(assembly.BatchPipeline, "run", lambda _frame, ends, *_args: seen.update(ends=ends))
    inputs, checkpoint, work = opened(build)
    translated = Translated(cast(DataFrame, None), build.operator_host(inputs, checkpoint), [], UntimedRows())
    side = build.side_outputs(inputs, checkpoint, translated, [], [])
    build.supervise(inputs, checkpoint, work, translated, side)
    return seen


def test_a_bounded_query_gives_up_some_time_and_a_stream_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "Restarts", lambda settings: settings.attempts)
    assert started_with(builder(tmp_path / "1", scan(), bounded=True), monkeypatch)["restarts"] == BOUNDED_ATTEMPTS
    assert started_with(builder(tmp_path / "2", scan()), monkeypatch)["restarts"] is None


def test_a_batch_reads_to_the_ends_of_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = started_with(builder(tmp_path, scan(), settings=replace(SETTINGS, batch=True)), monkeypatch)
    assert seen["ends"] == {"t": Position({"b/0": 9}, name="t")}
