"""What a query of a job gives beside its rows, and what the driver looks after while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millstream.streams.connectors.rocketmq.group_positions import GroupPositions
from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.jobs.failed_calls import FailedCalls
from millstream.streams.jobs.late_output import LateOutput
from millstream.streams.learning.pinned_model import PinnedModel
from millstream.streams.operators.state import OpenEnds
from millstream.streams.spark.lookups.job_tables import JobTables
from millstream.streams.spark.operators.operator_reports import (
    EventTimes,
    ends_by_operator,
    event_times_of,
    open_ends_spool,
    times_spool,
)
from millstream.streams.spark.source.dead_letters import DeadLetters
from millstream.streams.spark.translation.batch_windows import UntimedRows

__all__ = ["SideOutputs"]


@dataclass(frozen=True)
class SideOutputs:
    """All of it for one query; the driver goes through it at the end of each micro-batch."""

    dead_letters: Sequence[DeadLetters]
    """Malformed messages, for each table that may have some."""

    late: LateOutput
    """Rows that came behind the watermark."""

    calls: FailedCalls
    """Calls of users' functions that failed."""

    tables: JobTables
    """The dimension tables that the query joins."""

    reports: Path
    """Where operators leave what they know of event time and what waits for it."""

    source_tables: Mapping[int, str]
    """The tables that are read, by the numbers that operators know them by."""

    guards: Sequence[RuleGuard] = ()
    """What looks after rules that judge for the query."""

    models: Sequence[PinnedModel] = ()
    """Models that the query scores by; they hear of each micro-batch that begins."""

    untimed: UntimedRows = field(default_factory=UntimedRows)
    """Counts rows without event time in windows that Spark runs."""

    notices: Sequence[str] = ()
    """What the user is to know of the start."""

    groups: GroupPositions = field(default_factory=lambda: GroupPositions({}))
    """Consumer groups that hear of each micro-batch that is done."""

    def take_event_times(self) -> EventTimes:
        """What operators and windows of a batch know of event time after a micro-batch."""
        times, counts = event_times_of(times_spool(self.reports).take(), self.source_tables), self.untimed.counts()
        tables = {*counts, *times.untimed}
        return times._replace(untimed={name: max(counts.get(name, 0), times.untimed.get(name, 0)) for name in tables})

    def take_open_ends(self) -> dict[str, OpenEnds]:
        """What waits for the watermark after a micro-batch, by operator."""
        return ends_by_operator(open_ends_spool(self.reports).take())

    def trouble(self) -> str | None:
        """What hinders, in one line, while rows are delivered all the same."""
        troubles = [*(guard.trouble() for guard in self.guards), *(model.problem() for model in self.models)]
        return next((one for one in troubles if one), self.tables.trouble())
