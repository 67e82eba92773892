"""TO_CHANGELOG and FROM_CHANGELOG: changes as rows, and rows as changes."""

from __future__ import annotations

import pytest
from shop import shop_error

from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.catalog.listing import TextResult
from millstream.streams.sql.session.compiler import SqlSession

EVENTS = """CREATE TABLE events (code STRING, id INT, name STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'rocketmq', 'topic' = 'e');
CREATE VIEW counts AS SELECT name, COUNT(*) AS n FROM events GROUP BY name;"""
UPSERTS = "MAP['c, r', 'INSERT', 'u', 'UPDATE_AFTER', 'd', 'DELETE']"


def bound(call: str, items: str = "*") -> QueryPlan:
    plan = SqlSession().compile(f"{EVENTS} SELECT {items} FROM {call}")[-1]
    assert isinstance(plan, QueryPlan)
    return plan


def explained(call: str, items: str = "*") -> str:
    told = SqlSession().compile(f"{EVENTS} EXPLAIN SELECT {items} FROM {call}")[-1]
    assert isinstance(told, TextResult)
    return "\n".join(str(row[0]) for row in told.rows)


@pytest.mark.parametrize(
    ("call", "columns"),
    [
        ("TO_CHANGELOG(input => TABLE counts)", ("op", "name", "n")),
        ("TABLE(TO_CHANGELOG(TABLE counts, DESCRIPTOR(kind)))", ("kind", "name", "n")),
        ("TO_CHANGELOG(input => TABLE counts PARTITION BY n, op => DESCRIPTOR(kind))", ("n", "kind", "name")),
        ("TO_CHANGELOG(input => (SELECT 1 AS a), produces_full_deletes => FALSE, uid => 'x') AS c", ("op", "a")),
        ("FROM_CHANGELOG(input => TABLE events, op => DESCRIPTOR(code))", ("id", "name", "ts")),
        (f"FROM_CHANGELOG(TABLE events PARTITION BY name, DESCRIPTOR(code), {UPSERTS})", ("name", "id", "ts")),
    ],
)  # fmt: skip
def test_the_column_of_codes_is_added_or_taken_away_and_keys_come_first(call: str, columns: tuple[str, ...]) -> None:
    assert bound(call).query.schema.names == columns


def test_the_rows_of_the_one_are_new_and_those_of_the_other_change() -> None:
    assert changelog_of(bound("TO_CHANGELOG(TABLE counts)").query) is ChangelogMode.APPEND
    assert changelog_of(bound("FROM_CHANGELOG(TABLE events, DESCRIPTOR(code))").query) is ChangelogMode.RETRACT


def test_event_time_ends_there() -> None:
    for call in ("TO_CHANGELOG(TABLE events)", "FROM_CHANGELOG(TABLE events, DESCRIPTOR(code))"):
        assert not any(field.is_time_attribute for field in bound(call).query.schema.fields)


def test_kinds_have_their_names_or_the_codes_of_the_map() -> None:
    assert "op=[+I INSERT, -U UPDATE_BEFORE, +U UPDATE_AFTER, -D DELETE]" in explained("TO_CHANGELOG(TABLE counts)")
    some = "TO_CHANGELOG(input => TABLE counts, op_mapping => MAP['INSERT, UPDATE_AFTER', 'x', 'DELETE', 'gone'])"
    assert "ToChangelog op=[+I x, +U x, -D gone]" in explained(some)
    assert "[+I c, +I r, -D d]" in explained(
        "FROM_CHANGELOG(TABLE events, DESCRIPTOR(code), MAP['c, r', 'INSERT', 'd', 'DELETE'])"
    )


@pytest.mark.parametrize(
    ("argument", "others"),
    [("", "fail"), (", error_handling => 'FAIL'", "fail"), (", invalid_op_handling => 'SKIP'", "skip")],
)
def test_a_row_with_another_code_fails_the_job_unless_it_is_to_be_skipped(argument: str, others: str) -> None:
    assert f"others=[{others}]" in explained(f"FROM_CHANGELOG(input => TABLE events, op => DESCRIPTOR(code){argument})")


