"""Each method of the SDK beside the SQL that says the same: their plans are equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.streams.plan.nodes import JobPlan, Node, inputs_of
from millstream.streams.plan.patterns import Match
from millstream.streams.sdk import Pattern, Stream, StreamBuilder, cumulating, session, sliding, tumbling
from millstream.streams.sdk.builder import plain
from millstream.streams.spark.operators.aggregate_wirings import match_wiring
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE events (
  `host` STRING, `user` STRING, `bytes` BIGINT, `ts` TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'events', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE logins (
  `user` STRING, `ok` BOOLEAN, `at` TIMESTAMP(3), WATERMARK FOR `at` AS `at` - INTERVAL '1' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'logins', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE hosts (host STRING, owner STRING)
WITH ('connector' = 'filesystem', 'path' = '/data/hosts.csv', 'format' = 'csv');
"""
SHOWN = "CREATE TABLE shown ({}) WITH ('connector' = 'print');"

TUMBLED = "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))"

METHODS: dict[str, tuple[Callable[[Stream, Stream], Stream], str]] = {
    "select": (lambda e, _: e.select("host", kib="bytes / 1024"), "SELECT host, bytes / 1024 AS kib FROM events"),
    "with_column": (
        lambda e, _: e.with_column("short", "SUBSTRING(host, 1, 3)"),
        "SELECT host, `user`, bytes, ts, SUBSTRING(host, 1, 3) AS short FROM events",
    ),
    "with_column that is there": (
        lambda e, _: e.with_column("host", "LOWER(host)"),
        "SELECT LOWER(host) AS host, `user`, bytes, ts FROM events",
    ),
    "drop": (lambda e, _: e.drop("bytes"), "SELECT host, `user`, ts FROM events"),
    "filter": (lambda e, _: e.filter("bytes > 9 OR host = 'a'"), "SELECT * FROM events WHERE bytes > 9 OR host = 'a'"),
    "union": (
        lambda e, o: e.select("user", at="ts").union(o.select("user", "at")),
        "SELECT `user`, ts AS `at` FROM events UNION ALL SELECT `user`, `at` FROM logins",
    ),
    "split": (
        lambda e, _: e.split("CASE WHEN bytes > 9 THEN 'big' ELSE 'small' END").select("big"),
        "SELECT * FROM events WHERE (CASE WHEN bytes > 9 THEN 'big' ELSE 'small' END) = 'big'",
    ),
    "distinct": (
        lambda e, _: e.distinct("host"),
        "SELECT host, `user`, bytes, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY host ORDER BY PROCTIME())"
        " AS n FROM events) WHERE n = 1",
    ),
    "distinct in a window": (
        lambda e, _: e.distinct("host", within="10 s"),
        "SELECT host, `user`, bytes, ts FROM (SELECT host, `user`, bytes, ts, window_start, window_end FROM (SELECT *,"
        f" ROW_NUMBER() OVER (PARTITION BY window_start, window_end, host ORDER BY ts) AS n FROM {TUMBLED})"
        " WHERE n = 1)",
    ),
    "top_n": (
        lambda e, _: e.top_n(3, "bytes"),
        "SELECT host, `user`, bytes, ts FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY bytes DESC) AS n FROM events)"
        " WHERE n <= 3",
    ),
    "top_n of each key with places": (
        lambda e, _: e.key_by("host").top_n(3, "bytes", ascending=True, rank="n"),
        "SELECT host, `user`, bytes, ts, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY host ORDER BY bytes)"
        " AS n FROM events) WHERE n <= 3",
    ),
    "count": (lambda e, _: e.key_by("host").count(), "SELECT host, COUNT(*) AS `count` FROM events GROUP BY host"),
    "count of a column": (
        lambda e, _: e.key_by("host").count("user"),
        "SELECT host, COUNT(`user`) AS `count` FROM events GROUP BY host",
    ),
    "sum": (lambda e, _: e.key_by("host").sum("bytes"), "SELECT host, SUM(bytes) AS `sum` FROM events GROUP BY host"),
    "avg": (lambda e, _: e.key_by("host").avg("bytes"), "SELECT host, AVG(bytes) AS `avg` FROM events GROUP BY host"),
    "count_distinct": (
        lambda e, _: e.key_by("host").count_distinct("user", name="users"),
        "SELECT host, COUNT(DISTINCT `user`) AS users FROM events GROUP BY host",
    ),
    "aggregate": (
        lambda e, _: e.key_by("host", "user").aggregate(low="MIN(bytes)", big="COUNT(*) FILTER (WHERE bytes > 9)"),
        "SELECT host, `user`, MIN(bytes) AS low, COUNT(*) FILTER (WHERE bytes > 9) AS big FROM events"
        " GROUP BY host, `user`",
    ),
    "key_by an expression": (
        lambda e, _: e.key_by("LOWER(host) AS h").count(),
        "SELECT h, COUNT(*) AS `count` FROM (SELECT host, `user`, bytes, ts, LOWER(host) AS h FROM events) GROUP BY h",
    ),
    "min": (
        lambda e, _: e.key_by("host").min("bytes"),
        "SELECT host, `user`, bytes, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY host ORDER BY bytes ASC) AS n"
        " FROM events WHERE bytes IS NOT NULL) WHERE n = 1",
    ),
    "max": (
        lambda e, _: e.key_by("host").max("bytes"),
        "SELECT host, `user`, bytes, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY host ORDER BY bytes DESC) AS n"
        " FROM events WHERE bytes IS NOT NULL) WHERE n = 1",
    ),
    "last": (
        lambda e, _: e.key_by("host").last(),
        "SELECT host, `user`, bytes, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY host ORDER BY PROCTIME() DESC)"
        " AS n FROM events) WHERE n = 1",
    ),
    "tumbling window": (
        lambda e, _: e.key_by("host").window(tumbling("10 s")).sum("bytes", name="total"),
        f"SELECT window_start, window_end, host, SUM(bytes) AS total FROM {TUMBLED}"
        " GROUP BY window_start, window_end, host",
    ),
    "window of all rows, with event time": (
        lambda e, _: e.window(tumbling("10 s")).aggregate(event_time=True, n="COUNT(*)"),
        f"SELECT window_start, window_end, window_time, COUNT(*) AS n FROM {TUMBLED}"
        " GROUP BY window_start, window_end, window_time",
    ),
    "sliding window": (
        lambda e, _: e.key_by("host").window(sliding("1 min", slide="10 s")).avg("bytes"),
        "SELECT window_start, window_end, host, AVG(bytes) AS `avg` FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts),"
        " INTERVAL '10' SECOND, INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, host",
    ),
    "session window": (
        lambda e, _: e.key_by("host").window(session("30 s")).count(),
        "SELECT window_start, window_end, host, COUNT(*) AS `count` FROM TABLE(SESSION(TABLE events PARTITION BY host,"
        " DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY window_start, window_end, host",
    ),
    "cumulating window": (
        lambda e, _: e.key_by("host").window(cumulating("1 h", step="10 min")).count_distinct("user"),
        "SELECT window_start, window_end, host, COUNT(DISTINCT `user`) AS count_distinct FROM TABLE(CUMULATE(TABLE"
        " events, DESCRIPTOR(ts), INTERVAL '10' MINUTE, INTERVAL '1' HOUR)) GROUP BY window_start, window_end, host",
    ),
    "window by the clock": (
        lambda e, _: e.key_by("host").window(tumbling("10 s"), on="processing").count(),
        "SELECT window_start, window_end, host, COUNT(*) AS `count` FROM TABLE(TUMBLE(TABLE clocked,"
        " DESCRIPTOR(processing_time), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, host",
    ),
    "max of a window": (
        lambda e, _: e.key_by("host").window(tumbling("10 s")).max("bytes"),
        "SELECT host, `user`, bytes, ts, window_start, window_end FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
        f" window_start, window_end, host ORDER BY bytes DESC) AS n FROM {TUMBLED} WHERE bytes IS NOT NULL)"
        " WHERE n = 1",
    ),
    "top_n of a window": (
        lambda e, _: e.window(tumbling("10 s")).top_n(2, "bytes", rank="n"),
        "SELECT host, `user`, bytes, ts, window_start, window_end, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
        f" window_start, window_end ORDER BY bytes DESC) AS n FROM {TUMBLED}) WHERE n <= 2",
    ),
    "rows of windows": (lambda e, _: e.window(tumbling("10 s")).rows(), f"SELECT * FROM {TUMBLED}"),
    "join": (
        lambda e, o: e.key_by("user").join(o.key_by("user"), where="r.ok"),
        "SELECT l.host, l.`user`, l.bytes, l.ts, r.ok, r.`at` FROM events AS l JOIN logins AS r"
        " ON l.`user` = r.`user` AND r.ok",
    ),
    "left_join": (
        lambda e, o: e.key_by("host").left_join(o.key_by("user")),
        "SELECT l.host, l.`user`, l.bytes, l.ts, r.`user` AS user_right, r.ok, r.`at` FROM events AS l LEFT JOIN"
        " logins AS r ON l.host = r.`user`",
    ),
    "join of the latest": (
        lambda e, o: e.key_by("user").join(o.key_by("user"), latest=True),
        "SELECT l.host, l.`user`, l.bytes, l.ts, r.ok, r.`at` FROM (SELECT host, `user`, bytes, ts FROM (SELECT *,"
        " ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY PROCTIME() DESC) AS n FROM events) WHERE n = 1) AS l JOIN"
        " (SELECT `user`, ok, `at` FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY PROCTIME() DESC)"
        " AS n FROM logins) WHERE n = 1) AS r ON l.`user` = r.`user`",
    ),
    "interval_join": (
        lambda e, o: e.key_by("user").interval_join(o.key_by("user"), "-5 s", "1 min", left=True),
        "SELECT l.host, l.`user`, l.bytes, l.ts, r.ok, r.`at` FROM events AS l LEFT JOIN logins AS r ON l.`user` ="
        " r.`user` AND r.`at` BETWEEN l.ts - INTERVAL '5' SECOND AND l.ts + INTERVAL '1' MINUTE",
    ),
    "join of windows": (
        lambda e, o: e.key_by("user").window(tumbling("10 s")).left_join(o.key_by("user").window(tumbling("10 s"))),
        "SELECT l.host, l.`user`, l.bytes, l.ts, l.window_start, l.window_end, r.ok, r.`at` FROM (SELECT * FROM"
        f" {TUMBLED}) AS l LEFT JOIN (SELECT * FROM TABLE(TUMBLE(TABLE logins, DESCRIPTOR(`at`), INTERVAL '10' SECOND)))"
        " AS r ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.`user` = r.`user`",
    ),
    "dim_join": (
        lambda e, _: e.dim_join("hosts", on="host", left=True),
        "SELECT l.host, l.`user`, l.bytes, l.ts, r.owner FROM events AS l LEFT JOIN hosts FOR SYSTEM_TIME AS OF"
        " PROCTIME() AS r ON l.host = r.host",
    ),
    "pattern": (
        lambda _, o: o.key_by("user").pattern(
            Pattern.begin("bad", "NOT ok").times(3).followed_by_any("good", "ok").within("1 min"),
            {"moment": "good.`at`"},
        ),
        "SELECT * FROM logins MATCH_RECOGNIZE (PARTITION BY `user` ORDER BY `at` MEASURES good.`at` AS moment AFTER"
        " MATCH SKIP PAST LAST ROW PATTERN (bad{3} before_good*? good) WITHIN INTERVAL '1' MINUTE DEFINE bad AS NOT ok,"
        " good AS ok)",
    ),
    "from_sql over a stream": (
        lambda e, _: e.filter("bytes > 1").to_table("big").builder.from_sql("SELECT host FROM big WHERE bytes < 9"),
        "SELECT host FROM (SELECT * FROM events WHERE bytes > 1) WHERE bytes < 9",
    ),
}

