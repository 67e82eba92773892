"""What a sink is: a part that travels to the tasks, and a part that the driver runs when all tasks have succeeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millstream.streams.connectors.protocols import SinkTask, SinkWriter
from millstream.streams.plan.types import Schema

__all__ = ["Attempt", "Sink", "SinkTask", "SinkWriter", "Written"]


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
