"""Runs plans on a Spark session: one Spark query for the outputs that read the same tables."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.model.errors import MillstreamError
from millstream.streams.errors import JobError
from millstream.streams.jobs.awaited_start import AwaitedPipeline, AwaitedStart, may_come
from millstream.streams.jobs.bad_casts import with_bad_casts
from millstream.streams.jobs.cause import first_cause
from millstream.streams.jobs.checkpoint import Checkpoint, fingerprint
from millstream.streams.jobs.cohort import Cohort, Member, leave, shared_query
from millstream.streams.jobs.cohorts import cohorts_of, table_of
from millstream.streams.jobs.dependent_pipeline import DependentPipeline
from millstream.streams.jobs.edges import Edges
from millstream.streams.jobs.failed_calls import takes_letters
from millstream.streams.jobs.group_positions import GroupPositions
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.model_topic import ModelTopic
from millstream.streams.jobs.optimized import Optimized, optimize_outputs
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.partition_commits import PartitionCommits, check_event_time, timed_scans
from millstream.streams.jobs.pipeline import BatchPipeline, Pipeline, StreamPipeline
from millstream.streams.jobs.plan_text import plan_lines
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.jobs.restarts import BOUNDED_ATTEMPTS, Restarts
from millstream.streams.jobs.set_aside import SetAside
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.sources import Reading, Source, TopicSource, ends_by_itself, tables_of
from millstream.streams.jobs.two_stage_rules import PartedHits, part_hits, tell_sinks
from millstream.streams.plan.nodes import JobPlan, QueryPlan, Scan
from millstream.streams.plan.wall_clock import follows_wall_clock
from millstream.streams.spark.arrow_batches import are_narrow
from millstream.streams.spark.envelope import envelope, passes
from millstream.streams.spark.functions.models import ModelBook
from millstream.streams.spark.functions.user_spool import CallSpool
from millstream.streams.spark.lookups.job_tables import JobTables
from millstream.streams.spark.operators.host import OperatorHost
from millstream.streams.spark.operators.open_ends import OpenEndsSpool
from millstream.streams.spark.operators.queue_times import TimesSpool
from millstream.streams.spark.sinks.swap import Swap
from millstream.streams.spark.source.alarm import MIN_WAKE_MS
from millstream.streams.spark.source.data_source import TopicDataSource
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.translate import Translation, is_stateful, needs_operators
from millstream.streams.spark.user_calls import UserCalls

__all__ = ["JobHandle", "JobProgress", "JobRunner", "ResultRows"]

_log = logging.getLogger(__name__)

_AFTER_AN_END = (
    "A bounded run before this one closed all windows at its end; rows that come to such a window now give another row."
)

_NO_TABLES = "(none)"
"""The tables of outputs that read none, and the directory of their checkpoint."""


class JobRunner:
    """Starts jobs on `spark`. Each job keeps its state under `checkpoint_root / name`.

    `edges` is where they read and write.
    """

    def __init__(
        self, spark: SparkSession, *, nameserver: str, checkpoint_root: Path, edges: Edges | None = None
    ) -> None:
        self._spark = spark
        self._edges = edges or Edges()
        self._nameserver = nameserver
        self._root = checkpoint_root
        self._names: set[str] = set()
        spark.dataSource.register(TopicDataSource)

    def start(
        self,
        plan: JobPlan | QueryPlan,
        *,
        name: str,
        bounded: bool = False,
        on_rows: Callable[[ResultRows], None] | None = None,
    ) -> JobHandle:
        """Start the job and return at once; a job of that name goes on where its checkpoint stands.

        `bounded` reads what the topics hold now, closes all windows and ends; so does runtime mode batch, and so does a
        job whose tables all end by themselves. `on_rows` is called from other threads, one call at a time per pipeline.
        Where servers are away the job waits for them as 'millstream.start-timeout' says, and its progress says so.
        Raises JobError CHECKPOINT_MISMATCH for a checkpoint of another plan; NameRefused TOPIC_NOT_FOUND.
        """
        settings = JobSettings.of(plan.settings, self._nameserver)
        start = partial(self._pipelines, plan, settings, name=name, bounded=bounded, on_rows=on_rows)
        try:
            return JobHandle(name, start())
        except MillstreamError as error:
            if not settings.start_timeout_ms or not may_come(error):
                raise
            awaited = AwaitedStart(lambda: [start()], error, limit_s=settings.start_timeout_ms / 1000)
            return JobHandle(name, [AwaitedPipeline(awaited, 0)])

    def _pipelines(
        self,
        plan: JobPlan | QueryPlan,
        settings: JobSettings,
        *,
        name: str,
        bounded: bool,
        on_rows: Callable[[ResultRows], None] | None,
    ) -> list[Pipeline]:
        """The queries of a job, all started."""
        outputs = with_bad_casts(self._edges.outputs(plan, settings, on_rows), settings)
        leave(list((self._root / name).glob("*")), self._root)
        parted = part_hits(outputs, settings) if self._edges.parts_hits else None
        pipelines: list[Pipeline] = []
        try:
            if parted is not None:
                parted.make_topics(settings)
            for members in _by_tables(outputs if parted is None else parted.judging):
                directory = self._directory(name, members)
                pipelines.append(self._pipeline(name, directory, members, settings, bounded=bounded))
            if parted is not None:
                pipelines += self._counting(name, parted, pipelines, settings, bounded=bounded)
        except BaseException:
            for pipeline in pipelines:
                pipeline.stop()
            raise
        return pipelines

    def _counting(
        self, name: str, parted: PartedHits, judging: Sequence[Pipeline], settings: JobSettings, *, bounded: bool
    ) -> list[Pipeline]:
        """The queries that keep state over hits; a bounded one reads what there is once the others have ended."""
        origins = {}
        for members in _by_tables(parted.judging):
            checkpoint = Checkpoint.find(self._directory(name, members))
            assert checkpoint is not None
            origins.update({table.name: checkpoint.job_id for table in tables_of(one.node for one in members)})
        return [
            DependentPipeline(
                judging if bounded else (),
                partial(self._pipeline, name, self._directory(name, members), members, settings, bounded=bounded),
            )
            for members in _by_tables(parted.counting_of(origins))
        ]

    def _directory(self, job: str, members: Sequence[Output]) -> Path:
        """The checkpoint of a job's outputs that read any table together."""
        names = [table.name for table in tables_of(output.node for output in members)]
        return self._root / job / ("+".join(names) or _NO_TABLES)

    def start_merged(
        self,
        plans: Sequence[JobPlan | QueryPlan],
        *,
        names: Sequence[str],
        bounded: bool = False,
        on_rows: Callable[[ResultRows], None] | None = None,
    ) -> list[JobHandle]:
        """Start the jobs; those that can share one query do (see `cohorts_of`), the others are started one by one.

        Raises what `start` raises; none of them runs then.
        """
        jobs: dict[int, JobHandle] = {}
        try:
            for together in cohorts_of(plans, names, self._root):
                if len(together) == 1:
                    (only,) = together
                    jobs[only] = self.start(plans[only], name=names[only], bounded=bounded, on_rows=on_rows)
                else:
                    shared = [(names[place], plan) for place in together if isinstance(plan := plans[place], JobPlan)]
                    jobs.update(zip(together, self._sharing(shared, bounded=bounded, on_rows=on_rows), strict=True))
        except BaseException:
            for job in jobs.values():
                job.stop()
            raise
        return [jobs[place] for place in range(len(plans))]

    def _sharing(
        self, jobs: Sequence[tuple[str, JobPlan]], *, bounded: bool, on_rows: Callable[[ResultRows], None] | None
    ) -> list[JobHandle]:
        """Jobs of one cohort, which wait together for servers that are away."""
        settings = JobSettings.of(jobs[0][1].settings, self._nameserver)
        start = partial(self._share, jobs, settings, bounded=bounded, on_rows=on_rows)
        try:
            members = start()
        except MillstreamError as error:
            if not settings.start_timeout_ms or not may_come(error):
                raise
            limit_s, together = settings.start_timeout_ms / 1000, f"awaited-{uuid.uuid4().hex[:12]}"
            awaited = AwaitedStart(lambda: [[member] for member in start()], error, limit_s=limit_s)
            return [
                JobHandle(name, [AwaitedPipeline(awaited, place)], query=together)
                for place, (name, _) in enumerate(jobs)
            ]
        return [JobHandle(name, [one], query=one.query) for (name, _), one in zip(jobs, members, strict=True)]

    def _share(
        self,
        jobs: Sequence[tuple[str, JobPlan]],
        settings: JobSettings,
        *,
        bounded: bool,
        on_rows: Callable[[ResultRows], None] | None,
    ) -> list[Member]:
        """Jobs of one cohort as one query."""
        table = table_of(jobs[0][1])
        assert table is not None
        source, notices = self._edges.source(table, settings), list[str]()
        members: dict[Path, list[Output]] = {}
        for name, plan in jobs:
            outputs = self._edges.outputs(plan, settings, on_rows)
            directory = self._root / name / table.name
            named = [(output.sink.name, output.node) for output in outputs]
            own = Checkpoint.open(
                directory, fingerprint(named), lambda: {table.name: _begin(source, notices)}, plan_lines(named)
            )
            members[directory] = outputs
        first = next(iter(members))
        query, starts = shared_query(first) or f"merged-{uuid.uuid4().hex[:12]}", own.positions()
        cohort = Cohort(
            self._root,
            query,
            members,
            lambda left: self._pipeline(
                query,
                self._root / query,
                left,
                settings,
                bounded=bounded,
                starts=starts,
                notices=tuple(dict.fromkeys(notices)),
            ),
        )
        return [Member(cohort, directory, outputs) for directory, outputs in members.items()]

    def _pipeline(
        self,
        job: str,
        directory: Path,
        outputs: list[Output],
        settings: JobSettings,
        *,
        bounded: bool,
        starts: dict[str, Position] | None = None,
        notices: Sequence[str] = (),
    ) -> Pipeline:
        """The query of the outputs; with `starts` one that several jobs share, which has them for its beginning.

        `notices` are to be said of the start.
        """
        notices = list(notices)
        nodes = [output.node for output in outputs]
        # What reads no table has its rows at once.
        batch = settings.batch or not tables_of(nodes)
        sources = [self._edges.source(table, settings) for table in tables_of(nodes)]
        bounded = bounded or all(ends_by_itself(source.table) for source in sources)
        if not bounded and not batch:
            check_event_time(outputs)
        # A batch is whole at its end, whatever its event times are.
        timed = [] if batch else timed_scans(outputs)
        # What jobs share is a table; each of them has said in its own checkpoint what it makes of it.
        named = [(output.sink.name, output.node) for output in outputs] if starts is None else []
        checkpoint = Checkpoint.open(
            directory,
            fingerprint(named),
            lambda: starts or {source.table.name: _begin(source, notices) for source in sources},
            plan_lines(named),
        )
        if checkpoint.has_ended() and any(source.table.watermark is not None for source in sources):
            notices.append(_AFTER_AN_END)
        for said in notices:
            _log.info("The job %s: %s", job, said)
        Swap.complete(checkpoint.sinks)
        work = optimize_outputs(outputs, settings.rules_stage, timed)
        outputs, nodes = work.outputs, [output.node for output in work.outputs]
        dimensions = JobTables(checkpoint.lookups, checkpoint.job_id, settings.nameserver)
        if batch:
            dimensions.forget_batches()
        timeout_ms = settings.call_timeout_ms or None
        calls = UserCalls(str(checkpoint.calls), settings.call_error, timeout_ms, partial(takes_letters, settings))
        numbers = {source.table.name: number for number, source in enumerate(sources)}
        idle_ms = settings.idle_ms_by_number([source.table for source in sources])
        host = OperatorHost(
            checkpoint.job_id,
            checkpoint.operators,
            checkpoint.late,
            self._spark.sparkContext.defaultParallelism,
            calls,
            self._edges.now_us(checkpoint.spark, batch=batch),
            settings.ttl_ms,
            idle_ms,
            tables=dimensions,
            batch=settings.batch,
        )
        readings = {
            source.table.name: _reading(source, work, checkpoint, settings, bounded=bounded, timed=timed)
            for source in sources
        }
        guards = [one for source in sources if (one := source.guard(readings[source.table.name], job)) is not None]
        for guard in guards:
            # What an earlier process came to grief of.
            guard.settle()
        tell_sinks(outputs, guards)
        try:
            frames = {
                name: source.load(self._spark, work.columns(source.table), readings[name])
                for name, source in zip(readings, sources, strict=True)
            }
            one_row = partial(_one_row, self._spark, checkpoint, batch=batch)
            translation = Translation(
                frames, host, one_row, calls, batch=settings.batch, without_time=settings.null_event_time
            )
            book = ModelBook(checkpoint.models, partial(ModelTopic.of, nameserver=settings.nameserver))
            with book.open():
                frame = envelope(nodes, translation, timed)
            for model in book.models if batch else ():
                model.forget()
        except PySparkException as error:
            raise JobError("JOB_FAILED", f"The plan cannot run on Spark: {first_cause(error)}") from error
        found = [source.letters(checkpoint.spool / source.table.name) for source in sources]
        late = self._edges.late(checkpoint.late, host.late_shapes, settings)
        partitions = PartitionCommits(outputs, timed, checkpoint.sinks, numbers, idle_ms=idle_ms)
        tables = {number: name for name, number in numbers.items()}
        times = partial(TimesSpool(str(checkpoint.late)).take, tables)
        failed = self._edges.calls(CallSpool(calls.spool), calls.tables, settings)
        letters = [one for one in found if one is not None]
        open_ends = OpenEndsSpool(str(checkpoint.late)).take
        topics = [source for source in sources if isinstance(source, TopicSource)]
        groups = GroupPositions({topic.table.name: group for topic in topics if (group := topic.group()) is not None})
        aside = SetAside(letters, late, guards, failed, times, dimensions, book.models, open_ends, notices, groups)
        if batch:
            ends = {source.table.name: source.end() for source in sources}
            return BatchPipeline.run(frame, ends, outputs, checkpoint, aside, partitions)
        restarts = settings.restarts
        if bounded and restarts.attempts is None:
            restarts = replace(restarts, attempts=BOUNDED_ATTEMPTS)
        return StreamPipeline.run(
            frame,
            outputs,
            checkpoint,
            aside,
            partitions,
            bounded=bounded,
            interval_ms=settings.interval_ms,
            restarts=Restarts(restarts),
            narrow=are_narrow([*nodes, *timed]),
        )


