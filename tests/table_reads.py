"""Reads of tables behind the protocols of connectors, as a job plans them and without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.connected import (
    ConnectedBatchReader,
    ConnectedSource,
    ConnectedSpec,
    ConnectedStreamReader,
)
from millstream.streams.spark.source.data_source import decode_spec, encode_spec
from millstream.streams.spark.source.reading import Reading

__all__ = ["rows_of_tasks", "spec_of_source", "spec_of_table"]


def spec_of_table(
    table: Table, directory: Path, columns: Mapping[str, DataType] | None = None, *, parallelism: int = 1, **more: Any
) -> ConnectedSpec:
    """What a job reads of `table`, behind its way as text; `more` are fields of the `Reading`, and `max_rows`."""
    source = ConnectedSource(table, "localhost:1", more.pop("max_rows", 0))
    return spec_of_source(source, directory, columns, parallelism=parallelism, **more)


def spec_of_source(
    source: ConnectedSource,
    directory: Path,
    columns: Mapping[str, DataType] | None = None,
    *,
    parallelism: int = 1,
    **more: Any,
) -> ConnectedSpec:
    """The same of a source that is open."""
    known: dict[str, Any] = {
        "start": source.beginning(), "batch": False, "final_tick": False, "passes": 1, "queues": False,
        "spool": directory / "spool", "decoded": directory / "decoded", "notes": directory / "notes",
    }  # fmt: skip
    every = {column.name: column.type for column in (*source.table.physical, *source.table.metadata)}
    spec = source.spec(every if columns is None else columns, Reading(**{**known, **more}), parallelism)
    copied = decode_spec(encode_spec(spec), f"{ConnectedSpec.__module__}:{ConnectedSpec.__qualname__}")
    assert isinstance(copied, ConnectedSpec)
    return copied


def rows_of_tasks(reader: ConnectedStreamReader | ConnectedBatchReader, tasks: Iterable[Any]) -> list[dict[str, Any]]:
    """The rows of the tasks, with the hidden columns."""
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
