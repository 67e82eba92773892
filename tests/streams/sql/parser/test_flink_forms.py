"""Forms of Flink's that no other test holds: what they are bound to, and what is said of those that have another way here."""

from __future__ import annotations

import random

import pytest
from asked_twice import asked_answer, planned_answer, random_tables
from compiling import compiled
from shop import SHOP, plan_of, shop_error, shop_plan

from millstream.streams.plan.nodes import Values
from millstream.streams.sql.session.compiler import SqlSession, TextResult

WINDOW = "TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
ROWS = f"(SELECT * FROM {WINDOW})"


@pytest.mark.parametrize(
    ("select", "line"),
    [
        (f"SELECT item, window_start, SUM(price) FROM {WINDOW} GROUP BY window_start, window_end, ROLLUP (item)",
         "projections=[price, ts, item, 0; price, ts, NULL, 1]"),
        (f"SELECT item, customer, window_end, COUNT(*) FROM {WINDOW} GROUP BY window_start, window_end, CUBE (item, customer)",
         "ts, item, customer, 0; ts, item, NULL, 1; ts, NULL, customer, 2; ts, NULL, NULL, 3"),
        (f"SELECT item, window_end, COUNT(*) FROM TABLE({WINDOW}) GROUP BY window_start, window_end, GROUPING SETS ((item), ())",
         "WindowAggregate TUMBLE(ts, 3600000 ms) keys=[item0 AS item, grouping_set]"),
        ("SELECT * FROM HOP(DATA => TABLE orders, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '5' MINUTES, SIZE => INTERVAL '10' MINUTES)",
         "WindowRows HOP(ts, 300000 ms, 600000 ms)"),
        ("SELECT * FROM CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '2' MINUTES, INTERVAL '10' MINUTES)", "CUMULATE(ts, 120000 ms, 600000 ms)"),
        ("SELECT * FROM SESSION(DATA => TABLE orders PARTITION BY item, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '5' MINUTES)",
         "SESSION(ts, 300000 ms PARTITION BY item)"),
        ("WITH a AS (SELECT window_time AS t, item, COUNT(*) AS n FROM CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTES)"
         " GROUP BY window_start, window_end, window_time, item) SELECT window_end, SUM(n) FROM TUMBLE(TABLE a, DESCRIPTOR(t), INTERVAL '1' HOUR)"
         " GROUP BY window_start, window_end", "WindowAggregate TUMBLE(t, 3600000 ms) keys=[] aggregates=[SUM(n) AS aggregate_0]"),
        (f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, item ORDER BY ts DESC) AS n FROM {WINDOW}) WHERE n <= 1",
         "Rank ROW_NUMBER 1 partition=[window_start, window_end, item] order=[ts DESC] AS over_0 final at window_end"),
        (f"SELECT * FROM {ROWS} AS a WHERE a.id IN (SELECT id FROM {ROWS} AS b WHERE a.window_start = b.window_start AND a.window_end = b.window_end)",
         "Join SEMI keys=[window_start = window_start0, window_end = window_end0, id = id0] windows="),
        (f"SELECT * FROM {ROWS} AS a WHERE NOT EXISTS (SELECT 1 FROM {ROWS} AS b WHERE a.id = b.id AND a.window_start = b.window_start AND a.window_end = b.window_end)",
         "Join ANTI keys=[id = id0, window_start = window_start0, window_end = window_end0] windows="),
        ("SELECT SUM(amount) FILTER (WHERE price > 1) OVER (PARTITION BY item ORDER BY ts) FROM orders", "SUM(amount) FILTER (WHERE >(price, 1))"),
        ("SELECT COUNT(DISTINCT amount) OVER (PARTITION BY item ORDER BY p ROWS 9 PRECEDING) FROM orders", "order=[p ASC] frame=[rows, 9 rows before]"),
        ("SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) AS n FROM orders QUALIFY n <= 3", "Rank ROW_NUMBER 1..3 partition=[item]"),
        ("SELECT id, ROW_NUMBER() OVER (PARTITION BY item ORDER BY p) AS n FROM orders QUALIFY n = 1 AND id > 5",
         "Rank ROW_NUMBER 1 partition=[item] order=[p ASC] AS over_0 [append, own operator]"),
        ("SELECT o.id, k, v FROM orders AS o CROSS JOIN UNNEST(extra) AS t (k, v)", "Correlate INNER UNNEST(extra) AS [k STRING, v INT]"),
        ("SELECT o.id FROM orders AS o, payments AS y WHERE (o.id, o.item) = (y.order_id, y.method)", "Join INNER keys=[id = order_id, item = method]"),
        ("SELECT id FROM orders WHERE (id, item) IN ((1, 'a'), (2, 'b'))", "Filter OR(AND(=(id, 1), =(item, 'a')), AND(=(id, 2), =(item, 'b')))"),
        ("SELECT ARRAY_AGG(item IGNORE NULLS), ARRAY_AGG(DISTINCT item RESPECT NULLS) FROM orders",
         "aggregates=[ARRAY_AGG(item) FILTER (WHERE IS NOT NULL(item)) AS aggregate_0, ARRAY_AGG(DISTINCT item) AS aggregate_1]"),
        ("SELECT ARRAY_AGG(item IGNORE NULLS) FILTER (WHERE id > 1) FROM orders", "FILTER (WHERE AND(IS NOT NULL(item), >(id, 1)))"),
        ("SELECT /*+ MULTI_JOIN(o, y) */ o.id FROM orders o JOIN payments y ON o.id = y.order_id", "Join INNER keys=[id = order_id]"),
        ("SELECT PERCENTILE(amount, ARRAY[0.25, 0.75], id) FROM orders", "PERCENTILE(amount, ARRAY(0.25, 0.75), id)"),
    ],
)  # fmt: skip
def test_a_query_is_bound_to_what_flink_means_by_it(select: str, line: str) -> None:
    lines = shop_plan(select)
    assert any(line in found for found in lines), lines


