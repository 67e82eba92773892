"""What is not SQL, or not supported, is refused at its place with a number; nothing else is ever raised."""

from __future__ import annotations

import random
import re

import pytest
from compiling import EVENTS, error_of, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.errors import SqlError
from millstream.streams.sql.session.compiler import SqlSession

WINDOW = "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end"

UNSUPPORTED = [
    "SELECT host FROM events ORDER BY host",
    "SELECT * FROM events MATCH_RECOGNIZE (PATTERN (A))",
    "SELECT * FROM events FOR SYSTEM_TIME AS OF ts",
    "SELECT /*+ OPTIONS('a'='b') */ host FROM events",
    "SELECT N'abc' FROM events",
    "SELECT LISTAGG(host, ',') WITHIN GROUP (ORDER BY ts) FROM events",
    "SELECT ARRAY_AGG(host ORDER BY ts) FROM events",
    "SELECT host FROM events HAVING host = 'a'",
    "SELECT COUNT(*) FROM events GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)",
    "CREATE TABLE t (a TIMESTAMP(3) WITH TIME ZONE) WITH ('connector' = 'print')",
    "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()) WITH ('connector' = 'rocketmq', 'topic' = 't')",
    "ADD JAR 'x.jar'",
    "REMOVE JAR 'x.jar'",
    "CALL sys.compact()",
    "COMPILE PLAN 'x' FOR INSERT INTO events SELECT * FROM events",
    "LOAD MODULE hive",
    "USE MODULES core",
    "MERGE INTO events USING events ON TRUE",
    "CREATE FUNCTION f AS 'a.b.C' LANGUAGE JAVA USING JAR 'x.jar'",
    "CREATE CATALOG c WITH ('type' = 'hive')",
    "CREATE TABLE t (a RAW('x', 'y')) WITH ('connector' = 'print')",
    "CREATE TABLE t (a INTERVAL DAY TO SECOND) WITH ('connector' = 'print')",
    "CREATE TABLE t (a INT) PARTITIONED BY (a) WITH ('connector' = 'rocketmq', 'topic' = 't')",
    "INSERT OVERWRITE events SELECT * FROM events",
    "ALTER TABLE events ADD PARTITION (a = 1)",
    "SHOW PARTITIONS events",
    "STOP JOB 'x' WITH SAVEPOINT",
    "DESCRIBE JOB 'x'",
    "DELETE FROM events",
    "UPDATE events SET id = 1",
    "TRUNCATE TABLE events",
]


@pytest.mark.parametrize("statement", UNSUPPORTED)
def test_what_is_not_supported_is_named_at_its_place(statement: str) -> None:
    error = refused(statement)
    assert error.name in ("SQL_UNSUPPORTED", "SQL_SYNTAX", "SQL_UNKNOWN_FUNCTION")
    assert error.position is not None
    assert error.position.line > EVENTS.count("\n")


def test_most_of_them_say_unsupported_and_not_that_they_are_no_sql() -> None:
    names = [refused(statement).name for statement in UNSUPPORTED]
    assert names.count("SQL_UNSUPPORTED") >= len(UNSUPPORTED) - 3


