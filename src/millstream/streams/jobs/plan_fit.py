"""Checks whether a plan can resume from a job's checkpoints, before anything is stopped or started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.streams.errors import JobError
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.environment import JobEnvironment
from millstream.streams.jobs.failed_calls import with_bad_casts
from millstream.streams.jobs.outputs import Output, tables_of
from millstream.streams.jobs.plan_text import plan_lines
from millstream.streams.jobs.runner import check_query, queries_of
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.two_stage_rules import part_hits
from millstream.streams.plan.nodes import JobPlan, Node
from millstream.streams.plan.tables import Table

__all__ = ["PlanFit", "fits", "lines_of_job"]


@dataclass(frozen=True, slots=True)
class PlanFit:
    """What becomes of one checkpoint: it goes on, is fresh, or is in the way; `words` say it in a sentence."""

    checkpoint: str
    fits: bool
    words: str


def fits(directory: Path, plan: JobPlan, nameserver: str, *, is_running: bool = False) -> list[PlanFit]:
    """What becomes of the checkpoints in a job's `directory` if it runs `plan`, one for each query.

    Of a job that `is_running` the micro-batch under way is in nobody's way, as it is over once the job is stopped.
    A checkpoint that the plan has no query for is left alone, and said so. Changes nothing there. Raises what opening
    the plan's sinks raises.
    """
    settings = JobSettings.of(plan.settings, nameserver)
    outputs = _outputs(plan, settings)
    parted = part_hits(outputs, settings) if JobEnvironment.parts_hits else None
    try:
        queries = queries_of(directory, outputs if parted is None else parted.judging)
        if parted is not None:
            origins = {table.name: _job_id(place) for place, members in queries for table in _tables(members)}
            queries += queries_of(directory, parted.counting_of(origins))
    except JobError as error:
        return [PlanFit(directory.name, False, error.message)]
    answers = [_fit(place, members, settings, is_running) for place, members in queries]
    named = {answer.checkpoint for answer in answers}
    for place in sorted(directory.iterdir()) if directory.is_dir() else ():
        if place.name not in named and Checkpoint.find(place) is not None:
            words = "No query of the plan reads these tables; the checkpoint is left alone."
            answers.append(PlanFit(place.name, True, words))
    return answers


def lines_of_job(plan: JobPlan, nameserver: str) -> list[str]:
    """The plan as the lines that `difference` compares."""
    return plan_lines(_nodes_by_name(_outputs(plan, JobSettings.of(plan.settings, nameserver))))


def _fit(directory: Path, members: Sequence[Output], settings: JobSettings, is_running: bool) -> PlanFit:
    name = directory.name
    if Checkpoint.find(directory) is None:
        return PlanFit(name, True, "There is no checkpoint; the query begins anew.")
    try:
        fit = check_query(directory, members, settings, is_running=is_running)
    except JobError as error:
        return PlanFit(name, False, error.message)
    if fit is None:
        return PlanFit(name, True, "The query goes on from its checkpoint.")
    return PlanFit(name, True, f"The changed query goes on from its checkpoint. {'; '.join(fit.lines())}.")


def _job_id(directory: Path) -> str:
    checkpoint = Checkpoint.find(directory)
    return "" if checkpoint is None else checkpoint.job_id


def _outputs(plan: JobPlan, settings: JobSettings) -> list[Output]:
    return with_bad_casts(JobEnvironment().outputs(plan, settings, None), settings)


def _nodes_by_name(outputs: Sequence[Output]) -> list[tuple[str, Node]]:
    return [(output.sink.name, output.node) for output in outputs]


def _tables(outputs: Sequence[Output]) -> list[Table]:
    return tables_of(output.node for output in outputs)
