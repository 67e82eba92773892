"""How far event time has come in a table, told by a sink of its own beside those that want to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from millstream.streams.plan.types import BIGINT, INT, STRING, Field, Schema
from millstream.streams.spark.operators.clocks import Seen, encode, look, merge_seen
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written

__all__ = ["EVENT_TIMES", "EventTimesSink"]

EVENT_TIMES = Schema(
    (Field("source", INT), Field("queue", STRING), Field("time_us", BIGINT), Field("tick_us", BIGINT)),
)
"""A row of a table as it moves event time: `time_us` is its time less the watermark's delay."""


class EventTimesSink:
    """Takes rows of `EVENT_TIMES`; after each commit `seen` has the newest times of that micro-batch, by source."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.schema = EVENT_TIMES
        self.seen: Mapping[int, Seen] = {}

    def begin(self, attempt: Attempt) -> bool:
        """Nothing is kept that a repeated micro-batch could meet."""
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer that keeps one time per queue."""
        return _Newest()

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Bring the tasks' times together."""
        self.seen = merge_seen(part.message for part in written)


class _Newest:
    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows."""
        look(rows, self._seen)

    def finish(self) -> bytes:
        """The newest times."""
        return encode(self._seen)
