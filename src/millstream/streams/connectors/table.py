"""The table of a connector as one serializable value, and what a job requires of its sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.streams.plan.nodes import Sink
from millstream.streams.plan.types import DataType, Field, Schema

__all__ = ["ConnectedColumn", "ConnectedTable", "ShowRows", "SinkRequest", "TableRead"]


ShowRows = Callable[[str, tuple[str, ...], list[tuple[Any, ...]], list[int] | None], None]
"""Called in the driver with a label, the columns, rows, and each row's `RowKind` as a number (None: all inserts)."""


@dataclass(frozen=True, slots=True)
class SinkRequest:
    """One INSERT of a job."""

    number: int
    """Which of the job's INSERTs it is."""
    insert: Sink
    """The plan's node: the table, and what makes its rows."""
    nameserver: str
    """The job's, for tables that name none."""
    batch: bool = False
    """Whether the job runs once, without micro-batches."""
    show: ShowRows | None = None
    """What gives rows to who runs the job; None where nobody looks."""


@dataclass(frozen=True, slots=True)
class ConnectedColumn:
    """A column in the data, or metadata under the connector's key for it."""

    name: str
    type: DataType
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class TableRead:
    """How a job reads a table from one start to the next. All is blank in a table that is only opened to be checked."""

    directory: str = ""
    """The job's own for this table: it stays as long as its checkpoint."""
    spool: str = ""
    """A directory for rows that are none, which each micro-batch empties (see `spark.source.malformed`)."""
    start_ms: int = 0
    """What `protocols.KeepsStart.start_ms` said when the checkpoint was fresh."""
    parallelism: int = 1
    """How many tasks run at one time."""
    batch: bool = False
    """Whether the job runs once, without micro-batches."""
    plan: str = ""
    """What `protocols.PlansRead.plan` said in the driver."""


@dataclass(frozen=True, slots=True)
class ConnectedTable:
    """A table as its connector's code sees it, in the driver and in workers."""

    name: str
    columns: tuple[ConnectedColumn, ...]
    """Those that are read, or all that are written, in the table's order."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those of WITH, checked, with the connector's defaults and with secrets filled in: `repr` does not show them."""
    primary_key: tuple[str, ...] = ()
    nameserver: str = ""
    """The job's, for connectors that set rows aside in topics."""
    written: tuple[str, ...] = ()
    """The names of the options that WITH has: the others are defaults."""
    stored: tuple[ConnectedColumn, ...] = ()
    """All columns that the data has, read or not, in the table's order."""
    partition_keys: tuple[str, ...] = ()
    """The columns of PARTITIONED BY."""
    read: TableRead = TableRead()
    """What a start of a job says of the reading."""

    @property
    def schema(self) -> Schema:
        """The columns with their types."""
        return Schema(tuple(Field(column.name, column.type) for column in self.columns))

    def number(self, option: str) -> int:
        """The value of an option that is a whole number."""
        return int(self.options[option])

    def is_set(self, option: str) -> bool:
        """Whether a flag is true."""
        return self.options.get(option, "false").lower() == "true"
