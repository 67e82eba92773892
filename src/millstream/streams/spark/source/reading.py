"""A job's requirements of a source, and when an idle source wakes its job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.position import Position

if TYPE_CHECKING:
    from millstream.streams.connectors.rocketmq.group_positions import JobGroupPosition
    from millstream.streams.connectors.rules.guard import RuleGuard
    from millstream.streams.spark.source.dead_letters import DeadLetters

__all__ = ["MIN_WAKE_MS", "Alarm", "GroupedSource", "Judging", "ReadDefaults", "Reading", "Source"]


@dataclass(frozen=True, slots=True)
class Judging:
    """The conditions that a source judges: their `file`, and the columns that they alone need.

    With `drops` rows for which none holds are left out.
    """

    file: Path
    columns: Mapping[str, DataType]
    drops: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """How a pipeline reads a source from `start` on.

    `batch` reads once, without Spark's streaming; a bounded run with state sends a `final_tick`. `passes` is how often
    the rows of a micro-batch are read. `queues` lets each row tell its queue. `spool` and `decoded` are directories
    that a micro-batch empties, `notes` is one that stays.
    After `wake_after_ms` without rows (0: never) the source sends a tick, with `wake_again` each time. With `judging`
    rows tell which conditions hold. Rows for which one of `conditions` fails may be left out. `ends` is the file by
    which several passes agree how far a micro-batch reads.
    """

    start: Position
    batch: bool
    final_tick: bool
    passes: int
    queues: bool
    spool: Path
    decoded: Path
    notes: Path
    wake_after_ms: int = 0
    wake_again: bool = False
    judging: Judging | None = None
    conditions: tuple[Expression, ...] = ()
    ends: Path | None = None


class ReadDefaults(Protocol):
    """What the settings of a job say of the tables that it reads, where these are silent."""

    @property
    def nameserver(self) -> str:
        """Where topics are found."""
        ...

    @property
    def max_rows(self) -> int:
        """Of a micro-batch, about; 0 for no limit."""
        ...

    @property
    def waits_for_topics(self) -> bool:
        """Whether a topic that is not there yet is read once it is."""
        ...


class Source(Protocol):
    """A table that is read, opened once for a start of a job."""

    table: Table

    def beginning(self) -> Position:
        """Where a fresh checkpoint begins to read."""
        ...

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The rows, with the physical and metadata columns of those names and types and the hidden columns.

        Of a ROW the type may have only some fields; a source may give all of them nevertheless.
        """
        ...

    def end(self) -> Position:
        """What there was to read when the source was opened: where a batch ends."""
        ...

    def letters(self, spool: Path) -> DeadLetters | None:
        """What becomes of malformed rows; None where there are none."""
        ...

    def guard(self, reading: Reading, job: str) -> RuleGuard | None:
        """What looks after the rules that judge for the job of that name; None where none do."""
        ...


@runtime_checkable
class GroupedSource(Protocol):
    """A source that may begin where a consumer group stands, and shows there how far the job is."""

    table: Table

    def notice(self) -> str:
        """What is to be said of the beginning, blank for nothing."""
        ...

    def group(self) -> JobGroupPosition | None:
        """The offsets of the table's group, if it has one."""
        ...


MIN_WAKE_MS = 1_000
"""A silent source brings at most one tick in this time: each is a micro-batch of its own."""


_RINGS = 2


class Alarm:
    """Rings after `after_ms` without rows (0: never), twice or, with `again`, each time.

    Who counts the same time from a moment a little later may find it short at the first ring, and not at the second.
    """

    def __init__(self, after_ms: int, *, again: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._after_s = max(after_ms, MIN_WAKE_MS) / 1000 if after_ms else None
        self._again = again
        self._clock = clock
        self.rest()

    def rest(self) -> None:
        """Rows came: count again."""
        self._since_s = self._clock()
        self._left = _RINGS

    def rings(self) -> bool:
        """Whether it is time."""
        if self._after_s is None or not self._left or self._clock() - self._since_s < self._after_s:
            return False
        self._since_s = self._clock()
        self._left -= 0 if self._again else 1
        return True
