"""Queries become the plan that they say, in Flink's types."""

from __future__ import annotations

import pytest
from compiling import explained, job, query

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.expressions import Call, Expression
from millstream.streams.plan.nodes import Filter, Project, Scan, WindowRows

HOURLY = "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' HOUR))"


def test_a_projection_with_a_filter_reads_only_what_it_needs() -> None:
    assert explained("SELECT host, UPPER(host) AS big FROM events WHERE score > 1 AND NOT ok") == [
        "Project [host, UPPER(host) AS big]",
        "  Filter AND(>(score, 1), NOT(ok))",
        "    Scan events (rocketmq) columns=[host STRING, score DOUBLE, ok BOOLEAN]",
    ]


def test_the_window_function_and_the_group_window_are_one_plan() -> None:
    spoken = query(
        f"SELECT window_start, window_end, host, COUNT(*) AS n FROM {HOURLY} GROUP BY window_start, window_end, host"
    )
    grouped = query(
        "SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) AS window_start, TUMBLE_END(ts, INTERVAL '1' HOUR) AS window_end,"
        " host, COUNT(*) AS n FROM events GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), host"
    )
    assert spoken == grouped
    assert isinstance(spoken, Project)
    assert isinstance(spoken.input, WindowAggregate)
    assert (spoken.input.window.size_ms, spoken.input.window.time_column) == (3_600_000, "ts")


def test_named_arguments_and_an_offset_are_read() -> None:
    named = query(
        "SELECT window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(DATA => TABLE events, TIMECOL => DESCRIPTOR(ts),"
        " SIZE => INTERVAL '10' MINUTE, OFFSET => INTERVAL '2' MINUTE)) GROUP BY window_start, window_end"
    )
    assert isinstance(named, Project)
    assert isinstance(named.input, WindowAggregate)
    assert (named.input.window.size_ms, named.input.window.offset_ms) == (600_000, 120_000)


def test_the_window_function_without_grouping_gives_rows_with_bounds() -> None:
    node = query(f"SELECT host, window_start FROM {HOURLY} WHERE host <> 'x'")
    assert isinstance(node, Project)
    assert isinstance(node.input, Filter)
    assert isinstance(node.input.input, WindowRows)
    assert str(node.schema.fields[1].type) == "TIMESTAMP(3) NOT NULL"


def test_having_filters_above_the_aggregate() -> None:
    assert explained(
        f"SELECT host, SUM(score) AS s FROM {HOURLY} WHERE ok GROUP BY window_start, window_end, host"
        " HAVING COUNT(*) > 3 AND SUM(score) < 10"
    ) == [
        "Project [host, aggregate_0 AS s]",
        "  Filter AND(>(aggregate_1, 3), <(aggregate_0, 10))",
        "    WindowAggregate TUMBLE(ts, 3600000 ms) keys=[host] aggregates=[SUM(score) AS aggregate_0, COUNT(*) AS aggregate_1] [append, own operator]",
        "      state: open windows; own operator in batch jobs too:"
        " sums of floating-point numbers do not depend on the order of rows",
        "      Filter ok",
        "        Scan events (rocketmq) columns=[host STRING, score DOUBLE, ok BOOLEAN, text_ts STRING, ts TIMESTAMP(3) *ROWTIME*]",
        "          watermark ts - 5000 ms",
    ]  # fmt: skip


def test_an_expression_can_be_grouped_by_and_shown() -> None:
    node = query(
        f"SELECT UPPER(host), COUNT(id) FILTER (WHERE ok) FROM {HOURLY} GROUP BY window_start, window_end, UPPER(host)"
    )
    assert isinstance(node, Project)
    assert isinstance(node.input, WindowAggregate)
    assert [name for name, _ in node.input.keys] == ["key_0"]
    assert str(node.input.aggregates[0][1]) == "COUNT(id) FILTER (WHERE ok)"


def test_views_and_sub_queries_are_inlined_and_keep_event_time() -> None:
    plan = job(
        "CREATE VIEW hot AS SELECT host, ts AS moment FROM (SELECT * FROM events WHERE score > 9) AS inside;"
        "CREATE TABLE out_ (host STRING, n BIGINT) WITH ('connector' = 'print');"
        "INSERT INTO out_ SELECT host, COUNT(*) FROM TABLE(TUMBLE(TABLE hot, DESCRIPTOR(moment), INTERVAL '1' DAY))"
        " GROUP BY window_start, window_end, host"
    )
    node = plan.sinks[0].input
    while not isinstance(node, Scan):
        node = node.input
    assert node.columns == ("host", "score", "text_ts", "ts")


