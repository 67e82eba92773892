"""A process that writes one micro-batch to a table and dies by SIGKILL at the n-th statement or behind it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from millstream.streams.connectors.jdbc.databases.batch_writer import BatchNotes, BatchShare, BatchWriter
from millstream.streams.connectors.jdbc.databases.database import DatabaseConnection, open_database
from millstream.streams.connectors.jdbc.databases.failure import DatabaseRetry
from millstream.streams.connectors.jdbc.databases.written_table import WrittenTable
from millstream.streams.plan.types import BIGINT, STRING, Field

FIELDS = (Field("id", BIGINT), Field("name", STRING))


def die_at(statement: int) -> None:
    """Let every statement count; the process dies in the place of that one, or behind it where it is negative."""
    count = 0
    run, run_each, put = DatabaseConnection.run, DatabaseConnection.run_each, DatabaseConnection.put

    def counted(statement_of: Any) -> Any:
        def call(self: DatabaseConnection, text: Any, values: Sequence[Any] = ()) -> None:
            nonlocal count
            count += 1
            if count == statement:
                os.kill(os.getpid(), signal.SIGKILL)
            statement_of(self, text, values)
            if count == -statement:
                os.kill(os.getpid(), signal.SIGKILL)

        return call

    DatabaseConnection.run, DatabaseConnection.run_each = counted(run), counted(run_each)  # type: ignore[method-assign]
    DatabaseConnection.put = counted(put)  # type: ignore[method-assign]


def main(given: dict[str, Any]) -> None:
    """What the process does."""
    database = open_database(given["options"])
    table = WrittenTable("sink", given["table"], FIELDS, tuple(given["keys"]))
    with database.connection(writes=True) as connection:
        notes = BatchNotes.open(connection) if given["notes"] else None
    writer = BatchWriter(database, table, notes, DatabaseRetry(3, 60), chunk_rows=2)
    changes = [(kind, tuple(row)) for kind, row in given["changes"]]
    if given["dies_at"]:
        die_at(given["dies_at"])
    writer.write(BatchShare(given["job"], 0, given["batch_id"]), lambda: changes, len(changes))
    writer.close()
