"""One read of files, as one JSON text: it travels through Spark's options to every process of a query."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from pyspark.sql import types as spark

from millstream.streams.plan.partition_names import DEFAULT_NAME
from millstream.streams.spark.source.body_format import BodyFormat
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn, rows_schema

__all__ = ["QUEUE", "FileSpec"]

QUEUE = "files/0"
"""The one queue of a table of files; its offsets count files."""


@dataclass(frozen=True, slots=True)
class FileSpec:
    """What is read, as in `SourceSpec`. `partition_columns` are named by directories such as `day=2026-01-01`,
    of which `null_name` stands for NULL.

    `listing` is the file with the list of files. Without `monitored` only the files that are there at the start are
    read; with `ends` event time is over behind the last of them.
    """

    path: str
    columns: tuple[SourceColumn, ...]
    body: BodyFormat
    listing: str
    start: Position
    partition_columns: tuple[str, ...] = ()
    null_name: str = DEFAULT_NAME
    pattern: str = ""
    monitored: bool = False
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
    def decode(cls, text: str) -> FileSpec:
        """The value of a text made by `encode`."""
        return msgspec.json.decode(text, type=cls)
