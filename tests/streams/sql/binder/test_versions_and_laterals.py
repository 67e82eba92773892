"""Rows that are made or found for each row: UNNEST, table functions, lookups and versions; hints; fields of rows."""

from __future__ import annotations

import pytest
from shop import plan_of, shop_error, shop_plan

from millstream.streams.plan.joins import LookupJoin, TemporalJoin
from millstream.streams.plan.nodes import Node, Scan, inputs_of

OWN = "[append, own operator]"
STOCK = """CREATE TABLE stock (item STRING, shelf INT, tag STRING) WITH ('connector' = 'filesystem', 'path' = '/stock');
"""


def nodes(select: str) -> list[Node]:
    """All nodes of a plan, from the top."""
    found: list[Node] = [plan_of(select)]
    for node in found:
        found += inputs_of(node)
    return found


def test_unnest_makes_a_row_of_each_element() -> None:
    assert shop_plan("SELECT id, tag FROM orders CROSS JOIN UNNEST(tags) AS t (tag) WHERE amount > 1 AND tag <> 'x'") == [
        "Project [id, tag]",
        "  Filter <>(tag, 'x')",
        "    Correlate INNER UNNEST(tags) AS [tag STRING]",
        "      Filter >(amount, 1)",
        "        Scan orders (rocketmq)",
    ]  # fmt: skip
    assert shop_plan("SELECT t.KEY, t.VALUE FROM orders, UNNEST(extra) AS t")[1] == (
        "  Correlate INNER UNNEST(extra) AS [KEY STRING, VALUE INT]"
    )
    numbered = shop_plan("SELECT a, n FROM orders LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t (a, n) ON TRUE")
    assert numbered[1] == "  Correlate LEFT UNNEST_WITH_ORDINALITY(tags) AS [a STRING, n INT]"


def test_a_table_function_is_called_for_each_row_of_the_left_side() -> None:
    lines = shop_plan("SELECT o.id, w FROM orders AS o, LATERAL TABLE(SPLIT(o.item, ' ')) AS t (w)")
    assert lines[1] == "  Correlate INNER SPLIT(item, ' ') AS [w STRING]"


def test_a_join_as_of_processing_time_looks_rows_up() -> None:
    select = (
        "SELECT /*+ LOOKUP('table'='s', 'retry-predicate'='lookup_miss') */ o.id, s.shelf FROM orders AS o"
        " LEFT JOIN stock FOR SYSTEM_TIME AS OF o.p AS s ON o.item = s.item AND s.tag <> 'old' WHERE o.amount > 1"
    )
    assert shop_plan(STOCK + select) == [
        "Project [id, shelf]",
        "  LookupJoin LEFT stock (filesystem) keys=[item = item]",
        "    Filter >(amount, 1)",
        "      Scan orders (rocketmq)",
    ]
    join = next(node for node in nodes(STOCK + select) if isinstance(node, LookupJoin))
    assert join.hints == (("retry-predicate", "lookup_miss"),)
    assert join.columns == (("shelf", "shelf"), ("tag", "tag"))
    assert str(join.condition) == "<>(tag, 'old')"


def test_the_clock_itself_may_be_the_time_of_a_lookup() -> None:
    select = "SELECT o.id, s.shelf FROM orders AS o JOIN stock FOR SYSTEM_TIME AS OF {0} AS s ON o.item = s.item"
    assert shop_plan(STOCK + select.format("PROCTIME()")) == shop_plan(STOCK + select.format("o.p"))


def test_a_join_as_of_event_time_finds_versions() -> None:
    select = "SELECT o.id, o.price * r.rate AS cost FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.item = r.item"
    assert shop_plan(select)[1] == f"  TemporalJoin INNER keys=[item = item0] versions=[valid as of ts] {OWN}"


def test_the_last_rows_of_a_view_are_versions_as_well() -> None:
    view = (
        "CREATE VIEW latest AS SELECT method, id, paid FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY method"
        " ORDER BY paid DESC) AS rn FROM payments) WHERE rn = 1;"
    )
    select = "SELECT o.id FROM orders o LEFT JOIN latest FOR SYSTEM_TIME AS OF o.ts AS l ON o.item = l.method"
    join = next(node for node in nodes(view + select) if isinstance(node, TemporalJoin))
    assert (join.keys, join.left_time, join.right_time) == ((("item", "method"),), "ts", "paid")


def test_options_of_a_hint_stand_in_place_of_the_tables() -> None:
    found = nodes("SELECT id FROM orders /*+ OPTIONS('scan.startup.mode'='latest-offset') */ AS o")
    scan = next(node for node in found if isinstance(node, Scan))
    assert scan.table.options["scan.startup.mode"] == "latest-offset"
    assert scan.table.options["topic"] == "orders"


def test_state_may_be_kept_for_a_time_by_a_hint() -> None:
    lines = shop_plan(
        "SELECT /*+ STATE_TTL('o'='1d', 'y'='30 s'), BROADCAST(y) */ o.id FROM orders o JOIN payments y ON o.id = y.order_id"
    )
    assert lines[1] == f"  Join INNER keys=[id = order_id] ttl=[86400000 ms, 30000 ms] {OWN}"
    grouped = shop_plan("SELECT /*+ STATE_TTL('orders'='2h') */ COUNT(*) FROM orders")
    assert grouped[1].endswith("ttl=7200000 ms [retract, own operator]")


def test_fields_of_rows_are_reached_by_points_and_stars() -> None:
    node = plan_of("SELECT o.place.city, place.zip AS z, o.place.* FROM orders AS o WHERE o.`place`.`zip` > 1")
    assert [f"{field.name} {field.type}" for field in node.schema.fields] == [
        "city STRING",
        "z INT",
        "city0 STRING",
        "zip INT",
    ]


