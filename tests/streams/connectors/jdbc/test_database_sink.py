"""The sink of a table in a database: micro-batches as Spark's tasks bring them, written once, with errors in words."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa

from millstream.streams.connectors.jdbc.sink import DatabaseSink
from millstream.streams.errors import JobError
from millstream.streams.jobs.outputs import outputs_of
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, Written
from millstream.streams.sql.session.compiler import SqlSession

BATCH = "SET 'execution.runtime-mode' = 'batch'; "
INSERTED, BEFORE, AFTER, DELETED = range(4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    execute(file, "CREATE TABLE plain (id INTEGER, name TEXT NOT NULL)")
    execute(file, "CREATE TABLE keyed (id INTEGER PRIMARY KEY, name TEXT)")
    return file


def execute(file: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(file)
    rows = connection.execute(statement).fetchall()
    connection.commit()
    connection.close()
    return rows


def sink_of(
    file: Path, table: str, options: str = "", *, columns: str = "id BIGINT, name STRING", settings: str = ""
) -> DatabaseSink:
    key = ", PRIMARY KEY (id) NOT ENFORCED" if table == "keyed" else ""
    script = (
        f"{settings} CREATE TABLE s ({columns}) WITH ('connector' = 'datagen', 'number-of-rows' = '1');"
        f"CREATE TABLE d ({columns}{key}) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{file}', 'table-name' = '{table}'{options});"
        "INSERT INTO d SELECT * FROM s"
    )
    plan = SqlSession().compile(script)[-1]
    assert isinstance(plan, JobPlan)
    (output,) = outputs_of(plan, JobSettings.of(plan.settings, "localhost:1"), None)
    assert isinstance(output.sink, DatabaseSink)
    return output.sink


def deliver(
    sink: DatabaseSink, notes: Path, batch_id: int, *tasks: Sequence[tuple[Any, ...]], job: str = "job"
) -> None:
    """A micro-batch: rows of each task, each with its kind where it has three values."""
    assert sink.begin(Attempt(job, batch_id, 0, notes)) is False
    written = []
    for number, rows in enumerate(tasks):
        task = SinkTask(job, batch_id, number)
        writer = pickle.loads(pickle.dumps(sink)).writer(task)
        columns = [pa.array([row[place] for row in rows], kind) for place, kind in ((0, pa.int64()), (1, pa.string()))]
        kinds = pa.array([row[2] for row in rows], pa.int8()) if len(rows[0]) > 2 else None
        writer.write(pa.RecordBatch.from_arrays(columns, names=["id", "name"]), kinds)
        written.append(Written(task, len(rows), writer.finish()))
    sink.commit(batch_id, written)


def test_a_repeated_micro_batch_is_written_once_however_it_is_divided(file: Path, tmp_path: Path) -> None:
    for tasks in ([[(1, "a"), (2, "b")], [(3, "c")]], [[(2, "b"), (3, "c"), (1, "a")]]):
        deliver(sink_of(file, "plain"), tmp_path / "notes", 0, *tasks)
    deliver(sink_of(file, "plain"), tmp_path / "notes", 1, [(3, "c")])
    assert execute(file, "SELECT id FROM plain ORDER BY id") == [(1,), (2,), (3,), (3,)]


def test_changes_of_one_key_from_several_tasks_come_to_one_row(file: Path, tmp_path: Path) -> None:
    sink = sink_of(file, "keyed")
    deliver(sink, tmp_path / "notes", 0, [(1, "a", INSERTED), (2, "b", INSERTED)])
    deliver(sink, tmp_path / "notes", 1, [(1, "A", AFTER), (2, "b", DELETED)], [(1, "a", BEFORE), (3, "c", INSERTED)])
    assert execute(file, "SELECT * FROM keyed ORDER BY id") == [(1, "A"), (3, "c")]


def test_a_batch_job_that_is_run_again_writes_again(file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        deliver(sink_of(file, "plain", settings=BATCH), tmp_path / "notes", 0, [(1, "a")])
    assert execute(file, "SELECT id FROM plain") == [(1,), (1,)]


def test_a_batch_job_that_was_broken_off_behind_its_rows_does_not(file: Path, tmp_path: Path) -> None:
    deliver(sink_of(file, "plain", settings=BATCH), tmp_path / "notes", 0, [(1, "a")])
    (tmp_path / "notes" / "0-runs.json").unlink()
    deliver(sink_of(file, "plain", settings=BATCH), tmp_path / "notes", 0, [(1, "a")])
    assert execute(file, "SELECT id FROM plain") == [(1,)]


def test_nothing_is_left_beside_the_checkpoint_and_workers_get_no_password(file: Path, tmp_path: Path) -> None:
    sink = sink_of(file, "plain", ", 'username' = 'u', 'password' = 'hush-4711'")
    assert b"hush-4711" not in pickle.dumps(sink)
    deliver(sink, tmp_path / "notes", 0, [(1, "a")])
    assert not (tmp_path / "notes" / "0-rows").exists()


def test_exactly_once_may_be_asked_for_never(file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        deliver(sink_of(file, "plain", ", 'sink.exactly-once' = 'never'"), tmp_path / "notes", 0, [(1, "a")])
    assert execute(file, "SELECT id FROM plain") == [(1,), (1,)]
    assert execute(file, "SELECT name FROM sqlite_master WHERE name = 'millstream_batches'") == []


def test_a_row_that_is_refused_ends_the_job_or_goes_to_a_topic(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobError, match=r"d does not take the row id=2, name=None: .*NOT NULL"):
        deliver(sink_of(file, "plain"), tmp_path / "notes", 0, [(1, "a"), (2, None)])
    log = _Log()
    monkeypatch.setattr("millstream.streams.spark.source.topic_log.open_log", lambda *_args, **_more: log)
    sink = sink_of(file, "plain", ", 'sink.dead-letter.topic' = 'refused'")
    deliver(sink, tmp_path / "notes", 0, [(1, "a"), (2, None)])
    assert execute(file, "SELECT id FROM plain") == [(1,)]
    (letter,) = log.sent
    assert (letter.topic, json.loads(letter.body)) == ("refused", {"id": 2, "name": None})
    assert letter.user_properties["sink_table"] == "d"
    assert "NOT NULL" in letter.user_properties["reason"]


class _Log:
    """A topic log that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def ensure_topic(self, topic: str) -> None:
        """It is there."""

    def send(self, messages: Sequence[Any]) -> None:
        self.sent += messages

    def close(self) -> None:
        """Nothing to end."""


@pytest.mark.parametrize(
    ("table", "columns", "options", "name", "words"),
    [
        ("nowhere", "id BIGINT", "", "DATABASE_TABLE", "has no table nowhere"),
        ("plain", "id BIGINT, nome STRING", "", "DATABASE_TABLE", "Did you mean name?"),
        ("plain", "id BIGINT", "", "DATABASE_TABLE", "name is NOT NULL without a default"),
    ],
)
def test_a_table_that_does_not_fit_starts_no_job(
    table: str, columns: str, options: str, name: str, words: str, file: Path
) -> None:
    with pytest.raises(JobError) as raised:
        sink_of(file, table, options, columns=columns)
    assert raised.value.name == name
    assert words in str(raised.value)


def test_a_database_that_is_not_there_starts_no_job(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"The table d cannot be written: sqlite:.*none\.db: unable to open") as raised:
        sink_of(tmp_path / "none.db", "plain", ", 'sink.max-retries' = '0'")
    assert raised.value.name == "DATABASE_UNREACHABLE"
