"""CREATE TABLE in all its parts, LIKE, AS and ALTER TABLE: what the table is then."""

from __future__ import annotations

import pytest
from compiling import EVENTS, compiled, job, refused

from millstream.streams.plan.expressions import Call, Column
from millstream.streams.plan.nodes import QueryPlan, scans_of
from millstream.streams.plan.tables import ComputedColumn, MetadataColumn, Table, Watermark
from millstream.streams.sql.session.compiler import SqlSession, TextResult

TOPIC = "WITH ('connector' = 'rocketmq', 'topic' = 't')"


def table(script: str, name: str = "t") -> Table:
    session = SqlSession()
    session.compile(EVENTS + script)
    catalog = session.catalog
    return catalog.tables[catalog.full_name(tuple(name.split(".")))].table


def types(script: str) -> dict[str, str]:
    return {column.name: str(column.type) for column in table(script).columns}


def test_every_type_of_flink_is_read() -> None:
    found = types(
        "CREATE TABLE t (a ROW<x INT 'the x', y ROW(z STRING) NOT NULL>, b INT ARRAY, c MAP<STRING, ARRAY<INT NOT NULL>>,"
        " d MULTISET<STRING>, e BYTES, f VARBINARY(8), g BINARY(4), h CHAR(2), i VARCHAR, j DEC(5, 1), k NUMERIC, l TIME,"
        " m TIMESTAMP WITHOUT TIME ZONE, n TIMESTAMP(3) WITH LOCAL TIME ZONE, o TIMESTAMP_LTZ(9), p DOUBLE PRECISION,"
        f" q INT MULTISET, r INT NOT NULL) {TOPIC}"
    )
    assert found == {
        "a": "ROW<x INT, y ROW<z STRING> NOT NULL>", "b": "ARRAY<INT>", "c": "MAP<STRING, ARRAY<INT NOT NULL>>",
        "d": "MAP<STRING, INT NOT NULL>", "e": "BYTES", "f": "VARBINARY(8)", "g": "BINARY(4)", "h": "CHAR(2)", "i": "STRING",
        "j": "DECIMAL(5, 1)", "k": "DECIMAL(10, 0)", "l": "TIME(0)", "m": "TIMESTAMP(6)", "n": "TIMESTAMP_LTZ(3)",
        "o": "TIMESTAMP_LTZ(9)", "p": "DOUBLE", "q": "MAP<INT, INT NOT NULL>", "r": "INT NOT NULL",
    }  # fmt: skip


def test_texts_and_bytes_have_the_lengths_that_they_have_in_flink() -> None:
    found = types(
        "CREATE TABLE t (a CHAR, b BINARY, c CHARACTER(3), d CHAR VARYING(4), e VARCHAR(2147483647), f VARBINARY,"
        f" g BINARY VARYING(2)) {TOPIC}"
    )
    assert found == {
        "a": "CHAR(1)", "b": "BINARY(1)", "c": "CHAR(3)", "d": "VARCHAR(4)", "e": "STRING", "f": "BYTES", "g": "VARBINARY(2)",
    }  # fmt: skip


def test_columns_without_types_are_strings_and_options_need_no_quotes() -> None:
    made = table("CREATE TABLE t (a, b INT, c COMMENT 'x') WITH (type = 'metaq', topic = 'in', data_format = json)")
    assert [str(column.type) for column in made.columns] == ["STRING", "INT", "STRING"]
    assert made.options == {"connector": "rocketmq", "topic": "in", "format": "json"}


def test_headers_of_blink_are_metadata() -> None:
    made = table(f"CREATE TABLE t (a INT, __topic__ VARCHAR HEADER, tags VARCHAR HEADER) {TOPIC}")
    assert [column for column in made.columns if isinstance(column, MetadataColumn)] == [
        MetadataColumn("__topic__", made.columns[1].type, "topic", True),
        MetadataColumn("tags", made.columns[2].type, "tag", True),
    ]


