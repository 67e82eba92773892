"""PostgreSQL by psycopg 3."""

from __future__ import annotations

import importlib
import itertools
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from millstream.streams.connectors.jdbc.databases.address import DatabaseAddress
from millstream.streams.connectors.jdbc.databases.driver import Put
from millstream.streams.connectors.jdbc.databases.failure import Cause
from millstream.streams.errors import JobError

__all__ = ["COPIED_ROWS", "LOCK_TIMEOUT_S", "PostgresqlDriver"]

COPIED_ROWS: Final = 50
"""Rows from which on COPY and its table cost less than a statement for each row."""

LOCK_TIMEOUT_S: Final = 60
"""How long PostgreSQL waits for a row that another transaction holds before the attempt has failed."""

_OPTIONS = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "ssl": "sslmode",
    "host": "host",
    "ApplicationName": "application_name",
    "application_name": "application_name",
}
"""Options of a URL, in Java's words or libpq's, and those of libpq."""

_PASSING = ("08", "53", "57P", "40001", "40P01", "55P03", "25006")
_REFUSED = ("28", "42501")
_SCHEMA = ("42P01", "42703", "3F000", "3D000", "42P10", "42804", "42883")
_ROW = ("22", "23", "21000")
"""The beginnings of SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html).

21000: two rows of one statement have what the database holds for one key; each alone is taken.
"""

_LOGIN_REFUSED = ("authentication failed", "no pg_hba.conf entry", "no password supplied")
"""What libpq says where a connection is refused for good: it gives no SQLSTATE then."""

_cursors = itertools.count()


