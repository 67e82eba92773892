"""Joins with dimension tables on Spark: what Spark's own join finds, and one version for each micro-batch."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Topic, bounded_run, compiled, filled_topic

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.streams.dimension.directory import DIRECTORY_VARIABLE, dimension_directory
from millstream.streams.dimension.overlay import OverlaidTable, open_version
from millstream.streams.dimension.versions import ReloadRequest, VersionStore
from millstream.streams.errors import JobError
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner

pytestmark = pytest.mark.spark

EVENTS = (
    "CREATE TABLE events (n BIGINT, k STRING, v INT, p AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = 't');"
)
NAMES = """
CREATE TABLE names (k STRING, kind INT, label STRING) WITH ('connector' = 'jdbc',
  'url' = 'jdbc:sqlite:{directory}/names.db', 'table-name' = 'names', 'lookup.cache' = 'FULL');
"""
JOINS = """
CREATE TABLE every_match (n BIGINT, label STRING) WITH ('connector' = 'print');
CREATE TABLE some_matches (n BIGINT, label STRING) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO every_match SELECT e.n, d.label FROM events AS e JOIN names FOR SYSTEM_TIME AS OF e.p AS d
  ON e.k = d.k AND d.label <> e.k WHERE d.kind > 1;
INSERT INTO some_matches SELECT e.n, d.label FROM events AS e LEFT JOIN names FOR SYSTEM_TIME AS OF e.p AS d
  ON e.k = d.k AND d.kind < e.v AND d.label IN ('a', 'b', 'ä');
END;
"""
KEYS = ("a", "b", "", "ä", "𝄞", None)


def events_of(count: int) -> list[dict[str, Any]]:
    chosen = random.Random(8)
    return [{"n": n, "k": chosen.choice((*KEYS, "none")), "v": chosen.randint(0, 4)} for n in range(count)]


def names_of(count: int) -> list[tuple[Any, ...]]:
    chosen = random.Random(9)
    return [
        (chosen.choice(KEYS), chosen.choice((None, 0, 1, 2, 3)), chosen.choice((*KEYS, "long" * 40)))
        for _ in range(count)
    ]


def keep(directory: Path, rows: list[tuple[Any, ...]]) -> None:
    """Make these the rows of the table names."""
    with closing(sqlite3.connect(directory / "names.db")) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS names (k TEXT, kind INTEGER, label TEXT)")
        connection.execute("DELETE FROM names")
        connection.executemany("INSERT INTO names VALUES (?, ?, ?)", rows)


@pytest.fixture
def events(tmp_path: Path) -> Iterator[Topic]:
    bodies = [(event["n"] % 2, json.dumps(event).encode()) for event in events_of(120)]
    with filled_topic(tmp_path, bodies, 2) as topic:
        yield topic


def test_a_dimension_table_finds_what_sparks_own_join_finds(spark: SparkSession, events: Topic) -> None:
    keep(events.directory, names_of(40))
    script = "SET 'millstream.max-rows-per-trigger' = '50';" + EVENTS + NAMES + JOINS
    found = bounded_run(spark, events, script.replace("{directory}", str(events.directory)), name="own")
    left = spark.createDataFrame([(e["n"], e["k"], e["v"]) for e in events_of(120)], "n long, k string, v int")
    right = spark.createDataFrame(names_of(40), "k string, kind int, label string")
    left.createOrReplaceTempView("left_rows")
    right.createOrReplaceTempView("right_rows")
    every = spark.sql(
        "SELECT e.n, d.label FROM left_rows e JOIN right_rows d ON e.k = d.k AND d.kind > 1 AND d.label <> e.k"
    )
    some = spark.sql(
        "SELECT e.n, d.label FROM left_rows e LEFT JOIN right_rows d"
        " ON e.k = d.k AND d.kind < e.v AND d.label IN ('a', 'b', 'ä')"
    )
    assert found.table("every_match") == Counter(tuple(row) for row in every.collect())
    assert found.table("some_matches") == Counter(tuple(row) for row in some.collect())


LABELLED = "SELECT e.n, d.label FROM events AS e JOIN names FOR SYSTEM_TIME AS OF e.p AS d ON e.k = d.k"


SEARCHES = """
CREATE TABLE ranges (low BIGINT, high BIGINT, word STRING) WITH ('connector' = 'filesystem',
  'path' = '{directory}/ranges.csv', 'format' = 'csv');
