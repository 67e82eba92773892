"""Whether a plan can go on from a job's checkpoints, before anything is stopped or started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.streams.jobs.checkpoint import Checkpoint, fingerprint
from millstream.streams.jobs.environment import JobEnvironment
from millstream.streams.jobs.failed_calls import with_bad_casts
from millstream.streams.jobs.outputs import Output, tables_of
from millstream.streams.jobs.plan_text import difference, plan_lines
from millstream.streams.jobs.runner import checkpoint_of, outputs_by_tables
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


def fits(directory: Path, plan: JobPlan, nameserver: str) -> list[PlanFit]:
    """What becomes of the checkpoints in a job's `directory` if it runs `plan`, one for each query.

    A checkpoint that the plan has no query for is left alone, and said so. Changes nothing there. Raises what opening
    the plan's sinks raises.
    """
    settings = JobSettings.of(plan.settings, nameserver)
    outputs = _outputs(plan, settings)
    parted = part_hits(outputs, settings) if JobEnvironment.parts_hits else None
    groups = outputs_by_tables(outputs if parted is None else parted.judging)
    if parted is not None:
        found = {
            table.name: Checkpoint.find(directory / checkpoint_of(one)) for one in groups for table in _tables(one)
        }
        origins = {name: "" if checkpoint is None else checkpoint.job_id for name, checkpoint in found.items()}
        groups += outputs_by_tables(parted.counting_of(origins))
    answers = [_fit(directory / checkpoint_of(members), members) for members in groups]
    named = {answer.checkpoint for answer in answers}
    for place in sorted(directory.iterdir()) if directory.is_dir() else ():
        if place.name not in named and Checkpoint.find(place) is not None:
            words = "No query of the plan reads these tables; the checkpoint is left alone."
            answers.append(PlanFit(place.name, True, words))
    return answers


def lines_of_job(plan: JobPlan, nameserver: str) -> list[str]:
    """The plan as the lines that `difference` compares."""
    return plan_lines(_nodes_by_name(_outputs(plan, JobSettings.of(plan.settings, nameserver))))


def _fit(directory: Path, members: Sequence[Output]) -> PlanFit:
    name, checkpoint = directory.name, Checkpoint.find(directory)
    if checkpoint is None:
        return PlanFit(name, True, "There is no checkpoint; the query begins anew.")
    named = _nodes_by_name(members)
    if checkpoint.fingerprint == fingerprint(named):
        return PlanFit(name, True, "The query goes on from its checkpoint.")
    first = difference(checkpoint.plan, plan_lines(named)) if checkpoint.plan else ""
    return PlanFit(name, False, f"The checkpoint belongs to another query. {first}".strip())


def _outputs(plan: JobPlan, settings: JobSettings) -> list[Output]:
    return with_bad_casts(JobEnvironment().outputs(plan, settings, None), settings)


def _nodes_by_name(outputs: Sequence[Output]) -> list[tuple[str, Node]]:
    return [(output.sink.name, output.node) for output in outputs]


def _tables(outputs: Sequence[Output]) -> list[Table]:
    return tables_of(output.node for output in outputs)
