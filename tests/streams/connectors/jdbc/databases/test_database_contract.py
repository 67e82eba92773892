"""What holds for every kind of database: rows in chunks, values both ways, names, keys, failures by their meaning."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from database_servers import DATABASE
from millstream.streams.connectors.jdbc.databases.database import open_database
from millstream.streams.connectors.jdbc.databases.failure import Cause, DatabaseFailure
from millstream.streams.connectors.jdbc.databases.values import to_column_value, to_statement_value
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING, DataType, Field, TypeKind

NOON_US = 1_772_366_400_000_000
"""2026-03-01 12:00:00."""

NOON_DAY = 20_513
TYPES = {
    "sqlite": "id INTEGER, yes INTEGER, price NUMERIC, half REAL, name TEXT, raw BLOB, day TEXT, clock TEXT, at TEXT, since TEXT, tags TEXT",
    "postgresql": "id BIGINT, yes BOOLEAN, price NUMERIC(12, 3), half DOUBLE PRECISION, name TEXT, raw BYTEA, day DATE, clock TIME, "
    "at TIMESTAMP(6), since TIMESTAMPTZ(6), tags JSONB",
    "mysql": "id BIGINT, yes BOOLEAN, price DECIMAL(12, 3), half DOUBLE, name TEXT, raw BLOB, day DATE, clock TIME(3), at DATETIME(6), "
    "since TIMESTAMP(6) NULL, tags JSON",
}
COLUMNS = ("id", "yes", "price", "half", "name", "raw", "day", "clock", "at", "since", "tags")
KINDS = (
    *(BIGINT, BOOLEAN, DataType(TypeKind.DECIMAL, precision=12, scale=3), DOUBLE, STRING, DataType(TypeKind.BYTES)),
    *(DataType(TypeKind.DATE), DataType(TypeKind.TIME), DataType(TypeKind.TIMESTAMP, precision=6)),
    *(DataType(TypeKind.TIMESTAMP_LTZ, precision=6), DataType(TypeKind.ARRAY, elements=(STRING,))),
)
PLAIN = (
    *(-5, True, Decimal("1.250"), 0.5, "ein 'Name' %s \\ ü😀", b"\x00\xff\x80"),
    *(NOON_DAY, 45_296_789, NOON_US + 7, NOON_US + 7, ["a", "b %"]),
)
FOUND = (
    *(-5, True, Decimal("1.250"), 0.5, "ein 'Name' %s \\ ü😀", "AP+A"),
    *("2026-03-01", "12:34:56.789000", "2026-03-01 12:00:00.000007", "2026-03-01 12:00:00.000007", ["a", "b %"]),
)


def same(found: Any, wanted: Any) -> bool:
    """Equal but for how a decimal number is held and an offset of zero is written."""
    if isinstance(wanted, Decimal):
        return Decimal(found) == wanted
    return bool((found.removesuffix("+00:00") if isinstance(found, str) else found) == wanted)


def test_values_of_every_type_come_back(shop: Any) -> None:
    table = shop.make(TYPES[shop.kind])
    asked = [to_statement_value(value, of) for value, of in zip(PLAIN, KINDS, strict=True)]
    insert = shop.database.insert(table, COLUMNS)
    shop.connection.run_each(insert, [asked, [None] * len(COLUMNS)])
    rows = [row for chunk in shop.database.rows_in_chunks(shop.database.select(table, COLUMNS)) for row in chunk]
    found = sorted(
        ([to_column_value(value, of) for value, of in zip(row, KINDS, strict=True)] for row in rows),
        key=lambda row: row[0] is None,
    )
    assert [name for name, one, other in zip(COLUMNS, found[0], FOUND, strict=True) if not same(one, other)] == []
    assert found[1] == [None] * len(COLUMNS)


def test_many_rows_at_once_are_what_each_of_them_is_alone(shop: Any) -> None:
    alone, together = shop.make(TYPES[shop.kind]), shop.make(TYPES[shop.kind])
    rows = [[to_statement_value(value, of) for value, of in zip(PLAIN, KINDS, strict=True)], [None] * len(COLUMNS)] * 40
    shop.connection.run_each(shop.database.insert(alone, COLUMNS), rows)
    with shop.connection.transaction():
        shop.connection.put(shop.database.put_into(together, COLUMNS), rows[:60])
        shop.connection.put(shop.database.put_into(together, COLUMNS), rows[60:])
    assert sorted(map(repr, shop.rows(together))) == sorted(map(repr, shop.rows(alone)))
    assert len(shop.rows(together)) == 80


def test_many_rows_stand_under_names_that_hold_anything(shop: Any) -> None:
    name = "it's 100% \"mine`"
    quoted = shop.database.name(name)
    table = shop.make(f"{quoted.replace('%%', '%') if shop.kind == 'sqlite' else quoted} INT PRIMARY KEY")
    with shop.connection.transaction():
        shop.connection.put(shop.database.put_into(table, [name], [name]), [(number,) for number in range(80)])
    assert shop.rows(table) == [(number,) for number in range(80)]


@pytest.mark.parametrize("shop", ["postgresql"], indirect=True)
def test_a_user_who_may_make_no_temporary_tables_writes_many_rows_all_the_same(shop: Any) -> None:
    table = shop.make("id INT PRIMARY KEY")
    shop.connection.run(f"REVOKE TEMPORARY ON DATABASE {DATABASE} FROM PUBLIC")
    shop.connection.run("CREATE ROLE clerk LOGIN PASSWORD 'x'")
    shop.connection.run(f"GRANT INSERT, SELECT ON {shop.database.table(table)} TO clerk")
    clerk = open_database({**shop.options, "username": "clerk", "password": "x"})
    with clerk.connection(writes=True) as connection, connection.transaction():
        connection.put(clerk.put_into(table, ["id"]), [(number,) for number in range(80)])
    assert len(shop.rows(table)) == 80


def test_a_map_and_a_row_are_documents() -> None:
    of = DataType(TypeKind.MAP, elements=(STRING, DataType(TypeKind.DATE)))
    assert to_statement_value([("a", NOON_DAY), ("b", None)], of) == '{"a":"2026-03-01","b":null}'
    row = DataType(TypeKind.ROW, fields=(Field("x", BIGINT), Field("price", KINDS[2])))
    assert to_statement_value({"x": 1, "price": Decimal("1.250")}, row) == '{"x":1,"price":1.250}'
    assert to_column_value('{"x":1}', row) == {"x": 1}


def test_rows_come_in_chunks_of_at_most_that_many(shop: Any) -> None:
    table = shop.make("id INT")
    shop.connection.run_each(shop.database.insert(table, ["id"]), [(number,) for number in range(25)])
    query = shop.database.select(table, ["id"], f"{shop.database.name('id')} >= {shop.database.mark}") + " ORDER BY 1"
    chunks = list(shop.database.rows_in_chunks(query, (5,), 10))
    assert [len(chunk) for chunk in chunks] == [10, 10]
    assert [row[0] for chunk in chunks for row in chunk] == list(range(5, 25))


def test_rows_that_are_not_taken_to_the_end_harm_nothing(shop: Any) -> None:
    table = shop.make("id INT")
    shop.connection.run_each(shop.database.insert(table, ["id"]), [(number,) for number in range(25)])
    chunks = shop.database.rows_in_chunks(shop.database.select(table, ["id"]), (), 10)
    assert len(next(chunks)) == 10
    chunks.close()
    assert len(shop.rows(table)) == 25


def test_names_may_hold_anything(shop: Any) -> None:
    name = "it's 100% \"mine`"
    table = shop.make(
        f"{shop.database.name(name)} INT".replace("%%", "%")
        if shop.kind == "sqlite"
        else f"{shop.database.name(name)} INT"
    )
    shop.connection.run(shop.database.insert(table, [name]), (7,))
    assert shop.connection.rows(shop.database.select(table, [name])) in ([(7,)], ((7,),))
    assert [column.name for column in shop.connection.columns_of(table)] == [name]


def test_a_table_tells_its_columns_and_keys(shop: Any) -> None:
    table = shop.make(
        "id INT NOT NULL, part INT NOT NULL, name VARCHAR(20) UNIQUE, kind INT NOT NULL DEFAULT 3, PRIMARY KEY (id, part)"
    )
    columns = {column.name: (column.nullable, column.fills) for column in shop.connection.columns_of(table)}
    assert columns == {"id": (False, False), "part": (False, False), "name": (True, True), "kind": (False, True)}
    keys = set(shop.connection.unique_keys_of(table))
    assert {frozenset({"id", "part"}), frozenset({"name"})} == keys
    assert shop.connection.columns_of("no_such_table") == ()


def test_a_row_takes_the_place_of_the_one_with_its_key(shop: Any) -> None:
    table = shop.make("id INT PRIMARY KEY, name VARCHAR(20)")
    upsert = shop.database.insert(table, ["id", "name"], ["id"])
    shop.connection.run_each(upsert, [(1, "one"), (2, "two")])
    shop.connection.run_each(upsert, [(2, "zwei"), (3, None)])
    shop.connection.run_each(shop.database.delete(table, ["id"]), [(1,), (9,)])
    assert shop.rows(table) == [(2, "zwei"), (3, None)]


def test_a_row_of_nothing_but_its_key_may_come_twice(shop: Any) -> None:
    table = shop.make("id INT PRIMARY KEY")
    upsert = shop.database.insert(table, ["id"], ["id"])
    shop.connection.run_each(upsert, [(1,), (2,)])
    shop.connection.run_each(upsert, [(2,), (3,)])
    assert shop.rows(table) == [(1,), (2,), (3,)]


def test_a_transaction_counts_whole_or_not_at_all(shop: Any) -> None:
    table = shop.make("id INT PRIMARY KEY")
    insert = shop.database.insert(table, ["id"])
    with shop.connection.transaction():
        shop.connection.run(insert, (1,))
    with pytest.raises(DatabaseFailure), shop.connection.transaction():
        shop.connection.run_each(insert, [(2,), (1,)])
    assert shop.rows(table) == [(1,)]


@pytest.mark.parametrize(
    ("statement", "cause"),
    [
        ("SELECT * FROM no_such_table", Cause.SCHEMA),
        ("SELECT no_such_column FROM {table}", Cause.SCHEMA),
        ("INSERT INTO {table} (id, name) VALUES (NULL, 'x')", Cause.ROW),
        ("INSERT INTO {table} (id, name) VALUES (1, 'x')", Cause.ROW),
        ("this is no statement", Cause.OTHER),
    ],
)
def test_failures_are_told_by_what_they_mean(statement: str, cause: Cause, shop: Any) -> None:
    table = shop.make("id INT NOT NULL PRIMARY KEY, name VARCHAR(5)")
    shop.connection.run(shop.database.insert(table, ["id", "name"]), (1, "x"))
    with pytest.raises(DatabaseFailure) as raised:
        shop.connection.run(statement.replace("{table}", shop.database.table(table)))
    assert raised.value.cause is cause


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_wrong_password_is_refused_and_never_told(kind: str, servers: Callable[[str], Any]) -> None:
    options = {**servers(kind).options, "password": "not-that-one"}
    with pytest.raises(DatabaseFailure) as raised:
        open_database(options).connect()
    assert raised.value.cause is Cause.REFUSED
    assert "keeper" in raised.value.words
    assert "not-that-one" not in raised.value.words


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_database_that_is_not_there_is_named(kind: str, servers: Callable[[str], Any]) -> None:
    options = dict(servers(kind).options)
    options["url"] = options["url"].replace("/shop", "/nowhere")
    with pytest.raises(DatabaseFailure, match="nowhere") as raised:
        open_database(options).connect()
    assert raised.value.cause is Cause.SCHEMA


@pytest.mark.parametrize("url", ["jdbc:postgresql://127.0.0.1:1/shop", "jdbc:mysql://127.0.0.1:1/shop"])
def test_a_server_that_does_not_answer_may_come_back(url: str) -> None:
    with pytest.raises(DatabaseFailure, match=r"127\.0\.0\.1") as raised:
        open_database({"url": url, "username": "u", "password": "hush"}).connect()
    assert raised.value.cause is Cause.PASSING
