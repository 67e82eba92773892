"""One read of a table of a database, as one JSON text: it travels through Spark's options to all processes."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from pyspark.sql import types as spark

from millstream.streams.databases.address import Address
from millstream.streams.databases.parts import TableParts
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn, rows_schema

__all__ = ["QUEUE", "DatabaseSpec"]

QUEUE = "database/0"
"""The one queue of such a table; its offsets count parts."""


@dataclass(frozen=True, slots=True)
class DatabaseSpec:
    """What is read, as in `SourceSpec`. `address` is without the password, which Spark's options have under a name that
    Spark does not show. `stored` are the names of the columns in the database.

    `condition` is SQL for the rows that are wanted, with `values`. `chunk_rows` are fetched at once.
    """

    name: str
    address: Address
    table: str
    columns: tuple[SourceColumn, ...]
    stored: tuple[str, ...]
    start: Position
    parts: TableParts = field(default_factory=TableParts)
    condition: str = ""
    values: tuple[int | str, ...] = ()
    chunk_rows: int = 5_000
    retries: int = 3
    ends: bool = False
    parallelism: int = 1
    spool: str = ""
    queues: bool = False

    def schema(self) -> spark.StructType:
        """Spark's schema of the rows with the hidden columns."""
        return rows_schema(self.columns, queues=self.queues)

    def encode(self) -> str:
        """The JSON text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> DatabaseSpec:
        """The value of a text made by `encode`."""
        return msgspec.json.decode(text, type=cls)
