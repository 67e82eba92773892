"""The sink for a database table, checked against the table before the job starts.

The sink of a table in a database: tasks leave their rows in files, the driver writes them in transactions.

So a micro-batch is in the table whole, however its rows were divided among tasks, and a repeated one may be divided
in another way.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.streams.connectors.jdbc.databases.batch_writer import BatchNotes, BatchShare, BatchWriter, RefusedRow
from millstream.streams.connectors.jdbc.databases.database import Database, open_database
from millstream.streams.connectors.jdbc.databases.failure import DatabaseFailure, DatabaseRetry
from millstream.streams.connectors.jdbc.databases.written_table import WrittenTable
from millstream.streams.connectors.jdbc.options import NOTES_TABLE
from millstream.streams.connectors.options import DEAD_LETTER_TOPIC, milliseconds, with_environment
from millstream.streams.connectors.refused_rows import RefusedRows
from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable, SinkRequest
from millstream.streams.errors import JobError
from millstream.streams.operators.operator import INSERT, Row
from millstream.streams.plan.nodes import scans_of
from millstream.streams.plan.types import Schema
from millstream.streams.spark.operators.arrow_rows import rows_of
from millstream.streams.spark.sinks.earlier import BatchNote
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written
from millstream.streams.spark.sinks.spooled_rows import RowsWriter, files_of, read_rows

__all__ = ["MAX_CHUNK_ROWS", "DatabaseSink", "database_sink"]

MakeWriter = Callable[[], BatchWriter]
SharesOf = Callable[[BatchShare], int]


class DatabaseSink:
    """Writes each micro-batch in `shares_of(batch)` transactions, at one time, with a writer each.

    A job in batch mode (`once`) has one micro-batch; run again over its checkpoint after it has ended it writes its
    rows again, and after a crash only what is not there.
    """

    def __init__(
        self, name: str, schema: Schema, make_writer: MakeWriter, shares_of: SharesOf, *, once: bool = False
    ) -> None:  # fmt: skip
        self.name = name
        self.schema = schema
        self._make_writer: MakeWriter | None = make_writer
        self._shares_of: SharesOf | None = shares_of
        self._once = once
        self._attempt: Attempt | None = None
        self._directory = Path()

    def __getstate__(self) -> dict[str, Any]:
        # Workers only leave rows in files; who logs in stays in the driver.
        return {**self.__dict__, "_make_writer": None, "_shares_of": None}

    def begin(self, attempt: Attempt) -> bool:
        """Make room for the tasks' files; what an earlier attempt left of them goes."""
        self._attempt = attempt
        self._directory = attempt.notes / f"{attempt.number}-rows"
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer that leaves rows in a file."""
        return RowsWriter(self._directory, task)

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Write the rows of the tasks, unless the database has them. Raises JobError DATABASE_UNREACHABLE, say."""
        attempt = self._attempt
        assert attempt is not None
        assert self._shares_of is not None
        run = self._finished_runs(attempt) if self._once else 0
        job = f"{attempt.job_id}-{run}" if run else attempt.job_id
        files = files_of(written)
        count = sum(part.rows for part in written)
        shares = self._shares_of(BatchShare(job, attempt.number, batch_id))
        parts = [BatchShare(job, attempt.number, batch_id, share, shares) for share in range(shares)]

        def write(part: BatchShare) -> None:
            assert self._make_writer is not None
            writer = self._make_writer()
            try:
                writer.write(part, lambda: _changes(files, len(self.schema.fields)), count)
            finally:
                writer.close()

        if count:
            with ThreadPoolExecutor(shares, thread_name_prefix="millstream-database") as threads:
                list(threads.map(write, parts))
        if self._once:
            BatchNote(run + 1, {}).write(self._runs_file(attempt))
        shutil.rmtree(self._directory, ignore_errors=True)

    def _finished_runs(self, attempt: Attempt) -> int:
        note = BatchNote.read(self._runs_file(attempt))
        return 0 if note is None else note.batch_id

    @staticmethod
    def _runs_file(attempt: Attempt) -> Path:
        return attempt.notes / f"{attempt.number}-runs.json"


