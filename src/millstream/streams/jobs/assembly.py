"""Assembles one Spark query of a job: sources, checkpoint, translation, side outputs, supervision.

outputs -> open_sources -> open_checkpoint -> optimized -> plan_reads -> guard_rules
        -> translate (Spark's data frame) -> side_outputs -> supervise (the running query)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.filesystem.sink import Swap
from millstream.streams.connectors.rocketmq.group_positions import GroupPositions
from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.errors import JobError
from millstream.streams.jobs.checkpoint import Checkpoint, fingerprint
from millstream.streams.jobs.environment import JobEnvironment, ModelTopic
from millstream.streams.jobs.failed_calls import has_dead_letter_topic
from millstream.streams.jobs.mirror import StatePlace
from millstream.streams.jobs.optimized import Optimized, optimize_outputs
from millstream.streams.jobs.outputs import Output, ends_by_itself, tables_of
from millstream.streams.jobs.partition_commits import PartitionCommits, check_event_time, timed_scans
from millstream.streams.jobs.pipeline import BatchPipeline, Pipeline, StreamPipeline
from millstream.streams.jobs.plan_state import plan_state
from millstream.streams.jobs.plan_text import plan_lines
from millstream.streams.jobs.restarts import BOUNDED_ATTEMPTS, Restarts, first_cause
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.side_outputs import SideOutputs
from millstream.streams.jobs.two_stage_rules import tell_sinks
from millstream.streams.learning.pinned_model import PinnedModel
from millstream.streams.plan.branch import follows_wall_clock
from millstream.streams.plan.nodes import Node, Scan
from millstream.streams.spark.functions.models import ModelBook
from millstream.streams.spark.functions.user_calls import call_spool
from millstream.streams.spark.lookups.job_tables import JobTables
from millstream.streams.spark.runtime.arrow_batches import are_narrow
from millstream.streams.spark.source.cold_log import Detours, detour_spool
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.reading import MIN_WAKE_MS, GroupedSource, Reading, Source
from millstream.streams.spark.translation.batch_relations import UntimedRows
from millstream.streams.spark.translation.envelope import envelope, passes
from millstream.streams.spark.translation.operator_host import OperatorHost
from millstream.streams.spark.translation.translate import Translation, is_stateful, needs_operators
from millstream.streams.spark.translation.user_calls import UserCalls

__all__ = ["Inputs", "PipelineBuilder", "Translated", "beginning_of"]

_log = logging.getLogger(__name__)

_AFTER_AN_END = (
    "A bounded run before this one closed all windows at its end; rows that come to such a window now give another row."
)


@dataclass(frozen=True)
class Inputs:
    """The tables of a query, opened for one start, and how far they are read."""

    sources: Sequence[Source]
    """One for each table, in the order of the plan."""

    is_batch: bool
    """Whether all rows are read in one pass, without Spark's streaming."""

    is_bounded: bool
    """Whether the query ends once it has read what was there at its start."""

    timed: Sequence[Scan]
    """Reads beside those of the outputs, for event time alone."""

    kept_numbers: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the tables that the checkpoint keeps, by name; without them their order says them."""

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers by which operators know the tables, by name."""
        names = [source.table.name for source in self.sources]
        return {name: self.kept_numbers.get(name, number) for number, name in enumerate(names)}


@dataclass(frozen=True)
class Translated:
    """A query as Spark runs it, and what workers and driver share of it."""

    frame: DataFrame
    """The rows of all outputs; see `millstream.streams.spark.translation.envelope`."""

    host: OperatorHost
    """Runs the operators that keep state."""

    models: Sequence[PinnedModel]
    """The models that it scores by."""

    untimed: UntimedRows
    """Counts rows without event time in windows that Spark runs."""


