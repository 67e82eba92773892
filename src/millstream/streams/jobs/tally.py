"""The counters of one pipeline, from its outputs and from Spark's progress reports."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from millstream.streams.jobs.job_events import JobEvents
from millstream.streams.jobs.progress import JobProgress, JobState, OpenWindows, QueueProgress
from millstream.streams.operators.state import OpenEnds
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.rows import END_OF_TIME_MS

__all__ = ["Tally"]

_LONGEST_DELAY_MS = 3_660 * 86_400_000
"""A watermark closer than this to the end of time is the final tick's."""


_MINUTE_S = 60.0


class Tally:
    """Counts of one pipeline; safe to use from several threads."""

    def __init__(self, starts: Mapping[str, Position], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._started_s = clock()
        self._ended_s: float | None = None
        self._positions = dict(starts)
        self._starts = dict(starts)
        self._refused: dict[str, tuple[int, str]] = {}
        self._rows_in = self._malformed = self._batches = 0
        self._late_by: Counter[str] = Counter()
        self._untimed: Counter[str] = Counter()
        self._malformed_at: deque[tuple[float, int]] = deque()
        self._rows_out: Counter[str] = Counter()
        self._hits: Counter[str] = Counter()
        self._failed_calls: Counter[str] = Counter()
        self._cold_by_broker: Counter[str] = Counter()
        self._rows_between: Counter[str] = Counter()
        self._rows_by: dict[str, Counter[str]] = {}
        self._ends: dict[str, OpenEnds] = {}
        self._speed = 0.0
        self._batch_s: float | None = None
        self._watermark_ms: int | None = None
        self._behind: dict[str, int] = {}
        self._seen_batch = -1
        self._latest: dict[str, Position] = {}
        self._heard_s: dict[tuple[str, str], float] = {}
        self._times_us: dict[tuple[str, str], int] = {}
        self._notices: list[str] = []
        self._queues_seen = {name: dict(position.queues) for name, position in starts.items()}
        self._checkpoint_ms: int | None = None
        self._restarts = 0
        self.events = JobEvents()

    def notice(self, notices: Iterable[str]) -> None:
        """What is to be said of how this start began."""
        with self._lock:
            self._notices += notices

    def note_delivery(
        self,
        rows_out: Mapping[str, int],
        malformed: int,
        late: Mapping[str, int] | None = None,
        hits: Mapping[str, int] | None = None,
        failed_calls: Mapping[str, int] | None = None,
        rows_between: Mapping[str, int] | None = None,
        rows_by: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """A micro-batch was delivered; `late` are the rows that operators of ours left out, `hits` those of rules.

        `failed_calls` are those of users' functions, by function, `rows_between` rows for another query, by table,
        `rows_by` those out of merged INSERTs, by sink and by what tells the INSERT.
        """
        with self._lock:
            self._rows_out.update(rows_out)
            self._malformed += malformed
            self._late_by.update(late or {})
            self._hits.update(hits or {})
            self._failed_calls.update(failed_calls or {})
            self._rows_between.update(rows_between or {})
            for sink, counts in (rows_by or {}).items():
                self._rows_by.setdefault(sink, Counter()).update(counts)
            if malformed:
                self._malformed_at.append((self._clock(), malformed))
            self._batches += 1

    def note_checkpoint(self, now_ms: int) -> None:
        """A micro-batch is over, and the checkpoint is complete."""
        with self._lock:
            self._checkpoint_ms = now_ms
        self.events.note_back()

    def note_restart(self, cause: str) -> None:
        """The query was started again by itself."""
        with self._lock:
            self._restarts += 1
        if not self.events.is_away:
            self.events.note("restarted", cause)

    def note_refusal(self, table: str, count: int, reason: str) -> None:
        """So many messages of a micro-batch were no rows of the table, the first of them for this reason."""
        if count:
            with self._lock:
                before, first = self._refused.get(table, (0, reason))
                self._refused[table] = (before + count, first)

    def note_detours(self, table: str, rows: int, reason: str) -> None:
        """So many cold rows of the table went through the broker; the first time `reason` becomes a notice."""
        if rows:
            with self._lock:
                if table not in self._cold_by_broker:
                    self._notices.append(reason)
                self._cold_by_broker[table] += rows

    def unread(self) -> dict[str, str]:
        """The tables of which no row could be read so far, with the reason of the first that could not."""
        with self._lock:
            return {
                table: reason for table, (count, reason) in self._refused.items() if 0 < self._rows_of(table) <= count
            }

    def saw_times(
        self,
        watermark_us: int | None,
        times_us: Mapping[tuple[str, str], int],
        untimed: Mapping[str, int] | None = None,
    ) -> None:
        """How far event time has come, over all and by table and queue, as far as that is known.

        `untimed` are the rows of the micro-batch whose event time is NULL, by table.
        """
        with self._lock:
            self._untimed.update(untimed or {})
            self._times_us.update(times_us)
            if watermark_us is not None:
                self._set_watermark(watermark_us // 1000)

    def saw_ends(self, ends: Mapping[str, OpenEnds]) -> None:
        """What operators of ours have open after a micro-batch."""
        with self._lock:
            self._ends.update(ends)

    def read_to(self, end: Position, seconds: float) -> None:
        """The source was read up to `end` in `seconds`."""
        with self._lock:
            self._count_to(end, seconds)

    def absorb(self, report: Mapping[str, Any] | None) -> None:
        """Take Spark's report on a micro-batch; one that was taken already changes nothing."""
        if report is None:
            return
        with self._lock:
            if report["batchId"] <= self._seen_batch:
                return
            self._seen_batch = report["batchId"]
            for source in report["sources"]:
                if source.get("endOffset"):
                    end = Position.from_json(source["endOffset"])
                    self._count_to(end, report.get("batchDuration", 0) / 1000)
                    latest = source.get("latestOffset")
                    if latest:
                        self._latest[end.name] = Position.from_json(latest)
                        self._see_queues(end.name)
                        self._behind[end.name] = self._latest[end.name].rows_since(end)

    def note_end(self) -> None:
        """Nothing more comes."""
        with self._lock:
            if self._ended_s is None:
                self._ended_s = self._clock()

    def progress(self, state: JobState) -> JobProgress:
        """The counts now."""
        with self._lock:
            speed = self._speed
            if self._ended_s is not None:
                speed = self._rows_in / max(self._ended_s - self._started_s, 1e-3)
            return JobProgress(
                self._rows_in,
                self._malformed,
                self._late_by.total(),
                dict(self._rows_out),
                self._batches,
                speed,
                self._watermark_ms,
                sum(self._behind.values()) if self._behind else None,
                state,
                late_by=dict(self._late_by),
                without_event_time=dict(self._untimed),
                malformed_last_minute=self._recently_malformed(),
                hits=dict(self._hits),
                failed_calls=dict(self._failed_calls),
                cold_by_broker=dict(self._cold_by_broker),
                queues=tuple(self._queues()),
                rows_between=dict(self._rows_between),
                open_windows=tuple(self._open_windows()),
                notices=tuple(self._notices),
                rows_by={sink: dict(counts) for sink, counts in self._rows_by.items()},
                batch_s=self._batch_s,
                checkpoint_ms=self._checkpoint_ms,
                restarts=self._restarts,
                read_to_ms=min(self._cuts_ms(), default=None),
                events=self.events.last(),
            )

    def _recently_malformed(self) -> int:
        while self._malformed_at and self._clock() - self._malformed_at[0][0] > _MINUTE_S:
            self._malformed_at.popleft()
        return sum(count for _, count in self._malformed_at)

    def _open_windows(self) -> Iterator[OpenWindows]:
        for operator, ends_open in sorted(self._ends.items()):
            if ends_open.earliest_us is not None:
                yield OpenWindows(operator, ends_open.count, ends_open.earliest_us // 1000)

    def _see_queues(self, name: str) -> None:
        now = self._latest[name].queues
        self.events.note_queues(name, self._queues_seen.get(name, {}), now)
        self._queues_seen[name] = dict(now)

    def _cuts_ms(self) -> Iterator[int]:
        """The store times at which tables with rows that wait were cut, as far as they are cut by it."""
        for name, count in self._behind.items():
            cut_ms = self._positions[name].cut_ms
            if count and cut_ms > self._starts.get(name, Position()).cut_ms:
                yield cut_ms

    def _queues(self) -> Iterator[QueueProgress]:
        now_s = self._clock()
        for name, position in sorted(self._positions.items()):
            latest = self._latest.get(name)
            for queue, offset in sorted(position.queues.items()):
                time_us = self._times_us.get((name, queue))
                yield QueueProgress(
                    name,
                    queue,
                    offset,
                    None if latest is None else max(0, latest.offset(queue) - offset),
                    now_s - self._heard_s.get((name, queue), self._started_s),
                    None if time_us is None else time_us // 1000,
                )

    def _rows_of(self, table: str) -> int:
        """Rows of the table that were read since this start."""
        start = self._starts.get(table, Position())
        return self._positions[table].rows_since(start) if table in self._positions else 0

    def _count_to(self, end: Position, seconds: float) -> None:
        before = self._positions.get(end.name, Position())
        for queue, offset in end.queues.items():
            if offset > before.offset(queue):
                self._heard_s[end.name, queue] = self._clock()
        rows = end.rows_since(before)
        self._positions[end.name] = end
        self._rows_in += rows
        if seconds > 0 and rows:
            self._speed, self._batch_s = rows / seconds, seconds

    def _set_watermark(self, watermark_ms: int) -> None:
        if 0 < watermark_ms < END_OF_TIME_MS - _LONGEST_DELAY_MS:
            self._watermark_ms = watermark_ms