@pytest.mark.parametrize(
    ("expression", "data_type"),
    [
        ("small / 2", "INT"),
        ("id + small", "BIGINT"),
        ("small * 1.5", "DECIMAL(13, 1)"),
        ("price + 1", "DECIMAL(13, 2)"),
        ("0.908 * id", "DECIMAL(24, 3)"),
        ("COALESCE(id, price)", "DECIMAL(21, 2)"),
        ("CAST('x' AS INT)", "INT"),
        ("TRY_CAST(small AS STRING)", "STRING"),
        ("CAST(place AS ROW<town STRING, zip BIGINT>)", "ROW<town STRING, zip BIGINT>"),
        ("price / small", "DECIMAL(21, 13)"),
        ("score + price", "DOUBLE"),
        ("-small", "INT"),
        ("id % small", "INT"),
        ("host || 'x'", "STRING"),
        ("CASE WHEN ok THEN 1 ELSE id END", "BIGINT"),
        ("CASE small WHEN 1 THEN 'one' END", "STRING"),
        ("COALESCE(NULL, small, id)", "BIGINT"),
        ("place.city", "STRING"),
        ("events.place.zip", "INT"),
        ("CAST(host AS DECIMAL(4, 1))", "DECIMAL(4, 1)"),
        ("TRY_CAST(host AS INT)", "INT"),
        ("ts + INTERVAL '1' DAY", "TIMESTAMP(3)"),
        ("ts - 2 * INTERVAL '1' DAY", "TIMESTAMP(3)"),
        ("INTERVAL '1' HOUR * small", "STRING"),
        ("TIME '10:00:00' + INTERVAL '30' MINUTE", "TIME(0)"),
        ("(ts, INTERVAL '1' HOUR) OVERLAPS (ts, ts)", "BOOLEAN"),
        ("day_ = '2026-01-01'", "BOOLEAN"),
        ("small IN (1, 2, 3)", "BOOLEAN"),
        ("score BETWEEN 1 AND id", "BOOLEAN"),
        ("host NOT LIKE 'a!%' ESCAPE '!'", "BOOLEAN"),
        ("host SIMILAR TO 'a|b'", "BOOLEAN"),
        ("ok IS NOT TRUE", "BOOLEAN"),
        ("host IS NULL", "BOOLEAN NOT NULL"),
        ("EXTRACT(HOUR FROM ts)", "BIGINT"),
        ("FLOOR(ts TO HOUR)", "TIMESTAMP(3)"),
        ("TIMESTAMPDIFF(SECOND, ts, ts)", "INT"),
        ("TRIM(LEADING 'x' FROM host)", "STRING"),
        ("POSITION('a' IN host)", "INT"),
        ("CURRENT_TIMESTAMP", "TIMESTAMP_LTZ(3)"),
        ("DATE '2026-01-31'", "DATE NOT NULL"),
        ("TIMESTAMP '2026-01-31 10:00:00'", "TIMESTAMP(0) NOT NULL"),
        ("TIMESTAMP '2026-01-31 10:00:00.25'", "TIMESTAMP(2) NOT NULL"),
        ("1e3", "DOUBLE NOT NULL"),
        ("9223372036854775807", "BIGINT NOT NULL"),
        ("-9223372036854775808", "BIGINT NOT NULL"),
        ("-2147483648", "INT NOT NULL"),
        ("-2147483648.0", "DECIMAL(11, 1) NOT NULL"),
        ("queue", "INT"),
    ],
)
def test_expressions_have_flinks_types(expression: str, data_type: str) -> None:
    node = query(f"SELECT {expression} AS x FROM events")
    assert str(node.schema.fields[0].type) == data_type


@pytest.mark.parametrize(
    ("aggregate", "data_type"),
    [
        ("COUNT(*)", "BIGINT NOT NULL"),
        ("COUNT(DISTINCT host, small)", "BIGINT NOT NULL"),
        ("SUM(small)", "INT"),
        ("AVG(small)", "INT"),
        ("AVG(score)", "DOUBLE"),
        ("SUM(price)", "DECIMAL(38, 2)"),
        ("MIN(host)", "STRING"),
        ("MAX(ts)", "TIMESTAMP(3)"),
    ],
)
def test_aggregates_have_flinks_types(aggregate: str, data_type: str) -> None:
    node = query(f"SELECT {aggregate} AS x FROM {HOURLY} GROUP BY window_start, window_end")
    assert str(node.schema.fields[0].type) == data_type


