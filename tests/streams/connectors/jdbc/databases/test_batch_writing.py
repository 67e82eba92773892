"""A micro-batch in a table: once over any crash, netted by key, with what the database refuses set aside."""

from __future__ import annotations

import multiprocessing
import signal
import uuid
from collections.abc import Sequence
from typing import Any

import killed_writer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.streams.connectors.jdbc.databases.batch_writer import (
    BatchNotes,
    BatchShare,
    BatchWriter,
    RefusedRow,
    key_changes,
    share_of,
)
from millstream.streams.connectors.jdbc.databases.database import DatabaseConnection, open_database
from millstream.streams.connectors.jdbc.databases.failure import Cause, DatabaseFailure, DatabaseRetry
from millstream.streams.connectors.jdbc.databases.written_table import WrittenTable
from millstream.streams.errors import JobError
from millstream.streams.operators.operator import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from millstream.streams.plan.types import BIGINT, STRING, DataType, Field, TypeKind

FIELDS = (Field("id", BIGINT), Field("name", STRING))
ROWS = [(INSERT, (number, f"n{number}")) for number in range(5)]
CHANGES = [
    (INSERT, (5, "five")),
    (UPDATE_BEFORE, (1, "one")),
    (UPDATE_AFTER, (1, "uno")),
    (DELETE, (2, "two")),
    (INSERT, (6, "six")),
    (DELETE, (6, "six")),
]
"""Over a table of (1, one), (2, two), (3, three)."""


def no_wait(_: float) -> None:
    """In the place of a sleep."""


def written(shop: Any, name: str, keys: Sequence[str] = (), fields: Sequence[Field] = FIELDS) -> WrittenTable:
    return WrittenTable("sink", name, tuple(fields), tuple(keys))


def writer_of(shop: Any, table: WrittenTable, *, notes: bool = True, **more: Any) -> BatchWriter:
    kept = BatchNotes.open(shop.connection) if notes else None
    assert (kept is not None) is notes
    return BatchWriter(shop.database, table, kept, DatabaseRetry(3, 60, sleep=no_wait), **{"chunk_rows": 2, **more})


def new_job() -> str:
    return uuid.uuid4().hex[:12]


def test_a_batch_that_is_repeated_is_there_once(shop: Any) -> None:
    name = shop.make("id INT, name VARCHAR(20)")
    writer, job = writer_of(shop, written(shop, name)), new_job()
    for batch_id in (0, 0, 1, 1):
        writer.write(BatchShare(job, 0, batch_id), lambda: ROWS, len(ROWS))
    writer.write(BatchShare(job, 1, 1), lambda: ROWS[:1], 1)
    writer.close()
    wanted = sorted([row for _, row in ROWS] * 2 + [ROWS[0][1]])
    assert sorted(shop.rows(name)) == wanted


def test_without_notes_a_batch_that_is_repeated_is_there_again(shop: Any) -> None:
    name = shop.make("id INT, name VARCHAR(20)")
    writer, job = writer_of(shop, written(shop, name), notes=False), new_job()
    for _ in range(2):
        writer.write(BatchShare(job, 0, 0), lambda: ROWS[:1], 1)
    writer.close()
    assert shop.rows(name) == [(0, "n0"), (0, "n0")]


def keyed(shop: Any) -> str:
    name: str = shop.make("id INT NOT NULL PRIMARY KEY, name VARCHAR(20)")
    shop.connection.run_each(shop.database.insert(name, ["id", "name"]), [(1, "one"), (2, "two"), (3, "three")])
    return name


@pytest.mark.parametrize("notes", [True, False])
def test_changes_reach_a_table_with_a_key(notes: bool, shop: Any) -> None:
    name = keyed(shop)
    writer, job = writer_of(shop, written(shop, name, ["id"]), notes=notes), new_job()
    for _ in range(2):
        writer.write(BatchShare(job, 0, 7), lambda: CHANGES, len(CHANGES))
    writer.close()
    assert shop.rows(name) == [(1, "uno"), (3, "three"), (5, "five")]


