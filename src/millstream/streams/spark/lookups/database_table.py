"""A table of a database that is asked for each batch of keys; what fails is tried again, with ever longer waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from millstream.model.backoff import Backoff
from millstream.streams.databases.database import Connection, open_database
from millstream.streams.databases.failure import DatabaseFailure
from millstream.streams.databases.retry import BACKOFF, DatabaseRetry
from millstream.streams.databases.values import asked_value, found_row
from millstream.streams.errors import JobError
from millstream.streams.operators.changes import Row
from millstream.streams.spark.lookups.lookup_table import Found, LookupSpec
from millstream.streams.spark.lookups.plain_rows import plain_rows

__all__ = ["KEYS_PER_QUERY", "MAX_ROWS", "DatabaseTable", "retry_of"]

KEYS_PER_QUERY: Final = 200
"""Keys of one query at most: databases bound the values in a statement."""

MAX_ROWS: Final = 10_000_000
"""Rows of a table at most that is kept as a whole."""

T = TypeVar("T")

_DEFAULT_RETRIES = "3"
_DEFAULT_TIMEOUT = "60 s"


def retry_of(
    spec: LookupSpec,
    *,
    backoff: Backoff = BACKOFF,
    sleep: Callable[[float], None] = time.sleep,
) -> DatabaseRetry:
    """How often and how long the options of a table let its database be asked again."""
    retries = int(spec.option("lookup.max-retries", _DEFAULT_RETRIES))
    timeout_s = spec.seconds("connection.max-retry-timeout", _DEFAULT_TIMEOUT) or 0
    return DatabaseRetry(retries, timeout_s, backoff=backoff, sleep=sleep)


class DatabaseTable:
    """Asks with one query for at most 200 keys, over a connection that is kept."""

    def __init__(
        self,
        spec: LookupSpec,
        *,
        backoff: Backoff = BACKOFF,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._spec = spec
        self._database = open_database(dict(spec.options))
        self._retry = retry_of(spec, backoff=backoff, sleep=sleep)
        self._connection: Connection | None = None

    def find(self, keys: Collection[Row]) -> Found:
        """The rows of each key."""
        found: dict[Row, list[Row]] = {key: [] for key in keys}
        waiting = list(keys)
        for start in range(0, len(waiting), KEYS_PER_QUERY):
            for row in self._asked(waiting[start : start + KEYS_PER_QUERY]):
                # A database may find more than is equal here, such as text in another case.
                rows = found.get(self._spec.key_of(row))
                if rows is not None:
                    rows.append(row)
        return {key: rows for key, rows in found.items() if rows}

    def all_rows(self) -> list[Row]:
        """The whole table. Raises JobError JOB_FAILED for one of more than `MAX_ROWS`."""
        return self._attempted(self._all_rows)

    def _all_rows(self) -> list[Row]:
        rows: list[Row] = []
        for chunk in self._connected().rows_in_chunks(self._select()):
            rows += self._plain(chunk)
            if len(rows) > MAX_ROWS:
                self._close()
                words = f"The table {self._spec.name} has more than {MAX_ROWS:,} rows, too many to be kept."
                raise JobError("JOB_FAILED", words, remedy="Use 'lookup.cache' = 'PARTIAL'.")
        return rows

    def _select(self, condition: str = "") -> str:
        return self._database.select(self._spec.option("table-name"), self._spec.schema.names, condition)

    def _asked(self, keys: Sequence[Row]) -> list[Row]:
        equal = [f"{self._database.name(key)} = {self._database.mark}" for key in self._spec.keys]
        query = self._select(" OR ".join([f"({' AND '.join(equal)})"] * len(keys)))
        types = self._spec.key_types
        values = [asked_value(value, of) for key in keys for value, of in zip(key, types, strict=True)]
        return self._plain(self._attempted(lambda: self._connected().rows(query, values)))

    def _plain(self, rows: Sequence[Sequence[Any]]) -> list[Row]:
        types = [field.type for field in self._spec.fields]
        return plain_rows((found_row(row, types) for row in rows), self._spec.schema)

    def _attempted(self, attempt: Callable[[], T]) -> T:
        try:
            return self._retry.run(attempt, self._close)
        except DatabaseFailure as failure:
            self._close()
            raise failure.job_error(f"The table {self._spec.name} cannot be looked up") from None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
