"""What a pipeline has beside its rows: what is set aside of them, and what is looked after while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.streams.jobs.dead_letter import DeadLetters
from millstream.streams.jobs.failed_calls import FailedCalls
from millstream.streams.jobs.group_positions import GroupPositions
from millstream.streams.jobs.late_output import LateOutput
from millstream.streams.jobs.rule_guard import RuleGuard
from millstream.streams.learning.kept import KeptModel
from millstream.streams.operators.state import OpenEnds
from millstream.streams.spark.lookups.job_tables import JobTables
from millstream.streams.spark.operators.operator_reports import EventTimes

__all__ = ["SetAside"]


@dataclass(frozen=True)
class SetAside:
    """What is not among a job's rows: malformed messages by table, rows that came too late, rules and calls that fail.

    `times` gives what operators said of event time in a micro-batch: see `event_times_of`, `ends` what they have open,
    by operator. `tables` are the dimension tables that the job joins; `models` are told before each micro-batch that it
    begins, `groups` when it is done. `notices` are said of the start.
    """

    letters: Sequence[DeadLetters]
    late: LateOutput
    guards: Sequence[RuleGuard] = ()
    calls: FailedCalls | None = None
    times: Callable[[], EventTimes] = EventTimes
    tables: JobTables | None = None
    models: Sequence[KeptModel] = ()
    ends: Callable[[], Mapping[str, OpenEnds]] = dict
    notices: Sequence[str] = ()
    groups: GroupPositions = field(default_factory=lambda: GroupPositions({}))

    def trouble(self) -> str | None:
        """What hinders, in one line, while rows are delivered all the same."""
        told = [*(guard.trouble() for guard in self.guards), *(model.trouble() for model in self.models)]
        return next((said for said in told if said), None if self.tables is None else self.tables.trouble())