@dataclass(frozen=True)
class PipelineBuilder:
    """Builds the query of outputs that read tables together. `start` runs all steps; each can be run alone."""

    spark: SparkSession
    """The session that runs it."""

    environment: JobEnvironment
    """What the job reads and writes."""

    settings: JobSettings
    """The settings of the job; those of one cohort are alike."""

    job: str
    """The job's name, or that of the query that several jobs share."""

    directory: Path
    """Its checkpoint."""

    outputs: list[Output]
    """What it computes, as planned."""

    bounded: bool
    """Whether it is to end once it has read what is there; it does so too where all its tables end by themselves."""

    starts: dict[str, Position] | None = None
    """Where several jobs share the query: the beginning of a fresh checkpoint by table, and that it tells no plan."""

    notices: Sequence[str] = ()
    """What the user is to know of the start already."""

    def start(self) -> Pipeline:
        """The running query.

        Raises JobError CHECKPOINT_MISMATCH, SINK_FAILED, JOB_FAILED, and what sources raise when they are opened.
        """
        inputs = self.open_sources()
        checkpoint, notices = self.open_checkpoint(inputs)
        try:
            return self._start_on(inputs, checkpoint, notices)
        except BaseException:
            if checkpoint.mirror is not None:
                checkpoint.mirror.close()
            raise

    def _start_on(self, inputs: Inputs, checkpoint: Checkpoint, notices: Sequence[str]) -> Pipeline:
        if checkpoint.state is not None:
            inputs = replace(inputs, kept_numbers={of.name: of.number for of in checkpoint.state.sources})
        work = optimize_outputs(self.outputs, self.settings.rules_stage, inputs.timed)
        reads = self.plan_reads(inputs, checkpoint, work)
        guards = self.guard_rules(inputs, reads, work)
        translated = self.translate(inputs, checkpoint, work, reads)
        side = self.side_outputs(inputs, checkpoint, translated, guards, notices)
        return self.supervise(inputs, checkpoint, work, translated, side)

    def open_sources(self) -> Inputs:
        """The tables that the outputs read. Raises what the environment raises, and JobError SINK_FAILED."""
        tables = tables_of(output.node for output in self.outputs)
        # What reads no table has its rows at once.
        is_batch = self.settings.batch or not tables
        sources = [self.environment.source(table, self.settings) for table in tables]
        is_bounded = self.bounded or all(ends_by_itself(table) for table in tables)
        if not is_bounded and not is_batch:
            check_event_time(self.outputs)
        # A batch is whole at its end, whatever its event times are.
        return Inputs(sources, is_batch, is_bounded, [] if is_batch else timed_scans(self.outputs))

    def open_checkpoint(self, inputs: Inputs) -> tuple[Checkpoint, list[str]]:
        """The checkpoint, whose sinks are as their last commit left them, and what the user is to know of the start.

        Where the directory has none and a copy of it lies elsewhere, that is brought back first. Raises JobError
        CHECKPOINT_MISMATCH, CHECKPOINT_DAMAGED, STATE_UNREACHABLE, STATE_DENIED.
        """
        notices = list(self.notices)
        place = StatePlace(self.settings, self.job, self.directory)
        if not inputs.is_batch:
            place.check_operators()
        mirror = None if inputs.is_batch else place.mirror()
        try:
            if mirror is not None and (notice := mirror.begin()):
                notices.append(notice)
            checkpoint = self._find_or_begin(inputs, notices)
        except BaseException:
            if mirror is not None:
                mirror.close()
            raise
        checkpoint.mirror = mirror
        if checkpoint.has_ended() and any(source.table.watermark is not None for source in inputs.sources):
            notices.append(_AFTER_AN_END)
        for notice in notices:
            _log.info("The job %s: %s", self.job, notice)
        Swap.complete(checkpoint.sinks)
        return checkpoint, notices

    def _find_or_begin(self, inputs: Inputs, notices: list[str]) -> Checkpoint:
        # What jobs share is a table; each of them has said in its own checkpoint what it makes of it.
        named = [(output.sink.name, output.node) for output in self.outputs] if self.starts is None else []
        return Checkpoint.open(
            self.directory,
            fingerprint(named),
            lambda: self.starts or {source.table.name: beginning_of(source, notices) for source in inputs.sources},
            plan_lines(named),
            self.settings.key_groups,
            state=plan_state(named) if self.starts is None and not inputs.is_batch else None,
            ignores_unclaimed=self.settings.ignores_unclaimed,
            told=lambda fit: notices.extend(f"The query has changed. {line}" for line in fit.lines()),
        )

    def plan_reads(self, inputs: Inputs, checkpoint: Checkpoint, work: Optimized) -> dict[str, Reading]:
        """How each table is read, by name."""
        nodes = [output.node for output in work.outputs]
        has_operators = any(needs_operators(node, batch=self.settings.batch) for node in nodes)
        return {
            source.table.name: self._reading(source, inputs, checkpoint, work, has_operators=has_operators)
            for source in inputs.sources
        }

    def _reading(
        self, source: Source, inputs: Inputs, checkpoint: Checkpoint, work: Optimized, *, has_operators: bool
    ) -> Reading:
        name, nodes, settings = source.table.name, [output.node for output in work.outputs], self.settings
        by_clock = has_operators and any(follows_wall_clock(node) for node in nodes)
        # Event time is over when such a run has read everything.
        ends_time = settings.batch or (inputs.is_bounded and settings.closes_windows)
        idle_ms = settings.idle_ms_of(source.table) if has_operators else 0
        count = passes([*nodes, *inputs.timed])
        return Reading(
            start=checkpoint.start(name),
            batch=settings.batch,
            final_tick=ends_time and any(is_stateful(node) for node in nodes),
            passes=count,
            queues=has_operators or any(scan.table.name == name for scan in inputs.timed),
            spool=checkpoint.spool / name,
            decoded=checkpoint.decoded / name,
            notes=checkpoint.sources,
            wake_after_ms=MIN_WAKE_MS if by_clock else idle_ms,
            wake_again=by_clock,
            judging=work.judging(source.table, checkpoint.rules),
            conditions=work.conditions(source.table),
            ends=checkpoint.fresh_ends(name) if count > 1 and not settings.batch else None,
        )

    def guard_rules(self, inputs: Inputs, reads: Mapping[str, Reading], work: Optimized) -> list[RuleGuard]:
        """What looks after the rules of the query, once what an earlier process failed at is out of service."""
        found = [source.guard(reads[source.table.name], self.job) for source in inputs.sources]
        guards = [guard for guard in found if guard is not None]
        for guard in guards:
            guard.resume()
        tell_sinks(work.outputs, guards)
        return guards

    def translate(
        self, inputs: Inputs, checkpoint: Checkpoint, work: Optimized, reads: Mapping[str, Reading]
    ) -> Translated:
        """The rows of all outputs as Spark computes them. Raises JobError JOB_FAILED where Spark refuses the plan."""
        host = self.operator_host(inputs, checkpoint)
        try:
            frames = {
                source.table.name: source.load(self.spark, work.columns(source.table), reads[source.table.name])
                for source in inputs.sources
            }
            translation = Translation(
                frames,
                host,
                partial(_one_row, self.spark, checkpoint, is_batch=inputs.is_batch),
                host.calls,
                batch=self.settings.batch,
                without_time=self.settings.null_event_time,
                numbers=inputs.numbers,
            )
            return self._envelope(inputs, checkpoint, work, translation, host)
        except PySparkException as error:
            raise JobError("JOB_FAILED", f"The plan cannot run on Spark: {first_cause(error)}") from error

    def _envelope(
        self, inputs: Inputs, checkpoint: Checkpoint, work: Optimized, translation: Translation, host: OperatorHost
    ) -> Translated:
        models = ModelBook(checkpoint.models, partial(ModelTopic.of, nameserver=self.settings.nameserver))
        with models.open():
            frame = envelope([output.node for output in work.outputs], translation, inputs.timed)
        for model in models.models if inputs.is_batch else ():
            model.forget()
        return Translated(frame, host, models.models, translation.untimed)

    def operator_host(self, inputs: Inputs, checkpoint: Checkpoint) -> OperatorHost:
        """What runs the operators that keep state, with the dimension tables and users' functions that they call."""
        settings = self.settings
        place = StatePlace(settings, self.job, self.directory)
        tables = JobTables(checkpoint.lookups, checkpoint.job_id, settings.nameserver)
        if inputs.is_batch:
            tables.forget_batches()
        calls = UserCalls(
            str(checkpoint.calls),
            settings.call_error,
            settings.call_timeout_ms or None,
            partial(has_dead_letter_topic, settings),
        )
        return OperatorHost(
            checkpoint.job_id,
            checkpoint.operators,
            checkpoint.late,
            self.settings.parallelism or self.spark.sparkContext.defaultParallelism,
            checkpoint.key_groups,
            calls,
            self.environment.now_us(checkpoint.spark, batch=inputs.is_batch),
            settings.ttl_ms,
            self._idle_ms(inputs),
            tables=tables,
            batch=settings.batch,
            generation=checkpoint.identity.generation,
            places=[]
            if checkpoint.state is None or inputs.is_batch
            else [(one.number, one.name) for one in checkpoint.state.operators],
            place=place.operators if place.has_operators else None,
        )

    def side_outputs(
        self,
        inputs: Inputs,
        checkpoint: Checkpoint,
        translated: Translated,
        guards: Sequence[RuleGuard],
        notices: Sequence[str],
    ) -> SideOutputs:
        """What the query gives beside its rows."""
        host = translated.host
        assert host.tables is not None
        spools = {source.table.name: checkpoint.spool / source.table.name for source in inputs.sources}
        dead_letters = [source.letters(spools[source.table.name]) for source in inputs.sources]
        return SideOutputs(
            dead_letters=[one for one in dead_letters if one is not None],
            late=self.environment.late(checkpoint.late, host.late_shapes, self.settings),
            calls=self.environment.calls(call_spool(host.calls.spool), host.calls.tables, self.settings),
            tables=host.tables,
            reports=checkpoint.late,
            source_tables={number: name for name, number in inputs.numbers.items()},
            detours=[Detours(name, detour_spool(spool)) for name, spool in spools.items()],
            guards=guards,
            models=translated.models,
            untimed=translated.untimed,
            notices=notices,
            groups=_groups_of(inputs.sources),
        )

    def supervise(
        self, inputs: Inputs, checkpoint: Checkpoint, work: Optimized, translated: Translated, side: SideOutputs
    ) -> Pipeline:
        """Start the query: what delivers its micro-batches, and starts it again after errors that pass."""
        outputs, settings = work.outputs, self.settings
        partitions = PartitionCommits(
            outputs, inputs.timed, checkpoint.sinks, inputs.numbers, idle_ms=self._idle_ms(inputs)
        )
        if inputs.is_batch:
            ends = {source.table.name: source.end() for source in inputs.sources}
            return BatchPipeline.run(translated.frame, ends, outputs, checkpoint, side, partitions)
        restarts = settings.restarts
        if inputs.is_bounded and restarts.attempts is None:
            restarts = replace(restarts, attempts=BOUNDED_ATTEMPTS)
        nodes: list[Node] = [output.node for output in outputs]
        return StreamPipeline.run(
            translated.frame,
            outputs,
            checkpoint,
            side,
            partitions,
            bounded=inputs.is_bounded,
            interval_ms=settings.interval_ms,
            restarts=Restarts(restarts),
            narrow=are_narrow([*nodes, *inputs.timed]),
        )

    def _idle_ms(self, inputs: Inputs) -> dict[int, int]:
        by_place = self.settings.idle_ms_by_number([source.table for source in inputs.sources])
        return {inputs.numbers[inputs.sources[place].table.name]: idle_ms for place, idle_ms in by_place.items()}


def beginning_of(source: Source, notices: list[str]) -> Position:
    """Where a fresh checkpoint begins to read; what is to be said of that is added to `notices`."""
    if isinstance(source, GroupedSource) and source.notice():
        notices.append(source.notice())
    return source.beginning()


def _groups_of(sources: Sequence[Source]) -> GroupPositions:
    topics = [source for source in sources if isinstance(source, GroupedSource)]
    return GroupPositions({topic.table.name: group for topic in topics if (group := topic.group()) is not None})


def _one_row(spark: SparkSession, checkpoint: Checkpoint, *, is_batch: bool) -> DataFrame:
    """One row; in a stream it comes with the first micro-batch."""
    if is_batch:
        return spark.range(1)
    checkpoint.one_row.mkdir(exist_ok=True)
    (checkpoint.one_row / "row.txt").write_text("row\n")
    return spark.readStream.text(str(checkpoint.one_row))