@pytest.mark.parametrize(
    ("expression", "delay_ms"),
    [
        ("ts", 0),
        ("ts - INTERVAL '5' SECOND", 5000),
        ("ts - INTERVAL '1' MINUTE - INTERVAL '1' SECOND", 61_000),
        ("ts + INTERVAL '-5' SECOND", 5000),
        ("TIMESTAMPADD(SECOND, -5, ts)", 5000),
        ("withOffset(ts, 1000)", 1000),
        ("ts - INTERVAL '0.001' SECOND", 1),
    ],
)
def test_a_watermark_behind_the_column_is_a_delay(expression: str, delay_ms: int) -> None:
    for name in ("", "wm "):
        made = table(f"CREATE TABLE t (ts TIMESTAMP(3), WATERMARK {name}FOR ts AS {expression}) {TOPIC}")
        assert made.watermark == Watermark("ts", delay_ms)
        assert made.schema.fields[0].rowtime


def test_any_other_watermark_is_an_expression_of_the_row() -> None:
    made = table(f"CREATE TABLE t (ts TIMESTAMP(3), sent TIMESTAMP(3), WATERMARK FOR ts AS LEAST(ts, sent)) {TOPIC}")
    assert made.watermark is not None
    assert (made.watermark.column, made.watermark.delay_ms) == ("ts", 0)
    assert isinstance(made.watermark.expression, Call)
    plan = compiled(
        f"CREATE TABLE t (ts TIMESTAMP(3), sent TIMESTAMP(3), a INT, WATERMARK FOR ts AS LEAST(ts, sent)) {TOPIC};"
        " SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
    )[-1]
    assert isinstance(plan, QueryPlan)
    assert next(scans_of(plan.query)).columns == ("ts", "sent")


def test_proctime_is_a_time_attribute() -> None:
    made = table(f"CREATE TABLE t (a INT, p AS PROCTIME()) {TOPIC}")
    assert made.schema.fields[1].proctime
    assert not made.schema.fields[0].proctime


def test_keys_stand_behind_columns_or_alone_and_make_them_not_null() -> None:
    for columns in ("a INT PRIMARY KEY NOT ENFORCED, b INT", "a INT, b INT, PRIMARY KEY (a) NOT ENFORCED", "a INT, b INT, CONSTRAINT k PRIMARY KEY (a) NOT ENFORCED",
                    "a INT NOT NULL, b INT, PRIMARY KEY (a)"):  # fmt: skip
        made = table(f"CREATE TABLE t ({columns}) {TOPIC}")
        assert made.primary_key == ("a",)
        assert [column.type.nullable for column in made.columns] == [False, True]
    assert table(f"CREATE TABLE t (a INT, b INT UNIQUE, UNIQUE (a, b) NOT ENFORCED) {TOPIC}").unique_keys == (
        ("b",),
        ("a", "b"),
    )


def test_partitions_buckets_and_dimensions_are_kept() -> None:
    made = table(
        "CREATE TABLE t (a INT, dt STRING) PARTITIONED BY (dt) WITH ('connector' = 'filesystem', 'path' = '/x')"
    )
    assert made.partition_keys == ("dt",)
    made = table(f"CREATE TABLE t (a INT, b INT) COMMENT 'c' DISTRIBUTED BY HASH(a) INTO 4 BUCKETS {TOPIC}")
    assert (made.distribution_keys, made.buckets) == (("a",), 4)
    made = table(
        "CREATE TABLE t (a INT, PRIMARY KEY (a), PERIOD FOR SYSTEM_TIME) WITH (type = 'rds', url = 'jdbc:mysql://h/d', tableName = 'x')"
    )
    assert made.is_dimension
    assert (made.connector, made.options["table-name"]) == ("jdbc", "x")


@pytest.mark.parametrize("kind", ["BYTES", "ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>"])
def test_a_column_whose_values_name_no_directory_is_no_partition(kind: str) -> None:
    error = refused(
        f"CREATE TABLE t (a INT, p {kind}) PARTITIONED BY (p) WITH ('connector' = 'filesystem', 'path' = '/x')"
    )
    assert "names no directory" in error.message


SOURCE = (
    "CREATE TABLE s (a INT, ts TIMESTAMP(3), p AS PROCTIME(), q INT METADATA FROM 'queue-id' VIRTUAL, PRIMARY KEY (a) NOT ENFORCED,"
    " WATERMARK FOR ts AS ts) WITH ('connector' = 'rocketmq', 'topic' = 's', 'tag' = 'x');"
)