def test_where_may_name_the_bounds_of_the_window() -> None:
    lines = explained(
        "SELECT window_end, MAX(window_start) AS latest, COUNT(*) AS n FROM"
        " TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' HOUR)) AS w"
        " WHERE w.window_start >= TIMESTAMP '2026-01-01 00:00:00' GROUP BY window_start, window_end"
    )
    assert lines[:5] == [
        "Project [window_end, aggregate_0 AS latest, aggregate_1 AS n]",
        "  WindowAggregate TUMBLE(ts, 3600000 ms) keys=[] aggregates=[MAX(window_start) AS aggregate_0, COUNT(*) AS aggregate_1] [append, own operator]",
        "    state: open windows; in batch jobs Spark's own window",
        "    Filter >=(window_start, 2026-01-01 00:00:00)",
        "      WindowRows TUMBLE(ts, 3600000 ms)",
    ]  # fmt: skip


def test_columns_with_the_names_that_a_grouping_gives_keep_apart() -> None:
    node = query(
        "SELECT window_start, aggregate_0, COUNT(*) AS n, TUMBLE_START(ts, INTERVAL '1' HOUR) AS s"
        " FROM (SELECT ts, host AS window_start, small AS aggregate_0 FROM events)"
        " GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), window_start, aggregate_0"
    )
    assert isinstance(node, Project)
    assert len(set(node.input.schema.names)) == len(node.input.schema.names)
    assert [str(field.type) for field in node.schema.fields] == [
        "STRING",
        "INT",
        "BIGINT NOT NULL",
        "TIMESTAMP(3) NOT NULL",
    ]


def test_a_rule_of_a_thousand_terms_is_a_shallow_tree() -> None:
    many = " OR ".join(f"host = 'host-{number}'" for number in range(1000))
    node = query(f"SELECT host FROM events WHERE {many}")
    assert isinstance(node, Project)
    assert isinstance(node.input, Filter)
    places = [str(node.input.predicate).index(f"'host-{number}'") for number in range(1000)]
    assert places == sorted(places)
    assert depth(node.input.predicate) == 12


def depth(expression: Expression) -> int:
    """How many calls stand inside each other, with the column at the bottom."""
    return 1 + max(map(depth, expression.arguments)) if isinstance(expression, Call) else 1


def test_all_columns_of_a_table_can_be_named_by_its_alias() -> None:
    assert query("SELECT e.* FROM events AS e") == query("SELECT * FROM events")


def test_a_string_may_stand_right_behind_a_key_word() -> None:
    assert explained("SELECT'a'AS x FROM events WHERE host LIKE'a%'") == explained(
        "SELECT 'a' AS x FROM events WHERE host LIKE 'a%'"
    )


def test_an_interval_of_several_units_can_be_negative() -> None:
    lines = explained("SELECT ts + INTERVAL '-1 02:00' DAY TO MINUTE AS x FROM events")
    assert lines[0] == "Project [+(ts, -2 days, 22:00:00) AS x]"


def test_precedence_is_sqls() -> None:
    assert explained("SELECT ok OR ok AND NOT small = 1 + 2 * 3 AS x FROM events")[0] == (
        "Project [OR(ok, AND(ok, NOT(=(small, +(1, *(2, 3)))))) AS x]"
    )


def test_insert_casts_to_the_sinks_types_and_sorts_by_its_columns() -> None:
    plan = job(
        "CREATE TABLE out_ (n BIGINT, host STRING) WITH ('connector' = 'blackhole');"
        "INSERT INTO out_ (host, n) SELECT host, small FROM events"
    )
    node = plan.sinks[0].input
    assert isinstance(node, Project)
    assert [f"{name} {value}" for name, value in node.columns] == ["n CAST(small AS BIGINT)", "host host"]


def test_both_spellings_of_a_statement_set_are_one_job() -> None:
    sinks = "CREATE TABLE a (h STRING) WITH ('connector' = 'print'); CREATE TABLE b (h STRING) WITH ('connector' = 'print');"
    inserts = "INSERT INTO a SELECT host FROM events; INSERT INTO b SELECT host FROM events;"
    spoken = job(f"{sinks} EXECUTE STATEMENT SET BEGIN {inserts} END;")
    older = job(f"{sinks} BEGIN STATEMENT SET; {inserts} END;")
    assert [sink.table.name for sink in spoken.sinks] == ["a", "b"]
    assert spoken == older


def test_settings_go_with_the_jobs_behind_them() -> None:
    plan = job(
        "SET 'execution.runtime-mode' = 'batch'; CREATE TABLE a (h STRING) WITH ('connector' = 'print');"
        "INSERT INTO a SELECT host FROM events"
    )
    assert plan.settings == {"execution.runtime-mode": "batch"}


def test_quotes_comments_and_semicolons_do_not_confuse_the_reader() -> None:
    node = query("SELECT 'a;b -- no comment''s' AS `odd ``name`, /* ; */ host -- tail ; \n FROM events")
    assert node.schema.names == ("odd `name", "host")
