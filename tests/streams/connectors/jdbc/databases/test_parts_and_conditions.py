"""What is asked of a database where a table is read: ranges that miss no row, conditions that lose none."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.streams.connectors.jdbc.databases.conditions import sql_of_conditions
from millstream.streams.connectors.jdbc.databases.database import open_database
from millstream.streams.connectors.jdbc.databases.driver import StoredColumn
from millstream.streams.connectors.jdbc.databases.values import holds
from millstream.streams.connectors.jdbc.databases.written_table import TableParts
from millstream.streams.optimizer.scan_predicates import scan_predicates
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.nodes import JobPlan, scans_of
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING, DataType, TypeKind
from millstream.streams.sql.session.compiler import SqlSession

SQLITE = open_database({"url": "jdbc:sqlite:/none.db"})
TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)


@given(st.integers(1, 9), st.integers(-20, 20), st.integers(0, 30))
@settings(deadline=None)
def test_ranges_touch_and_are_nearly_equal(count: int, lower: int, width: int) -> None:
    parts = TableParts.of("x", count, lower, lower + width)
    bounds = [parts.condition(SQLITE, number)[1] for number in range(parts.count)]
    if parts.count == 1:
        assert bounds == [()]
        return
    assert all(before[-1] == after[0] for before, after in itertools.pairwise(bounds))
    ends = [lower, *(values[-1] for values in bounds[:-1]), lower + width + 1]
    sizes = {end - start for start, end in itertools.pairwise(ends)}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


def test_every_row_is_in_one_part(shop: Any) -> None:
    table = shop.make("id INT, name VARCHAR(9)")
    ids = [None, -100, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1000]
    shop.connection.run_each(shop.database.insert(table, ["id", "name"]), [(one, "n") for one in ids])
    parts = TableParts.of("id", 3, 1, 9)
    found = []
    for number in range(parts.count):
        condition, values = parts.condition(shop.database, number)
        rows = shop.connection.rows(shop.database.select(table, ["id"], condition), values)
        found.append(sorted((row[0] for row in rows), key=lambda one: (one is None, one or 0)))
    assert found == [[-100, 0, 1, 2, 3, None], [4, 5, 6], [7, 8, 9, 10, 1000]]


def test_bounds_that_are_crossed_are_refused() -> None:
    with pytest.raises(ValueError, match="9 is above 1"):
        TableParts.of("id", 3, 9, 1)


def call(function: str, *arguments: Expression) -> Call:
    return Call(function, arguments, BOOLEAN)


ID, NAME, AT = Column("id", BIGINT), Column("name", STRING), Column("at", TIMESTAMP)
DAY, PRICE = Column("day", DataType(TypeKind.DATE)), Column("price", DataType(TypeKind.DECIMAL, precision=9, scale=2))
FIVE, NINE, TEXT = Literal(5, INT), Literal(9, INT), Literal("it's", STRING)
NOON = Literal(datetime.datetime(2026, 3, 1, 12), TIMESTAMP)
STORED = {
    name: StoredColumn(name, kind)
    for name, kind in (
        ("id", "bigint"),
        ("name", "varchar(20)"),
        ("at", "datetime(6)"),
        ("day", "date"),
        ("price", "decimal(9,2)"),
    )
}
MYSQL = open_database({"url": "jdbc:mysql://h/d"})


@pytest.mark.parametrize(
    ("condition", "words", "values"),
    [
        (call("=", ID, FIVE), "(`id` = %s)", (5,)),
        (call("<", FIVE, ID), "(`id` > %s)", (5,)),
        (call("<>", ID, FIVE), "(`id` <> %s)", (5,)),
        (call("IS NULL", NAME), "(`name` IS NULL)", ()),
        (call("BETWEEN", ID, FIVE, NINE), "((`id` >= %s) AND (`id` <= %s))", (5, 9)),
        (call("IN", NAME, TEXT, Literal("b", STRING)), "((`name` = %s) OR (`name` = %s))", ("it's", "b")),
        (call("IS NOT NULL", PRICE), "(`price` IS NOT NULL)", ()),
        (call(">=", AT, NOON), "(`at` >= %s)", ("2026-03-01 12:00:00",)),
        (call("=", DAY, Literal(datetime.date(2026, 3, 1), DAY.type)), "(`day` = %s)", ("2026-03-01",)),
        (call("AND", call("=", ID, FIVE), call("LIKE", NAME, TEXT)), "((`id` = %s))", (5,)),
        (call("OR", call("=", ID, FIVE), call("=", NAME, TEXT)), "((`id` = %s) OR (`name` = %s))", (5, "it's")),
    ],
)
def test_a_condition_that_loses_no_row_is_asked(condition: Expression, words: str, values: tuple[Any, ...]) -> None:
    assert sql_of_conditions(MYSQL, STORED, [condition]) == (words, values)


@pytest.mark.parametrize(
    "condition",
    [
        # A database may find texts equal that are not, and order them in its own way.
        call("<>", NAME, TEXT),
        call("<", NAME, TEXT),
        call("OR", call("=", ID, FIVE), call("LIKE", NAME, TEXT)),
        # The job cuts off fractions of a second, and of numbers.
        call("<=", AT, NOON),
        call("=", AT, NOON),
        call("=", PRICE, Literal(Decimal("1.50"), PRICE.type)),
        call("IS NULL", PRICE),
        call("=", ID, NAME),
        call("=", Column("other", BIGINT), FIVE),
        call("=", ID, Literal(None, BIGINT)),
    ],
)
def test_a_condition_that_could_lose_a_row_is_not_asked(condition: Expression) -> None:
    assert sql_of_conditions(MYSQL, STORED, [condition]) == ("", ())


def test_numbers_in_a_column_of_texts_are_not_asked_for() -> None:
    assert sql_of_conditions(MYSQL, {"id": StoredColumn("id", "varchar(20)")}, [call("=", ID, FIVE)]) == ("", ())


TABLE = "CREATE TABLE s (a INT, b STRING, at TIMESTAMP(3){more}) WITH ('connector' = 'filesystem', 'path' = '/x');"
OUT = "CREATE TABLE o (a INT) WITH ('connector' = 'blackhole');"


@pytest.mark.parametrize(
    ("inserts", "more", "wanted"),
    [
        (["INSERT INTO o SELECT a FROM s WHERE a > 5 AND b = 'x'"], "", {">(a, 5)", "=(b, 'x')"}),
        (
            ["INSERT INTO o SELECT a FROM s WHERE a > 5", "INSERT INTO o SELECT a FROM s WHERE a > 5 AND a < 9"],
            "",
            {">(a, 5)"},
        ),
        (["INSERT INTO o SELECT a FROM s WHERE a > 5", "INSERT INTO o SELECT a FROM s"], "", set()),
        (["INSERT INTO o SELECT a FROM s WHERE a > 5"], ", WATERMARK FOR at AS at", set()),
        (["INSERT INTO o SELECT n FROM (SELECT CAST(COUNT(*) AS INT) AS n FROM s) WHERE n > 5"], "", set()),
    ],
)
def test_only_what_every_reader_wants_is_pushed_to_a_table(inserts: list[str], more: str, wanted: set[str]) -> None:
    script = TABLE.replace("{more}", more) + OUT + f"EXECUTE STATEMENT SET BEGIN {'; '.join(inserts)}; END"
    if "COUNT" in script:
        script = script.replace("(a INT) WITH ('connector' = 'blackhole')", "(a INT) WITH ('connector' = 'print')")
    plan = SqlSession().compile(script)[-1]
    assert isinstance(plan, JobPlan)
    nodes = [sink.input for sink in plan.sinks]
    (table, *_) = [scan.table for node in nodes for scan in scans_of(node)]
    assert {str(one) for one in scan_predicates(table, nodes)} == wanted


@pytest.mark.parametrize(
    ("stored", "kind", "fits"),
    [
        ("bigint unsigned", TypeKind.INT, True), ("numeric(10,2)", TypeKind.BIGINT, True), ("integer", TypeKind.DOUBLE, False),
        ("character varying(20)", TypeKind.STRING, True), ("integer", TypeKind.STRING, False), ("uuid", TypeKind.STRING, True),
        ("timestamp(3) without time zone", TypeKind.TIMESTAMP, True), ("date", TypeKind.TIMESTAMP, False),
        ("tinyint(1)", TypeKind.BOOLEAN, True), ("text", TypeKind.BOOLEAN, False), ("jsonb", TypeKind.MAP, True),
        ("integer[]", TypeKind.ARRAY, False), ("bytea", TypeKind.BYTES, True), ("text", TypeKind.BYTES, False),
        ("time(3) without time zone", TypeKind.TIME, True), ("text", TypeKind.DECIMAL, True),
    ],
)  # fmt: skip
def test_types_hold_what_they_can(stored: str, kind: TypeKind, fits: bool) -> None:
    assert holds(stored, DataType(kind)) is fits