def test_like_takes_everything_and_own_options_win() -> None:
    made = table(f"{SOURCE} CREATE TABLE t (b INT) WITH ('topic' = 't') LIKE s")
    assert [column.name for column in made.columns] == ["a", "ts", "p", "q", "b"]
    assert made.options == {"connector": "rocketmq", "tag": "x", "topic": "t"}
    assert (made.primary_key, made.watermark) == (("a",), Watermark("ts", 0))


def test_like_leaves_out_what_it_excludes() -> None:
    made = table(f"{SOURCE} CREATE TABLE t WITH ('connector' = 'print') LIKE s (EXCLUDING ALL INCLUDING CONSTRAINTS)")
    assert [column.name for column in made.columns] == ["a", "ts"]
    assert (made.options, made.primary_key, made.watermark) == ({"connector": "print"}, ("a",), None)
    made = table(
        f"{SOURCE} CREATE TABLE t (WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) LIKE s (OVERWRITING WATERMARKS)"
    )
    assert made.watermark == Watermark("ts", 1000)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE TABLE t (WATERMARK FOR ts AS ts) LIKE s", "EXCLUDING WATERMARKS"),
        ("CREATE TABLE t (a INT) LIKE s", 'column "a"'),
        ("CREATE TABLE t WITH ('topic' = 't') LIKE s (INCLUDING OPTIONS)", "OVERWRITING OPTIONS"),
        ("CREATE TABLE t LIKE s (OVERWRITING CONSTRAINTS)", "OVERWRITING is followed by"),
        ("CREATE TABLE t LIKE s (INCLUDING OPTIONS EXCLUDING OPTIONS)", "two strategies"),
        ("CREATE TABLE t LIKE nothing", "no table or view"),
    ],
)
def test_two_of_a_kind_under_like_are_refused(statement: str, said: str) -> None:
    error = refused(SOURCE + statement)
    assert said in f"{error.message} {error.remedy}"


def test_create_table_as_makes_the_table_of_the_query_and_fills_it() -> None:
    plan = job("CREATE TABLE t (WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-rocketmq', 'topic' = 't')"
               " AS SELECT host, id, ts FROM events")  # fmt: skip
    (sink,) = plan.sinks
    assert [f"{column.name} {column.type}" for column in sink.table.columns] == [
        "host STRING",
        "id BIGINT NOT NULL",
        "ts TIMESTAMP(3)",
    ]
    assert sink.table.watermark == Watermark("ts", 0)
    assert sink.input.schema.names == ("host", "id", "ts")
    assert refused("CREATE TABLE t WITH ('connector' = 'print') AS SELECT NULL AS x FROM events").name == "SQL_TYPE"


ALTERED = f"CREATE TABLE t (a INT, b STRING COMMENT 'x', ts TIMESTAMP(3), c AS UPPER(b)) {TOPIC};"


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ("ADD d INT", ["a", "b", "ts", "c", "d"]),
        ("ADD (d INT FIRST, e INT AFTER a, WATERMARK FOR ts AS ts)", ["d", "a", "e", "b", "ts", "c"]),
        ("MODIFY a BIGINT AFTER b", ["b", "a", "ts", "c"]),
        ("DROP c", ["a", "b", "ts"]),
        ("DROP (a, c)", ["b", "ts"]),
        ("RENAME a TO z", ["z", "b", "ts", "c"]),
    ],
)
def test_alter_table_changes_columns(change: str, columns: list[str]) -> None:
    assert [column.name for column in table(f"{ALTERED} ALTER TABLE t {change}").columns] == columns


