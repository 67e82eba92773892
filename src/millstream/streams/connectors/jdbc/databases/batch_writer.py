"""Writes part of a micro-batch to a table, in one transaction with the record that it is written."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from millstream.streams.connectors.jdbc.databases.database import Database, DatabaseConnection
from millstream.streams.connectors.jdbc.databases.failure import Cause, DatabaseFailure, DatabaseRetry
from millstream.streams.connectors.jdbc.databases.values import UnfitValue, to_statement_value
from millstream.streams.connectors.jdbc.databases.written_table import WrittenTable
from millstream.streams.connectors.jdbc.options import NOTES_TABLE
from millstream.streams.errors import JobError
from millstream.streams.operators.operator import INSERT, UPDATE_AFTER, Row

__all__ = [
    "MAX_NETTED_ROWS",
    "BatchNotes",
    "BatchShare",
    "BatchWriter",
    "KeyChanges",
    "RefusedRow",
    "key_changes",
    "share_of",
]


_JOB_CHARACTERS = 64
_NOTHING_YET = -1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchShare:
    """A part of a micro-batch: `share` of `shares`, of the sink with that number in the job with that id."""

    job: str
    sink: int
    batch_id: int
    share: int = 0
    shares: int = 1


class BatchNotes:
    """One row per job, sink and share, with the last micro-batch that the database has of it."""

    def __init__(self, database: Database, table: str = NOTES_TABLE) -> None:
        self._database = database
        self._table = table
        self._name = database.table(table)

    @classmethod
    def open(cls, connection: DatabaseConnection, table: str = NOTES_TABLE) -> BatchNotes | None:
        """The notes, made if they are not there; None where the user may not make or use them."""
        notes = cls(connection.database, table)
        try:
            if not connection.columns_of(table):
                connection.run(notes._definition())
            connection.rows(f"SELECT 1 FROM {notes._name} WHERE batch_id < {_NOTHING_YET}")
        except DatabaseFailure as failure:
            if failure.cause is Cause.PASSING:
                raise
            _log.info("%s has no table of batches: %s", connection.database.address, failure.words)
            return None
        return notes

    def shares_of(self, connection: DatabaseConnection, part: BatchShare) -> int | None:
        """Into how many shares a micro-batch was cut of which some are written already; None where none is."""
        mark = self._database.mark
        query = f"SELECT share_count FROM {self._name} WHERE job_id = {mark} AND sink = {mark} AND batch_id = {mark}"
        rows = connection.rows(query, (part.job, part.sink, part.batch_id))
        return int(rows[0][0]) if rows else None

    def make_room(self, connection: DatabaseConnection, part: BatchShare) -> None:
        """Let there be a row for the share, which `is_written` can then lock."""
        if self._batch_of(connection, part, "") is not None:
            return
        columns = ("job_id", "sink", "share", "share_count", "batch_id")
        try:
            connection.run(
                self._database.insert(self._table, columns),
                (part.job, part.sink, part.share, part.shares, _NOTHING_YET),
            )
        except DatabaseFailure as failure:
            # Somebody was faster.
            if failure.cause is not Cause.ROW:
                raise

    def is_written(self, connection: DatabaseConnection, part: BatchShare) -> bool:
        """Whether the database has the share; nobody else writes it until this transaction ends."""
        batch_id = self._batch_of(connection, part, self._database.lock_clause)
        return batch_id is not None and batch_id >= part.batch_id

    def write(self, connection: DatabaseConnection, part: BatchShare) -> None:
        """Note the share, to count with the transaction."""
        mark = self._database.mark
        statement = (
            f"UPDATE {self._name} SET batch_id = {mark}, share_count = {mark} "
            f"WHERE job_id = {mark} AND sink = {mark} AND share = {mark}"
        )
        connection.run(statement, (part.batch_id, part.shares, part.job, part.sink, part.share))

    def _batch_of(self, connection: DatabaseConnection, part: BatchShare, locked: str) -> int | None:
        mark = self._database.mark
        query = f"SELECT batch_id FROM {self._name} WHERE job_id = {mark} AND sink = {mark} AND share = {mark}{locked}"
        rows = connection.rows(query, (part.job, part.sink, part.share))
        return int(rows[0][0]) if rows else None

    def _definition(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self._name} (job_id {self._database.text_type(_JOB_CHARACTERS)} NOT NULL, "
            "sink INTEGER NOT NULL, share INTEGER NOT NULL, share_count INTEGER NOT NULL, batch_id BIGINT NOT NULL, "
            "PRIMARY KEY (job_id, sink, share))"
        )


Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Rows to put in the place of those with their keys, and keys whose rows go."""

    put: list[Values]
    gone: list[Values]


def key_changes(changes: Iterable[tuple[int, Values]], places: Sequence[int]) -> KeyChanges:
    """The changes netted: of each key the row that is left, or that none is.

    `places` are those of the key's columns. Changes of one key may come in any order as long as each row that goes is
    told: what came and went counts for nothing, and of several rows that are left the last one counts.
    """
    counts: dict[Values, dict[Values, int]] = {}
    for kind, row in changes:
        rows = counts.setdefault(tuple(row[place] for place in places), {})
        named = tuple("NaN" if value != value else value for value in row)
        count = rows.pop(named, 0) + (1 if kind in (INSERT, UPDATE_AFTER) else -1)
        # The row that was told last stands last.
        rows[named] = count
    put, gone = [], []
    for key, rows in counts.items():
        left = [row for row, count in rows.items() if count > 0]
        if left:
            put.append(left[-1])
        else:
            gone.append(key)
    return KeyChanges(put, gone)


