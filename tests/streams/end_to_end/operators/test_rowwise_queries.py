"""Queries that make several rows of one, rows of the script, and sorted or limited results, in streams and in batch."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run, filled_topic

pytestmark = pytest.mark.spark

NOON = datetime.datetime(2026, 3, 1, 12, 0)
TABLE = """
CREATE TABLE readings (device STRING, number BIGINT, at STRING, items ARRAY<ROW<name STRING, n INT>>,
  tags ARRAY<STRING>, counts MAP<STRING, INT>, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts - INTERVAL '30' SECOND)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
"""
# Device, number, seconds after noon, items, tags, counts.
READINGS = [
    ("a", 1, 20, [{"name": "x", "n": 1}, {"name": "y", "n": 2}], ["red", None], {"k": 1, "l": 2}),
    ("b", 2, 5, [], [], {}),
    ("a", 3, 12, [{"name": "z", "n": None}], ["blue"], {"k": 3}),
    ("b", 4, 40, None, None, None),
    ("a", 5, 41, [None], ["green", "grey"], {"m": None}),
    ("a", 5, 60, [], [], {}),
]
FUNCTION = """SET 'millstream.user-function.on-error' = 'null';
CREATE FUNCTION numbered_words AS 'sample_functions.numbered' LANGUAGE PYTHON;"""
MODES = {
    "cut": "SET 'millstream.max-rows-per-trigger' = '2';",
    "batch": "SET 'execution.runtime-mode' = 'batch';",
}


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    bodies = [
        (0, json.dumps({"device": device, "number": number, "at": f"{at(second)}", "items": items, "tags": tags,
                        "counts": counts}).encode())
        for device, number, second, items, tags, counts in READINGS
    ]  # fmt: skip
    with filled_topic(tmp_path_factory.mktemp("readings"), bodies, 1) as topic:
        yield topic


def at(second: int) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=second)


def inserts(queries: dict[str, tuple[str, str]]) -> str:
    """A statement set that fills a table of the columns for each query."""
    tables = [
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'print');" for name, (columns, _) in queries.items()
    ]
    filling = [f"INSERT INTO {name} {query};" for name, (_, query) in queries.items()]
    return "\n".join([*tables, "EXECUTE STATEMENT SET BEGIN", *filling, "END;"])


ROWWISE = {
    "unnested": (
        "device STRING, name STRING, n INT",
        "SELECT device, i.name, i.n FROM readings CROSS JOIN UNNEST(items) AS i (name, n) WHERE number < 5",
    ),
    "kept": (
        "number BIGINT, tag STRING, place INT",
        "SELECT number, t.tag, t.place FROM readings LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, place) ON TRUE",
    ),
    "entries": (
        "number BIGINT, k STRING, v INT",
        "SELECT number, c.k, c.v FROM readings CROSS JOIN UNNEST(counts) AS c (k, v)",
    ),
    "parts": (
        "number BIGINT, part STRING",
        "SELECT number, p.part FROM readings, LATERAL TABLE(SPLIT(device || '-' || at, '-')) AS p (part)"
        " WHERE number < 3",
    ),
    "numbered": (
        "number BIGINT, place BIGINT, word STRING",
        "SELECT number, w.place, w.word FROM readings LEFT JOIN LATERAL TABLE(numbered_words(tags[1])) AS w (place, word)"
        " ON TRUE WHERE number < 3",
    ),
    "mixed": (
        "n BIGINT, word STRING",
        "SELECT number, device FROM readings UNION ALL SELECT * FROM (VALUES (7, 'seven'), (8, 'eight')) AS v (n, w)",
    ),
    "cumulated": (
        "number BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3)",
        "SELECT number, window_start, window_end FROM TABLE(CUMULATE(TABLE readings, DESCRIPTOR(ts),"
        " INTERVAL '20' SECOND, INTERVAL '1' MINUTE)) WHERE number < 3",
    ),
    "named_again": (
        "device STRING, counted ARRAY<STRING>",
        "SELECT device || 'x' AS device, ARRAY_REMOVE(ARRAY['a', 'ax', 'b'], device) FROM readings WHERE number < 3",
    ),
    "grouped": (
        "device STRING, number BIGINT, n BIGINT",
        "SELECT device, number, COUNT(*) FROM readings GROUP BY GROUPING SETS ((device), (number), ())",
    ),
}


@pytest.mark.parametrize("mode", list(MODES))
def test_rows_that_are_made_of_one_row(
    mode: str, spark: SparkSession, readings: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "functions"))
    script = MODES[mode] + FUNCTION + TABLE + inserts(ROWWISE)
    found = bounded_run(spark, readings, script, name=f"rowwise-{mode}")
    assert found.table("numbered") == Counter([(1, 1, "red"), (2, None, None)])
    assert found.table("unnested") == Counter([("a", "x", 1), ("a", "y", 2), ("a", "z", None)])
    kept = [(1, "red", 1), (1, None, 2), (2, None, None), (3, "blue", 1), (4, None, None)]
    assert found.table("kept") == Counter([*kept, (5, "green", 1), (5, "grey", 2), (5, None, None)])
    assert found.table("entries") == Counter([(1, "k", 1), (1, "l", 2), (3, "k", 3), (5, "m", None)])
    words = [(1, "a"), (2, "b"), *((number, part) for number in (1, 2) for part in ("2026", "03"))]
    assert found.table("parts") == Counter([*words, (1, "01 12:00:20"), (2, "01 12:00:05")])
    mixed = Counter((number, device) for device, number, *_ in READINGS)
    assert found.table("mixed") == mixed + Counter([(7, "seven"), (8, "eight")])
    windows = [(1, 40), (1, 60), (2, 20), (2, 40), (2, 60)]
    assert found.table("cumulated") == Counter((number, NOON, at(end)) for number, end in windows)
    assert found.sorted("named_again") == [("ax", ["ax", "b"]), ("bx", ["a", "ax"])]
    numbers = [(None, 1, 1), (None, 2, 1), (None, 3, 1), (None, 4, 1), (None, 5, 2)]
    assert found.table("grouped") == Counter([("a", None, 4), ("b", None, 2), (None, None, 6), *numbers])


ORDERED = {
    "in_time": ("number BIGINT, at STRING", "SELECT number, at FROM readings ORDER BY ts"),
    "newest": ("number BIGINT", "SELECT number FROM readings ORDER BY at DESC LIMIT 2 OFFSET 1"),
    "some": ("number BIGINT", "SELECT number FROM readings LIMIT 3"),
    "sessions": (
        "number BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3)",
        "SELECT number, window_start, window_end FROM TABLE(SESSION(TABLE readings PARTITION BY device,"
        " DESCRIPTOR(ts), INTERVAL '15' SECOND))",
    ),
    "only_a": (
        "number BIGINT",
        "SELECT number FROM readings WHERE device = 'a' EXCEPT SELECT number FROM readings WHERE number < 2",
    ),
    "twice": (
        "number BIGINT",
        "SELECT number FROM readings INTERSECT ALL SELECT number FROM readings WHERE device = 'a'",
    ),
}


@pytest.mark.parametrize("mode", list(MODES))
def test_sorted_limited_and_compared_rows(mode: str, spark: SparkSession, readings: Topic) -> None:
    found = bounded_run(spark, readings, MODES[mode] + TABLE + inserts(ORDERED), name=f"ordered-{mode}")
    in_time = sorted(READINGS, key=lambda row: row[2])
    assert found.rows["in_time"] == [(row[1], f"{at(row[2])}") for row in in_time]
    assert found.table("newest") == Counter([(5,), (4,)])
    assert found.table("some") == Counter([(1,), (2,), (3,)])
    a, b = (at(12), at(35)), (at(5), at(20))
    sessions = [(1, *a), (3, *a), (2, *b), (4, at(40), at(55)), (5, at(41), at(56)), (5, at(60), at(75))]
    assert found.table("sessions") == Counter(sessions)
    assert found.table("only_a") == Counter([(3,), (5,)])
    assert found.table("twice") == Counter([(1,), (3,), (5,), (5,)])


def test_rows_of_the_script_alone_run_as_one_batch(spark: SparkSession, readings: Topic) -> None:
    queries = {
        "given": ("n INT, word STRING", "VALUES (1, 'one'), (2, CAST(NULL AS STRING))"),
        "counted": ("n BIGINT", "SELECT COUNT(*) FROM (VALUES (1), (2), (2)) AS v (n) WHERE n > 1"),
        "said": ("word STRING", "SELECT 'a' || 'b'"),
    }
    found = bounded_run(spark, readings, inserts(queries), name="values")
    assert found.table("given") == Counter([(1, "one"), (2, None)])
    assert found.table("counted") == Counter([(2,)])
    assert found.table("said") == Counter([("ab",)])