NARROWED_OTHERWISE = ("join of windows",)
"""Here SQL's sub-queries keep a projection that only leaves columns out once it is known which ones are read."""


def streams(tables: str = TABLES) -> tuple[Stream, Stream]:
    builder = StreamBuilder("job").sql(tables)
    return builder.table("events"), builder.table("logins")


def in_sql(query: str) -> Node:
    session = SqlSession()
    session.compile(TABLES + "CREATE VIEW clocked AS SELECT *, PROCTIME() AS processing_time FROM events;")
    return plain(session.rows(query, {}))


def without_names(node: Node, made: str, other: str) -> str:
    return repr(node).replace(repr(made), repr(other))


@pytest.mark.parametrize("method", METHODS)
def test_a_method_and_its_sql_have_one_plan(method: str) -> None:
    build, query = METHODS[method]
    stream = build(*streams())
    sql = in_sql(query)
    # What a place is called inside of a query is nobody's concern.
    assert without_names(stream.node, "place_of_row", "n") == repr(sql)


@pytest.mark.parametrize("method", [method for method in METHODS if method not in NARROWED_OTHERWISE])
def test_a_job_of_a_method_and_its_sql_have_one_plan(method: str) -> None:
    build, query = METHODS[method]
    stream = build(*streams())
    stream.print("shown")
    (sink,) = stream.builder.plan().sinks
    columns = ", ".join(f"`{field.name}` {field.type.as_nullable()}" for field in stream.schema.fields)
    session = SqlSession()
    session.compile(TABLES + "CREATE VIEW clocked AS SELECT *, PROCTIME() AS processing_time FROM events;")
    session.compile(SHOWN.format(columns))
    plan = session.compile(f"INSERT INTO shown {query}")[-1]
    assert isinstance(plan, JobPlan)
    assert without_names(plain(sink.input), "place_of_row", "n") == repr(plain(plan.sinks[0].input))