def share_of(values: Values, shares: int) -> int:
    """Which of so many shares a row or a key belongs to: the same in every process."""
    return zlib.crc32(repr(values).encode()) % shares if shares > 1 else 0


MAX_NETTED_ROWS: Final = 500_000
"""Changed rows whose keys are held in memory at once; a larger micro-batch takes several passes."""

_SHOWN_CHARACTERS = 60

Change = tuple[int, Row]


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the database does not take, with its values as statements have them, and why."""

    values: dict[str, Any]
    reason: str

    def __str__(self) -> str:
        """The row in one line."""
        return ", ".join(f"{name}={_show_value(value)}" for name, value in self.values.items())


Write = Callable[[Sequence[tuple[Any, ...]]], None]
SetAside = Callable[[Sequence[RefusedRow]], None]


class BatchWriter:
    """Writes to `table` with statements of `chunk_rows` rows.

    Without `notes` a share that is written again is in the table again, but for tables with a key. Rows that the
    database refuses go to `set_aside` before the others count (again at a repetition); without it they end the job.
    """

    def __init__(
        self,
        database: Database,
        table: WrittenTable,
        notes: BatchNotes | None,
        retry: DatabaseRetry,
        *,
        chunk_rows: int,
        set_aside: SetAside | None = None,
    ) -> None:
        self._database = database
        self._table = table
        self._notes = notes
        self._retry = retry
        self._chunk_rows = chunk_rows
        self._set_aside = set_aside
        self._places = [table.columns.index(key) for key in table.keys]
        self._put = database.put_into(table.table, table.columns, table.keys)
        self._drop = database.delete(table.table, table.keys) if table.keys else ""
        self._connection: DatabaseConnection | None = None

    def write(self, part: BatchShare, changes: Callable[[], Iterable[Change]], count: int) -> None:
        """Write what belongs to the share of `count` changes, which are the same in each call of `changes`.

        A share that the database has is left alone. Raises JobError DATABASE_UNREACHABLE, DATABASE_ROW and the like.
        """
        try:
            self._retry.run(lambda: self._attempt(part, changes, count), self.close)
        except DatabaseFailure as failure:
            self.close()
            raise failure.job_error(f"The table {self._table.name} cannot be written") from None

    def close(self) -> None:
        """End the connection; the next write makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _attempt(self, part: BatchShare, changes: Callable[[], Iterable[Change]], count: int) -> None:
        if self._connection is None:
            self._connection = self._database.connect(writes=True)
        connection, notes = self._connection, self._notes
        if notes is not None:
            notes.make_room(connection, part)
        with connection.transaction():
            if notes is not None and notes.is_written(connection, part):
                return
            if self._table.keys:
                self._write_keys(connection, part, changes, count)
            else:
                rows = (
                    row
                    for kind, row in self._statement_rows_of(changes())
                    if kind in (INSERT, UPDATE_AFTER) and share_of(row, part.shares) == part.share
                )
                self._write_chunks(connection, partial(connection.put, self._put), self._table.columns, rows)
            if notes is not None:
                notes.write(connection, part)

    def _write_keys(
        self, connection: DatabaseConnection, part: BatchShare, changes: Callable[[], Iterable[Change]], count: int
    ) -> None:
        """The changes netted, in as many passes over them as memory asks for."""
        passes = max(1, -(-count // (MAX_NETTED_ROWS * part.shares)))
        for number in range(passes):
            mine = (
                (kind, row)
                for kind, row in self._statement_rows_of(changes(), tells=number == 0)
                if share_of(tuple(row[place] for place in self._places), part.shares * passes)
                == number * part.shares + part.share
            )
            left = key_changes(mine, self._places)
            self._write_chunks(connection, partial(connection.run_each, self._drop), self._table.keys, left.gone)
            self._write_chunks(connection, partial(connection.put, self._put), self._table.columns, left.put)

    def _statement_rows_of(
        self, changes: Iterable[Change], *, tells: bool = True
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The changes with values as statements take them, without the rows that have one that no database takes."""
        types = [field.type for field in self._table.fields]
        for kind, row in changes:
            try:
                yield kind, tuple(to_statement_value(value, of) for value, of in zip(row, types, strict=True))
            except UnfitValue as unfit:
                if tells:
                    shown = dict(zip(self._table.columns, row, strict=True))
                    self._refuse([RefusedRow(shown, str(unfit))])

    def _write_chunks(
        self, connection: DatabaseConnection, write: Write, names: Sequence[str], rows: Iterable[tuple[Any, ...]]
    ) -> None:  # fmt: skip
        waiting = iter(rows)
        while chunk := list(islice(waiting, self._chunk_rows)):
            refused = list(_find_refused(connection, write, names, chunk))
            if refused:
                self._refuse(refused)

    def _refuse(self, rows: Sequence[RefusedRow]) -> None:
        if self._set_aside is None:
            first = rows[0]
            raise JobError(
                "DATABASE_ROW", f"The table {self._table.name} does not take the row {first}: {first.reason}"
            )
        self._set_aside(rows)


def _find_refused(
    connection: DatabaseConnection, write: Write, names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> Iterator[RefusedRow]:
    """Write the rows; those that the database refuses, found by halves."""
    connection.run("SAVEPOINT chunk")
    try:
        write(rows)
    except DatabaseFailure as failure:
        if failure.cause is not Cause.ROW:
            raise
        connection.run("ROLLBACK TO SAVEPOINT chunk")
        if len(rows) == 1:
            yield RefusedRow(dict(zip(names, rows[0], strict=True)), failure.words)
            return
        half = len(rows) // 2
        yield from _find_refused(connection, write, names, rows[:half])
        yield from _find_refused(connection, write, names, rows[half:])
        return
    connection.run("RELEASE SAVEPOINT chunk")


def _show_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
