"""Rows that a sink's primary key does not tell apart: one is chosen, as ON CONFLICT says, and nothing is kept else."""

from __future__ import annotations

import pytest
from shop import SHOP, shop_error

from millstream.streams.plan.nodes import JobPlan, Node, OnConflict, OnePerKey
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_sink

TABLE = """CREATE TABLE items (item STRING, customer BIGINT, n BIGINT, PRIMARY KEY (item) NOT ENFORCED)
WITH ('connector' = 'upsert-rocketmq', 'topic' = 'items');"""
BY_CUSTOMER = "INSERT INTO items SELECT MAX(item), customer, COUNT(*) FROM orders GROUP BY customer"
BY_ITEM = "INSERT INTO items SELECT item, MAX(customer), COUNT(*) FROM orders GROUP BY item"
BY_BOTH = "INSERT INTO items SELECT item, customer, COUNT(*) FROM orders GROUP BY item, customer"
BY_NOTHING = (
    "INSERT INTO items SELECT o.item, o.customer, p.id FROM orders o LEFT JOIN payments p ON o.customer = p.order_id"
)


def rows_of(insert: str, before: str = "") -> Node:
    """The rows of the sink."""
    plan = SqlSession().compile(f"{SHOP}{TABLE}{before}{insert}")[-1]
    assert isinstance(plan, JobPlan)
    return plan.sinks[0].input


@pytest.mark.parametrize("on_conflict", list(OnConflict))
def test_the_clause_says_which_row_of_a_key_counts(on_conflict: OnConflict) -> None:
    rows = rows_of(f"{BY_CUSTOMER} ON CONFLICT DO {on_conflict.value}")
    assert isinstance(rows, OnePerKey)
    assert (rows.keys, rows.on_conflict) == (("item",), on_conflict)


def test_rows_that_the_key_tells_apart_need_no_state() -> None:
    assert not isinstance(rows_of(BY_ITEM), OnePerKey)
    assert not isinstance(rows_of(f"{BY_ITEM} ON CONFLICT DO NOTHING"), OnePerKey)
    assert isinstance(rows_of(BY_ITEM, "SET 'table.exec.sink.upsert-materialize' = 'FORCE';"), OnePerKey)


@pytest.mark.parametrize("insert", [BY_BOTH, BY_NOTHING])
def test_without_the_clause_the_last_row_counts_where_several_may_fall_on_a_key(insert: str) -> None:
    rows = rows_of(insert)
    assert isinstance(rows, OnePerKey)
    assert rows.on_conflict is OnConflict.LAST
    assert not isinstance(rows_of(insert, "SET 'table.exec.sink.upsert-materialize' = 'NONE';"), OnePerKey)
    assert not isinstance(rows_of(insert, "SET 'execution.runtime-mode' = 'batch';"), OnePerKey)


def test_a_batch_job_heeds_the_clause() -> None:
    batch = "SET 'execution.runtime-mode' = 'batch';"
    assert isinstance(rows_of(f"{BY_CUSTOMER} ON CONFLICT DO ERROR", batch), OnePerKey)


@pytest.mark.parametrize(
    ("statement", "message", "remedy"),
    [
        (BY_CUSTOMER, "(customer does)", "ON CONFLICT DO DEDUPLICATE"),
        ("INSERT INTO items SELECT item, customer, 1 FROM orders ON CONFLICT DO NOTHING", "never change", "QUALIFY"),
        (
            "CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print'); "
            "INSERT INTO shown SELECT COUNT(*) FROM orders GROUP BY item ON CONFLICT DO NOTHING",
            "updated by a PRIMARY KEY",
            "Leave it out",
        ),
    ],
)
def test_what_no_clause_can_mend_or_needs_one_is_refused(statement: str, message: str, remedy: str) -> None:
    error = shop_error(f"{TABLE} {statement}")
    assert error.name == "SQL_UNSUPPORTED"
    assert message in error.message
    assert remedy in str(error.remedy)


def test_a_clause_of_other_words_is_told_what_there_is() -> None:
    error = shop_error(f"{TABLE} {BY_CUSTOMER} ON CONFLICT DO UPDATE")
    assert error.name == "SQL_SYNTAX"
    assert "NOTHING, ERROR or DEDUPLICATE" in error.message


def test_explain_tells_of_the_rows_that_are_kept() -> None:
    plan = SqlSession().compile(f"{SHOP}{TABLE}{BY_BOTH}")[-1]
    assert isinstance(plan, JobPlan)
    text = "\n".join(explain_sink(plan.sinks[0]))
    assert "OnePerKey keys=[item] on_conflict=[DEDUPLICATE]" in text
    assert "all rows of each key of the table" in text
