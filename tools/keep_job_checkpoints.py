"""Keeps the checkpoints of jobs that stopped half-way as this version writes them, for tests of versions to come.

Usage: PYTHONPATH=src:tests python tools/keep_job_checkpoints.py

Writes the next `tests/data/jobs-N.tar.xz`: for each job its script and its checkpoint, the data directory of the
broker that it reads, the stores of rules, models and dimension tables, and `expected.json` with what each job showed
before and is to show once it goes on. `tests/streams/end_to_end/recovery/test_kept_checkpoints.py` lets the jobs of all
such archives go on.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import skl2onnx
from pyspark.sql import SparkSession
from skl2onnx.common.data_types import FloatTensorType
from sklearn.linear_model import LinearRegression

from kept_data import EXPECTED_FILE, KEPT_OPTIONS, next_archive, pack
from kept_jobs import EVENTS, OUT, bodies_out, fail_at_once, run_to_end, send_events, stop_when_read, together
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.streams.dimension.directory import DIRECTORY_VARIABLE
from millstream.streams.learning.store import ModelStore
from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from servers import running_servers_in_thread

TABLE = """
SET 'restart-strategy.type' = 'none';
CREATE TABLE events (n BIGINT, k STRING, v INT, at STRING, p AS PROCTIME(), ts AS TO_TIMESTAMP(at),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'rocketmq', 'topic' = 'events');
"""
STATE = """
CREATE TABLE windows_out (k STRING, at STRING, n BIGINT, total INT)
  WITH ('connector' = 'rocketmq', 'topic' = 'windows_out');
CREATE TABLE counts (k STRING, n BIGINT, total INT, biggest INT) WITH ('connector' = 'print');
CREATE TABLE firsts (v INT, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE overs (n BIGINT, total INT) WITH ('connector' = 'print');
CREATE TABLE matches (k STRING, low BIGINT, high BIGINT) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO windows_out SELECT k, DATE_FORMAT(window_start, 'mm:ss'), COUNT(*), SUM(v)
  FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '25' SECOND) GROUP BY k, window_start, window_end;
INSERT INTO counts SELECT k, COUNT(*), SUM(v), MAX(v) FROM events GROUP BY k;
INSERT INTO firsts SELECT v, n FROM (
  SELECT v, n, ROW_NUMBER() OVER (PARTITION BY v ORDER BY ts ASC) AS place FROM events) WHERE place = 1;
INSERT INTO overs SELECT n, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW)
  FROM events;
INSERT INTO matches SELECT k, low, high FROM events MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts MEASURES FIRST(A.n) AS low, B.n AS high ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A+ B) DEFINE A AS v < 6, B AS v > 8);
END;
"""
JOINED = """
CREATE TABLE labels (k STRING, label STRING) WITH ('connector' = 'rocketmq', 'topic' = 'labels');
SELECT e.n, l.label FROM events AS e JOIN labels AS l ON e.k = l.k;
"""
LOOKED_UP = """
CREATE TABLE names (k STRING, label STRING) WITH ('connector' = 'filesystem', 'path' = 'names.csv', 'format' = 'csv',
  'lookup.store' = 'dimension');
SELECT e.n, d.label FROM events AS e JOIN names FOR SYSTEM_TIME AS OF e.p AS d ON e.k = d.k;
"""
HITS = """
SET 'restart-strategy.type' = 'none';
CREATE TABLE hits (rule STRING, event STRING, version BIGINT)
  WITH ('connector' = 'rules', 'topic' = 'events', 'store' = '{directory}/rules');
SELECT rule, JSON_VALUE(event, '$.n') FROM hits;
"""
SCORED = """
CREATE MODEL plus INPUT (b DOUBLE, s DOUBLE) OUTPUT (predict DOUBLE) WITH ('store' = '/proc/self/cwd/models');
SELECT n, ROUND(predict, 2) FROM ML_PREDICT(TABLE numbers, MODEL plus, DESCRIPTOR(first, second));
"""
NUMBERS = """
CREATE TABLE numbers (n BIGINT, v INT, first AS CAST(n AS DOUBLE), second AS CAST(v AS DOUBLE))
  WITH ('connector' = 'rocketmq', 'topic' = 'events');