def sets(groups: str) -> str:
    """Which of item, customer and id each set of a grouping keeps, by their first letters."""
    (line,) = [line for line in shop_plan(f"SELECT COUNT(*) FROM orders GROUP BY {groups}") if "Expand" in line]
    found = [of.split(", ") for of in line.partition("projections=[")[2].rstrip("]").split("; ")]
    kept = ("".join(name[:2] for name in names if name in ("item", "customer", "id")) for names in found)
    return " ".join(names or "-" for names in kept)


@pytest.mark.parametrize(
    ("groups", "kept"),
    [
        ("GROUPING SETS (ROLLUP (item, customer), CUBE (id), (item, id))", "itcu it - id - itid"),
        ("ROLLUP ((item, customer), id)", "itcuid itcu -"),
        ("CUBE ((item, customer), id)", "itcuid itcu id -"),
        ("GROUPING SETS (GROUPING SETS (item, ()), customer)", "it - cu"),
        ("customer, ROLLUP (item)", "cuit cu"),
    ],
)
def test_sets_may_hold_sets_and_columns_together(groups: str, kept: str) -> None:
    assert sets(groups) == kept


@pytest.mark.parametrize(
    "query", ["VALUES ROW(1, 'a'), (2, 'b')", "SELECT * FROM (VALUES ROW(1, 'a'), ROW(2, 'b')) AS t (a, b)"]
)
def test_rows_of_values_may_be_called_rows(query: str) -> None:
    node = plan_of(query)
    while not isinstance(node, Values):
        node = node.input  # type: ignore[attr-defined]
    assert len(node.rows) == 2
    assert [str(field.type) for field in node.schema.fields] == ["INT NOT NULL", "STRING NOT NULL"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("SELECT a.id, (a.k, a.v) NOT IN ((1, 2), (2, 2)) AS x FROM t1 AS a", "SELECT a.id, (a.k, a.v) NOT IN (VALUES (1, 2), (2, 2)) AS x FROM t1 AS a"),
        ("SELECT a.id, (a.k, a.s) <> (1, 'a') AS x FROM t1 AS a", "SELECT a.id, (a.k, a.s) <> (1, 'a') AS x FROM t1 AS a"),
        ("SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS n FROM t1 QUALIFY n = 2",
         "SELECT id, n FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS n FROM t1) WHERE n = 2"),
    ],
)  # fmt: skip
def test_rows_and_places_answer_as_in_sqlite(ours: str, theirs: str) -> None:
    for seed in range(20):
        tables = random_tables(random.Random(seed))
        assert planned_answer(ours, tables) == asked_answer(theirs, tables), seed