def test_large_batches_are_gone_through_in_several_passes(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.streams.connectors.jdbc.databases.batch_writer.MAX_NETTED_ROWS", 2)
    name = keyed(shop)
    writer, job = writer_of(shop, written(shop, name, ["id"])), new_job()
    for share in range(2):
        writer.write(BatchShare(job, 0, 7, share, 2), lambda: CHANGES, len(CHANGES))
    writer.close()
    assert shop.rows(name) == [(1, "uno"), (3, "three"), (5, "five")]


def test_shares_are_written_each_once_and_a_batch_keeps_their_number(shop: Any) -> None:
    name = shop.make("id INT, name VARCHAR(20)")
    writer, job = writer_of(shop, written(shop, name)), new_job()
    writer.write(BatchShare(job, 0, 3, 1, 2), lambda: ROWS, len(ROWS))
    notes = BatchNotes.open(shop.connection)
    assert notes is not None
    assert notes.shares_of(shop.connection, BatchShare(job, 0, 3)) == 2
    assert notes.shares_of(shop.connection, BatchShare(job, 0, 4)) is None
    for share in (0, 1):
        writer.write(BatchShare(job, 0, 3, share, 2), lambda: ROWS, len(ROWS))
    writer.close()
    assert sorted(shop.rows(name)) == [row for _, row in ROWS]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_rows_that_are_refused_are_named_and_the_others_written(keys: tuple[str, ...], shop: Any) -> None:
    name = shop.make("id INT NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL")
    aside: list[RefusedRow] = []
    writer = writer_of(shop, written(shop, name, keys), set_aside=aside.extend)
    rows = [(INSERT, row) for row in [(1, "a"), (2, None), (3, "c"), (4, "d"), (None, "e"), (6, "f")]]
    writer.write(BatchShare(new_job(), 0, 0), lambda: rows, len(rows))
    writer.close()
    assert shop.rows(name) == [(1, "a"), (3, "c"), (4, "d"), (6, "f")]
    assert [row.values for row in aside] == [{"id": 2, "name": None}, {"id": None, "name": "e"}]
    assert all("null" in row.reason.lower() for row in aside)


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_of_many_rows_at_once_those_that_are_refused_are_named_and_the_others_written(
    keys: tuple[str, ...], shop: Any
) -> None:
    name = shop.make("id INT NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL")
    shop.connection.run_each(shop.database.insert(name, ["id", "name"]), [(900, "kept")])
    aside: list[RefusedRow] = []
    writer, job = writer_of(shop, written(shop, name, keys), set_aside=aside.extend, chunk_rows=500), new_job()
    rows = [(INSERT, (number, None if number in (3, 170) else f"n{number}")) for number in range(200)]
    for _ in range(2):
        writer.write(BatchShare(job, 0, 0), lambda: rows, len(rows))
    writer.write(BatchShare(job, 0, 1), lambda: [(INSERT, (number, "x")) for number in range(200, 300)], 100)
    writer.close()
    wanted = [(number, f"n{number}") for number in range(200) if number not in (3, 170)]
    assert shop.rows(name) == [*wanted, *((number, "x") for number in range(200, 300)), (900, "kept")]
    assert [row.values for row in aside] == [{"id": 3, "name": None}, {"id": 170, "name": None}]
    assert all("null" in row.reason.lower() for row in aside)


@pytest.mark.parametrize("shop", ["postgresql"], indirect=True)
def test_keys_that_only_the_database_holds_for_one_replace_each_other(shop: Any) -> None:
    """CHAR is compared without the blanks behind it, and one statement changes no row twice."""
    name = shop.make("id CHAR(9) PRIMARY KEY, name VARCHAR(20)")
    fields = (Field("id", STRING), Field("name", STRING))
    writer = writer_of(shop, written(shop, name, ["id"], fields), chunk_rows=500)
    rows = [(INSERT, (f"k{number}", "first")) for number in range(100)] + [(INSERT, ("k7 ", "second"))]
    writer.write(BatchShare(new_job(), 0, 0), lambda: rows, len(rows))
    writer.close()
    found = {str(key).strip(): value for key, value in shop.rows(name)}
    assert len(found) == 100
    assert found["k7"] == "second"


def test_a_row_that_is_refused_ends_a_job_that_sets_none_aside(shop: Any) -> None:
    name = shop.make("id INT NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL")
    writer = writer_of(shop, written(shop, name))
    rows = [(INSERT, (1, "a")), (INSERT, (2, None))]
    with pytest.raises(JobError, match=r"sink does not take the row id=2, name=None: ") as raised:
        writer.write(BatchShare(new_job(), 0, 0), lambda: rows, len(rows))
    writer.close()
    assert raised.value.name == "DATABASE_ROW"
    assert shop.rows(name) == []


def test_a_time_that_no_database_has_is_a_refused_row(shop: Any) -> None:
    name = shop.make("id INT, at TIMESTAMP NULL")
    fields = (Field("id", BIGINT), Field("at", DataType(TypeKind.TIMESTAMP, precision=3)))
    aside: list[RefusedRow] = []
    writer = writer_of(shop, written(shop, name, fields=fields), set_aside=aside.extend)
    rows = [(INSERT, (1, None)), (INSERT, (2, 1 << 62))]
    writer.write(BatchShare(new_job(), 0, 0), lambda: rows, len(rows))
    writer.close()
    assert [row[0] for row in shop.rows(name)] == [1]
    assert [(row.values["id"], "beyond the times" in row.reason) for row in aside] == [(2, True)]


def test_a_line_that_breaks_is_mended_and_rows_are_there_once(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the break hides whether a transaction counted."""
    name = shop.make("id INT, name VARCHAR(20)")
    writer, job, run = writer_of(shop, written(shop, name)), new_job(), DatabaseConnection.run
    breaks = iter(["before", "behind"])

    def broken(self: DatabaseConnection, statement: str, values: Sequence[Any] = ()) -> None:
        when = next(breaks, "") if statement == "COMMIT" else ""
        if when != "before":
            run(self, statement, values)
        if when:
            raise DatabaseFailure(Cause.PASSING, "the line broke")

    monkeypatch.setattr(DatabaseConnection, "run", broken)
    writer.write(BatchShare(job, 0, 0), lambda: ROWS, len(ROWS))
    writer.close()
    assert next(breaks, None) is None
    assert sorted(shop.rows(name)) == [row for _, row in ROWS]


FORKS = multiprocessing.get_context("forkserver")
"""Where processes have all imported that a writer needs, in the place of starting Python anew."""
FORKS.set_forkserver_preload(
    ["pytest", "psycopg", "pymysql", "millstream.streams.connectors.jdbc.databases.batch_writer"]
)


def child(
    shop: Any, name: str, job: str, changes: Sequence[Any], keys: Sequence[str], dies_at: int, *, notes: bool
) -> int | None:
    given = {
        "options": shop.options, "table": name, "keys": list(keys), "changes": changes, "notes": notes,
        "job": job, "batch_id": 4, "dies_at": dies_at,
    }  # fmt: skip
    process = FORKS.Process(target=killed_writer.main, args=(given,))
    process.start()
    process.join()
    return process.exitcode


# The note's row, BEGIN, then of each chunk a savepoint, its rows and the savepoint's release, the note, COMMIT.
APPEND_POINTS = (1, 4, -4, -12, 13, -13)
CHANGE_POINTS = [(True, point) for point in (-4, 7, 9, 10, -10)] + [(False, point) for point in (-1, 3, 6, -8)]
"""With notes or without, and where the process dies: in the place of a statement, or behind it."""


@pytest.mark.kill
@pytest.mark.parametrize("dies_at", APPEND_POINTS)
def test_a_writer_that_is_killed_loses_and_doubles_nothing(dies_at: int, shop: Any) -> None:
    name, job = shop.make("id INT, name VARCHAR(20)"), new_job()
    BatchNotes.open(shop.connection)
    assert child(shop, name, job, ROWS, (), dies_at, notes=True) == -signal.SIGKILL
    assert sorted(shop.rows(name)) == ([row for _, row in ROWS] if dies_at == -13 else [])
    writer = writer_of(shop, written(shop, name))
    writer.write(BatchShare(job, 0, 4), lambda: ROWS, len(ROWS))
    writer.close()
    assert sorted(shop.rows(name)) == [row for _, row in ROWS]


@pytest.mark.kill
@pytest.mark.parametrize(("notes", "dies_at"), CHANGE_POINTS)
def test_a_writer_of_changes_that_is_killed_leaves_the_same_table(notes: bool, dies_at: int, shop: Any) -> None:
    name, job = keyed(shop), new_job()
    BatchNotes.open(shop.connection)
    assert child(shop, name, job, CHANGES, ["id"], dies_at, notes=notes) == -signal.SIGKILL
    writer = writer_of(shop, written(shop, name, ["id"]), notes=notes)
    writer.write(BatchShare(job, 0, 4), lambda: CHANGES, len(CHANGES))
    writer.close()
    assert shop.rows(name) == [(1, "uno"), (3, "three"), (5, "five")]


def refusal(shop: Any, name: str, fields: Sequence[Field], keys: Sequence[str] = ()) -> str:
    with pytest.raises(JobError) as raised:
        written(shop, name, keys, fields).check(shop.connection)
    assert raised.value.name == "DATABASE_TABLE"
    return str(raised.value)


def test_a_table_that_fits_is_taken(shop: Any) -> None:
    name = shop.make("id BIGINT NOT NULL, name VARCHAR(20), kind INT NOT NULL DEFAULT 1, PRIMARY KEY (id)")
    written(shop, name, ["id"]).check(shop.connection)


def test_a_table_that_does_not_fit_is_refused_with_the_way_out(shop: Any) -> None:
    name = shop.make("id BIGINT NOT NULL, names VARCHAR(20) NOT NULL, price DECIMAL(5, 2) NOT NULL, PRIMARY KEY (id)")
    price = Field("price", DataType(TypeKind.DECIMAL, precision=5, scale=2))
    wanted = (Field("id", BIGINT), Field("names", STRING), price)
    written(shop, name, fields=wanted).check(shop.connection)
    missing = refusal(shop, name, (*FIELDS, price))
    assert "has no column name. Did you mean names?" in missing
    assert "its column price is NOT NULL without a default" in refusal(shop, name, wanted[:2])
    assert "no unique key over (names)" in refusal(shop, name, wanted, ["names"])
    assert "has no table nowhere. Create it there" in refusal(shop, "nowhere", wanted)
    assert f"Did you mean {name}" in refusal(shop, f"{name}s", wanted)
    if shop.kind != "sqlite":
        assert "which holds no STRING" in refusal(shop, name, (*wanted[:2], Field("price", STRING)))


@pytest.mark.parametrize("shop", ["mysql"], indirect=True)
def test_a_table_without_transactions_is_known(shop: Any) -> None:
    name = shop.make("id INT")
    assert shop.connection.has_transactions(name)
    shop.connection.run(f"CREATE TABLE {shop.database.table(name + '_old')} (id INT) ENGINE = MyISAM")
    assert not shop.connection.has_transactions(name + "_old")


@pytest.mark.parametrize("shop", ["postgresql", "mysql"], indirect=True)
def test_notes_that_may_not_be_made_are_done_without(shop: Any) -> None:
    user = f"u{uuid.uuid4().hex[:8]}"
    if shop.kind == "mysql":
        shop.connection.run(f"CREATE USER {user} IDENTIFIED BY 'x7-hush'")
        shop.connection.run(f"GRANT SELECT, INSERT ON shop.* TO {user}")
    else:
        shop.connection.run(f"CREATE USER {user} PASSWORD 'x7-hush'")
    options = {**shop.options, "username": user, "password": "x7-hush"}
    with open_database(options).connection(writes=True) as connection:
        assert BatchNotes.open(connection, f"notes_of_{user}") is None
    assert BatchNotes.open(shop.connection, f"notes_of_{user}") is not None


KEYED = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12)


@given(KEYED, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_netted_changes_leave_the_table_that_all_changes_leave(puts: list[tuple[int, int]], random: Any) -> None:
    """A table with one row a key; its changes are told in any order but within a task, which has some of the keys."""
    before = {0: (0, 9), 1: (1, 9)}
    table, changes = dict(before), []
    for key, value in puts:
        if key in table:
            changes.append((UPDATE_BEFORE, table.pop(key)))
        if value:
            table[key] = (key, value)
            changes.append((UPDATE_AFTER, table[key]))
    random.shuffle(changes)
    left = key_changes(changes, [0])
    after = {key: row for key, row in before.items() if (key,) not in left.gone}
    after |= {row[0]: row for row in left.put}
    assert after == table


@given(st.lists(st.tuples(st.integers(), st.text(max_size=3)), max_size=20), st.integers(1, 5))
@settings(deadline=None)
def test_each_row_belongs_to_one_share(rows: list[tuple[int, str]], shares: int) -> None:
    assert all(0 <= share_of(row, shares) < shares for row in rows)
    assert [share_of(row, shares) for row in rows] == [share_of(row, shares) for row in rows]
