"""What SHOW and DESCRIBE answer: the columns and rows of Flink's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compiling import compiled, query, refused

from millstream.streams.plan.expressions import Literal
from millstream.streams.plan.nodes import Values
from millstream.streams.sql.session.compiler import TextResult

_KEPT = "CREATE TABLE kept (host STRING, id INT, day_ STRING) PARTITIONED BY (id, day_) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');"


def told(script: str) -> TextResult:
    result = compiled(script)[-1]
    assert isinstance(result, TextResult)
    return result


@pytest.fixture
def kept(tmp_path: Path) -> str:
    """The table `kept` with three partitions, of which the directory holds more than rows."""
    for name in (
        "id=1001/day_=2020-01-01",
        "id=1002/day_=2020-01-01",
        "id=1002/day_=__DEFAULT_PARTITION__",
        "id=7/day_=x",
    ):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / (".part" if name.startswith("id=7") else "part-0")).touch()
    (tmp_path / "elsewhere").mkdir()
    return _KEPT.format(tmp_path)


def test_partitions_are_the_directories_with_files_by_their_columns(kept: str) -> None:
    shown = told(f"{kept} SHOW PARTITIONS kept")
    assert shown.columns == ("id", "day_")
    assert shown.rows == (("1001", "2020-01-01"), ("1002", "2020-01-01"), ("1002", "NULL"))
    assert told(f"{kept} SHOW PARTITIONS default_database.kept PARTITION (id = 1002)").rows == shown.rows[1:]
    assert told(f"{kept} SHOW PARTITIONS kept PARTITION (id = 1002, day_ = NULL)").rows == shown.rows[2:]
    assert told(f"{kept} SHOW PARTITIONS kept PARTITION (id = 3)").rows == ()


def test_a_directory_that_is_not_there_yet_has_no_partitions(tmp_path: Path) -> None:
    assert told(f"{_KEPT.format((tmp_path / 'later').as_uri())} SHOW PARTITIONS kept").rows == ()


def test_a_directory_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def iterdir(path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", iterdir)
    error = refused(f"{_KEPT.format(tmp_path)} SHOW PARTITIONS kept")
    assert error.name == "JOB_FAILED"
    assert f'The partitions of "kept" cannot be read: Permission denied: {tmp_path}.' in str(error)


@pytest.mark.parametrize(
    ("statement", "name", "said"),
    [
        ("SHOW PARTITIONS events", "SQL_UNSUPPORTED", "not partitioned"),
        ("SHOW PARTITIONS evens", "SQL_UNKNOWN_TABLE", "events"),
        ("SHOW PARTITIONS kept PARTITION (idd = 1)", "SQL_UNKNOWN_COLUMN", 'Did you mean "id"'),
        ("SHOW PARTITIONS kept PARTITION (id)", "SQL_SYNTAX", "PARTITION (id = '...')"),
        ("SHOW CREATE DATABASE d", "SQL_UNSUPPORTED", "CREATE DATABASE and its name"),
        ("SHOW CREATE MATERIALIZED TABLE d", "SQL_UNSUPPORTED", "INSERT INTO keeps"),
        ("SHOW CREATE CATALOG nothing", "SQL_UNKNOWN_NAME", "default_catalog"),
        ("DESCRIBE CATALOG nothing", "SQL_UNKNOWN_NAME", "default_catalog"),
        ("DESCRIBE FUNCTION regexq", "SQL_UNKNOWN_NAME", 'Did you mean "REGEXP"'),
        ("CREATE CATALOG c WITH ('default-databse' = 'x')", "SQL_OPTION", 'Did you mean "default-database"'),
        ("SELECT CURRENT_CATALOG()", "SQL_UNSUPPORTED", "SHOW CURRENT CATALOG"),
    ],
)  # fmt: skip
def test_what_is_not_there_to_show_is_refused_with_what_is(statement: str, name: str, said: str, kept: str) -> None:
    error = refused(kept + statement)
    assert error.name == name
    assert said in f"{error.message} {error.remedy}"


def test_a_catalog_is_made_again_by_what_show_create_says_and_begins_with_its_own_database() -> None:
    made = "CREATE CATALOG cat2 COMMENT 'of the lab' WITH ('type' = 'generic_in_memory', 'default-database' = 'db');"
    shown = told(f"{made} SHOW CREATE CATALOG cat2").rows
    assert [line for (line,) in shown] == [
        "CREATE CATALOG `cat2`",
        "COMMENT 'of the lab'",
        "WITH (",
        "  'default-database' = 'db',",
        "  'type' = 'generic_in_memory'",
        ")",
    ]
    again = "\n".join(line for (line,) in shown)
    assert told(f"{again}; SHOW CREATE CATALOG cat2").rows == shown
    assert told(f"{made} SHOW DATABASES FROM cat2").rows == (("db",),)
    assert told(f"{made} USE CATALOG cat2; SHOW CURRENT DATABASE").rows == (("db",),)
    assert told(f"{made} DESCRIBE CATALOG cat2").rows == (
        ("name", "cat2"),
        ("type", "generic_in_memory"),
        ("comment", "of the lab"),
    )
    assert told(f"{made} DESC CATALOG EXTENDED cat2").rows[3:] == (("option:default-database", "db"),)
    assert refused(f"{made} DROP CATALOG cat2; DESCRIBE CATALOG cat2").name == "SQL_UNKNOWN_NAME"


def test_a_view_is_made_again_with_its_columns() -> None:
    shown = told("CREATE VIEW v AS SELECT id AS n, host FROM events; SHOW CREATE VIEW v").rows
    assert shown[0] == ("CREATE VIEW `default_catalog`.`default_database`.`v` (`n`, `host`) AS",)
    again = "\n".join(line for (line,) in shown)
    assert told(f"{again}; SHOW CREATE VIEW v").rows == shown


def test_columns_show_keys_nulls_times_watermarks_and_comments() -> None:
    made = """CREATE TABLE orders (
      `user` BIGINT NOT NULL COMMENT 'this is primary key', product VARCHAR(32), ts TIMESTAMP(3) COMMENT 'notice: watermark',
      ptime AS PROCTIME() COMMENT 'computed', PRIMARY KEY (`user`) NOT ENFORCED, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
    ) WITH ('connector' = 'rocketmq', 'topic' = 'orders');"""
    described = told(f"{made} DESC orders")
    assert described.columns == ("name", "type", "null", "key", "extras", "watermark", "comment")
    assert described.rows == (
        ("user", "BIGINT", "FALSE", "PRI(user)", "", "", "this is primary key"),
        ("product", "VARCHAR(32)", "TRUE", "", "", "", ""),
        ("ts", "TIMESTAMP(3) *ROWTIME*", "TRUE", "", "", "ts - INTERVAL '1' SECOND", "notice: watermark"),
        ("ptime", "TIMESTAMP_LTZ(3) *PROCTIME*", "FALSE", "", "AS PROCTIME()", "", "computed"),
    )
    assert told(f"{made} SHOW COLUMNS IN orders NOT LIKE '%_r'").rows == described.rows[1:]
    assert (
        told(f"{made} SHOW COLUMNS FROM default_catalog.default_database.orders LIKE '%r'").rows == described.rows[:1]
    )


def test_a_backslash_takes_its_meaning_from_a_sign_of_a_pattern() -> None:
    made = "CREATE VIEW `a_b` AS SELECT 1 AS x; CREATE VIEW `acb` AS SELECT 1 AS x; CREATE VIEW `a%` AS SELECT 1 AS x;"
    assert told(f"{made} SHOW VIEWS LIKE 'a_b'").rows == (("a_b",), ("acb",))
    assert told(f"{made} SHOW VIEWS LIKE 'a\\_b'").rows == (("a_b",),)
    assert told(f"{made} SHOW VIEWS LIKE 'a\\%'").rows == (("a%",),)


@pytest.mark.parametrize(
    ("statement", "columns", "rows"),
    [
        ("SHOW CATALOGS LIKE 'def%'", ("catalog name",), (("default_catalog",),)),
        ("SHOW DATABASES", ("database name",), (("default_database",),)),
        ("SHOW TABLES IN default_catalog.default_database NOT LIKE 'z%'", ("table name",), (("events",),)),
        ("SHOW VIEWS", ("view name",), ()),
        ("SHOW USER FUNCTIONS FROM default_database", ("function name",), ()),
        ("SHOW MODULES", ("module name",), (("core",),)),
        ("SHOW FULL MODULES", ("module name", "used"), (("core", "TRUE"),)),
        ("SHOW JARS", ("jars",), ()),
        ("SHOW PROCEDURES FROM default_database ILIKE 'x%'", ("procedure name",), ()),
        ("SHOW MATERIALIZED TABLES", ("table name",), ()),
        ("SHOW CURRENT DATABASE", ("current database name",), (("default_database",),)),
    ],
)
def test_lists_have_flinks_columns(statement: str, columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> None:
    shown = told(statement)
    assert (shown.columns, shown.rows) == (columns, rows)


def test_functions_that_are_built_in_are_described_as_those_of_the_user_are() -> None:
    assert told("DESCRIBE FUNCTION regexp").rows == (("system function", "true"), ("temporary", "false"))
    rows = dict(told("DESC FUNCTION EXTENDED ARRAY_AGG").rows)
    assert (rows["kind"], rows["deterministic"]) == ("AGGREGATE", "true")
    path = "millstream.streams.functions.java_twins.count_char"
    made = f"CREATE TEMPORARY FUNCTION tally AS '{path}' LANGUAGE PYTHON; DESCRIBE FUNCTION tally"
    assert told(made).rows == (
        ("system function", "false"),
        ("temporary", "true"),
        ("class name", path),
        ("function language", "PYTHON"),
        ("resource uris", ""),
    )


def test_the_database_in_use_is_a_value() -> None:
    plan = compiled("CREATE DATABASE lab; USE lab; SELECT CURRENT_DATABASE() AS d")[-1]
    node = plan.query  # type: ignore[union-attr]
    assert isinstance(node, Values)
    (value,) = node.rows[0]
    assert isinstance(value, Literal)
    assert value.value == "lab"
    assert str(query("SELECT CURRENT_DATABASE() AS d").schema.fields[0].type) == "STRING NOT NULL"
