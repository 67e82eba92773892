"""Runs plans on a Spark session: one Spark query for outputs that read the same tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.model.errors import MillstreamError
from millstream.streams.errors import JobError
from millstream.streams.jobs.assembly import PipelineBuilder, beginning_of
from millstream.streams.jobs.awaited_start import AwaitedPipeline, AwaitedStart, DependentPipeline, may_come
from millstream.streams.jobs.checkpoint import Checkpoint, fingerprint, fit_plan
from millstream.streams.jobs.environment import JobEnvironment
from millstream.streams.jobs.failed_calls import with_bad_casts
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.identity import read_identity, shared_query
from millstream.streams.jobs.mirror import StatePlace, refusal_of
from millstream.streams.jobs.outputs import Output, tables_of
from millstream.streams.jobs.pipeline import Pipeline
from millstream.streams.jobs.pipeline_directories import group_by_tables, pipeline_directories
from millstream.streams.jobs.plan_state import plan_state
from millstream.streams.jobs.plan_text import plan_lines
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.jobs.savepoints.savepoint import begins_from, open_savepoint
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.shared_queries.cohorts import (
    Cohort,
    CohortMember,
    check_change,
    cohorts_of,
    leave,
    table_of,
)
from millstream.streams.jobs.shared_queries.cut_batches import SharedPlans, finish_cut_batch, note_plans
from millstream.streams.jobs.state_fit import StateFit
from millstream.streams.jobs.two_stage_rules import PartedHits, part_hits
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.spark.source.data_source import TableDataSource
from millstream.streams.spark.source.position import Position
from millstream.streams.state.unreachable import StateUnreachable

__all__ = ["JobHandle", "JobProgress", "JobRunner", "ResultRows", "check_query", "queries_of"]


class JobRunner:
    """Starts jobs on `spark`. Each job keeps its state under `checkpoint_root / name`.

    `environment` is what they read and write.
    """

    def __init__(
        self, spark: SparkSession, *, nameserver: str, checkpoint_root: Path, environment: JobEnvironment | None = None
    ) -> None:
        self._spark = spark
        self._environment = environment or JobEnvironment()
        self._nameserver = nameserver
        self._root = checkpoint_root
        self._names: set[str] = set()
        spark.dataSource.register(TableDataSource)

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
            return JobHandle(name, start(), directory=self._root / name)
        except MillstreamError as error:
            if not settings.start_timeout_ms or not may_come(error):
                raise
            awaited = AwaitedStart(lambda: [start()], error, limit_s=settings.start_timeout_ms / 1000)
            return JobHandle(name, [AwaitedPipeline(awaited, 0)], directory=self._root / name)

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
        outputs = with_bad_casts(self._environment.outputs(plan, settings, on_rows), settings)
        own = list((self._root / name).glob("*"))
        self._finish_cut(own, on_rows=on_rows)
        leave(own, self._root)
        parted = part_hits(outputs, settings) if self._environment.parts_hits else None
        judging = outputs if parted is None else parted.judging
        if settings.savepoint and settings.batch:
            raise JobError("SAVEPOINT_REFUSED", "A batch job begins from no savepoint: it keeps no state.", remedy="")
        if settings.savepoint:
            self._begin_from_savepoint(name, judging, settings)
        pipelines: list[Pipeline] = []
        try:
            if parted is not None:
                parted.make_topics(settings)
            queries = queries_of(self._root / name, judging)
            for directory, members in queries:
                check_query(directory, members, settings)
            for directory, members in queries:
                # One at a time: what runs is stopped where a later one does not start.
                pipelines.append(self._start_query(name, directory, members, settings, bounded=bounded))
            if parted is not None:
                pipelines += self._counting(name, parted, pipelines, settings, bounded=bounded)
        except BaseException:
            for pipeline in pipelines:
                pipeline.stop()
            raise
        return pipelines

    def _begin_from_savepoint(self, name: str, outputs: Sequence[Output], settings: JobSettings) -> None:
        """Put the savepoint in the place of the job's checkpoint, unless it has begun from it already."""
        savepoint, job, place = Path(settings.savepoint), self._root / name, settings.state_place

        def copied_origin(query: str) -> str:
            return StatePlace(settings, name, job / query).copied_origin()

        try:
            if not begins_from(savepoint, job, copied_origin):
                return
            for directory, members in queries_of(savepoint, outputs):
                check_query(directory, members, settings)
            open_savepoint(savepoint, job, place)
        except StateUnreachable as error:
            raise refusal_of(error) from error

    def _counting(
        self, name: str, parted: PartedHits, judging: Sequence[Pipeline], settings: JobSettings, *, bounded: bool
    ) -> list[Pipeline]:
        """The queries that keep state over hits; a bounded one reads what there is once the others have ended."""
        origins = {}
        for directory, members in queries_of(self._root / name, parted.judging):
            checkpoint = Checkpoint.find(directory)
            assert checkpoint is not None
            origins.update({table.name: checkpoint.job_id for table in tables_of(one.node for one in members)})
        return [
            DependentPipeline(
                judging if bounded else (),
                partial(self._start_query, name, directory, members, settings, bounded=bounded),
            )
            for directory, members in queries_of(self._root / name, parted.counting_of(origins))
        ]

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
                JobHandle(name, [AwaitedPipeline(awaited, place)], query=together, directory=self._root / name)
                for place, (name, _) in enumerate(jobs)
            ]
        return [
            JobHandle(name, [one], query=one.query, directory=self._root / name)
            for (name, _), one in zip(jobs, members, strict=True)
        ]

    def _share(
        self,
        jobs: Sequence[tuple[str, JobPlan]],
        settings: JobSettings,
        *,
        bounded: bool,
        on_rows: Callable[[ResultRows], None] | None,
    ) -> list[CohortMember]:
        """Jobs of one cohort as one query."""
        table = table_of(jobs[0][1])
        assert table is not None
        places = {self._root / name / table.name: (name, plan) for name, plan in jobs}
        self._finish_cut(places, following=list(places.values()), on_rows=on_rows)
        source, notices = self._environment.source(table, settings), list[str]()
        members: dict[Path, list[Output]] = {}
        for directory, (_, plan) in places.items():
            outputs = self._environment.outputs(plan, settings, on_rows)
            named = [(output.sink.name, output.node) for output in outputs]
            check_change(directory, fingerprint(named), self._root)
            own = Checkpoint.open(
                directory,
                fingerprint(named),
                lambda: {table.name: beginning_of(source, notices)},
                plan_lines(named),
                state=plan_state(named),
                told=lambda fit: notices.extend(f"The query has changed. {line}" for line in fit.lines()),
            )
            members[directory] = outputs
        query, starts = shared_query(next(iter(members))) or f"merged-{uuid.uuid4().hex[:12]}", own.positions()
        notes = tuple(dict.fromkeys(notices))

        def start(left: Mapping[Path, list[Output]]) -> Pipeline:
            note_plans(self._root / query, [places[directory] for directory in left])
            return self._shared_query(query, list(left.values()), settings, bounded, starts, notes).start()

        finish = partial(self._finish_query, query, None, on_rows)
        cohort = Cohort(self._root, query, members, start, finish)
        return [CohortMember(cohort, directory, outputs) for directory, outputs in members.items()]

    def _shared_query(
        self,
        query: str,
        outputs: Sequence[list[Output]],
        settings: JobSettings,
        bounded: bool,
        starts: dict[str, Position],
        notices: Sequence[str] = (),
    ) -> PipelineBuilder:
        return PipelineBuilder(
            self._spark,
            self._environment,
            settings,
            query,
            self._root / query,
            [output for some in outputs for output in some],
            bounded,
            starts,
            notices,
        )

    def _finish_cut(
        self,
        directories: Iterable[Path],
        *,
        following: SharedPlans | None = None,
        on_rows: Callable[[ResultRows], None] | None,
    ) -> None:
        """Finish what was cut short in the queries that the jobs with these checkpoints shared, unless `following` do.

        See `finish_cut_batch`.
        """
        for query in dict.fromkeys(shared_query(directory) for directory in directories):
            if query is not None:
                self._finish_query(query, following, on_rows)

    def _finish_query(
        self, query: str, following: SharedPlans | None, on_rows: Callable[[ResultRows], None] | None
    ) -> None:
        def start(plans: SharedPlans) -> Pipeline:
            settings = JobSettings.of(plans[0][1].settings, self._nameserver)
            outputs = [self._environment.outputs(plan, settings, on_rows) for _, plan in plans]
            return self._shared_query(query, outputs, settings, False, {}).start()

        finish_cut_batch(self._root / query, start, following)

    def _start_query(
        self, job: str, directory: Path, outputs: list[Output], settings: JobSettings, *, bounded: bool
    ) -> Pipeline:
        """The query of a job's outputs that read any table together, running."""
        return PipelineBuilder(self._spark, self._environment, settings, job, directory, outputs, bounded).start()