def _begin(source: Source, notices: list[str]) -> Position:
    """Where a fresh checkpoint begins to read; what is to be said of that is added to `notices`."""
    if isinstance(source, TopicSource) and source.notice():
        notices.append(source.notice())
    return source.beginning()


def _one_row(spark: SparkSession, checkpoint: Checkpoint, *, batch: bool) -> DataFrame:
    """One row; in a stream it comes with the first micro-batch."""
    if batch:
        return spark.range(1)
    checkpoint.one_row.mkdir(exist_ok=True)
    (checkpoint.one_row / "row.txt").write_text("row\n")
    return spark.readStream.text(str(checkpoint.one_row))


def _reading(
    source: Source,
    work: Optimized,
    checkpoint: Checkpoint,
    settings: JobSettings,
    *,
    bounded: bool,
    timed: Sequence[Scan],
) -> Reading:
    nodes = [output.node for output in work.outputs]
    name = source.table.name
    own = any(needs_operators(node, batch=settings.batch) for node in nodes)
    by_clock = own and any(follows_wall_clock(node) for node in nodes)
    return Reading(
        start=checkpoint.start(name),
        batch=settings.batch,
        final_tick=_ends_time(settings, bounded=bounded) and any(is_stateful(node) for node in nodes),
        passes=passes([*nodes, *timed]),
        queues=own or any(scan.table.name == name for scan in timed),
        spool=checkpoint.spool / name,
        decoded=checkpoint.decoded / name,
        notes=checkpoint.sources,
        wake_after_ms=MIN_WAKE_MS if by_clock else settings.idle_ms_of(source.table) if own else 0,
        wake_again=by_clock,
        judging=work.judging(source.table, checkpoint.rules),
        conditions=work.conditions(source.table),
    )


def _ends_time(settings: JobSettings, *, bounded: bool) -> bool:
    """Whether event time is over when a run has read everything."""
    return settings.batch or (bounded and settings.closes_windows)


def _by_tables(outputs: list[Output]) -> list[list[Output]]:
    """The outputs that read any table together, in the order of the plan."""
    groups: list[tuple[set[str], list[Output]]] = []
    for output in outputs:
        names = {table.name for table in tables_of([output.node])} or {_NO_TABLES}
        together = [group for group in groups if group[0] & names]
        if not together:
            groups.append((names, [output]))
            continue
        first = together[0]
        for other in together[1:]:
            first[0].update(other[0])
            first[1].extend(other[1])
            groups.remove(other)
        first[0].update(names)
        first[1].append(output)
    order = {id(output): place for place, output in enumerate(outputs)}
    return [sorted(members, key=lambda output: order[id(output)]) for _, members in groups]