def test_windows_with_late_rows_speak_as_emit_says() -> None:
    events, _ = streams()
    stream = events.key_by("host").window(tumbling("10 s"), allow_lateness="1 min", early_every="2 s").count()
    stream.print("shown")
    (sink,) = stream.builder.plan().sinks
    session = SqlSession()
    session.compile(TABLES + SHOWN.format("ws TIMESTAMP(3), we TIMESTAMP(3), host STRING, n BIGINT"))
    session.compile("SET 'table.exec.emit.allow-lateness' = '1 min'; SET 'table.exec.emit.late-fire.enabled' = 'true'")
    session.compile("SET 'table.exec.emit.early-fire.enabled' = 'true'; SET 'table.exec.emit.early-fire.delay' = '2 s'")
    plan = session.compile(
        f"INSERT INTO shown SELECT window_start, window_end, host, COUNT(*) AS `count` FROM {TUMBLED}"
        " GROUP BY window_start, window_end, host"
    )[-1]
    assert isinstance(plan, JobPlan)
    (window,) = (node for node in _nodes(sink.input) if "WindowAggregate" in type(node).__name__)
    (same,) = (node for node in _nodes(plan.sinks[0].input) if "WindowAggregate" in type(node).__name__)
    assert window == same


def _nodes(node: Node) -> list[Node]:
    return [node, *(one for below in inputs_of(node) for one in _nodes(below))]


