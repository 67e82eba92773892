"""A job under test: its input, its run, and its results."""

from __future__ import annotations

import datetime
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.streams.connectors.registry import connector_of
from millstream.streams.errors import JobError, SqlError
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.sql.session.compiler import SqlSession
from millstream.testing.feed import FIRST_STORE_MS, FedMessage, Feed, encoded_row
from millstream.testing.results import Results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.testing.results import RunLog

__all__ = ["Plannable", "StreamTest"]

LIMIT_S: Final = 240.0
"""How long one run of a job may take, where a test says nothing."""

TEST_MEMORY_MB: Final = 900
"""Heap of the Spark session that a test starts where none runs."""

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_NOTHING = "There is no query and no INSERT in the script, so nothing runs."


class Plannable(Protocol):
    """Anything with a plan, such as a `StreamBuilder`."""

    def plan(self) -> JobPlan | QueryPlan:
        """What runs."""
        ...


class StreamTest:
    """One job, given as a script of SQL (its last query or INSERT runs) or as a builder with a plan.

    Feed rows, cut them into micro-batches, run, and look at what came out. Topics that are not fed are empty; other
    tables are read from where they are. `variables` are values of ${name} in the script; `spark` a session to use
    (None: the running one, else one is started); `limit_s` bounds each run. Raises SqlError for a script that cannot
    be bound.
    """

    def __init__(
        self,
        job: str | Plannable,
        *,
        variables: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._plan = _plan_of(job, variables)
        self._tables = _tables_of(self._plan)
        # Those where a test feeds nothing are empty.
        topics = (table for table in self._tables.values() if connector_of(table.connector).is_topic)
        self._feeds = {table.name: Feed({}, []) for table in topics}
        self._spark = spark
        self._limit_s = limit_s
        self._directory = Path(tempfile.mkdtemp(prefix="millstream-test-"))
        weakref.finalize(self, rmtree, self._directory, ignore_errors=True)
        self._time_ms = FIRST_STORE_MS
        self._now_us: int | None = None
        self._cuts = 0
        self._is_open = False
        self._ended = False
        self._log: RunLog | None = None
        self._late = 0

    def feed(self, table: str, *rows: Mapping[str, Any] | str | bytes | FedMessage, queue: int = 0) -> StreamTest:
        """Rows for a table, in the present micro-batch: dicts by column, texts as they stand in messages, or messages.

        A dict becomes JSON. `queue` is the topic's queue they are in. Raises KeyError for a table that the job does
        not read, ValueError for a dict where the table's format is no JSON, and when the run has ended.
        """
        found = self._table(table)
        for row in rows:
            message = row if isinstance(row, FedMessage) else FedMessage(row)
            self._feed(table).add(queue, _with_key(found, _check_message(found, message)), self._next_ms(message))
        self._is_open = True
        return self

    def advance(self, table: str, queue: int = 0, **time: Any) -> StreamTest:
        """Let event time pass without a row: as if a row with those columns had come to the queue, and no row is seen.

        The watermark follows as after any row, less the delay of the table's WATERMARK.
        """
        found = self._table(table)
        if found.watermark is None:
            raise ValueError(f"{table} has no WATERMARK, so it has no event time.")
        self._feed(table).add(
            queue, _check_message(found, FedMessage(time)), self._next_ms(FedMessage(None)), is_tick=True
        )
        self._is_open = True
        return self

    def set_processing_time(self, moment: datetime.datetime) -> StreamTest:
        """Let processing time stand there from the present micro-batch on; without a zone the moment is in UTC.

        It is what windows over PROCTIME(), the life of state and silent queues go by; CURRENT_TIMESTAMP and the values
        of PROCTIME() are the machine's. Raises ValueError behind the first cut, or for a moment before the last one.
        """
        if self._cuts and self._now_us is None:
            raise ValueError("Processing time is told from the first micro-batch on, or not at all.")
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        now_us = (zoned - _EPOCH) // datetime.timedelta(microseconds=1)
        if self._now_us is not None and now_us < self._now_us:
            raise ValueError(f"Processing time does not go back to {moment}.")
        self._now_us = now_us
        return self

    def cut(self) -> StreamTest:
        """End the micro-batch here, in all tables; one without rows is one all the same."""
        if self._ended:
            raise ValueError("Event time has ended: this job takes no more rows. Make another StreamTest.")
        for name in self._feeds:
            feed = self._feed(name)
            while len(feed.ends) < self._cuts:
                # What was not fed before was empty until now.
                feed.ends.append({})
                feed.nows_us.append(None)
            feed.cut(self._now_us)
        self._cuts += 1
        self._is_open = False
        return self

    def run(self, *, end: bool = True) -> Results:
        """Run what was fed since the last run, and what came out of all runs. `end`: all windows close behind it.

        Without `end` the job stops at a micro-batch, and more can be fed: the next run goes on from its checkpoint.
        Raises JobError, also where the time is up.
        """
        if self._is_open or not self._cuts:
            self.cut()
        while not self._run_once(self._running(), end=end):
            # It was stopped by the crash, so it starts again from its checkpoint.
            pass
        self._ended = end
        return self._results()

    def crash_after(self, batch: int) -> StreamTest:
        """Let the next run crash at the end of micro-batch `batch` (the first is 1), and go on from the checkpoint.

        It is the worst moment: the outputs have the micro-batch and the checkpoint does not know, so it is repeated.
        """
        if batch < 1:
            raise ValueError(f"{batch} is no number of a micro-batch: they count from 1.")
        self._running().crash_after = batch
        return self

    def as_batch(self) -> Results:
        """What the same job gives of the same rows in batch mode: in one pass, without micro-batches."""
        from millstream.testing.results import RunLog

        settings = {**self._plan.settings, "execution.runtime-mode": "batch"}
        log = RunLog()
        self._start(replace(self._plan, settings=settings), log, "batch")
        return _results_of(log, 0)

    def assert_same_as_batch(self) -> None:
        """The tables of all outputs are those of the batch. Runs the job first where nothing has run.

        AssertionError with the rows that differ. Late rows are in the batch and not in the stream.
        """
        streamed, batch = self.run() if not self._ended else self._results(), self.as_batch()
        for name in streamed.batches:
            _assert_equal(name, streamed, batch)

    def _run_once(self, log: RunLog, *, end: bool) -> bool:
        """Whether it has come to its end, not to the crash."""
        log.crashed = False
        plan = replace(self._plan, settings={**self._plan.settings, "restart-strategy.type": "none"})
        try:
            self._start(plan, log, "stream", end=end)
        except JobError:
            if not log.crashed:
                raise
        return not log.crashed

    def _start(self, plan: JobPlan | QueryPlan, log: RunLog, name: str, *, end: bool = True) -> None:
        from millstream.streams.jobs.runner import JobRunner
        from millstream.testing.fed_environment import FedEnvironment
        from millstream.testing.feed import CLOCK_FILE

        files = {table: self._directory / f"{number}.feed" for number, table in enumerate(self._feeds)}
        for table, file in files.items():
            self._feed(table).write(file)
        # Conditions that sources judge would be one more thing that a test does not see.
        plan = replace(plan, settings={**plan.settings, "millstream.rules.stage": "never"})
        clock = None if self._now_us is None else self._directory / CLOCK_FILE
        environment = FedEnvironment(files, log, ends=end, clock=clock)
        root = self._directory / "checkpoints"
        runner = JobRunner(self._session(), nameserver="", checkpoint_root=root, environment=environment)
        job = runner.start(plan, name=name, bounded=True)
        try:
            if not job.wait(self._limit_s):
                raise JobError("JOB_FAILED", f"The job has not ended after {self._limit_s:g} s.")
        finally:
            job.stop()
            if name == "stream":
                self._late += job.progress().late

    def _results(self) -> Results:
        log = self._running()
        if log.differing:
            name, batch = log.differing[0]
            words = f"Micro-batch {batch} gave {name} other rows when it was repeated: the job is not deterministic."
            raise AssertionError(words)
        return _results_of(log, self._late)

    def _running(self) -> RunLog:
        if self._log is None:
            from millstream.testing.results import RunLog

            self._log = RunLog()
        return self._log

    def _session(self) -> SparkSession:
        if self._spark is None:
            from millstream.streams.spark.runtime.session import SessionOptions, start_session

            self._spark = start_session(SessionOptions(name="millstream-test", memory_mb=TEST_MEMORY_MB))
        return self._spark

    def _feed(self, table: str) -> Feed:
        return self._feeds.setdefault(table, Feed({}, []))

    def _table(self, name: str) -> Table:
        if self._ended:
            raise ValueError("Event time has ended: this job takes no more rows. Make another StreamTest.")
        found = self._tables.get(name)
        if found is None:
            raise KeyError(f"The job reads no table {name!r}; it reads {', '.join(self._tables) or 'none'}.")
        if connector_of(found.connector).gives_hits:
            raise ValueError(f"{name} has the hits of rules, which cannot be fed.")
        return found

    def _next_ms(self, message: FedMessage) -> int:
        self._time_ms = self._time_ms + 1 if message.time_ms is None else message.time_ms
        return self._time_ms


def _plan_of(job: str | Plannable, variables: Mapping[str, str] | None) -> JobPlan | QueryPlan:
    if not isinstance(job, str):
        return job.plan()
    plans = [plan for plan in SqlSession(variables=variables).compile(job) if isinstance(plan, JobPlan | QueryPlan)]
    if not plans:
        raise SqlError("SQL_SCRIPT", _NOTHING)
    queries = [plan for plan in plans if isinstance(plan, QueryPlan)]
    if queries:
        return queries[-1]
    sinks = tuple(sink for plan in plans if isinstance(plan, JobPlan) for sink in plan.sinks)
    return JobPlan(sinks, plans[-1].settings)


def _tables_of(plan: JobPlan | QueryPlan) -> dict[str, Table]:
    nodes: Iterable[Node] = (plan.query,) if isinstance(plan, QueryPlan) else (sink.input for sink in plan.sinks)
    return {scan.table.name: scan.table for node in nodes for scan in scans_of(node)}


def _check_message(table: Table, message: FedMessage) -> FedMessage:
    if not isinstance(message.body, Mapping):
        return message
    form = table.options.get("format", "json").lower()
    if not form.endswith("json"):
        raise ValueError(f"{table.name} has the format {form}: feed it the text or bytes of each message.")
    if form == "json":
        known = [column.name for column in table.physical]
        unknown = [name for name in message.body if name not in known]
        if unknown:
            raise ValueError(f"{table.name} has no column {unknown[0]!r} in its messages; it has {', '.join(known)}.")
    return message


def _with_key(table: Table, message: FedMessage) -> FedMessage:
    """A row of upserts has its primary key for the message's key."""
    body = message.body
    if message.key or not isinstance(body, Mapping) or not table.upserts:
        return message
    values = {name: body.get(name) for name in table.primary_key}
    text = (
        str(next(iter(values.values()))) if table.options.get("key.format") == "raw" else encoded_row(values).decode()
    )
    return replace(message, key=text)


def _results_of(log: RunLog, late: int) -> Results:
    batches = {name: [told[number] for number in sorted(told)] for name, told in log.rows.items()}
    batches.update({name: [] for name in log.columns if name not in batches})
    return Results(dict(log.columns), batches, dict(log.late), late, tuple(log.dead_letters), tuple(log.failed))


def _assert_equal(name: str, streamed: Results, batch: Results) -> None:
    have, wanted = streamed.table(name), batch.table(name)
    if have == wanted:
        return
    missing, more = Counter(wanted), Counter(have)
    missing.subtract(have)
    more.subtract(wanted)
    late = f" {streamed.late_count} rows came too late for the stream." if streamed.late_count else ""
    raise AssertionError(
        f"{name}: the stream and the batch differ. Only in the batch: {list((+missing).elements())}."
        f" Only in the stream: {list((+more).elements())}.{late}"
    )
