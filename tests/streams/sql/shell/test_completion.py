"""The shell's completions: what may stand at the cursor, marked | here."""

from __future__ import annotations

import pytest
from compiling import EVENTS
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.sql.options.settings import SETTINGS
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.completion import Completions

QUOTED = sorted((f"'{name}'" for name in SETTINGS), key=str.lower)
SESSION = SqlSession()
SESSION.compile(
    EVENTS
    + "CREATE TABLE `odd table` (`@time` STRING, MixedCase INT, `order` INT) WITH ('connector' = 'datagen');"
    + "CREATE VIEW hot AS SELECT host, score AS heat FROM events; CREATE DATABASE lab;"
    + "CREATE TABLE lab.probes (probe INT) WITH ('connector' = 'print'); CREATE FUNCTION shout AS 'millstream.streams.functions.java_twins.count_char' LANGUAGE PYTHON;"
)


def completed(marked: str) -> Completions:
    return SESSION.complete(marked.replace("|", ""), marked.index("|"))


def texts(marked: str) -> list[str]:
    return [candidate.text for candidate in completed(marked).candidates]


@pytest.mark.parametrize(
    ("marked", "wanted"),
    [
        ("SEL|", ["SELECT"]),
        ("sel|", ["select"]),
        ("Sel|", ["SELECT"]),
        ("select regexp_re|", ["regexp_replace("]),
        ("select * from events whe|", ["when", "where"]),
        ("select hos|", ["host"]),
        ("SELECT hea|", ["heat"]),
        ("SELECT host, hea| FROM hot", ["heat"]),
        ("INSERT INTO lab.probes SELECT 1, hea| FROM hot", ["heat"]),
        ("SELECT * FROM od|", ["`odd table`"]),
        ("SELECT * FROM `od|", ["`odd table`"]),
        ("SELECT `@t| FROM `odd table`", ["`@time`"]),
        ("SELECT mix| FROM `odd table`", ["MixedCase"]),
        ("SELECT ord| FROM `odd table`", ["`order`", "order by"]),
        ("SELECT o.`| FROM `odd table` AS o", ["`@time`", "`MixedCase`", "`order`"]),
        ("SELECT `nothing|", []),
        ("SELECT 1; EXP|", ["EXPLAIN"]),
        ("SELECT * FROM ev|", ["events"]),
        ("SELECT * FROM events JOIN ho|", ["hot"]),
        ("SELECT * FROM lab.|", ["probes"]),
        ("INSERT INTO |", ["`odd table`", "events", "hot", "lab.probes"]),
        ("SELECT hos| FROM events", ["host"]),
        ("SELECT hea| FROM hot", ["heat"]),
        ("SELECT e.| FROM events AS e", ["day_", "host", "id", "ok", "place", "price", "queue", "score", "small", "tags", "text_ts", "ts"]),
        ("SELECT h.he| FROM events e JOIN hot h ON TRUE", ["heat"]),
        ("SELECT place.| FROM events", ["city", "zip"]),
        ("SELECT REGEXP_RE|", ["REGEXP_REPLACE("]),
        ("SELECT sho|", ["shout"]),
        ("SHOW DAT|", ["DATABASES"]),
        ("DROP |", ["CATALOG", "DATABASE", "FUNCTION", "MODEL", "TABLE", "TEMPORARY", "VIEW"]),
        ("USE |", ["default_database", "lab"]),
        ("SET 'table.exec.st|", ["table.exec.state.ttl"]),
        ("SET 'execution.runtime-mode' = '|", ["batch", "streaming"]),
        ("RESET 'pipeline|", ["pipeline.max-parallelism", "pipeline.name"]),
        ("CREATE TABLE t (a INT) WITH ('|", ["connector"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'pr|", ["print"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'print', '|", ["print-identifier"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq', 'format' = 'c|", ["canal-json", "changelog-json", "csv"]),
        ("SET |", QUOTED),
        ("SELECT /*+ L| */ host FROM events", ["LOOKUP("]),
        ("SELECT /*+ BROADCAST(|) */ h.host FROM events e, hot h", ["e", "h"]),
        ("SELECT /*+ STATE_TTL('|) */ h.host FROM events e JOIN hot h ON TRUE", ["e", "h"]),
        ("SELECT /*+ LOOKUP('ta|') */ h.host FROM events e, hot h", ["table"]),
        ("SELECT /*+ LOOKUP('table' = '|') */ h.host FROM events e, hot h", ["e", "h"]),
        ("SELECT /*+ LOOKUP('table' = 'e', 'retry-p|", ["retry-predicate"]),
        ("SELECT /*+ LOOKUP('table' = 'e', 'async' = '|", ["false", "true"]),
        ("SELECT * FROM events /*+ |", ["OPTIONS("]),
        ("SELECT * FROM events /*+ OPTIONS('scan.startup.m|", ["scan.startup.mode"]),
        ("SELECT * FROM events /*+ OPTIONS('format' = 'cs|", ["csv"]),
        ("SELECT * FROM nothing /*+ OPTIONS('|", []),
        ("SELECT /*+ BROADCAST(e) */ hos| FROM events e", ["host"]),
        ("SELECT '/*+ |", []),
        ("SELECT host -- SEL|", []),
        ("SELECT /* SEL|", []),
        ("SELECT 'SEL|", []),
        ("SELECT e.| FROM nothing e", []),
    ],
)  # fmt: skip
def test_what_may_stand_at_the_cursor_is_offered(marked: str, wanted: list[str]) -> None:
    assert texts(marked) == wanted


def test_a_candidate_replaces_the_word_from_its_beginning() -> None:
    found = completed("SELECT hos| FROM events")
    assert found.start == len("SELECT ")
    assert [(of.text, of.kind) for of in found.candidates] == [("host", "column")]


def test_names_come_before_keywords() -> None:
    kinds = [candidate.kind for candidate in completed("SELECT | FROM events").candidates]
    assert kinds.index("keyword") > kinds.index("column")
    assert set(kinds[kinds.index("keyword") :]) == {"keyword"}


@settings(max_examples=scaled(200), deadline=None)
@given(st.text(max_size=60), st.integers(0, 60))
def test_any_text_and_cursor_gives_completions(text: str, cursor: int) -> None:
    found = SESSION.complete(text, min(cursor, len(text)))
    assert 0 <= found.start <= len(text)
