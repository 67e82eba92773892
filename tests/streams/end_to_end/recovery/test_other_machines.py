"""Jobs whose checkpoint directory is gone, and that go on from its copy in a topic or in an object store."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Collected, Topic, bounded_run, compiled

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.streams.errors import JobError
from millstream.streams.jobs import pipeline
from millstream.streams.jobs.mirror import CheckpointMirror
from millstream.streams.jobs.runner import JobRunner
from object_stores import Bucket, bucket  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

SCRIPT = """
CREATE TABLE t (n BIGINT, k STRING, v INT, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE counts (k STRING, n BIGINT, total INT) WITH ('connector' = 'print');
CREATE TABLE sums (k STRING, at STRING, total INT) WITH ('connector' = 'rocketmq', 'topic' = '{out}', 'format' = 'json');
CREATE TABLE records (n BIGINT, k STRING)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{directory}/shop.db', 'table-name' = '{out}');
CREATE TABLE lines (n BIGINT, k STRING)
  WITH ('connector' = 'filesystem', 'path' = '{directory}/{out}', 'format' = 'json');
EXECUTE STATEMENT SET BEGIN
INSERT INTO records SELECT n, k FROM t;
INSERT INTO lines SELECT n, k FROM t;
INSERT INTO counts SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k;
INSERT INTO sums SELECT k, DATE_FORMAT(window_start, 'mm:ss'), SUM(v)
  FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end;
END;
"""
PARTS = 3
ROWS = 40
TOPIC = "SET 'state.mirror' = 'topic';"


def events(part: int) -> list[Message]:
    rows = [(number, f"k{number * 7 % 5}", number * 11 % 12) for number in range(part * ROWS, (part + 1) * ROWS)]
    return [
        Message("t", json.dumps({"n": n, "k": k, "v": v, "at": f"2026-01-01 10:{n // 60:02}:{n % 60:02}"}).encode())
        for n, k, v in rows
    ]


def script(running: Topic, where: str, tasks: int, out: str, *, is_last: bool) -> str:
    closes = str(is_last).lower()
    settings = f"SET 'parallelism.default' = '{tasks}'; SET 'millstream.bounded.close-windows' = '{closes}';"
    return where + settings + SCRIPT.replace("{out}", out).replace("{directory}", str(running.directory))


@contextmanager
def connected(running: Topic) -> Iterator[BlockingClient]:
    """A client of the server, which has the topics that the job writes; its tables are there too."""
    with closing(sqlite3.connect(running.directory / "shop.db")) as database:
        for name in ("moved", "whole"):
            database.execute(f"CREATE TABLE {name} (n INTEGER, k TEXT)")
        database.commit()
    with BlockingClient(running.nameserver) as client:
        for name in ("moved", "whole"):
            client.create_topic(TopicConfig(name))
        yield client


def written(running: Topic, client: BlockingClient, out: str) -> dict[str, Counter[str]]:
    """What stands in a topic, in a table and in files."""
    with closing(sqlite3.connect(running.directory / "shop.db")) as database:
        records = Counter(repr(row) for row in database.execute(f"SELECT n, k FROM {out}"))
    files = (running.directory / out).glob("[!._]*")
    lines = Counter(line for file in files for line in file.read_text().splitlines())
    found = {"topic": bodies(client, out), "table": records, "files": lines}
    assert all(rows.total() >= PARTS * ROWS / 3 for rows in found.values())
    return found


def bodies(client: BlockingClient, topic: str) -> Counter[str]:
    return Counter(
        message.body.decode()
        for held in client.queue_ranges(topic)
        for batch in client.read(held.queue, held.range.min_offset, held.range.max_offset)
        for message in batch.messages()
    )


def moving_runs(spark: SparkSession, running: Topic, client: BlockingClient, where: str) -> list[Collected]:
    """The job over three parts of the topic; after each of them its checkpoint directory is removed."""
    runs = []
    for part, tasks in zip(range(PARTS), (2, 3, 1), strict=True):
        client.send_many(events(part))
        text = script(running, where, tasks, "moved", is_last=part == PARTS - 1)
        runs.append(bounded_run(spark, running, text, name="moving"))
        shutil.rmtree(running.directory / "checkpoints" / "moving")
    return runs


def counted(runs: list[Collected]) -> Counter[tuple[object, ...]]:
    rows = [row for run in runs for row in run.rows["counts"]]
    kinds = [kind for run in runs for kind in run.kinds["counts"]]
    return Collected({"counts": rows}, kinds={"counts": kinds}).table("counts")


def check_moving(spark: SparkSession, running: Topic, where: str) -> None:
    with connected(running) as client:
        runs = moving_runs(spark, running, client, where)
        whole = bounded_run(spark, running, script(running, "", 2, "whole", is_last=True), name="whole")
        assert written(running, client, "moved") == written(running, client, "whole")
    assert [run.progress.rows_in for run in runs] == [ROWS] * PARTS
    assert counted(runs) == counted([whole])
    assert [any("goes on from its copy" in notice for notice in run.progress.notices) for run in runs] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("waits", ["true", "false"])
def test_a_job_goes_on_from_a_topic_without_its_directory(spark: SparkSession, topic: Filled, waits: str) -> None:
    with topic([]) as running:
        check_moving(spark, running, f"{TOPIC} SET 'state.mirror.wait' = '{waits}';")


def test_a_job_goes_on_from_a_directory_elsewhere(spark: SparkSession, topic: Filled, tmp_path: Path) -> None:
    with topic([]) as running:
        check_moving(spark, running, f"SET 'execution.checkpointing.dir' = '{tmp_path / 'shared'}';")
        assert list((tmp_path / "shared" / "moving" / "t" / "operators").glob("*/*.delta"))


def test_a_job_goes_on_from_an_object_store(spark: SparkSession, topic: Filled, bucket: Bucket) -> None:  # noqa: F811
    with topic([]) as running:
        check_moving(spark, running, f"SET 'state.checkpoints.dir' = '{bucket.address('states')}';")


@pytest.mark.parametrize("where", ["topic", "directory"])
@pytest.mark.parametrize("after", ["the copy", "the sinks"])
def test_rows_are_written_once_where_the_machine_is_lost_within_a_micro_batch(
    spark: SparkSession, topic: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, after: str
) -> None:
    place = TOPIC if where == "topic" else f"SET 'execution.checkpointing.dir' = '{tmp_path / 'shared'}';"
    none = "SET 'restart-strategy.type' = 'none';"
    with topic([]) as running, connected(running) as client:
        client.send_many(events(0))
        first = bounded_run(spark, running, script(running, place, 2, "moved", is_last=False), name="moving")
        client.send_many(events(1))
        with monkeypatch.context() as patch:
            lose_the_machine(patch, after)
            with pytest.raises(JobError, match="the machine is lost"):
                bounded_run(spark, running, script(running, none + place, 2, "moved", is_last=False), name="moving")
        shutil.rmtree(running.directory / "checkpoints" / "moving")
        # What comes meanwhile would make another micro-batch of one that is planned anew.
        client.send_many(events(2))
        second = bounded_run(spark, running, script(running, place, 3, "moved", is_last=True), name="moving")
        bounded_run(spark, running, script(running, "", 2, "whole", is_last=True), name="whole")
        assert written(running, client, "moved") == written(running, client, "whole")
    assert first.progress.batches == 1
    assert any("goes on from its copy" in notice for notice in second.progress.notices)


def lose_the_machine(patch: pytest.MonkeyPatch, after: str) -> None:
    """Let a micro-batch fail there, and nothing be copied any more."""
    if after == "the copy":
        copy = CheckpointMirror.before_writing

        def lose(self: CheckpointMirror) -> None:
            copy(self)
            raise OSError("the machine is lost")

        patch.setattr(CheckpointMirror, "before_writing", lose)
    else:

        def lose_later(self: object, batch_id: int) -> None:
            raise OSError("the machine is lost")

        patch.setattr(pipeline.PartitionCommits, "after", lose_later)
    patch.setattr(CheckpointMirror, "end", lambda self: None)
    patch.setattr(CheckpointMirror, "after_writing", lambda self: None)


def test_a_directory_whose_job_went_on_elsewhere_is_refused(spark: SparkSession, topic: Filled, tmp_path: Path) -> None:
    with topic([]) as running, connected(running) as client:
        client.send_many(events(0))
        bounded_run(spark, running, script(running, TOPIC, 2, "moved", is_last=False), name="moving")
        job = running.directory / "checkpoints" / "moving"
        job.rename(tmp_path / "old")
        bounded_run(spark, running, script(running, TOPIC, 2, "moved", is_last=False), name="moving")
        shutil.rmtree(job)
        (tmp_path / "old").rename(job)
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        again = compiled(script(running, TOPIC, 2, "moved", is_last=False), running.nameserver)
        with pytest.raises(JobError, match="went on elsewhere") as refusal:
            runner.start(again, name="moving", bounded=True)
        assert refusal.value.name == "CHECKPOINT_MISMATCH"


def test_a_place_without_rights_is_refused_before_the_start(spark: SparkSession, topic: Filled, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with topic([]) as running, connected(running):
        runner = JobRunner(spark, nameserver=running.nameserver, checkpoint_root=running.directory / "checkpoints")
        for place, words in ((tmp_path / "file" / "x", "state in"), ("s3://key:secret@bucket/x", "names a user")):
            text = script(running, f"SET 'execution.checkpointing.dir' = '{place}';", 2, "moved", is_last=False)
            with pytest.raises(JobError, match=words) as refusal:
                runner.start(compiled(text, running.nameserver), name="refused", bounded=True)
            assert refusal.value.name == "STATE_DENIED"
            assert "secret@" not in str(refusal.value)
        assert not (running.directory / "checkpoints" / "refused" / "t" / "job.json").exists()