"""
SCRIPTS = {
    "state": TABLE + STATE,
    "joined": TABLE + JOINED,
    "looked_up": TABLE + LOOKED_UP,
    "hits": HITS,
    "scored": "SET 'restart-strategy.type' = 'none';" + NUMBERS + SCORED,
}
REPEATED = ("looked_up", "hits", "scored")
"""Jobs that have a micro-batch to repeat, by a version that is not the present one any more."""

PART = EVENTS // 3


def publish(directory: Path, version: int) -> None:
    """The version of each store; version 2 differs in every row."""
    lines = (f"{key},{key}{version}" for key in "abc")
    (directory / "names.csv").write_text("\n".join(lines) + "\n")
    rule = Rule(f"is-{version}", f"Rule {version}", Predicate("k", Op.IN, ("ab"[version - 1],)))
    RuleStore(directory / "rules").publish(lambda before: _with(before, rule))
    estimator = LinearRegression().fit(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), [0.0, version, 0.5])
    model = skl2onnx.convert_sklearn(estimator, initial_types=[("features", FloatTensorType([None, 2]))])
    ModelStore(directory / "models").publish("plus", model.SerializeToString(), "onnx")


def _with(before: RuleSet, rule: Rule) -> RuleSet:
    return msgspec.structs.replace(before, rules=(rule,))


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    with running_servers_in_thread(directory / "data", options=KEPT_OPTIONS) as servers:
        yield servers.nameserver


def make(spark: SparkSession, directory: Path) -> None:
    """Stop each job behind two thirds of the events, and note what the rest must give."""
    for name, script in SCRIPTS.items():
        (directory / f"{name}.sql").write_text(script)
    publish(directory, 1)
    with _server(directory) as nameserver, BlockingClient(nameserver) as client:
        for topic in ("events", "labels", OUT):
            client.create_topic(TopicConfig(topic, read_queues=2, write_queues=2))
        for key in "abc":
            client.send(Message("labels", json.dumps({"k": key, "label": f"label {key}"}).encode()))
        send_events(client, range(PART))
        before = {name: stop_when_read(spark, directory, name, nameserver, "checkpoints") for name in SCRIPTS}
        send_events(client, range(PART, 2 * PART))
        for name in SCRIPTS:
            if name in REPEATED:
                fail_at_once(spark, directory, name, nameserver, "checkpoints")
                for notes in (directory / "checkpoints" / name).rglob("sinks"):
                    shutil.rmtree(notes)
            else:
                # What a table has lost of its rows by now counts as well.
                later = stop_when_read(spark, directory, name, nameserver, "checkpoints")
                before[name] = together(before[name], later)
        publish(directory, 2)
        expected: dict[str, Any] = {"before": before}
    kept = directory.with_name("kept")
    shutil.copytree(directory, kept)
    with _server(directory) as nameserver, BlockingClient(nameserver) as client:
        send_events(client, range(2 * PART, EVENTS))
        expected["after"] = {n: run_to_end(spark, directory, n, nameserver, "checkpoints") for n in SCRIPTS}
        out = bodies_out(client)
        # Whoever never stopped shows the same rows.
        client.delete_topic(OUT)
        client.create_topic(TopicConfig(OUT, read_queues=2, write_queues=2))
        for name in SCRIPTS:
            if name not in REPEATED:
                whole = run_to_end(spark, directory, name, nameserver, "others")
                assert together(before[name], expected["after"][name]) == whole, (name, whole)
        assert out == bodies_out(client)
        expected["out"] = out
    (kept / EXPECTED_FILE).write_text(json.dumps(expected, indent=1))


def main() -> None:
    """Make and pack them."""
    archive = next_archive("jobs")
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        # The paths of files and of a model's store belong to a query: these here follow the working directory.
        os.chdir(made)
        os.environ[DIRECTORY_VARIABLE] = "dimensions"
        spark = start_session(SessionOptions(cores=2, memory_mb=900))
        make(spark, made)
        spark.stop()
        pack(Path(scratch) / "kept", archive)
    print(f"{archive} {archive.stat().st_size} bytes")


if __name__ == "__main__":
    main()