def test_a_table_function_may_stand_alone_in_from() -> None:
    lines = shop_plan("SELECT v, at FROM UNNEST(ARRAY[1, 2]) WITH ORDINALITY AS t (v, at) WHERE v > 1")
    assert lines[0] == "Project [v, at]"
    assert lines[1].strip() == "Filter >(v, 1)"
    assert lines[2].strip().startswith("Correlate INNER UNNEST_WITH_ORDINALITY(ARRAY(1, 2))")


def test_words_that_are_reserved_elsewhere_are_columns_where_nothing_else_can_be() -> None:
    table = (
        "CREATE TABLE words (`time` STRING, `value` INT, `timestamp` STRING, `user` STRING, `order` INT, `interval` INT)"
        " WITH ('connector' = 'rocketmq', 'topic' = 'w');"
    )
    node = plan_of(f"{table} SELECT time, value, timestamp, user, w.order, interval FROM words AS w WHERE value > 1")
    assert node.schema.names == ("time", "value", "timestamp", "user", "order", "interval")


def test_reserved_words_are_names_where_what_follows_shows_it() -> None:
    table = (
        "CREATE TABLE words (`offset` INT, `order` INT, `end` STRING, `group` STRING, `window` INT, `set` INT, `left` INT)"
        " WITH ('connector' = 'rocketmq', 'topic' = 'w');"
    )
    node = plan_of(
        f"{table} SELECT offset, order + 1 AS order, CASE WHEN window > 0 THEN end ELSE 'x' END AS end, left AS window FROM words"
        " WHERE set = 1 AND group IS NOT NULL ORDER BY offset, left DESC LIMIT 3 OFFSET 1"
    )
    assert node.schema.names == ("offset", "order", "end", "window")


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("ts + INTERVAL '90' MINUTE(3)", "+(ts, 1:30:00)"),
        ("ts + INTERVAL '1 10:00' DAY(2) TO MINUTE", "+(ts, 1 day, 10:00:00)"),
        ("ts + INTERVAL '1 10' DAY TO HOUR", "+(ts, 1 day, 10:00:00)"),
        ("ts + INTERVAL '2.5' SECOND(2, 3)", "+(ts, 0:00:02.500000)"),
        ("ts + INTERVAL '1-3' YEAR TO MONTH", "+(ts, 15)"),
        ("U&'\\00e4\\\\b\\+01F600'", "'ä\\b😀'"),
    ],
)
def test_literals_of_all_forms_are_read(expression: str, shown: str) -> None:
    assert shop_plan(f"SELECT {expression} AS x FROM orders")[0] == f"Project [{shown} AS x]"


@pytest.mark.parametrize(
    ("select", "name", "said"),
    [
        ("SELECT * FROM orders, LATERAL TABLE(UPPER(item)) AS t (a)", "SQL_TYPE", "no table function"),
        ("SELECT * FROM orders, UNNEST(item) AS t (a)", "SQL_TYPE", "ARRAY or a MAP"),
        ("SELECT * FROM orders, UNNEST(tags) AS t (a, b)", "SQL_SYNTAX", "names 2 columns"),
        ("SELECT * FROM orders RIGHT JOIN UNNEST(tags) AS t (a) ON TRUE", "SQL_UNSUPPORTED", "RIGHT JOIN"),
        ("SELECT * FROM orders LEFT JOIN UNNEST(tags) AS t (a) ON a = 'x'", "SQL_UNSUPPORTED", "ON TRUE"),
        ("SELECT * FROM UNNEST(a) AS t (b)", "SQL_UNKNOWN_COLUMN", '"a"'),
        ("SELECT * FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.p AS r ON o.item = r.item", "SQL_UNSUPPORTED", "cannot be looked up"),
        ("SELECT * FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.price AS r ON o.item = r.item", "SQL_TIME_ATTRIBUTE", "ts, p"),
        ("SELECT * FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.price = r.rate", "SQL_UNSUPPORTED", "whole primary key: item"),
        ("SELECT * FROM orders o JOIN payments FOR SYSTEM_TIME AS OF o.ts AS y ON o.id = y.id", "SQL_UNSUPPORTED", "no primary key"),
        ("SELECT * FROM rates FOR SYSTEM_TIME AS OF ts", "SQL_UNSUPPORTED", "behind JOIN"),
        ("SELECT * FROM orders /*+ OPTIONS('topik'='x') */", "SQL_OPTION", "topik"),
        ("SELECT * FROM orders /*+ FASTER('x') */", "SQL_UNSUPPORTED", "FASTER"),
        ("SELECT /*+ OPTIONS('a'='b') */ * FROM orders", "SQL_UNSUPPORTED", "does not stand here"),
        ("SELECT /*+ STATE_TTL('x'='1d') */ id FROM orders", "SQL_UNKNOWN_TABLE", '"x"'),
        ("SELECT /*+ STATE_TTL('orders'='soon') */ COUNT(*) FROM orders", "SQL_OPTION", "duration"),
        ("SELECT /*+ STATE_TTL('orders'='1d') id FROM orders", "SQL_UNSUPPORTED", "hint id"),
        ("SELECT item.* FROM orders", "SQL_TYPE", "no fields"),
        ("SELECT place.street FROM orders", "SQL_UNKNOWN_COLUMN", '"street"'),
    ],
)  # fmt: skip
def test_what_cannot_be_found_or_made_is_refused(select: str, name: str, said: str) -> None:
    error = shop_error(select)
    assert error.name == name
    assert said in f"{error.message} {error.remedy}"
