"""Partitions of a job's tables are told to be whole, over micro-batches, restarts and while nothing comes."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa

from millstream.streams.connectors.filesystem.sink import FileSink, commit_policy, size_bytes
from millstream.streams.errors import JobError
from millstream.streams.jobs.outputs import Output, outputs_of
from millstream.streams.jobs.partition_commits import PartitionCommits, check_event_time, timed_scans
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.spark.sinks.sink import Attempt, Sink, SinkTask, Written
from millstream.streams.sql.session.compiler import SqlSession

MINUTE = 60_000
START = int(datetime.datetime(2026, 1, 2, 3, 0, tzinfo=datetime.UTC).timestamp() * 1000)
BY_TIME = (
    "'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '1 min',"
    " 'partition.time-extractor.timestamp-pattern' = '$dt $hm:00',"
)
EVENTS = (
    "CREATE TABLE s (id INT, ts TIMESTAMP(3), host STRING, moment AS ts + INTERVAL '1' SECOND,"
    " WATERMARK FOR moment AS moment - INTERVAL '4' SECOND) WITH ('connector' = 'datagen');"
)
ROWS = "SELECT id, DATE_FORMAT(ts, 'yyyy-MM-dd'), DATE_FORMAT(ts, 'HH:mm') FROM s"


def planned(root: Path, options: str, query: str = ROWS, source: str = EVENTS) -> JobPlan | QueryPlan:
    script = (
        f"{source} CREATE TABLE f (id INT, dt STRING, hm STRING) PARTITIONED BY (dt, hm) WITH ("
        f"'connector' = 'filesystem', 'path' = '{root}/out', {options} 'format' = 'csv',"
        f" 'sink.partition-commit.policy.kind' = 'success-file'); INSERT INTO f {query}"
    )
    plan = SqlSession().compile(script)[-1]
    assert isinstance(plan, JobPlan | QueryPlan)
    return plan


class Job:
    """The end of each micro-batch of a job that writes rows into partitions, started on what earlier ones left."""

    def __init__(self, root: Path, options: str = BY_TIME, query: str = ROWS, *, idle_ms: int = 0) -> None:
        plan = planned(root, options, query)
        self.outputs: list[Output] = outputs_of(plan, JobSettings.of(plan.settings, ""), None)
        self.now_ms = START
        self._root = root
        self._notes = root / "notes"
        self.commits = PartitionCommits(
            self.outputs,
            timed_scans(self.outputs),
            self._notes,
            {"s": 0},
            idle_ms={0: idle_ms} if idle_ms else {},
            clock=lambda: self.now_ms / 1000,
        )

    def batch(self, number: int, *minutes: int, seen: dict[str, float] | None = None) -> None:
        """Rows of minutes of the hour, and event times in seconds behind its start that queues have come to."""
        sink = self.outputs[0].sink
        assert isinstance(sink, FileSink)
        written = [
            pa.array([1] * len(minutes), pa.int32()),
            ["2026-01-02"] * len(minutes),
            [f"03:{m:02}" for m in minutes],
        ]
        self._write(sink, number, pa.RecordBatch.from_arrays([pa.array(of) for of in written], sink.schema.names))
        queues = seen or {}
        for times in self.commits.times:
            count = len(queues)
            arrays = [
                pa.array([0] * count, pa.int32()),
                pa.array(list(queues), pa.string()),
                pa.array([int(START * 1000 + time_s * 1_000_000) for time_s in queues.values()], pa.int64()),
                pa.nulls(count, pa.int64()),
            ]
            self._write(times, number, pa.RecordBatch.from_arrays(arrays, times.schema.names))
        self.commits.after(number)

    def _write(self, sink: Sink, number: int, rows: pa.RecordBatch) -> None:
        sink.begin(Attempt("job", number, 0, self._notes))
        task = SinkTask("job", number, 0)
        writer = sink.writer(task)
        writer.write(rows)
        sink.commit(number, [Written(task, rows.num_rows, writer.finish())])

    def whole(self, *, forget: bool = False) -> list[str]:
        """The minutes that are told to be whole."""
        found = sorted((self._root / "out").glob("dt=*/hm=*/_SUCCESS"))
        minutes = [path.parent.name[-2:] for path in found]
        for path in found if forget else ():
            path.unlink()
        return minutes


def test_a_partition_is_whole_when_the_watermark_has_passed_its_time_and_the_delay(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.batch(0, 0, 1, seen={"q": 60})
    assert job.whole() == []
    job.batch(1, 1, seen={"q": 60.001})
    assert job.whole() == ["00"]
    job.batch(2, seen={"q": 200})
    assert job.whole() == ["00", "01"]


def test_the_slowest_queue_says_how_far_event_time_has_come(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.batch(0, 0, seen={"fast": 500, "slow": 10})
    job.batch(1, seen={"fast": 600})
    assert job.whole() == []
    job.batch(2, seen={"slow": 61})
    assert job.whole() == ["00"]


def test_a_queue_that_is_idle_holds_nothing_up_also_while_no_rows_come(tmp_path: Path) -> None:
    job = Job(tmp_path, idle_ms=MINUTE)
    job.batch(0, 0, seen={"fast": 500, "slow": 10})
    job.now_ms += MINUTE
    job.batch(1, seen={"fast": 600})
    job.commits.between()
    assert job.whole() == []
    job.now_ms += 1
    job.commits.between()
    assert job.whole() == ["00"]


def test_late_rows_make_a_partition_whole_once_more(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.batch(0, 0, seen={"q": 100})
    assert job.whole(forget=True) == ["00"]
    job.batch(1, 5, seen={"q": 101})
    assert job.whole() == []
    job.batch(2, 0, seen={"q": 102})
    assert job.whole() == ["00"]


def test_what_is_not_whole_yet_and_the_watermark_are_kept_over_a_restart(tmp_path: Path) -> None:
    Job(tmp_path).batch(0, 0, 7, seen={"fast": 500, "slow": 10})
    job = Job(tmp_path)
    job.batch(1, 8, seen={"fast": 501})
    assert job.whole() == []
    job.batch(2, seen={"slow": 490})
    assert job.whole() == ["00", "07"]


def test_a_repeated_micro_batch_tells_its_partitions_again(tmp_path: Path) -> None:
    Job(tmp_path).batch(0, 0, 1, seen={"q": 100})
    job = Job(tmp_path)
    assert job.whole(forget=True) == ["00"]
    job.batch(0, 0, 1, seen={"q": 100})
    assert job.whole() == ["00"]


def test_by_processing_time_partitions_become_whole_while_no_rows_come(tmp_path: Path) -> None:
    job = Job(tmp_path, "'sink.partition-commit.delay' = '1 min',")
    job.batch(0, 0)
    assert job.commits.times == []
    job.now_ms += MINUTE
    job.batch(1, 0, 1)
    job.commits.between()
    assert job.whole() == []
    job.now_ms += 1
    job.commits.between()
    assert job.whole() == ["00"]
    job.now_ms += MINUTE
    again = Job(tmp_path, "'sink.partition-commit.delay' = '1 min',")
    again.now_ms = job.now_ms
    again.commits.between()
    assert again.whole() == ["00", "01"]


def test_without_a_delay_each_micro_batch_tells_its_partitions(tmp_path: Path) -> None:
    job = Job(tmp_path, "'sink.partition-commit.success-file.name' = 'done',")
    job.batch(0, 0)
    assert (tmp_path / "out" / "dt=2026-01-02" / "hm=03%3A00" / "done").is_file()


def test_at_the_end_of_a_bounded_run_all_partitions_are_whole_also_after_a_crash(tmp_path: Path) -> None:
    Job(tmp_path).batch(0, 0, 1)
    job = Job(tmp_path)
    job.commits.finish()
    assert job.whole() == ["00", "01"]


def test_the_watermark_is_read_from_the_columns_that_it_needs_alone(tmp_path: Path) -> None:
    (scan,) = timed_scans(Job(tmp_path).outputs)
    assert scan.columns == ("ts", "moment")
    assert timed_scans(Job(tmp_path, "").outputs) == []


def test_partitions_that_wait_for_a_watermark_that_never_comes_are_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path, BY_TIME, source="CREATE TABLE s (id INT, ts TIMESTAMP(3)) WITH ('connector' = 'datagen');")
    outputs = outputs_of(plan, JobSettings.of(plan.settings, ""), None)
    with pytest.raises(JobError, match="wait for a watermark"):
        check_event_time(outputs)
    check_event_time(Job(tmp_path).outputs)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("'sink.partition-commit.watermark-time-zone' = 'Moon/Sea',", "no time zone"),
        ("'partition.time-extractor.timestamp-formatter' = 'EEE',", "cannot have EEE"),
        ("'partition.time-extractor.timestamp-formatter' = 'HH',", "no year"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_runs(tmp_path: Path, options: str, said: str) -> None:
    plan = planned(tmp_path, BY_TIME + options)
    with pytest.raises(JobError, match=said):
        outputs_of(plan, JobSettings.of(plan.settings, ""), None)


def test_a_pattern_that_names_another_column_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path, BY_TIME.replace("$hm", "$hour"))
    with pytest.raises(JobError, match=r"from \$hour, by which it is not partitioned.*\$dt, \$hm"):
        outputs_of(plan, JobSettings.of(plan.settings, ""), None)


def test_a_table_without_partitions_or_policy_tells_nothing(tmp_path: Path) -> None:
    plan = SqlSession().compile(
        f"{EVENTS} CREATE TABLE f (id INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}',"
        " 'sink.partition-commit.policy.kind' = 'success-file'); INSERT INTO f SELECT id FROM s"
    )[-1]
    assert isinstance(plan, JobPlan)
    assert commit_policy(plan.sinks[0].table) is None


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("2 kb", 2048), ("128MB", 128 << 20), ("1 gibibytes", 1 << 30)])
def test_sizes_are_read_as_flink_writes_them(text: str, count: int) -> None:
    assert size_bytes(text) == count