@pytest.mark.parametrize(
    ("statement", "name", "place", "said"),
    [
        ("SELECT hots FROM events", "SQL_UNKNOWN_COLUMN", (1, 8, 4), 'Did you mean "host"?'),
        ("SELECT host FROM event", "SQL_UNKNOWN_TABLE", (1, 18, 5), 'Did you mean "events"?'),
        ("SELECT host\nFROM events\nWHERE UPER(host) = 'A'", "SQL_UNKNOWN_FUNCTION", (3, 7, 4), 'Did you mean "UPPER"?'),
        ("SELECT place.cty FROM events", "SQL_UNKNOWN_COLUMN", (1, 8, 9), 'Did you mean "city"?'),
        ("SELECT host FROM events WHERE host", "SQL_TYPE", (1, 31, 4), "STRING"),
        ("SELECT host + 1 FROM events", "SQL_TYPE", (1, 8, 8), "STRING + INT"),
        ("SELECT UPPER(id) FROM events", "SQL_TYPE", (1, 8, 9), "a string as argument 1"),
        ("SELECT UPPER() FROM events", "SQL_UNKNOWN_FUNCTION", (1, 8, 7), "takes 1 arguments, not 0"),
        ("SELECT id = ok FROM events", "SQL_TYPE", (1, 8, 7), "cannot be compared"),
        ("SELECT host FROM events WHERE COUNT(*) > 1", "SQL_SYNTAX", (1, 31, 8), "WHERE"),
        (f"SELECT id, COUNT(*) {WINDOW}", "SQL_SYNTAX", (1, 8, 2), "neither grouped by"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(id), INTERVAL '1' HOUR))", "SQL_TIME_ATTRIBUTE", (1, 53, 2), "Event-time columns here: ts."),
        ("SELECT host FORM events", "SQL_SYNTAX", (1, 18, 6), "'events'"),
        ("SELECT 'open FROM events", "SQL_SYNTAX", (1, 8, 1), "not closed"),
        ("SELECT \"host\" FROM events", "SQL_SYNTAX", (1, 8, 1), "single quotes"),
        ("SELECT @timestamp FROM events", "SQL_SYNTAX", (1, 8, 1), "back-ticks"),
        ("SELECT (host FROM events", "SQL_SYNTAX", (1, 14, 4), "Expected )"),
        ("SELCT host FROM events", "SQL_SYNTAX", (1, 1, 5), 'Did you mean "SELECT"?'),
        ("SELECT host FROM events WHERE", "SQL_SYNTAX", (1, 29, 1), "the end"),
        ("SELECT host AS a, id AS a FROM events", "SQL_SYNTAX", (1, 19, 2), '"a"'),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'pulsar')", "SQL_OPTION", (1, 30, 22), "rocketmq"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'print', 'topik' = 'x')", "SQL_OPTION", (1, 53, 13), "no option 'topik'"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq', 'topic' = 'a b')", "SQL_OPTION", (1, 56, 15), "legal topic name"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq')", "SQL_OPTION", (1, 1, 14), "'topic'"),
        ("CREATE TABLE t (a INTT) WITH ('connector' = 'print')", "SQL_SYNTAX", (1, 19, 4), "no type"),
        ("CREATE TABLE t (a INT, a INT) WITH ('connector' = 'print')", "SQL_SYNTAX", (1, 24, 1), '"a"'),
        ("CREATE TABLE t (q INT METADATA FROM 'queue' VIRTUAL) WITH ('connector' = 'rocketmq', 'topic' = 't')", "SQL_OPTION", (1, 17, 1), 'Did you mean "queue-id"?'),
        ("CREATE TABLE t (a STRING, WATERMARK FOR a AS a) WITH ('connector' = 'rocketmq', 'topic' = 't')", "SQL_TYPE", (1, 41, 1), "TO_TIMESTAMP"),
        ("INSERT INTO out_ SELECT host, host FROM events", "SQL_TYPE", (1, 31, 4), '"n" of "out_" is BIGINT'),
        ("INSERT INTO out_ SELECT host FROM events", "SQL_TYPE", (1, 18, 23), "takes 2: host, n"),
        ("INSERT INTO out_ (host, m) SELECT host, id FROM events", "SQL_UNKNOWN_COLUMN", (1, 25, 1), "no column"),
        ("SET 'execution.runtime-mod' = 'batch'", "SQL_OPTION", (1, 1, 37), 'Did you mean "execution.runtime-mode"?'),
        ("SET 'execution.runtime-mode' = 'fast'", "SQL_OPTION", (1, 1, 37), "streaming or batch"),
        ("SELECT INTERVAL 'x' DAY FROM events", "SQL_SYNTAX", (1, 8, 16), "no interval"),
        ("SELECT INTERVAL 5 DAY FROM events", "SQL_SYNTAX", (1, 8, 8), "Write INTERVAL '5'"),
        ("SELECT STARTSWITH(host, X'00') FROM events", "SQL_TYPE", (1, 8, 23), "bytes twice"),
        ("ALTER FUNCTION f AS 'a.b'", "SQL_UNKNOWN_NAME", (1, 16, 1), "no function"),
        ("ALTER DATABASE nothing SET ('a' = 'b')", "SQL_UNKNOWN_NAME", (1, 16, 7), "default_database"),
        ("SELECT SUM((ts - ts) MONTH) FROM events", "SQL_TYPE", (1, 8, 20), "SUM wants a number"),
        ("SELECT X'1' FROM events", "SQL_SYNTAX", (1, 8, 4), "two for each byte"),
        ("SELECT X'0G' FROM events", "SQL_SYNTAX", (1, 8, 5), "no binary string"),
        ("SELECT ts - ts FROM events", "SQL_TYPE", (1, 8, 7), "(a - b) DAY TO SECOND"),
        ("SELECT (ts - ts) YEAR TO DAY FROM events", "SQL_SYNTAX", (1, 18, 11), "YEAR TO MONTH or DAY TO SECOND"),
        ("SELECT (id - id) DAY FROM events", "SQL_TYPE", (1, 8, 13), "a date or a time as argument 1"),
        ("SELECT EXTRACT(DAY FROM INTERVAL '1' YEAR) FROM events", "SQL_TYPE", (1, 8, 35), "YEAR, QUARTER, MONTH"),
        ("SELECT INTERVAL '1' DAY + INTERVAL '1' MONTH FROM events", "SQL_TYPE", (1, 8, 37), "not possible"),
        ("SELECT INTERVAL '1' YEAR TO DAY FROM events", "SQL_SYNTAX", (1, 8, 24), "no interval"),
        ("SELECT 12abc FROM events", "SQL_SYNTAX", (1, 8, 5), "neither a number nor a name"),
        ("SELECT INTERVAL '999999999' WEEK FROM events", "SQL_SYNTAX", (1, 8, 25), "at most 3660000 days"),
        (f"SELECT {'9' * 5000} FROM events", "SQL_TYPE", (1, 8, 5000), "more than 400 characters"),
        (f"SELECT {'9' * 39} FROM events", "SQL_TYPE", (1, 8, 39), "at most 38 digits"),
        ("SELECT 1e999 FROM events", "SQL_TYPE", (1, 8, 5), "too large for a DOUBLE"),
        ("SELECT -TRUE FROM events", "SQL_TYPE", (1, 8, 5), "BOOLEAN"),
        ("SELECT host AS `` FROM events", "SQL_SYNTAX", (1, 16, 2), "name is empty"),
        ("SELECT evens.* FROM events", "SQL_UNKNOWN_TABLE", (1, 8, 7), "Here is events."),
        ("SELECT CAST(place AS INT) FROM events", "SQL_TYPE", (1, 8, 18), "ROW<city STRING, zip INT> AS INT"),
        ("SELECT CAST(ts AS BIGINT) FROM events", "SQL_TYPE", (1, 8, 18), "not possible"),
        ("SELECT EXTRACT(FORTNIGHT FROM ts) FROM events", "SQL_TYPE", (1, 16, 9), "Use one of YEAR"),
        ("SELECT FLOOR(ts, host) FROM events", "SQL_TYPE", (1, 18, 4), "unit of time"),
        ("SELECT host LIKE 'a' ESCAPE 'bc' FROM events", "SQL_TYPE", (1, 29, 4), "one character"),
        ("CREATE TABLE t (a ROW<x INT, x INT>) WITH ('connector' = 'print')", "SQL_SYNTAX", (1, 30, 1), '"x"'),
        ("INSERT INTO rows_ SELECT place FROM events", "SQL_TYPE", (1, 26, 5), '"place" of "rows_" is ROW<city STRING, zap INT>'),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_at_its_place_with_what_helps(
    statement: str, name: str, place: tuple[int, int, int], said: str
) -> None:
    before = EVENTS + "CREATE TABLE out_ (host STRING, n BIGINT) WITH ('connector' = 'print');\n"
    before += "CREATE TABLE rows_ (place ROW<city STRING, zap INT>) WITH ('connector' = 'print');\n"
    error = refused(statement, after=before)
    assert error.name == name
    assert error.position is not None
    line, column, length = error.position.line - before.count("\n"), error.position.column, error.position.length
    assert (line, column, length) == place
    assert said in f"{error.message} {error.remedy}"


