"""Jobs that the user watches until they end or Ctrl-C stops them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.options import CommonOptions
from millstream.cli.streams.sql_shell.engine import SparkEngine
from millstream.cli.streams.sql_shell.interrupts import Interrupts
from millstream.cli.streams.sql_shell.result_view import ResultView, ShowSettings, shapes_of
from millstream.model.errors import ConnectionFailed
from millstream.streams.plan.nodes import JobPlan, QueryPlan, scans_of_plan

if TYPE_CHECKING:
    from millstream.streams.jobs.handle import JobHandle
    from millstream.streams.jobs.progress import ResultRows
    from millstream.streams.jobs.runner import JobRunner
    from millstream.streams.plan.tables import Table

__all__ = ["Foreground", "check_topics", "is_bounded"]

_POLL_S = 0.25

_QUERY_SINK = "result"
"""What the runner calls the rows of a SELECT."""

Plan = JobPlan | QueryPlan


@dataclass(frozen=True)
class Foreground:
    """Runs plans on `engine` and shows what they give; their checkpoints lie under `checkpoints`."""

    engine: SparkEngine
    interrupts: Interrupts
    common: CommonOptions
    checkpoints: Path

    def run(self, plans: Sequence[Plan], names: Sequence[str], *, bounded: bool) -> bool:
        """Whether all ended by themselves. Bounded ones run one after the other, else all at once; those that can
        share a query do either way.

        Raises the errors of `check_topics` and of Spark's start, and JobError if a job fails.
        """
        check_topics(plans, self.common)
        stopped = self.interrupts.stopped
        runner = self.engine.runner(stopped, self.common.nameserver, self.checkpoints)
        if runner is None:
            return False
        settings = ShowSettings.of(plans[-1].settings)
        ends = all(is_bounded(plan, bounded=bounded) for plan in plans)
        with ResultView(self.common.output, settings, bounded=ends) as view:
            labels = _labels(plans)
            for plan, label in zip(plans, labels, strict=True):
                view.expect(shapes_of(plan, label))
            starts = [
                _Start(plan, name, _relabel(view.rows, label))
                for plan, name, label in zip(plans, names, labels, strict=True)
            ]
            for together in _steps(starts) if bounded else [starts]:
                if not stopped.is_set():
                    self._watch(_Starter(runner, bounded, view), together)
        return not stopped.is_set()

    def _watch(self, starter: _Starter, starts: Sequence[_Start]) -> None:
        stopped, view = self.interrupts.stopped, starter.view
        with ExitStack() as stops:
            jobs: list[JobHandle] = []
            queries: set[str] = set()
            for job in starter.jobs(starts):
                if job.query in queries:
                    stops.callback(job.stop)
                    continue
                # What one of those that share a query tells, it tells for all.
                queries.add(job.query)
                jobs.append(job)
                stops.callback(_stop, job, view)
            running = jobs
            while running and not stopped.is_set():
                running = [job for job in running if not job.wait(_POLL_S)]
                view.progress(jobs[-1].progress())


@dataclass(frozen=True, slots=True)
class _Start:
    plan: Plan
    name: str
    show: Callable[[ResultRows], None]


@dataclass(frozen=True, slots=True)
class _Starter:
    runner: JobRunner
    bounded: bool
    view: ResultView

    def jobs(self, starts: Sequence[_Start]) -> Iterator[JobHandle]:
        """Start the jobs; INSERTs that can share a query do."""
        inserts = [start for start in starts if isinstance(start.plan, JobPlan)]
        for start in starts:
            if not isinstance(start.plan, JobPlan):
                yield self.runner.start(start.plan, name=start.name, bounded=self.bounded, on_rows=start.show)
        names = [start.name for start in inserts]
        plans = [start.plan for start in inserts]
        yield from self.runner.start_merged(plans, names=names, bounded=self.bounded, on_rows=self.view.rows)


def _steps(starts: Sequence[_Start]) -> list[list[_Start]]:
    """What runs together of jobs that end, one step after the other: neighbours that can share a query."""
    from millstream.streams.jobs.shared_queries.cohorts import may_share, table_of

    steps: list[list[_Start]] = []
    for start in starts:
        before = steps[-1][-1] if steps else None
        if before is not None and may_share(before.plan) and may_share(start.plan):
            table = table_of(start.plan)
            if table is not None and table == table_of(before.plan) and not _writes(steps[-1], table):
                steps[-1].append(start)
                continue
        steps.append([start])
    return steps


def _writes(starts: Sequence[_Start], table: Table) -> bool:
    """Whether one of the jobs writes the topic of the table."""
    sinks = [
        sink.table.options.get("topic")
        for start in starts
        if isinstance(start.plan, JobPlan)
        for sink in start.plan.sinks
    ]
    return table.options.get("topic") in sinks


def is_bounded(plan: Plan, *, bounded: bool) -> bool:
    """Whether the job ends by itself: asked for, in runtime mode batch, or because it reads no table."""
    return bounded or plan.settings.get("execution.runtime-mode", "").lower() == "batch" or not scans_of_plan(plan)


def check_topics(plans: Sequence[Plan], common: CommonOptions) -> None:
    """Refuse an unknown topic (TOPIC_NOT_FOUND) or a missing server before Spark takes seconds to start.

    A job that waits for servers finds out itself whether they come.
    """
    from millstream.cli.messages.near_names import near_names
    from millstream.client.blocking import BlockingClient
    from millstream.streams.jobs.settings import JobSettings

    waits = all(JobSettings.of(plan.settings, common.nameserver).start_timeout_ms for plan in plans)
    topics: set[tuple[str, str]] = set()
    for plan in plans:
        if plan.settings.get("millstream.wait-for-topics", "").lower() == "true":
            continue
        for scan in scans_of_plan(plan):
            if "topic" in scan.table.options:
                options = scan.table.options
                topics.add((options.get("nameserver", common.nameserver), options["topic"]))
    for nameserver, topic in sorted(topics):
        with (
            suppress(ConnectionFailed) if waits else nullcontext(),
            BlockingClient(nameserver, timeout_s=common.timeout_s) as client,
            near_names(client),
        ):
            client.queue_ranges(topic)


def _stop(job: JobHandle, view: ResultView) -> None:
    job.stop()
    view.progress(job.progress(), final=True)


def _labels(plans: Sequence[Plan]) -> list[str]:
    """What each plan's SELECT is called: result, result-2 and so on."""
    numbers = [sum(isinstance(plan, QueryPlan) for plan in plans[: place + 1]) for place in range(len(plans))]
    return [_QUERY_SINK if number < 2 else f"{_QUERY_SINK}-{number}" for number in numbers]


def _relabel(show: Callable[[ResultRows], None], label: str) -> Callable[[ResultRows], None]:
    if label == _QUERY_SINK:
        return show
    return lambda result: show(replace(result, sink=label) if result.sink == _QUERY_SINK else result)
