"""A `SinkConnector` as a sink of a job. Workers open the connector again: only its table travels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millstream.streams.connectors.opening import opened_sink
from millstream.streams.connectors.protocols import SinkBatch, SinkConnector, SinkTask, SinkWriter
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.spark.sinks.sink import Attempt, Written
from millstream.streams.spark.source.connected import find_modules

__all__ = ["ConnectedSink"]


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
        return self._sink().writer(SinkTask(self._output, task.batch_id, task.partition))

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Hand the writers' messages to the connector."""
        self._sink().commit(SinkBatch(self._output, batch_id), [part.message for part in written])

    def _sink(self) -> SinkConnector:
        if self._opened is None:
            self._opened = opened_sink(CONNECTORS[self._connector], self._table)
        return self._opened
