"""A script of statements with words lost, doubled or swapped is refused at a place, and never breaks the compiler."""

from __future__ import annotations

import random
import re
from functools import cache

from compiling import EVENTS
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.errors import SqlError
from millstream.streams.sql.session.compiler import SqlSession

_VALID = (
    EVENTS
    + """
SET 'var.N' = '2'; SET table.exec.state.ttl = 1 h; RESET pipeline.name;
CREATE DATABASE lab; USE lab; USE default_database;
CREATE TABLE a (id INT PRIMARY KEY NOT ENFORCED, b ROW<x INT 'c', y ARRAY<MAP<STRING, INT>>>, c DEC(5, 1), d AS id + ${N}, q INT METADATA FROM
 'queue-id' VIRTUAL, ts TIMESTAMP(3), WATERMARK w FOR ts AS withOffset(ts, 1000), UNIQUE (c)) COMMENT 'x' DISTRIBUTED BY HASH(id) INTO 4 BUCKETS
 WITH (type = 'metaq', topic = 't-${N}', 'format' = 'json');
CREATE TABLE b (e INT) WITH ('topic' = 'u') LIKE a (EXCLUDING WATERMARKS OVERWRITING OPTIONS);
CREATE OR REPLACE TABLE f (id BIGINT, dt STRING) PARTITIONED BY (dt) WITH ('connector' = 'filesystem', 'path' = '/x');
CREATE TABLE g WITH ('connector' = 'print') AS SELECT host, id FROM events;
ALTER TABLE b ADD (z INT FIRST, y BIGINT AFTER z); ALTER TABLE b MODIFY z BIGINT; ALTER TABLE b DROP (y, z); ALTER TABLE b RENAME e TO h;
ALTER TABLE b SET ('tag' = 'k'); ALTER TABLE b RESET ('tag'); ALTER TABLE b ADD WATERMARK FOR ts AS ts - INTERVAL '1' SECOND;
CREATE VIEW v (one, two) AS SELECT id, host FROM events; ALTER VIEW v RENAME TO w;
CREATE TEMPORARY SYSTEM FUNCTION tally AS 'millstream.streams.functions.java_twins.count_char' LANGUAGE PYTHON;
SHOW TABLES NOT LIKE 'a%'; SHOW CREATE TABLE a; SHOW COLUMNS FROM a LIKE '%'; SHOW CREATE CATALOG default_catalog; SHOW FULL MODULES; DESC CATALOG EXTENDED default_catalog; DESCRIBE w; SHOW VIEWS FROM lab;
INSERT INTO f PARTITION (dt = '2024') SELECT id FROM events;
INSERT INTO g (id, host) SELECT COUNT(*), host FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts),
 INTERVAL '1' HOUR)) GROUP BY host, window_start, window_end EMIT WITH DELAY '5' SECOND BEFORE WATERMARK, WITHOUT DELAY AFTER WATERMARK;
EXPLAIN JSON_EXECUTION_PLAN, CHANGELOG_MODE SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY host ORDER BY ts MEASURES FIRST(A.id) AS x,
 COUNT(B.*) AS n, MATCH_ROWTIME() AS t ONE ROW PER MATCH AFTER MATCH SKIP TO LAST B PATTERN (A (B | C)+? B{2,3}? D) WITHIN INTERVAL '5' SECOND
 DEFINE A AS A.score > 1, B AS B.score > PREV(B.score, 2) AND AVG(B.score) < LAST(A.score, 1)) AS m;
EXECUTE STATEMENT SET BEGIN INSERT INTO g SELECT host, id FROM events; INSERT INTO g SELECT host, 1 FROM events; END;
ANALYZE TABLE a COMPUTE STATISTICS; SHOW JOBS; STOP JOB 'x'; DROP FUNCTION tally; DROP VIEW w; DROP DATABASE lab CASCADE;
"""
)


def _whole(script: str) -> list[str]:
    """The statements of the script; a statement set is one."""
    parts = [part for part in re.split(r";", script) if part.strip()]
    first = next(place for place, part in enumerate(parts) if "BEGIN" in part)
    last = next(place for place, part in enumerate(parts) if part.strip() == "END")
    return [*parts[:first], ";".join(parts[first : last + 1]), *parts[last + 1 :]]


_WORDS = [re.findall(r"'[^']*'|`[^`]*`|\w+|\s+|[^\w\s]", statement) for statement in _whole(_VALID)]
_ALL = [word for words in _WORDS for word in words]


@cache
def session_before(place: int) -> SqlSession:
    """A session in which the statements before that place have been carried out."""
    session = SqlSession()
    for words in _WORDS[:place]:
        session.compile("".join(words))
    return session


def test_in_order_they_are_carried_out() -> None:
    session_before(len(_WORDS))


@settings(max_examples=scaled(400), deadline=None)
@given(st.integers(0, 2**32))
def test_a_statement_in_disorder_raises_an_sql_error_with_a_place_or_nothing(seed: int) -> None:
    chance = random.Random(seed)
    which = chance.randrange(len(_WORDS))
    words = list(_WORDS[which])
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(words))
        match chance.randrange(4):
            case 0:
                words[place] = ""
            case 1:
                words.insert(place, words[place])
            case 2:
                words[place] = chance.choice(_ALL)
            case _:
                words[place] = words[place][: len(words[place]) // 2]
    error = _error_of(session_before(which), "".join(words))
    assert error is None or error.position is not None


def _error_of(session: SqlSession, statement: str) -> SqlError | None:
    try:
        session.compile(statement)
    except SqlError as error:
        return error
    return None
