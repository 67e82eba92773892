"""Lookups in a database table: queried per batch of keys or cached as a whole; failures are retried."""

from __future__ import annotations

import datetime
import shutil
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.model.backoff import Backoff
from millstream.streams.connectors.jdbc.databases.conditions import sql_of_conditions
from millstream.streams.connectors.jdbc.databases.database import DatabaseConnection, open_database
from millstream.streams.connectors.jdbc.databases.failure import BACKOFF, DatabaseFailure, DatabaseRetry
from millstream.streams.connectors.jdbc.databases.values import to_column_values, to_statement_value
from millstream.streams.connectors.jdbc.databases.written_table import find_columns
from millstream.streams.dimension.versions import Loaded
from millstream.streams.errors import JobError
from millstream.streams.operators.operator import Row
from millstream.streams.plan.expressions import Call
from millstream.streams.spark.lookups.kept_table import KeptKeys, KeptLimits, WholeTable, asked_again
from millstream.streams.spark.lookups.lookup_table import Found, LookupSpec, LookupTable, plain_batch, plain_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KEYS_PER_QUERY", "LOADED_AT_ONCE", "MAX_KEPT_KEYS", "MAX_ROWS", "DatabaseLookup", "DatabaseTable"]

LOADED_AT_ONCE: Final = 20_000
"""Rows of a database that are loaded at once."""

MAX_KEPT_KEYS: Final = 1_000_000
"""Keys that a worker keeps of a table with lookup.cache PARTIAL, unless an option says fewer."""

KEYS_PER_QUERY: Final = 200
"""Keys of one query at most: databases bound the values in a statement."""

MAX_ROWS: Final = 10_000_000
"""Rows of a table at most that is kept as a whole."""

T = TypeVar("T")

_DEFAULT_RETRIES = "3"
_DEFAULT_TIMEOUT = "60 s"
_DAY_S = 86_400


def _retry_of(
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
        self._retry = _retry_of(spec, backoff=backoff, sleep=sleep)
        self._connection: DatabaseConnection | None = None

    def find(self, keys: Collection[Row]) -> Found:
        """The rows of each key."""
        found: dict[Row, list[Row]] = {key: [] for key in keys}
        waiting = list(keys)
        for start in range(0, len(waiting), KEYS_PER_QUERY):
            for row in self._look_up(waiting[start : start + KEYS_PER_QUERY]):
                # A database may find more than is equal here, such as text in another case.
                rows = found.get(self._spec.key_of(row))
                if rows is not None:
                    rows.append(row)
        return {key: rows for key, rows in found.items() if rows}

    def all_rows(self) -> list[Row]:
        """The whole table. Raises JobError JOB_FAILED for one of more than `MAX_ROWS`."""
        return self._attempt(self._all_rows)

    def _all_rows(self) -> list[Row]:
        rows: list[Row] = []
        for chunk in self._connection_now().rows_in_chunks(self._select()):
            rows += self._plain(chunk)
            if len(rows) > MAX_ROWS:
                self._close()
                words = f"The table {self._spec.name} has more than {MAX_ROWS:,} rows, too many to be kept."
                raise JobError("JOB_FAILED", words, remedy="Use 'lookup.cache' = 'PARTIAL'.")
        return rows

    def _select(self, condition: str = "") -> str:
        return self._database.select(self._spec.option("table-name"), self._spec.schema.names, condition)

    def _look_up(self, keys: Sequence[Row]) -> list[Row]:
        equal = [f"{self._database.name(key)} = {self._database.mark}" for key in self._spec.keys]
        query = self._select(" OR ".join([f"({' AND '.join(equal)})"] * len(keys)))
        types = self._spec.key_types
        values = [to_statement_value(value, of) for key in keys for value, of in zip(key, types, strict=True)]
        return self._plain(self._attempt(lambda: self._connection_now().rows(query, values)))

    def _plain(self, rows: Sequence[Sequence[Any]]) -> list[Row]:
        types = [field.type for field in self._spec.fields]
        return plain_rows((to_column_values(row, types) for row in rows), self._spec.schema)

    def _attempt(self, attempt: Callable[[], T]) -> T:
        try:
            return self._retry.run(attempt, self._close)
        except DatabaseFailure as failure:
            self._close()
            raise failure.job_error(f"The table {self._spec.name} cannot be looked up") from None

    def _connection_now(self) -> DatabaseConnection:
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class DatabaseLookup:
    """A table of a database, which does not tell when it changes."""

    watches = False

    def __init__(self, spec: LookupSpec) -> None:
        self._spec = spec

    def table(self) -> LookupTable:
        """What asks the database, with what `lookup.cache` keeps."""
        database = DatabaseTable(self._spec)
        table = asked_again(self._spec, database)
        match self._spec.option("lookup.cache", "NONE").upper():
            case "PARTIAL":
                limits = KeptLimits(
                    int(self._spec.option("lookup.partial-cache.max-rows", str(MAX_KEPT_KEYS))),
                    self._spec.seconds("lookup.partial-cache.expire-after-write"),
                    self._spec.seconds("lookup.partial-cache.expire-after-access"),
                    self._spec.option("lookup.partial-cache.cache-missing-key", "true").lower() == "true",
                )
                return KeptKeys(table, limits)
            case "FULL" if self._spec.option("lookup.full-cache.reload-strategy", "PERIODIC").upper() == "TIMED":
                return asked_again(self._spec, WholeTable(self._spec, database.all_rows, _day_from(self._spec), 0))
            case "FULL":
                interval_s = self._spec.seconds("lookup.full-cache.periodic-reload.interval")
                if interval_s is None:
                    return WholeTable(self._spec, database.all_rows, lambda: 0, _DAY_S)
                return asked_again(self._spec, WholeTable(self._spec, database.all_rows, time.monotonic, interval_s))
            case _:
                return table

    def loads_whole(self) -> bool:
        """Whether the whole table is kept anyway."""
        return self._spec.option("lookup.cache", "NONE").upper() == "FULL"

    def stamp(self) -> str:
        """Blank."""
        return ""

    def load(self, fill: Callable[[], Loaded], directory: Path) -> Loaded:
        """What `fill` gives, tried as often as the options say."""
        try:
            return _retry_of(self._spec).run(fill, partial(_empty_directory, directory))
        except DatabaseFailure as failure:
            raise failure.job_error(f"The table {self._spec.name} cannot be loaded") from None

    def batches(self, spec: LookupSpec, ends: dict[str, int], filters: Sequence[Call]) -> Iterator[pa.RecordBatch]:
        """The rows that the filters of `spec` leave over, in chunks."""
        schema = spec.schema
        database = open_database(dict(self._spec.options))
        table = self._spec.option("table-name")
        types = [one.type for one in schema.fields]
        with database.connection() as connection:
            stored = find_columns(connection, f"The table {self._spec.name} cannot be loaded", table, schema.names)
            condition, values = sql_of_conditions(database, stored, filters)
            query = database.select(table, [stored[name].name for name in schema.names], condition)
            for rows in connection.rows_in_chunks(query, values, LOADED_AT_ONCE):
                yield plain_batch((to_column_values(row, types) for row in rows), schema)


def _day_from(spec: LookupSpec) -> Callable[[], Hashable]:
    """The number of the day, where days begin at the time of reload in UTC."""
    text = spec.option("lookup.full-cache.timed-reload.iso-time").rstrip("Zz")
    begins = datetime.time.fromisoformat(text)
    begins_s = (begins.hour * 60 + begins.minute) * 60 + begins.second
    return lambda: int(time.time() - begins_s) // _DAY_S


def _empty_directory(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
