"""One read of a made-up table, as one JSON text: it travels through Spark's options to every process of a query."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from pyspark.sql import types as spark

from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn, rows_schema

__all__ = ["COUNT_OPTION", "QUEUE", "DatagenSpec", "MadeColumn"]

QUEUE = "datagen/0"
"""The one queue of such a table; its offsets are the rows' numbers."""

COUNT_OPTION = "number-of-rows"
"""The option of a table that says how many rows it has in all."""


@dataclass(frozen=True, slots=True)
class MadeColumn:
    """How the values of a column are made: a sequence from `first` on, or at random from `least` to `greatest`.

    `length` is that of texts (with `varies` at most), `max_past_ms` how far a time lies before its row's.
    """

    name: str
    type: DataType
    is_sequence: bool = False
    first: int = 0
    least: float = 0
    greatest: float = 0
    length: int = 100
    varies: bool = False
    max_past_ms: int = 0
    null_rate: float = 0


@dataclass(frozen=True, slots=True)
class DatagenSpec:
    """What is read, as in `SourceSpec`. `numbers` are the columns' places in the table.

    `base_time_ms` is the time of the first row and the seed. `rows` in all, 0 without end. Unless the run is
    bounded no more rows are there than have had their turn since the job's start.
    """

    table: str
    columns: tuple[MadeColumn, ...]
    numbers: tuple[int, ...]
    base_time_ms: int
    start: Position
    rows: int = 0
    rows_per_s: int = 10_000
    end: Position | None = None
    max_rows: int = 0
    parallelism: int = 1
    final_tick: bool = False
    queues: bool = False

    @property
    def queue(self) -> str:
        """The one queue."""
        return QUEUE

    @property
    def count(self) -> int:
        """Rows in all, 0 without end."""
        return self.rows

    @property
    def count_option(self) -> str:
        """The option that says how many rows there are."""
        return COUNT_OPTION

    def waits(self, *, bounded: bool) -> bool:
        """A bounded run waits for no clock."""
        return not bounded

    def had_their_turn(self, elapsed_s: float) -> int:
        """How many rows come in that time."""
        return int(elapsed_s * self.rows_per_s)

    def schema(self) -> spark.StructType:
        """Spark's schema of the rows with the hidden columns."""
        return rows_schema(tuple(SourceColumn(column.name, column.type) for column in self.columns), queues=self.queues)

    def encode(self) -> str:
        """The JSON text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> DatagenSpec:
        """The value of a text made by `encode`."""
        return msgspec.json.decode(text, type=cls)
