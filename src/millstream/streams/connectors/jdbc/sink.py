"""The sink of an INSERT into a table of a database, checked against the table before anything runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from millstream.streams.connectors.environment import with_environment
from millstream.streams.connectors.jdbc.database_sink import DatabaseSink
from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.refused_rows import RefusedRows
from millstream.streams.connectors.shared_options import DEAD_LETTER_TOPIC
from millstream.streams.connectors.sink_request import SinkRequest
from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable
from millstream.streams.databases.batch_notes import NOTES_TABLE, BatchNotes, BatchShare
from millstream.streams.databases.batch_writer import BatchWriter, RefusedRow
from millstream.streams.databases.database import Database, open_database
from millstream.streams.databases.failure import DatabaseFailure
from millstream.streams.databases.retry import DatabaseRetry
from millstream.streams.databases.written_table import WrittenTable
from millstream.streams.errors import JobError
from millstream.streams.plan.nodes import scans_of

__all__ = ["MAX_CHUNK_ROWS", "database_sink"]

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
        notes = retry.run(partial(_checked, database, written, options))
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


def _checked(database: Database, table: WrittenTable, options: Mapping[str, str]) -> BatchNotes | None:
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
