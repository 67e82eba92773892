"""The progress of a running job, and the rows that it shows."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Literal

from millstream.streams.jobs.job_events import JobEvent
from millstream.streams.plan.changelog import RowKind

__all__ = [
    "QUERY_SINK",
    "JobProgress",
    "JobState",
    "OpenWindows",
    "QueueProgress",
    "ResultRows",
    "moment_text",
    "watermark_text",
]

QUERY_SINK = "result"
"""Name of the rows of an interactive query."""

JobState = Literal["running", "ended", "failed"]


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Rows of a `print` sink or of an interactive query, in the order of `columns`.

    `sink` is the print identifier, else the table's name; "result" for a query. `kinds` tells what each row says,
    where rows change; None where all are inserts.
    """

    sink: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    kinds: list[RowKind] | None = None


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """One queue of a table: the next offset to read, rows behind it, and for how long no row came.

    `watermark_ms` is its newest event time less the watermark's delay; None where nobody tells it.
    """

    table: str
    queue: str
    offset: int
    behind: int | None
    silent_s: float
    watermark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OpenWindows:
    """How many windows of an operator are open, each key by itself, and the watermark in ms that closes the first.

    Patterns that may go on, and times up to which rows wait for partners, count as windows; of windows that overlap
    the parts that they share count.
    """

    operator: str
    count: int
    closes_ms: int


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Counts since this start of the job (not since its checkpoint began).

    `rows_in` counts each source row once, however many outputs read it; `malformed` ones are among them. `late` rows
    came after their window was closed; rows that Spark adds up before the check count as one. `late_by` has them by
    operator, `malformed_last_minute` those malformed in the last 60 seconds. `rows_out` is by sink.
    `rows_per_s` is the speed of the latest micro-batch while running, of the whole run afterwards. `watermark_ms` is
    None until the first event time; `behind` counts rows that are stored and not read yet, None if unknown.
    `hits` has the rows of tables of rules by rule, before anything is done with them; `queues` what each queue gave.
    `failed_calls` has the calls of users' functions that gave no value, by function. `rows_between` are the rows that
    one query of the job sent to another, by table; `open_windows` what waits for the watermark, by operator. `rows_by`
    are the rows out of merged INSERTs, by sink and by the text that tells each INSERT apart, such as its rule.
    `cold_by_broker` has the rows, by table, that lie in an object store and that workers could not read there.
    `notices` are sentences about how this start began, and the first of these causes.
    `without_event_time` are the rows whose event time is NULL, by table, as the operators that keep state got them: no
    window and no watermark takes them in.
    `batch_s` is how long the latest micro-batch with rows took, None before it. `checkpoint_ms` is when the latest
    micro-batch was over, which is when the job's checkpoint was complete; `restarts` counts the starts of its queries
    by themselves. `state_bytes` is what its operators keep on the disk, None where that is not known.
    `read_to_ms` is the store time up to which everything was read while rows wait, None where none wait.
    `events` are the last ones, in their order.
    """

    rows_in: int = 0
    malformed: int = 0
    late: int = 0
    rows_out: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    rows_per_s: float = 0.0
    watermark_ms: int | None = None
    behind: int | None = None
    state: JobState = "running"
    trouble: str | None = None
    late_by: dict[str, int] = field(default_factory=dict)
    malformed_last_minute: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    queues: tuple[QueueProgress, ...] = ()
    failed_calls: dict[str, int] = field(default_factory=dict)
    rows_between: dict[str, int] = field(default_factory=dict)
    open_windows: tuple[OpenWindows, ...] = ()
    rows_by: dict[str, dict[str, int]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    without_event_time: dict[str, int] = field(default_factory=dict)
    batch_s: float | None = None
    checkpoint_ms: int | None = None
    restarts: int = 0
    state_bytes: int | None = None
    read_to_ms: int | None = None
    events: tuple[JobEvent, ...] = ()
    cold_by_broker: dict[str, int] = field(default_factory=dict)


def watermark_text(progress: JobProgress) -> str:
    """The watermark in UTC to the second; a dash where there is none."""
    return "-" if progress.watermark_ms is None else moment_text(progress.watermark_ms)


def moment_text(time_ms: int) -> str:
    """A time in UTC, to the second."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
