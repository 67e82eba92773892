"""The sink of a table in a database: tasks leave their rows in files, the driver writes them in transactions.

So a micro-batch is in the table whole, however its rows were divided among tasks, and a repeated one may be divided
in another way.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from millstream.streams.databases.batch_notes import BatchShare
from millstream.streams.databases.batch_writer import BatchWriter
from millstream.streams.operators.changes import INSERT, Row
from millstream.streams.plan.types import Schema
from millstream.streams.spark.operators.values import rows_of
from millstream.streams.spark.sinks.earlier import BatchNote
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written
from millstream.streams.spark.sinks.spooled_rows import RowsWriter, files_of, read_rows

__all__ = ["DatabaseSink"]

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