def test_what_stands_between_parts_of_a_pattern_reaches_the_search() -> None:
    _, logins = streams()
    pattern = Pattern.begin("bad", "NOT ok").times(3, apart=True).followed_by("good", "ok")
    stream = logins.key_by("user").pattern(pattern, {"moment": "good.`at`"})
    (match,) = (node for node in _nodes(stream.node) if isinstance(node, Match))
    assert "unless=(('before_good', 'good'), ('between_bad', 'bad'))" in repr(match_wiring(match).make)
    assert "before_good unless good between_bad unless bad" in "\n".join(stream.print().builder.explain())


def test_a_source_is_the_table_that_create_table_makes() -> None:
    builder = StreamBuilder("job")
    built = builder.source(
        "events",
        schema={"host": str, "user": "STRING", "bytes": int, "ts": "TIMESTAMP(3)"},
        timestamp="ts",
        watermark="5 s",
    )
    events, _ = streams()
    assert built.node == events.node


def test_inserts_of_sql_and_streams_are_one_job() -> None:
    builder = StreamBuilder("job").sql(TABLES + SHOWN.format("host STRING"))
    builder.sql("INSERT INTO shown SELECT host FROM events WHERE bytes > 1")
    builder.table("events").filter("bytes > 2").insert_into("shown")
    first, second = builder.plan().sinks
    assert first.table.name == second.table.name == "shown"
    assert repr(first.input).replace("value=1", "value=2") == repr(second.input)


def test_a_plan_carries_the_nameserver_of_its_builder_unless_sql_sets_one() -> None:
    """`millstream job run FILE` runs the plan alone, with a nameserver of its own."""
    builder = StreamBuilder("job", nameserver="mq.example:9876")
    builder.source("events", schema={"host": str}).print("shown")
    assert builder.plan().settings["millstream.nameserver"] == "mq.example:9876"
    builder.sql("SET 'millstream.nameserver' = 'other.example:9876'")
    assert builder.plan().settings["millstream.nameserver"] == "other.example:9876"