def check_query(
    directory: Path, members: Sequence[Output], settings: JobSettings, *, is_running: bool = False
) -> StateFit | None:
    """What becomes of the state of a query that has changed; None where it has not, or starts over.

    Raises JobError CHECKPOINT_MISMATCH if it may not go on from its checkpoint. Writes nothing.
    """
    identity = read_identity(directory)
    if identity is None:
        return None
    named = [(output.sink.name, output.node) for output in members]
    return fit_plan(
        directory,
        identity,
        fingerprint(named),
        plan_lines(named),
        None if settings.batch else plan_state(named),
        settings.key_groups,
        ignores=settings.ignores_unclaimed,
        is_running=is_running,
    )


def queries_of(job: Path, outputs: Sequence[Output]) -> list[tuple[Path, list[Output]]]:
    """The outputs that read any table together, with their checkpoint. Raises JobError CHECKPOINT_MISMATCH."""
    queries = _by_tables(outputs)
    names = [[table.name for table in tables_of(one.node for one in members)] for members in queries]
    return list(zip(pipeline_directories(job, names), queries, strict=True))


def _by_tables(outputs: Sequence[Output]) -> list[list[Output]]:
    """The outputs that read any table together, in the order of the plan."""
    return group_by_tables(outputs, lambda output: {table.name for table in tables_of([output.node])})