def test_an_error_shows_the_line_with_a_caret_under_the_place() -> None:
    shown = str(refused("SELECT host,\n  hots FROM events", after=EVENTS)).splitlines()
    assert shown[0].startswith(f"line {EVENTS.count(chr(10)) + 2}, column 3: ")
    assert shown[0].endswith("[MS-7004]")
    assert shown[1:] == ["    hots FROM events", "    ^^^^"]


def test_an_empty_script_and_endless_nesting_are_refused() -> None:
    assert refused("", after=" -- nothing\n").name == "SQL_SCRIPT"
    assert refused(f"SELECT {'(' * 60}1{')' * 60} FROM events").name == "SQL_UNSUPPORTED"
    assert refused(f"SELECT {'CASE WHEN ok THEN ' * 2000}1{' END' * 2000} FROM events").name == "SQL_UNSUPPORTED"
    assert refused(f"SELECT {'NOT ' * 3000}ok OR host FROM events").name == "SQL_TYPE"
    assert refused(f"SELECT {' + '.join('1' * 300)} FROM events").name == "SQL_UNSUPPORTED"


def test_too_deep_a_statement_is_shown_at_its_first_word() -> None:
    position = refused(f"SELECT host FROM events;\n SELECT {' = '.join('1' * 2000)} FROM events").position
    assert position is not None
    assert (position.line - EVENTS.count("\n"), position.column) == (2, 2)


