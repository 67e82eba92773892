"""MySQL and MariaDB by PyMySQL."""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from millstream.streams.connectors.jdbc.databases.address import DatabaseAddress
from millstream.streams.connectors.jdbc.databases.driver import Put
from millstream.streams.connectors.jdbc.databases.failure import Cause
from millstream.streams.errors import JobError

__all__ = ["READ_TIMEOUT_S", "MysqlDriver"]

READ_TIMEOUT_S: Final = 600
"""How long one answer of MySQL may take before its connection counts as broken."""

_PASSING = (1040, 1053, 1203, 1205, 1213, 2002, 2003, 2006, 2013, 2055)
_REFUSED = (1044, 1045, 1142, 1143, 1227, 1290, 1370, 1698)
_SCHEMA = (1049, 1054, 1146, 1364)
_ROW = (1048, 1062, 1216, 1217, 1264, 1265, 1292, 1366, 1406, 1411, 1451, 1452, 3819, 4025)
"""Numbers of https://mariadb.com/kb/en/mariadb-error-code-reference/, those from 2000 on the driver's own."""

_SESSION = "SET time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
"""Times are in UTC, and a value that does not fit is an error in place of another value."""


class MysqlDriver:
    """Connects in UTC, with what the URL says of TLS (sslMode, ssl_ca, ssl_cert, ssl_key)."""

    mark = "%s"
    quote = "`"
    folds_case = True
    begin = "BEGIN"
    lock_clause = " FOR UPDATE"
    put_rows = 100

    def __init__(self, address: DatabaseAddress, timeout_s: float) -> None:
        try:
            self._driver = importlib.import_module("pymysql")
        except ImportError:
            words = f"{address} cannot be used: the Python package PyMySQL is not installed."
            raise JobError("EXTRA_MISSING", words, remedy='Install it: pip install "millstream[databases]".') from None
        self.errors: tuple[type[Exception], ...] = (self._driver.err.Error,)
        self._address = address
        self._timeout_s = timeout_s
        self._context = _tls_context(address)

    def connect(self, *, writes: bool) -> Any:
        """A connection whose session is strict, and in UTC."""
        address = self._address
        given: dict[str, Any] = {}
        if self._context is not None:
            given["ssl"] = self._context
        if "socket" in address.options:
            given["unix_socket"] = address.options["socket"]
        return self._driver.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.name or None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(1, int(self._timeout_s)),
            read_timeout=READ_TIMEOUT_S,
            init_command=_SESSION,
            **given,
        )

    def chunks(
        self, connection: Any, query: str, values: Sequence[Any], chunk_rows: int
    ) -> Iterator[list[Sequence[Any]]]:
        """The rows as they come over the line; a connection whose rows are not taken to the end is of no use after."""
        with closing(connection.cursor(self._driver.cursors.SSCursor)) as cursor:
            cursor.execute(query, tuple(values))
            while rows := cursor.fetchmany(chunk_rows):
                yield list(rows)

    def put(self, connection: Any, target: Put, rows: Sequence[Sequence[Any]]) -> None:
        """By the statement."""
        with closing(connection.cursor()) as cursor:
            cursor.executemany(target.statement, rows)

    def cause(self, error: Exception) -> Cause:
        """By the server's number."""
        number = error.args[0] if error.args else 0
        for cause, numbers in _CAUSES:
            if number in numbers:
                return cause
        if isinstance(error, self._driver.err.InterfaceError):
            return Cause.PASSING
        # Without a number: a value such as NaN, which the driver itself refuses.
        return Cause.ROW if isinstance(number, str) or isinstance(error, self._driver.err.DataError) else Cause.OTHER

    def columns_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
        """Of information_schema."""
        query = (
            "SELECT column_name, lower(column_type), is_nullable = 'YES', "
            "is_nullable = 'YES' OR column_default IS NOT NULL OR extra LIKE '%%auto_increment%%' "
            "FROM information_schema.columns "
            "WHERE table_name = %s AND table_schema = COALESCE(%s, DATABASE()) ORDER BY ordinal_position"
        )
        return query, (parts[-1], parts[-2] if len(parts) > 1 else None)

    def tables_query(self) -> str:
        """Those of the database that the URL names."""
        return "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"

    def unique_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
        """Of information_schema."""
        query = (
            "SELECT index_name, column_name FROM information_schema.statistics "
            "WHERE table_name = %s AND table_schema = COALESCE(%s, DATABASE()) AND non_unique = 0"
        )
        return query, (parts[-1], parts[-2] if len(parts) > 1 else None)

    def engine_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]] | None:
        """InnoDB has transactions, MyISAM and Aria take them for autocommit."""
        query = (
            "SELECT e.transactions = 'YES' FROM information_schema.tables AS t "
            "JOIN information_schema.engines AS e ON e.engine = t.engine "
            "WHERE t.table_name = %s AND t.table_schema = COALESCE(%s, DATABASE())"
        )
        return query, (parts[-1], parts[-2] if len(parts) > 1 else None)

    def replacing(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        """MySQL's ON DUPLICATE KEY, which knows no key by its columns."""
        others = [name for name in columns if name not in keys]
        if not others:
            return f" ON DUPLICATE KEY UPDATE {keys[0]} = {keys[0]}"
        return " ON DUPLICATE KEY UPDATE " + ", ".join(f"{name} = VALUES({name})" for name in others)

    def text_type(self, characters: int) -> str:
        """A key has a length, and texts are equal in one case only."""
        return f"VARCHAR({characters}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


_CAUSES = ((Cause.PASSING, _PASSING), (Cause.REFUSED, _REFUSED), (Cause.SCHEMA, _SCHEMA), (Cause.ROW, _ROW))

_MODES = {
    "disabled": None,
    "required": (False, ssl.CERT_NONE),
    "verify_ca": (False, ssl.CERT_REQUIRED),
    "verify_identity": (True, ssl.CERT_REQUIRED),
}
"""What sslMode says: whether the host's name counts, and whether the certificate does."""


def _tls_context(address: DatabaseAddress) -> ssl.SSLContext | None:
    given = {name.lower().replace("-", "_"): value for name, value in address.options.items()}
    unknown = [
        name
        for name in given
        if "ssl" in name and name not in ("sslmode", "ssl_mode", "usessl", "ssl_ca", "ssl_cert", "ssl_key")
    ]  # fmt: skip
    mode = given.get("sslmode", given.get("ssl_mode", ""))
    if not mode and (given.get("usessl", "").lower() == "true" or "ssl_ca" in given):
        mode = "verify_identity" if "ssl_ca" in given else "required"
    mode = (mode or "disabled").lower()
    if unknown or mode not in _MODES:
        words = (
            f"The URL of {address} has {f'an option {unknown[0]!r}' if unknown else f'sslMode={mode}'}, not known here."
        )
        remedy = (
            "Options of TLS are sslMode (DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY), ssl_ca, ssl_cert and ssl_key."
        )
        raise JobError("DATABASE_URL", words, remedy=remedy)
    chosen = _MODES[mode]
    if chosen is None:
        return None
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca"))
        if "ssl_cert" in given:
            context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"))
    except OSError as error:
        raise JobError("DATABASE_URL", f"A file of TLS for {address} cannot be used: {error}") from None
    context.check_hostname, context.verify_mode = chosen
    return context
