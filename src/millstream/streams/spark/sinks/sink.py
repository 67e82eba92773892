"""The sink interface: a part that runs in tasks, and a part that the driver runs after all tasks succeed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from millstream.streams.connectors.opening import opened_sink
from millstream.streams.connectors.protocols import SinkBatch, SinkConnector, SinkTask, SinkWriter
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.plan.types import BIGINT, INT, STRING, Field, Schema
from millstream.streams.spark.operators.clocks import Seen, encode, look, merge_seen
from millstream.streams.spark.source.connected import find_modules

__all__ = ["EVENT_TIMES", "Attempt", "ConnectedSink", "EventTimesSink", "Sink", "SinkTask", "SinkWriter", "Written"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A micro-batch that is about to be written by the sink with that `number` in its pipeline.

    `notes` is a directory of the job's checkpoint in which sinks may leave what the next attempt must know.
    """

    job_id: str
    batch_id: int
    number: int
    notes: Path


@dataclass(frozen=True, slots=True)
class Written:
    """What one task wrote to one sink: rows, and the sink's own message to its commit."""

    task: SinkTask
    rows: int
    message: bytes = b""


class Sink(Protocol):
    """One output of a job."""

    name: str
    schema: Schema

    def begin(self, attempt: Attempt) -> bool:
        """Get ready for a micro-batch, in the driver, before any task.

        Whether an earlier attempt of it may have written rows that the sink will have to know again: one task alone
        writes the batch then.
        """
        ...

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer for one task. Runs in a worker, on a copy of the sink."""
        ...

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Make a batch visible; runs in the driver after all tasks, and again if the batch is replayed."""
        ...


class ConnectedSink:
    """Writes a table through its connector. Raises JobError SINK_FAILED where that refuses the table."""

    def __init__(self, connector: str, table: ConnectedTable) -> None:
        self.name = table.name
        self.schema = table.schema
        self._connector = connector
        self._table = table
        self._output = ""
        self._python_path = tuple(str(Path(entry).absolute()) for entry in sys.path)
        self._opened: SinkConnector | None = None
        self._sink()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def begin(self, attempt: Attempt) -> bool:
        """Note which output of which job this is; a repeated micro-batch is the connector's to know."""
        self._output = f"{attempt.job_id}-{attempt.number}"
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """The connector's writer."""
        find_modules(self._python_path)
        return self._sink().writer(SinkTask(self._output, task.batch_id, task.partition, task.attempt))

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Hand the writers' messages to the connector."""
        self._sink().commit(SinkBatch(self._output, batch_id), [part.message for part in written])

    def _sink(self) -> SinkConnector:
        if self._opened is None:
            self._opened = opened_sink(CONNECTORS[self._connector], self._table)
        return self._opened


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
