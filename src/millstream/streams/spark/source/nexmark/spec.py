"""One read of a nexmark table, as one JSON text: it travels through Spark's options to every process of a query."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from pyspark.sql import types as spark

from millstream.streams.connectors.nexmark.settings import NexmarkSettings
from millstream.streams.spark.source.nexmark.times import EventTimes
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn, rows_schema

__all__ = ["COUNT_OPTION", "QUEUE", "NexmarkSpec"]

QUEUE = "nexmark/0"
"""The one queue of a nexmark table; its offsets are the events' numbers."""

COUNT_OPTION = "events.num"
"""The option of a table that says how many rows it has in all."""


@dataclass(frozen=True, slots=True)
class NexmarkSpec:
    """What is read, as in `SourceSpec`. `base_time_ms` is the first event's time.

    With `is_limited` no more events are there than have had their turn since the job's start.
    """

    table: str
    settings: NexmarkSettings
    base_time_ms: int
    columns: tuple[SourceColumn, ...]
    start: Position
    end: Position | None = None
    max_rows: int = 0
    parallelism: int = 1
    final_tick: bool = False
    queues: bool = False
    is_limited: bool = False

    @property
    def queue(self) -> str:
        """The one queue."""
        return QUEUE

    @property
    def count(self) -> int:
        """Events in all, 0 without end."""
        return self.settings.events

    @property
    def count_option(self) -> str:
        """The option that says how many events there are."""
        return COUNT_OPTION

    def waits(self, *, bounded: bool) -> bool:
        """Where nexmark's option says so; a bounded run waits for no clock."""
        return self.is_limited and not bounded

    def had_their_turn(self, elapsed_s: float) -> int:
        """How many events come in that time."""
        return EventTimes(self.settings).events_until(int(elapsed_s * 1_000_000))

    def schema(self) -> spark.StructType:
        """Spark's schema of the rows with the hidden columns."""
        return rows_schema(self.columns, queues=self.queues)

    def encode(self) -> str:
        """The JSON text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> NexmarkSpec:
        """The value of a text made by `encode`."""
        return msgspec.json.decode(text, type=cls)