@pytest.mark.parametrize(
    ("statement", "name", "said"),
    [
        ("SELECT * FROM DEDUPLICATE_KEEP_FIRST(input => TABLE orders PARTITION BY item)", "SQL_UNSUPPORTED", "QUALIFY ROW_NUMBER()"),
        ("SELECT * FROM VECTOR_SEARCH(TABLE orders, DESCRIPTOR(tags), ARRAY[1.5], 10)", "SQL_UNSUPPORTED", "compare vectors"),
        ("SELECT * FROM g(TABLE orders)", "SQL_UNSUPPORTED", "functions that take values stand in LATERAL"),
        ("SELECT * FROM orders FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 00:00:00'", "SQL_UNSUPPORTED", "'scan.startup.mode' = 'timestamp'"),
        ("WITH a AS (SELECT 1 AS x) INSERT INTO u SELECT x FROM a", "SQL_UNSUPPORTED", "INSERT INTO t WITH"),
        ("SELECT MAX(id IGNORE NULLS) FROM orders", "SQL_UNSUPPORTED", "FILTER (WHERE x IS NOT NULL)"),
        ("SELECT _UTF8'x'", "SQL_UNSUPPORTED", "scripts are UTF-8"),
        ("CREATE TABLE v (a VARIANT) WITH ('connector' = 'rocketmq', 'topic' = 't', 'format' = 'csv')", "SQL_UNSUPPORTED", "Set 'format' = 'json'"),
        ("CREATE TABLE v (a ARRAY<VARIANT>) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:x', 'table-name' = 't')", "SQL_UNSUPPORTED", "JSON_STRING"),
        ("CREATE TABLE v (a VARIANT) WITH ('connector' = 'rocketmq', 'topic' = 't'); SELECT a FROM v", "SQL_UNSUPPORTED", "PARSE_JSON(a)"),
        ("SELECT CAST(PARSE_JSON(item) AS DATE) FROM orders", "SQL_TYPE", "not possible"),
        ("SELECT CAST(item AS VARIANT) FROM orders", "SQL_TYPE", "not possible"),
        ("SELECT PARSE_JSON(item) < PARSE_JSON(item) FROM orders", "SQL_TYPE", "no order"),
        ("SELECT PARSE_JSON(item)[0] FROM orders", "SQL_TYPE", "from 1 on"),
        ("SELECT PARSE_JSON(item)[1.5] FROM orders", "SQL_TYPE", "a whole number"),
        ("CREATE MATERIALIZED TABLE m AS SELECT 1", "SQL_UNSUPPORTED", "CREATE TABLE ... AS"),
        ("CREATE OR ALTER MATERIALIZED TABLE m START_MODE = FROM_NOW AS SELECT 1", "SQL_UNSUPPORTED", "CREATE TABLE ... AS"),
        ("DROP MATERIALIZED TABLE m", "SQL_UNSUPPORTED", "DROP TABLE"),
        ("SELECT * FROM orders, LATERAL TABLE(VECTOR_SEARCH(TABLE orders, DESCRIPTOR(tags), tags, 3))", "SQL_UNSUPPORTED", "compare vectors"),
        ("SELECT BITMAP_CARDINALITY(BITMAP_BUILD(tags)) FROM orders", "SQL_UNSUPPORTED", "COUNT(DISTINCT x)"),
        ("SELECT BITMAP_OR_AGG(tags) FROM orders", "SQL_UNSUPPORTED", "no BITMAP type"),
        ("SELECT TO_TIMESTAMP_LTZ(1, 10) FROM orders", "SQL_TYPE", "0 to 9 digits"),
        ("SELECT * FROM FROM_CHANGELOG(TABLE orders ORDER BY ts, DESCRIPTOR(item))", "SQL_UNSUPPORTED", "Leave ORDER BY out"),
        ("CREATE CONNECTION c WITH ('type' = 'x')", "SQL_UNSUPPORTED", "${env:NAME}"),
        ("CREATE TABLE m (q STRING METADATA FROM 'queue-id' VIRTUAL) WITH ('connector' = 'rocketmq', 'topic' = 't')", "SQL_TYPE", "computed column"),
        ("CREATE FUNCTION f AS 'a.b' LANGUAGE PYTHON USING ARTIFACT 'x.zip'", "SQL_UNSUPPORTED", "PYTHONPATH"),
        ("CREATE FUNCTION f AS 'a.B' LANGUAGE JAVA USING ARTIFACT 'x.jar'", "SQL_UNSUPPORTED", "LANGUAGE PYTHON"),
        ("SET 'table.sql-dialect' = 'hive'", "SQL_OPTION", "It is default"),
        ("ALTER CATALOG default_catalog SET ('type' = 'hive')", "SQL_UNSUPPORTED", "Use 'generic_in_memory'"),
        ("ALTER CATALOG nothing COMMENT 'x'", "SQL_UNKNOWN_NAME", "default_catalog"),
        ("ALTER FUNCTION f AS 'millstream.streams.functions.java_twins.count_char' LANGUAGE PYTHON", "SQL_UNKNOWN_NAME", 'no function "f"'),
    ],
)  # fmt: skip
def test_what_has_another_way_here_is_refused_with_it(statement: str, name: str, said: str) -> None:
    error = shop_error(statement)
    assert error.name == name
    assert said in f"{error.message} {error.remedy}"


