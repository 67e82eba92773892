"""Which micro-batches a database has: a table of ours beside the user's, changed in the transactions of the rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from millstream.streams.databases.database import Database, DatabaseConnection
from millstream.streams.databases.failure import Cause, DatabaseFailure

__all__ = ["NOTES_TABLE", "BatchNotes", "BatchShare"]

NOTES_TABLE: Final = "millstream_batches"
"""Its name where no option gives another one."""

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