class PostgresqlDriver:
    """Connects in UTC, with what the URL says of TLS (sslmode, sslrootcert, sslcert, sslkey)."""

    mark = "%s"
    quote = '"'
    folds_case = False
    begin = "BEGIN"
    lock_clause = " FOR UPDATE"
    put_rows = 5_000

    def __init__(self, address: DatabaseAddress, timeout_s: float) -> None:
        try:
            self._driver = importlib.import_module("psycopg")
        except ImportError:
            words = f"{address} cannot be used: the Python package psycopg is not installed."
            raise JobError("EXTRA_MISSING", words, remedy='Install it: pip install "millstream[databases]".') from None
        self.errors: tuple[type[Exception], ...] = (self._driver.Error,)
        self._address = address
        self._timeout_s = timeout_s
        self._options = _libpq_options(address)
        self._may_copy: bool | None = None

    def connect(self, *, writes: bool) -> Any:
        """A connection whose session reads and writes times in UTC."""
        address = self._address
        schema = address.options.get("currentSchema", "")
        settings = ["-c timezone=UTC", "-c datestyle=ISO", f"-c lock_timeout={LOCK_TIMEOUT_S}s"]
        if schema:
            settings.append(f"-c search_path={schema}")
        given: dict[str, Any] = {
            "host": address.host,
            "port": address.port,
            "user": address.user or None,
            "password": address.password or None,
            "dbname": address.name or None,
            "connect_timeout": max(2, int(self._timeout_s)),
            "options": " ".join(settings),
            **self._options,
        }
        # Statements that the server keeps would not outlive a pool between it and us.
        return self._driver.connect(autocommit=True, prepare_threshold=None, **given)

    def chunks(
        self, connection: Any, query: str, values: Sequence[Any], chunk_rows: int
    ) -> Iterator[list[Sequence[Any]]]:
        """The rows by a cursor of the server."""
        with connection.transaction(), closing(connection.cursor(f"millstream_{next(_cursors)}")) as cursor:
            cursor.execute(query, tuple(values))
            while rows := cursor.fetchmany(chunk_rows):
                yield rows

    def put(self, connection: Any, target: Put, rows: Sequence[Sequence[Any]]) -> None:
        """By COPY into a table of the transaction's own and one INSERT from there, where that is not more trouble."""
        with closing(connection.cursor()) as cursor:
            if len(rows) < COPIED_ROWS or not self._copies(cursor):
                cursor.executemany(target.statement, rows)
                return
            names = ", ".join(target.columns)
            waiting = f"millstream_waiting_{zlib.crc32(f'{target.table} {names}'.encode()):08x}"
            like = f"SELECT {names} FROM {target.table} WHERE FALSE"
            cursor.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS {waiting} ON COMMIT DROP AS {like}", ())
            # COPY takes no values, so a % stands there once.
            with cursor.copy(f"COPY {waiting} ({names.replace('%%', '%')}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            # Not COPY into the table itself, which views, rules and policies of rows do not take.
            insert = f"INSERT INTO {target.table} ({names}) SELECT {names} FROM {waiting}{target.conflict}"
            cursor.execute(insert, ())
            cursor.execute(f"TRUNCATE {waiting}", ())

    def _copies(self, cursor: Any) -> bool:
        """Whether the user may make tables that live as long as a transaction."""
        if self._may_copy is None:
            cursor.execute("SELECT has_database_privilege(current_database(), 'TEMPORARY')")
            self._may_copy = bool(cursor.fetchone()[0])
        return self._may_copy

    def cause(self, error: Exception) -> Cause:
        """By SQLSTATE; without one it is the connection."""
        state = getattr(error, "sqlstate", None)
        if state is None:
            if not isinstance(error, self._driver.OperationalError | self._driver.InterfaceError):
                return Cause.ROW if isinstance(error, self._driver.DataError) else Cause.OTHER
            words = str(error)
            if any(said in words for said in _LOGIN_REFUSED):
                return Cause.REFUSED
            return Cause.SCHEMA if "database" in words and "does not exist" in words else Cause.PASSING
        for cause, beginnings in _CAUSES:
            if state.startswith(beginnings):
                return cause
        return Cause.OTHER

    def columns_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
        """Of pg_attribute, which also knows the columns of views that others own."""
        query = (
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), (NOT a.attnotnull)::int, "
            "(a.atthasdef OR a.attidentity <> '' OR NOT a.attnotnull)::int FROM pg_attribute AS a "
            "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        return query, (_quote_name(parts),)

    def tables_query(self) -> str:
        """Those on the search path, without the system's."""
        return (
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'v', 'm', 'f', 'p') AND pg_table_is_visible(oid) "
            "AND relnamespace <> 'pg_catalog'::regnamespace"
        )

    def unique_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
        """The unique indexes over plain columns that hold for all rows."""
        query = (
            "SELECT i.indexrelid::bigint, a.attname FROM pg_index AS i "
            "JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL"
        )
        return query, (_quote_name(parts),)

    def engine_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]] | None:
        """All tables have transactions."""
        return None

    def replacing(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        """PostgreSQL's ON CONFLICT."""
        others = [name for name in columns if name not in keys]
        if not others:
            return f" ON CONFLICT ({', '.join(keys)}) DO NOTHING"
        return f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET " + ", ".join(f"{x} = EXCLUDED.{x}" for x in others)

    def text_type(self, characters: int) -> str:
        """Texts need no length."""
        return "TEXT"


_CAUSES = ((Cause.PASSING, _PASSING), (Cause.REFUSED, _REFUSED), (Cause.SCHEMA, _SCHEMA), (Cause.ROW, _ROW))


def _quote_name(parts: Sequence[str]) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _libpq_options(address: DatabaseAddress) -> dict[str, str]:
    found = {}
    for name, value in address.options.items():
        known = _OPTIONS.get(name)
        if known is not None:
            if name == "ssl":
                value = "verify-full" if value.lower() in ("", "true") else "disable"
            found[known] = value
        elif "ssl" in name.lower():
            # What a driver of Java passes over is harmless, a wrong word about TLS is not.
            words = f"The URL of {address} has an option {name!r}, which is not known."
            remedy = "Options of TLS are sslmode, sslrootcert, sslcert and sslkey."
            raise JobError("DATABASE_URL", words, remedy=remedy)
    return found