def told(script: str) -> TextResult:
    result = SqlSession().compile(SHOP + script)[-1]
    assert isinstance(result, TextResult)
    return result


def test_options_and_comments_of_a_catalog_change() -> None:
    made = "CREATE CATALOG lab COMMENT 'first' WITH ('default-database' = 'one');"
    shown = "DESCRIBE CATALOG EXTENDED lab"
    assert told(f"{made} ALTER CATALOG lab SET ('default-database' = 'two'); {shown}").rows[2:] == (
        ("comment", "first"),
        ("option:default-database", "two"),
    )
    assert told(f"{made} ALTER CATALOG lab RESET ('default-database'); {shown}").rows[3] == (
        "option:default-database",
        "default",
    )
    assert told(f"{made} ALTER CATALOG lab COMMENT 'second'; {shown}").rows[2:] == (
        ("comment", "second"),
        ("option:default-database", "one"),
    )
    assert told("ALTER DATABASE default_database SET ('k' = 'v')").title.startswith("Nothing is done")


def test_a_function_that_is_there_changes() -> None:
    path = "millstream.streams.functions.java_twins.count_char"
    made = f"CREATE FUNCTION tally AS '{path}' LANGUAGE PYTHON;"
    change = f"ALTER FUNCTION tally AS '{path}' LANGUAGE PYTHON WITH ('deterministic' = 'false')"
    assert told(f"{made} {change}").title == "Function tally is changed."
    assert ("deterministic", "false") in told(f"{made} {change}; DESC FUNCTION EXTENDED tally").rows
    assert told(f"ALTER FUNCTION IF EXISTS tally AS '{path}'").title == "There is no function tally."


def test_advice_and_the_dialect_are_taken_and_say_that_there_is_no_choice() -> None:
    assert told("EXPLAIN PLAN_ADVICE, CHANGELOG_MODE SELECT id FROM orders").rows[-1] == ("There is no advice.",)
    (said,) = compiled("SET 'table.sql-dialect' = 'default'")
    assert isinstance(said, TextResult)
    assert "It does nothing: Flink's own dialect is the only one." in said.title
