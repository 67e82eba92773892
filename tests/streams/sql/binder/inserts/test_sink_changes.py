"""A table that only takes new rows is not written by a query whose rows change, unless EMIT asks for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shop import SHOP, plan_of, shop_error

from millstream.streams.errors import SqlError
from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.nodes import JobPlan, Node, Project, Scan
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.windows import Emit
from millstream.streams.sql.binder.inserts import check_changes
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.syntax.script import Script, Span

SINK = "CREATE TABLE out_ (item STRING, n BIGINT) WITH ({0});\n"
TOPIC = SINK.format("'connector' = 'rocketmq', 'topic' = 'out'")
COUNTED = "SELECT item, COUNT(*) FROM orders GROUP BY item"


def sink(connector: str, key: tuple[str, ...] = (), **options: str) -> Table:
    """A table as a statement would declare it."""
    columns = tuple(PhysicalColumn(of.name, of.type) for of in plan_of(COUNTED).schema.fields)
    return Table(
        "out_", columns, {"connector": connector, **options}, primary_key=key, upserts=connector == "upsert-rocketmq"
    )


def checked(table: Table, node: Node) -> SqlError | None:
    try:
        check_changes(table, node, Span(0, 1), Script("INSERT"))
    except SqlError as error:
        return error
    return None


def test_the_first_rows_by_event_time_go_into_a_table_of_new_rows() -> None:
    first = "SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY ts) AS rn FROM orders"
    plan = SqlSession().compile(f"{SHOP}{TOPIC}INSERT INTO out_ SELECT item, id FROM ({first}) WHERE rn = 1")[-1]
    assert isinstance(plan, JobPlan)
    assert changelog_of(plan.sinks[0].input) is ChangelogMode.APPEND


@pytest.mark.parametrize(
    ("select", "cause", "way"),
    [
        (COUNTED, "GROUP BY item without a window", "group by a window"),
        ("SELECT 'all', COUNT(*) FROM orders", "an aggregate of all rows", "upsert-rocketmq"),
        ("SELECT DISTINCT item, id FROM orders", "DISTINCT rows", "upsert-rocketmq"),
        ("SELECT o.item, y.id FROM orders o LEFT JOIN payments y ON o.id = y.order_id", "LEFT JOIN", "bound the times"),
        (
            "SELECT item, id FROM (SELECT *, RANK() OVER (PARTITION BY item ORDER BY price) AS r FROM orders) WHERE r < 3",
            "RANK() with a filter",
            "debezium-json",
        ),
        ("SELECT item, id FROM orders EXCEPT SELECT method, id FROM payments", "EXCEPT", "upsert-rocketmq"),
        ("SELECT item, id FROM orders ORDER BY id LIMIT 3", "ORDER BY with LIMIT", "upsert-rocketmq"),
    ],
)
def test_the_node_whose_rows_change_is_named_with_the_ways_out(select: str, cause: str, way: str) -> None:
    error = shop_error(f"{TOPIC}INSERT INTO out_ {select}")
    assert error.name == "SQL_UNSUPPORTED"
    assert f"({cause})" in error.message
    assert way in str(error.remedy)
    assert error.position is not None
    assert error.position.line == SHOP.count("\n") + 2


def test_final_rows_are_written_anywhere() -> None:
    windowed = "SELECT item, COUNT(*) FROM orders GROUP BY item, TUMBLE(ts, INTERVAL '1' HOUR)"
    plan = SqlSession().compile(f"{SHOP}{TOPIC}INSERT INTO out_ {windowed}")[-1]
    assert isinstance(plan, JobPlan)
    assert changelog_of(plan.sinks[0].input) is ChangelogMode.APPEND


def test_plain_values_become_text_on_their_way_into_a_column_of_text() -> None:
    script = f"{SHOP}CREATE TABLE texts (a STRING, b STRING, c STRING) WITH ('connector' = 'print');"
    plan = SqlSession().compile(f"{script} INSERT INTO texts SELECT id, ts, amount > 1 FROM orders")[-1]
    assert isinstance(plan, JobPlan)
    assert [str(field.type) for field in plan.sinks[0].input.schema.fields] == ["STRING"] * 3
    assert (
        shop_error(f"{script.removeprefix(SHOP)} INSERT INTO texts SELECT item, item, tags FROM orders").name
        == "SQL_TYPE"
    )


@pytest.mark.parametrize(
    "table",
    [
        sink("print"),
        sink("blackhole"),
        sink("upsert-rocketmq", ("item",)),
        sink("jdbc", ("item",)),
        sink("rocketmq", format="changelog-json"),
    ],
)
def test_tables_that_take_changes_are_written(table: Table) -> None:
    assert checked(table, plan_of(COUNTED)) is None


@pytest.mark.parametrize("table", [sink("rocketmq"), sink("filesystem"), sink("jdbc")])
def test_tables_that_take_only_new_rows_are_not(table: Table) -> None:
    assert checked(table, plan_of(COUNTED)) is not None


def test_emit_asks_for_rows_that_come_again() -> None:
    node = plan_of("SELECT item, COUNT(*) AS n FROM orders GROUP BY item, TUMBLE(ts, INTERVAL '1' HOUR)")
    assert isinstance(node, Project)
    assert isinstance(node.input, WindowAggregate)
    early = replace(node, input=replace(node.input, emit=Emit(early_ms=5000)))
    assert changelog_of(early) is ChangelogMode.RETRACT
    assert checked(sink("rocketmq"), early) is None


def test_a_table_of_changes_is_named_as_the_cause() -> None:
    table = Table(
        "people",
        (PhysicalColumn("item", plan_of(COUNTED).schema.fields[0].type),),
        {"connector": "rocketmq", "format": "debezium-json"},
    )
    error = checked(sink("rocketmq"), Scan(table, ("item",)))
    assert error is not None
    assert "people is a table of changes" in error.message


def test_documents_of_a_search_engine_change_by_their_primary_key() -> None:
    counted = plan_of(COUNTED)
    assert checked(sink("elasticsearch", ("item",)), counted) is None
    error = checked(sink("elasticsearch"), counted)
    assert error is not None
    assert str(error.remedy).startswith("Declare a PRIMARY KEY for the table")
    assert checked(sink("http"), counted) is not None


@pytest.mark.parametrize("window", ["TUMBLE", "SESSION"])
def test_windows_over_rows_that_change_are_final_and_go_into_any_table(window: str) -> None:
    script = f"""
    CREATE TABLE changed (item STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH
      ('connector' = 'rocketmq', 'topic' = 'changed', 'format' = 'debezium-json');
    {TOPIC}
    INSERT INTO out_ SELECT item, COUNT(*) FROM TABLE({window}(TABLE changed, DESCRIPTOR(ts), INTERVAL '5' SECOND))
    GROUP BY window_start, window_end, item;
    """
    plan = SqlSession().compile(script)[-1]
    assert isinstance(plan, JobPlan)
    assert changelog_of(plan.sinks[0].input) is ChangelogMode.APPEND
