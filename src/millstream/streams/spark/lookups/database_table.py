"""A table of a database that is asked for each batch of keys; what fails is tried again, with ever longer waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from millstream.streams.errors import JobError
from millstream.streams.operators.changes import Row
from millstream.streams.spark.lookups.databases import UnreachableDatabase, asked_value, database_of, found_value
from millstream.streams.spark.lookups.lookup_table import Found, LookupSpec
from millstream.streams.spark.lookups.plain_rows import plain_rows

__all__ = ["KEYS_PER_QUERY", "MAX_ROWS", "DatabaseTable"]

KEYS_PER_QUERY: Final = 200
"""Keys of one query at most: databases bound the values in a statement."""

MAX_ROWS: Final = 10_000_000
"""Rows of a table at most that is kept as a whole."""

FIRST_WAIT_S: Final = 0.1
"""The wait before the second attempt; each further one is twice as long."""

LONGEST_WAIT_S: Final = 5.0
"""The longest wait between two attempts."""

_DEFAULT_RETRIES = "3"
_DEFAULT_TIMEOUT = "60 s"


class DatabaseTable:
    """Asks with one query for at most 200 keys, over a connection that is kept."""

    def __init__(
        self,
        spec: LookupSpec,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._database = database_of(spec)
        self._retries = int(spec.option("lookup.max-retries", _DEFAULT_RETRIES))
        self._timeout_s = spec.seconds("connection.max-retry-timeout", _DEFAULT_TIMEOUT) or 0
        self._sleep = sleep
        self._clock = clock
        self._connection: Any = None

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
        rows = self._answered(f"{self._select()} LIMIT {MAX_ROWS + 1}", ())
        if len(rows) > MAX_ROWS:
            words = f"The table {self._spec.name} has more than {MAX_ROWS:,} rows, too many to be kept."
            raise JobError("JOB_FAILED", words, remedy="Use 'lookup.cache' = 'PARTIAL'.")
        return rows

    def _select(self) -> str:
        name = self._database.name
        columns = ", ".join(name(column) for column in self._spec.schema.names)
        return f"SELECT {columns} FROM {name(self._spec.option('table-name'))}"

    def _asked(self, keys: Sequence[Row]) -> list[Row]:
        equal = [f"{self._database.name(key)} = {self._database.mark}" for key in self._spec.keys]
        one = f"({' AND '.join(equal)})"
        types = self._spec.key_types
        values = [asked_value(value, of) for key in keys for value, of in zip(key, types, strict=True)]
        return self._answered(f"{self._select()} WHERE {' OR '.join([one] * len(keys))}", values)

    def _answered(self, query: str, values: Sequence[Any]) -> list[Row]:
        types = [field.type for field in self._spec.fields]
        rows = self._repeated(query, values)
        shown = ([found_value(value, of) for value, of in zip(row, types, strict=True)] for row in rows)
        return plain_rows(shown, self._spec.schema)

    def _repeated(self, query: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """The answer of one attempt of as many as are allowed, within the time that is."""
        until_s = self._clock() + self._timeout_s
        wait_s = FIRST_WAIT_S
        for left in range(self._retries, -1, -1):
            try:
                if self._connection is None:
                    self._connection = self._database.connect()
                return self._database.rows(self._connection, query, values)
            except UnreachableDatabase as error:
                self._close()
                if not left or self._clock() + wait_s > until_s:
                    raise self._failed(error) from None
                self._sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
            except self._database.errors as error:
                raise self._failed(error) from None
        raise AssertionError("the last attempt returns or raises")

    def _failed(self, error: Exception) -> JobError:
        return JobError("JOB_FAILED", f"The table {self._spec.name} cannot be looked up: {error}")

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except self._database.errors:
                return
