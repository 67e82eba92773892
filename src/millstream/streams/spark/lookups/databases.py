"""Tables of databases: which drivers there are, how each writes names and values, and what it gives back."""

from __future__ import annotations

import base64
import datetime
import importlib
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, unquote, urlparse

from millstream.streams.errors import JobError
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.lookups.lookup_table import LookupSpec

__all__ = ["Database", "UnreachableDatabase", "asked_value", "database_of", "found_value"]

_EPOCH = datetime.datetime(1970, 1, 1)
_MYSQL_PORT = 3306


class UnreachableDatabase(Exception):
    """A failure that another attempt may not meet: no connection, a lock, a broken line."""


@dataclass(frozen=True, slots=True)
class Database:
    """One kind of database over Python's DB-API. `mark` stands for a value in its SQL, `quote` around names.

    `passing` are the errors of its driver that may go away.
    """

    connect: Callable[[], Any]
    mark: str
    quote: str
    passing: tuple[type[Exception], ...]
    errors: tuple[type[Exception], ...]

    def name(self, text: str) -> str:
        """A column's name, or a table's with its schema before it."""
        return ".".join(
            f"{self.quote}{part.replace(self.quote, self.quote * 2)}{self.quote}" for part in text.split(".")
        )

    def rows(self, connection: Any, query: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        """All rows of a query. Raises UnreachableDatabase, or the driver's error where the query itself is wrong."""
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(query, tuple(values))
                return list(cursor.fetchall())
        except self.passing as error:
            raise UnreachableDatabase(str(error)) from None


def database_of(spec: LookupSpec) -> Database:
    """The database of the table's URL. Raises JobError JOB_FAILED for one that has no driver."""
    url = spec.option("url").removeprefix("jdbc:")
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        return _sqlite(url.partition(":")[2])
    if scheme in ("mysql", "mariadb"):
        return _mysql(spec, url)
    words = f"The table {spec.name} cannot be looked up: there is no driver for {scheme}."
    raise JobError("JOB_FAILED", words, remedy="Use jdbc:sqlite: or jdbc:mysql:, or a file as the table.")


def _sqlite(path: str) -> Database:
    file, _, _ = path.partition("?")
    # sqlite:///var/x.db is the way of Python's tools, jdbc:sqlite:/var/x.db that of Java's.
    file = file[2:] if file.startswith("//") else file

    def connect() -> sqlite3.Connection:
        try:
            # A lookup writes nothing, and a file that is not there is a mistake.
            return sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        except sqlite3.OperationalError as error:
            raise UnreachableDatabase(f"{file}: {error}") from None

    return Database(connect, "?", '"', (sqlite3.OperationalError,), (sqlite3.Error,))


def _mysql(spec: LookupSpec, url: str) -> Database:
    try:
        driver = importlib.import_module("pymysql")
    except ImportError:
        words = f"The table {spec.name} cannot be looked up: the Python package PyMySQL is not installed."
        raise JobError("JOB_FAILED", words, remedy="Install it: pip install PyMySQL.") from None
    parts = urlparse(url)
    options = dict(parse_qsl(parts.query))

    def connect() -> Any:
        try:
            return driver.connect(
                host=parts.hostname or "localhost",
                port=parts.port or _MYSQL_PORT,
                user=spec.option("username") or options.get("user", ""),
                password=spec.option("password") or options.get("password", ""),
                database=unquote(parts.path.lstrip("/")),
                charset="utf8mb4",
                autocommit=True,
            )
        except driver.err.OperationalError as error:
            raise UnreachableDatabase(str(error)) from None

    passing = (driver.err.OperationalError, driver.err.InterfaceError)
    return Database(connect, "%s", "`", passing, (driver.err.Error,))


def asked_value(value: Any, of: DataType) -> Any:
    """A plain value as a query takes it."""
    match of.kind:
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            return str(_EPOCH + datetime.timedelta(microseconds=value))
        case TypeKind.DATE:
            return str((_EPOCH + datetime.timedelta(days=value)).date())
        case TypeKind.TIME:
            return str((_EPOCH + datetime.timedelta(milliseconds=value)).time())
        case TypeKind.DECIMAL:
            return str(value)
        case _:
            return value


def found_value(value: Any, of: DataType) -> Any:
    """A value of a driver in the form that columns are read from; each driver has its own for times and flags."""
    if value is None:
        return None
    match of.kind:
        case TypeKind.BOOLEAN:
            return bool(value[-1]) if isinstance(value, bytes) else value if isinstance(value, str) else bool(value)
        case TypeKind.BYTES if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        case TypeKind.STRING if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        case TypeKind.DECIMAL:
            return value if isinstance(value, Decimal) else str(value)
        case TypeKind.TIME if isinstance(value, datetime.timedelta):
            return str((_EPOCH + value).time())
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ | TypeKind.DATE | TypeKind.TIME:
            return str(value)
        case _:
            return value