def _changes(files: Sequence[Path], columns: int) -> Iterator[tuple[int, Row]]:
    """Kind and row of each, record batch by record batch."""
    for path in files:
        for batch in read_rows(path):
            rows = rows_of(batch, columns)
            if batch.num_columns > columns:
                yield from zip(batch.column(columns).to_pylist(), rows, strict=True)
            else:
                yield from ((INSERT, row) for row in rows)


MAX_CHUNK_ROWS: Final = 5_000
"""Rows that are written at once where `sink.buffer-flush.max-rows` is 0, which sets no limit."""

_DEFAULT_RETRIES = "3"
_DEFAULT_TIMEOUT = "60 s"

_log = logging.getLogger(__name__)


def database_sink(request: SinkRequest) -> DatabaseSink:
    """The sink. Raises JobError DATABASE_UNREACHABLE, DATABASE_REFUSED, DATABASE_TABLE; SINK_FAILED."""
    insert, table = request.insert, request.insert.table
    options = with_environment(table.options, f"The table {table.name} cannot be written")
    database = open_database(options)
    written = WrittenTable(table.name, options["table-name"], insert.input.schema.fields, table.primary_key)
    timeout_s = milliseconds(options.get("connection.max-retry-timeout", _DEFAULT_TIMEOUT)) / 1000
    retry = DatabaseRetry(int(options.get("sink.max-retries", _DEFAULT_RETRIES)), timeout_s)
    try:
        notes = retry.run(partial(_check_notes, database, written, options))
    except DatabaseFailure as failure:
        raise failure.job_error(f"The table {table.name} cannot be written") from None
    columns = tuple(ConnectedColumn(field.name, field.type) for field in written.fields)
    refused = RefusedRows(ConnectedTable(table.name, columns, options, table.primary_key, request.nameserver))
    make_writer = partial(
        BatchWriter,
        database,
        written,
        notes,
        retry,
        chunk_rows=int(options.get("sink.buffer-flush.max-rows", database.put_rows)) or MAX_CHUNK_ROWS,
        set_aside=partial(_set_aside, refused) if DEAD_LETTER_TOPIC in options else None,
    )
    # A file of SQLite has one writer at a time.
    shares = 1 if database.address.kind == "sqlite" else int(options.get("sink.parallelism", "1"))
    return DatabaseSink(
        table.name,
        insert.input.schema,
        make_writer,
        partial(_shares, database, notes, shares, table.name),
        once=request.batch or not any(True for _ in scans_of(insert.input)),
    )


def _check_notes(database: Database, table: WrittenTable, options: Mapping[str, str]) -> BatchNotes | None:
    """The notes by which each micro-batch is written once; None where there are none."""
    with database.connection(writes=True) as connection:
        table.check(connection)
        wanted = options.get("sink.exactly-once", "auto").lower()
        if wanted == "never":
            return None
        name = options.get("sink.exactly-once.table", NOTES_TABLE)
        whole = connection.has_transactions(table.table)
        notes = BatchNotes.open(connection, name) if whole else None
    if notes is None:
        why = f"{name} may not be made or used there" if whole else f"{table.table} has no transactions"
        if wanted == "always":
            remedy = f"Grant {name} to the user, use InnoDB, or set 'sink.exactly-once' = 'auto'."
            words = f"The table {table.name} cannot be written exactly once: {why}."
            raise JobError("SINK_FAILED", words, remedy=remedy)
        if not table.keys:
            _log.warning("A micro-batch that is repeated writes its rows to %s again: %s.", table.name, why)
    return notes


def _shares(database: Database, notes: BatchNotes | None, shares: int, name: str, part: BatchShare) -> int:
    """Into how many shares to cut the micro-batch: as many as when its first one was written."""
    if notes is None:
        return shares
    try:
        with database.connection() as connection:
            return notes.shares_of(connection, part) or shares
    except DatabaseFailure as failure:
        raise failure.job_error(f"The table {name} cannot be written") from None


def _set_aside(refused: RefusedRows, rows: Sequence[RefusedRow]) -> None:
    refused.take_each([(msgspec.json.encode(row.values), row.reason) for row in rows])