CREATE TABLE words (start STRING, net STRING, word STRING) WITH ('connector' = 'filesystem',
  'path' = '{directory}/words.csv', 'format' = 'csv', 'lookup.full-scan' = 'true');
CREATE TABLE in_range (n BIGINT, word STRING) WITH ('connector' = 'print');
CREATE TABLE in_net (n BIGINT, word STRING) WITH ('connector' = 'print');
CREATE TABLE with_start (n BIGINT, word STRING) WITH ('connector' = 'print');
CREATE TABLE with_end (n BIGINT, word STRING) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO in_range SELECT e.n, d.word FROM events AS e LEFT JOIN ranges FOR SYSTEM_TIME AS OF e.p AS d
  ON e.v * 10 >= d.low AND e.v * 10 < d.high AND d.word <> 'x';
INSERT INTO in_net SELECT e.n, d.word FROM events AS e JOIN words FOR SYSTEM_TIME AS OF e.p AS d
  ON CIDR_MATCH('10.0.0.' || CAST(e.v AS STRING), d.net);
INSERT INTO with_start SELECT e.n, d.word FROM events AS e JOIN words FOR SYSTEM_TIME AS OF e.p AS d
  ON STARTSWITH(e.k, d.start);
INSERT INTO with_end SELECT e.n, d.word FROM events AS e JOIN words FOR SYSTEM_TIME AS OF e.p AS d
  ON e.k LIKE '%' || d.word;
END;
"""
RANGES = [(0, 20, "low"), (10, 40, "x"), (20, 21, "one"), (0, 1000, "all")]
WORDS = [("n", "10.0.0.0/30", "e"), ("no", "10.0.0.3", "a"), ("a", "::/0", "one")]


def test_ranges_networks_and_prefixes_are_found_as_loops_find_them(spark: SparkSession, events: Topic) -> None:
    for name, rows in (("ranges", RANGES), ("words", WORDS)):
        lines = (",".join(map(str, row)) for row in rows)
        (events.directory / f"{name}.csv").write_text("\n".join(lines))
    script = f"SET 'execution.runtime-mode' = 'batch'; {EVENTS}{SEARCHES}"
    found = bounded_run(spark, events, script.replace("{directory}", str(events.directory)), name="searches")
    wanted: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in found.rows}
    for event in events_of(120):
        n, k, tens = event["n"], event["k"], event["v"] * 10
        ranges: list[str | None] = [word for low, high, word in RANGES if low <= tens < high and word != "x"]
        wanted["in_range"].update((n, word) for word in ranges or [None])
        nets = [("e", event["v"] < 4), ("a", event["v"] == 3)]
        wanted["in_net"].update((n, word) for word, holds in nets if holds)
        if k is not None:
            wanted["with_start"].update((n, word) for start, _, word in WORDS if k.startswith(start))
            wanted["with_end"].update((n, word) for _, _, word in WORDS if k.endswith(word))
    assert {name: found.table(name) for name in wanted} == wanted


class Reloading:
    """Takes the rows of each micro-batch, and loads the table anew behind each; the third one fails once after that."""

    def __init__(self, directory: Path) -> None:
        self.labels: list[set[Any]] = []
        self.numbers: Counter[int] = Counter()
        self._directory = directory
        self._has_failed = False

    def take(self, result: ResultRows) -> None:
        self.labels.append({label for _, label in result.rows})
        fails = len(self.labels) == 3 and not self._has_failed
        if not fails:
            self.numbers.update(number for number, _ in result.rows)
        self._reload(f"v{len(self.labels) + 1}")
        if fails:
            self._has_failed = True
            raise OSError("the first attempt at this micro-batch fails")

    def _reload(self, label: str) -> None:
        keep(self._directory, [(key, 1, label) for key in (*KEYS, "none")])
        (directory,) = dimension_directory().glob("names-*")
        store = VersionStore(directory)
        head = store.current()
        assert head is not None
        ReloadRequest(directory).request(time.time_ns() // 1_000_000)
        until_s = time.monotonic() + LIMIT_S
        while (now := store.current()) is None or now.version == head.version:
            assert time.monotonic() < until_s
            time.sleep(0.02)


def test_a_micro_batch_joins_one_version_and_the_same_when_it_is_repeated(
    spark: SparkSession, events: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(events.directory / "dimensions"))
    keep(events.directory, [(key, 1, "v1") for key in (*KEYS, "none")])
    script = f"SET 'millstream.max-rows-per-trigger' = '30'; {EVENTS}{NAMES}{LABELLED}"
    plan = compiled(script.replace("{directory}", str(events.directory)), events.nameserver)
    runner = JobRunner(spark, nameserver=events.nameserver, checkpoint_root=events.directory / "checkpoints")
    seen = Reloading(events.directory)
    first = runner.start(plan, name="reloading", bounded=True, on_rows=seen.take)
    with pytest.raises(JobError, match="the first attempt"):
        first.wait(LIMIT_S)
    # What the sink remembers of the attempt is gone, so that the rows are joined again.
    for notes in (events.directory / "checkpoints").rglob("sinks"):
        shutil.rmtree(notes)
    second = runner.start(plan, name="reloading", bounded=True, on_rows=seen.take)
    assert second.wait(LIMIT_S), second.progress()
    assert seen.labels[:4] == [{"v1"}, {"v2"}, {"v3"}, {"v3"}]
    assert seen.labels[4] == {"v5"}
    with_key = {event["n"] for event in events_of(120) if event["k"] is not None}
    assert seen.numbers == Counter(dict.fromkeys(with_key, 1))


CHANGED = """
CREATE TABLE names (k STRING, label STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-rocketmq',
  'topic' = 'names', 'format' = 'json', 'lookup.cache.ttl' = '1 s');