_VALID = (
    EVENTS
    + """
CREATE VIEW v AS SELECT id, host, ts FROM events WHERE REGEXP(host, '(?i)a.*') AND NOT (score BETWEEN 1 AND 2.5);
CREATE TABLE out_ (host STRING, n BIGINT) WITH ('connector' = 'print');
EXECUTE STATEMENT SET BEGIN
INSERT INTO out_ SELECT UPPER(host), CASE WHEN id > 1 THEN 1 ELSE CAST(host AS BIGINT) END FROM v;
INSERT INTO out_ SELECT host, COUNT(*) FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '10' SECOND))
 GROUP BY window_start, window_end, host HAVING COUNT(*) > 1;
END;
"""
)
_WORDS = re.findall(r"'[^']*'|`[^`]*`|\w+|\s+|[^\w\s]", _VALID)


@settings(max_examples=scaled(150), deadline=None)
@given(st.integers(0, 2**32))
def test_a_mutilated_script_raises_an_sql_error_or_nothing(seed: int) -> None:
    chance = random.Random(seed)
    words = list(_WORDS)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(words))
        match chance.randrange(4):
            case 0:
                del words[place]
            case 1:
                words.insert(place, words[place])
            case 2:
                words[place] = chance.choice(_WORDS)
            case _:
                words[place] = words[place][: len(words[place]) // 2]
    error = error_of("".join(words))
    assert error is None or error.position is not None


@settings(max_examples=scaled(200), deadline=None)
@given(st.text(max_size=80))
def test_any_text_raises_an_sql_error(script: str) -> None:
    with pytest.raises(SqlError):
        SqlSession().compile(script + " ^")
