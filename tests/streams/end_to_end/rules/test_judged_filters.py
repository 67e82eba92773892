"""Filters that the source judges, and outputs that are merged, give the rows that filters of Spark's own give."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession
from running_jobs import bounded_run

pytestmark = pytest.mark.spark


TABLES = """
CREATE TABLE t (a STRING, b STRING, n INT, l BIGINT, x DOUBLE, ok BOOLEAN, price DECIMAL(10, 2), tags ARRAY<STRING>, place ROW<city STRING, zip INT>,
  low AS LOWER(a)) WITH ('connector' = 'rocketmq', 'topic' = 't', 'format' = 'json');
CREATE TABLE alerts (rule STRING, level INT, a STRING, n INT) WITH ('connector' = 'print');
CREATE TABLE other (a STRING, n INT) WITH ('connector' = 'print');
"""
TEXTS = (
    None,
    "",
    "a",
    "A",
    "abc",
    "x%y",
    "a_c",
    " a ",
    "é",
    "10.1.2.3",
    "ab\nc",
    "İx",
    "ΑΣ",
    "cmd.exe /c",
    "CMD.EXE /C a",
    "x\r",
)
NUMBERS = (None, -3, 0, 1, 2, 3, 2**31 - 1)
FLOATS = (None, -1.5, 0.0, 0.5, 1.0, 2.5, "NaN")
CONDITIONS = (
    "a = 'a'", "a <> 'a'", "a < 'b'", "a >= 'ab'", "low = 'a'", "UPPER(TRIM(a)) = 'A'", "a IN ('a', 'é', NULL)",
    "a NOT IN ('a', 'abc')", "a LIKE 'a%'", "a LIKE '%c'", "a LIKE '%b%'", "a LIKE 'a_c'", "a LIKE '%!%%' ESCAPE '!'",
    "a NOT LIKE '%a%'", "a SIMILAR TO 'a(b|_)c'", r"REGEXP(a, '(?i)cmd\.exe +/c$')", r"REGEXP(a, '^\w+$')", "REGEXP(a, 'a.c')",
    "REGEXP(a, '')", r"REGEXP(a, '\bexe')", "STARTSWITH(a, 'cmd')", "ENDSWITH(b, 'a')", "POSITION('exe' IN a) > 0",
    "LOCATE('a', b) = 0", "INSTR(a, 'a') = 1", "a IS NULL", "a IS NOT NULL", "tags IS NULL", "price IS NOT NULL", "price > 2.5",
    "n > 1", "n <= 2.1", "n = 2.0", "n IN (1, 3)", "n BETWEEN 0 AND 2", "l <> 0", "x > 0.5", "x >= 2.5", "x < 1", "x = 0.5",
    "x NOT BETWEEN 0 AND 1", "x IN (0.5, 2.5)", "ok", "NOT ok", "ok IS NOT TRUE", "ok = FALSE", "(a = b) IS UNKNOWN", "a = b",
    "CIDR_MATCH(a, '10.0.0.0/8')", "COALESCE(a, 'abc') = 'abc'", "CASE WHEN n > 1 THEN a = 'a' ELSE ok END",
    "a IS DISTINCT FROM 'a'", "CHAR_LENGTH(a) > 3", "n + 1 > 2", "place.city = 'a'", "place.zip > 1", "place.city IS NULL", "place IS NULL",
)  # fmt: skip


def bodies(draw: random.Random, count: int) -> list[tuple[int, bytes]]:
    rows: list[dict[str, Any]] = [
        {
            "a": draw.choice(TEXTS), "b": draw.choice(TEXTS), "n": draw.choice(NUMBERS), "l": draw.choice(NUMBERS),
            "x": draw.choice(FLOATS), "ok": draw.choice((None, True, False)), "price": draw.choice((None, 1.25, 3)),
            "tags": draw.choice((None, [], ["a"])),
            "place": draw.choice((None, {"city": draw.choice(TEXTS), "zip": draw.choice(NUMBERS)})),
        }
        for _ in range(count)
    ]  # fmt: skip
    return [(number % 2, json.dumps(row).encode()) for number, row in enumerate(rows)] + [(0, b"no json")]


def conditions(draw: random.Random, count: int) -> list[str]:
    found = list(CONDITIONS)
    while len(found) < count:
        parts = [f"({draw.choice(CONDITIONS)})" for _ in range(draw.choice((2, 2, 3)))]
        joined = draw.choice((" AND ", " OR ")).join(parts)
        found.append(f"NOT ({joined})" if draw.random() < 0.2 else joined)
    return found


def script(asked: list[str], stage: str) -> str:
    alerts = "".join(
        f"INSERT INTO alerts SELECT 'r{number}', {number}, a, n FROM t WHERE {one};" for number, one in enumerate(asked)
    )
    others = "".join(
        f"INSERT INTO other SELECT LOWER(a), {number} + n FROM t WHERE {one};" for number, one in enumerate(asked[:6])
    )
    return f"SET 'millstream.rules.stage' = '{stage}'; {TABLES} EXECUTE STATEMENT SET BEGIN {alerts} {others} END"


@pytest.fixture
def asked() -> list[str]:
    return conditions(random.Random(7), 64)


def test_judging_in_the_source_changes_no_row(spark: SparkSession, topic: Any, asked: list[str]) -> None:
    with topic(bodies(random.Random(11), 300), 2) as filled:
        always = bounded_run(spark, filled, script(asked, "always"), name="always")
        never = bounded_run(spark, filled, script(asked, "never"), name="never")
    by_rule = {rule for rule, *_ in never.rows["alerts"]}
    assert len(by_rule) > len(CONDITIONS) * 0.9, "nearly all conditions hold for some row"
    for rule in by_rule:
        of_rule = [[row for row in run.sorted("alerts") if row[0] == rule] for run in (always, never)]
        assert of_rule[0] == of_rule[1], (rule, asked[int(rule[1:])])
    assert always.sorted("alerts") == never.sorted("alerts")
    assert always.sorted("other") == never.sorted("other")
    assert always.progress.malformed == never.progress.malformed == 1
    for run in (always, never):
        assert run.progress.rows_by == {"alerts": Counter(rule for rule, *_ in run.rows["alerts"])}
    assert always.progress.rows_in == never.progress.rows_in == 301
