"""What a job asks of a connector that has a sink of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.streams.plan.nodes import Sink

__all__ = ["ShowRows", "SinkRequest"]

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