def test_alter_table_changes_options_watermark_key_and_name() -> None:
    assert table(f"{ALTERED} ALTER TABLE t SET ('tag' = 'a', 'topic' = 'u')").options["topic"] == "u"
    assert "tag" not in table(f"{ALTERED} ALTER TABLE t SET ('tag' = 'a'); ALTER TABLE t RESET ('tag')").options
    marked = f"{ALTERED} ALTER TABLE t ADD WATERMARK FOR ts AS ts; ALTER TABLE t ADD PRIMARY KEY (a) NOT ENFORCED;"
    assert table(f"{marked} ALTER TABLE t MODIFY WATERMARK FOR ts AS ts - INTERVAL '1' SECOND").watermark == Watermark(
        "ts", 1000
    )
    assert table(f"{marked} ALTER TABLE t DROP WATERMARK").watermark is None
    assert table(marked).primary_key == ("a",)
    assert table(f"{marked} ALTER TABLE t DROP PRIMARY KEY").primary_key == ()
    assert table(f"{ALTERED} ALTER TABLE t RENAME TO u", "u").name == "u"
    assert compiled("ALTER TABLE IF EXISTS nothing ADD a INT")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DROP b", 'computed column "c" uses it'),
        ("RENAME b TO z", 'computed column "c" uses it'),
        ("ADD a INT", "Use MODIFY."),
        ("MODIFY z INT", "Use ADD."),
        ("DROP WATERMARK", "no WATERMARK"),
        ("MODIFY PRIMARY KEY (a) NOT ENFORCED", "Use ADD."),
        ("RESET ('tagg')", "no option 'tagg'"),
        ("SET ('topik' = 'x')", "no option 'topik'"),
        ("DROP aa", 'Did you mean "a"?'),
        ("ADD d INT AFTER zz", 'no column "zz"'),
        ("RENAME TO events", "already"),
        ("GROW", "Expected SET"),
    ],
)
def test_a_change_that_is_not_possible_is_refused(change: str, said: str) -> None:
    error = refused(f"{ALTERED} ALTER TABLE t {change}")
    assert said in f"{error.message} {error.remedy}"
    assert error.position is not None


def test_alter_view_gives_it_another_name_or_query() -> None:
    made = "CREATE VIEW v AS SELECT host FROM events;"
    shown = compiled(f"{made} ALTER VIEW v RENAME TO w; ALTER VIEW w AS SELECT id FROM events; SHOW CREATE VIEW w")[-1]
    assert isinstance(shown, TextResult)
    assert [row for (row,) in shown.rows] == [
        "CREATE VIEW `default_catalog`.`default_database`.`w` (`id`) AS",
        "SELECT id FROM events",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        SOURCE.replace("TABLE s", "TABLE t"),
        f"CREATE TABLE t (a ROW<`x y` INT>, b STRING COMMENT 'it''s', c AS b || '''', UNIQUE (b)) COMMENT 'n' DISTRIBUTED BY HASH(b) INTO 2 BUCKETS {TOPIC}",
        "CREATE TABLE t (a INT, dt STRING) PARTITIONED BY (dt) WITH ('connector' = 'filesystem', 'path' = '/x', 'format' = 'csv')",
        "CREATE TEMPORARY TABLE t (a INT, PERIOD FOR SYSTEM_TIME) WITH ('connector' = 'filesystem', 'path' = '/x')",
    ],
)
def test_what_show_create_table_says_makes_the_same_table(statement: str) -> None:
    session = SqlSession()
    shown = session.compile(f"{statement.rstrip(';')}; SHOW CREATE TABLE t")[-1]
    assert isinstance(shown, TextResult)
    again = "\n".join(row for (row,) in shown.rows)
    assert table(again) == table(statement)


def test_secrets_are_shown_only_as_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    made = "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:x://h/d', 'table-name' = 't', 'password' = '{}'); SHOW CREATE TABLE t"
    for password, shown in (("${env:DB_PASSWORD}", "${env:DB_PASSWORD}"), ("hunter2", "******")):
        result = compiled(made.replace("{}", password))[-1]
        assert isinstance(result, TextResult)
        assert any(f"'password' = '{shown}'" in row for (row,) in result.rows)
        assert "hunter2" not in str(result)


def test_a_computed_column_reads_stored_columns_only() -> None:
    made = table(f"CREATE TABLE t (a INT, b AS a + 1) {TOPIC}")
    assert isinstance(made.columns[1], ComputedColumn)
    assert Column("a", made.columns[0].type) in made.columns[1].expression.arguments  # type: ignore[union-attr]
    assert refused(f"CREATE TABLE t (a INT, b AS a + 1, c AS b + 1) {TOPIC}").name == "SQL_UNKNOWN_COLUMN"