"""


class Telling:
    """Takes the rows of each micro-batch, and lets the topic of the table go on behind each."""

    def __init__(self, nameserver: str) -> None:
        self.labels: list[set[Any]] = []
        self._nameserver = nameserver
        self.tell("v1")

    def tell(self, label: str) -> None:
        with BlockingClient(self._nameserver) as client:
            for key in (key for key in (*KEYS, "none") if key is not None):
                body = json.dumps({"k": key, "label": label}).encode()
                client.send(Message("names", body, keys=(json.dumps({"k": key}, separators=(",", ":")),)))

    def take(self, result: ResultRows) -> None:
        self.labels.append({label for _, label in result.rows})
        (directory,) = dimension_directory().glob("names-*")
        store = VersionStore(directory)
        ends = self._ends(store)
        self.tell(f"v{len(self.labels) + 1}")
        until_s = time.monotonic() + LIMIT_S
        while self._ends(store) < ends + len(KEYS):
            assert time.monotonic() < until_s
            time.sleep(0.02)

    def _ends(self, store: VersionStore) -> int:
        head = store.current()
        assert head is not None
        return sum(head.ends.values())


def test_micro_batches_see_the_changes_of_a_topic_that_were_merged_before_them(
    spark: SparkSession, events: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(events.directory / "dimensions"))
    with BlockingClient(events.nameserver) as client:
        client.create_topic(TopicConfig("names", read_queues=2, write_queues=2))
    seen = Telling(events.nameserver)
    script = f"SET 'millstream.max-rows-per-trigger' = '30'; {EVENTS}{CHANGED}{LABELLED}"
    runner = JobRunner(spark, nameserver=events.nameserver, checkpoint_root=events.directory / "checkpoints")
    plan = compiled(script, events.nameserver)
    assert runner.start(plan, name="telling", bounded=True, on_rows=seen.take).wait(LIMIT_S)
    assert seen.labels[:4] == [{"v1"}, {"v2"}, {"v3"}, {"v4"}]
    (directory,) = dimension_directory().glob("names-*")
    last = VersionStore(directory).versions()[-1]
    assert isinstance(open_version(VersionStore(directory).directory_of(last.version)), OverlaidTable)
    assert last.rows == len(KEYS)