def test_a_change_is_told_also_where_nobody_reads_the_column_that_changed() -> None:
    assert "COUNT(*)" in explained("TO_CHANGELOG(TABLE counts)", "op")


def test_updates_alone_replace_the_last_row_of_their_key() -> None:
    upserts = f"FROM_CHANGELOG(input => TABLE events PARTITION BY id, op => DESCRIPTOR(code), op_mapping => {UPSERTS})"
    assert "Normalize keys=[id]" in explained(upserts)
    both = UPSERTS.replace("'u'", "'b', 'UPDATE_BEFORE', 'u'")
    assert "Normalize" not in explained(upserts.replace(UPSERTS, both))


@pytest.mark.parametrize(
    ("call", "name", "said"),
    [
        ("TO_CHANGELOG()", "SQL_SYNTAX", "a table's name"),
        ("TO_CHANGELOG(op => DESCRIPTOR(x))", "SQL_SYNTAX", "needs a table"),
        ("TO_CHANGELOG(TABLE orders, DESCRIPTOR(x, y))", "SQL_SYNTAX", "one column"),
        ("TO_CHANGELOG(TABLE orders, input => TABLE orders)", "SQL_SYNTAX", "each argument once"),
        ("TO_CHANGELOG(TABLE orders, DESCRIPTOR(x), MAP['INSERT', 'a'], MAP['INSERT', 'a'])", "SQL_SYNTAX", "without names"),
        ("TO_CHANGELOG(TABLE orders, colour => 'x')", "SQL_SYNTAX", "op_mapping"),
        ("TO_CHANGELOG(TABLE orders, DESCRIPTOR(item))", "SQL_TYPE", 'has a column "item" already'),
        ("TO_CHANGELOG(TABLE orders PARTITION BY itm)", "SQL_UNKNOWN_COLUMN", 'Did you mean "item"?'),
        ("TO_CHANGELOG(input => TABLE orders, op_mapping => MAP['INSRT', 'x'])", "SQL_TYPE", 'Did you mean "INSERT"?'),
        ("TO_CHANGELOG(input => TABLE orders, op_mapping => MAP['INSERT', 'x', 'INSERT', 'y'])", "SQL_TYPE", "two codes"),
        ("FROM_CHANGELOG(TABLE orders)", "SQL_UNKNOWN_COLUMN", '"op"'),
        ("FROM_CHANGELOG(TABLE orders, DESCRIPTOR(id))", "SQL_TYPE", "CAST(... AS STRING)"),
        ("FROM_CHANGELOG(TABLE orders PARTITION BY item, DESCRIPTOR(item))", "SQL_TYPE", "a key as well"),
        ("FROM_CHANGELOG(TABLE orders, DESCRIPTOR(item), MAP['u', 'UPDATE_AFTER'])", "SQL_TYPE", "PARTITION BY key"),
        ("FROM_CHANGELOG(TABLE orders, DESCRIPTOR(item), MAP['a', 'INSERT', 'b', 'INSERT'])", "SQL_TYPE", "stands twice"),
        ("FROM_CHANGELOG(TABLE orders, DESCRIPTOR(item), MAP['a', 'INSERT', 'a', 'DELETE'])", "SQL_TYPE", "'a' stands twice"),
        ("FROM_CHANGELOG((SELECT DISTINCT item FROM orders), DESCRIPTOR(item))", "SQL_UNSUPPORTED", "change already"),
        ("FROM_CHANGELOG(input => TABLE orders, error_handling => 'IGNORE')", "SQL_UNSUPPORTED", "It is 'FAIL'"),
        ("FROM_CHANGELOG(input => TABLE orders, invalid_op_handling => 'LOG')", "SQL_UNSUPPORTED", "or 'SKIP'"),
    ],
)  # fmt: skip
def test_calls_that_cannot_be_are_refused_with_what_helps(call: str, name: str, said: str) -> None:
    error = shop_error(f"SELECT * FROM {call}")
    assert (error.name, said in f"{error.message} {error.remedy}") == (name, True), error
