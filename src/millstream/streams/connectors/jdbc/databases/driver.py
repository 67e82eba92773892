"""The `Driver` interface: what differs between kinds of databases, over Python's DB-API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.streams.connectors.jdbc.databases.failure import Cause

__all__ = ["Driver", "Put", "StoredColumn"]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as the database has it. `type` are its words in small letters, `fills` says that it may be left out."""

    name: str
    type: str
    nullable: bool = True
    fills: bool = True


@dataclass(frozen=True, slots=True)
class Put:
    """Where rows are put: a table and its columns by their quoted names, `mark` as `Driver` has it.

    `conflict` are the words that put a row in the place of another one (`Driver.replacing`); blank: rows are added.
    """

    table: str
    columns: tuple[str, ...]
    mark: str
    conflict: str = ""

    @property
    def statement(self) -> str:
        """The INSERT of one row."""
        values = ", ".join([self.mark] * len(self.columns))
        return f"INSERT INTO {self.table} ({', '.join(self.columns)}) VALUES ({values}){self.conflict}"


class Driver(Protocol):
    """One kind of database.

    `mark` stands for a value in its SQL and `quote` around names. `folds_case` says that names which differ only in
    case are one column. `errors` are what its calls raise. `begin` are the words of a transaction that writes, `locked`
    those behind a SELECT whose row nobody else may change meanwhile. `put_rows` rows are written at once unless a table
    says how many.
    """

    mark: str
    quote: str
    folds_case: bool
    errors: tuple[type[Exception], ...]
    begin: str
    lock_clause: str
    put_rows: int

    def connect(self, *, writes: bool) -> Any:
        """A connection in which each statement counts at once unless a transaction has begun."""
        ...

    def chunks(
        self, connection: Any, query: str, values: Sequence[Any], chunk_rows: int
    ) -> Iterator[list[Sequence[Any]]]:
        """The rows of a query as the server gives them, never more than `chunk_rows` at once in memory."""
        ...

    def put(self, connection: Any, target: Put, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows within a transaction, as the statement of `target` does for each of them."""
        ...

    def cause(self, error: Exception) -> Cause:
        """What an error means."""
        ...

    def columns_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
        """A query for name, type, nullability and default of the columns of a table, whose name has those parts.

        Nullability is 0 or 1; a default is 0 or 1 as well, 1 where the column may be left out.
        """
        ...

    def tables_query(self) -> str:
        """A query for the names of all tables and views that a name without a schema can mean."""
        ...

    def unique_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
        """A query for (index, column) of all unique keys of the table."""
        ...

    def engine_query(self, parts: Sequence[str]) -> tuple[str, tuple[Any, ...]] | None:
        """A query for one 1 or 0: whether the table takes part in transactions; None where all tables do."""
        ...

    def replacing(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        """The words behind an INSERT that make it an update of the row with those keys; names are quoted."""
        ...

    def text_type(self, characters: int) -> str:
        """The type of texts of so many characters that can be a key."""
        ...
