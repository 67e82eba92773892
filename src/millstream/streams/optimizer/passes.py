"""The optimizer passes, their order and conditions.

A pass takes a bound plan and gives another one that says the same, but for what a setting asks of it. Each has a file
of its own beside this one, by the name that `PASSES` has for it. `rewrite_query` is what SqlSession runs over a SELECT;
an INSERT is pruned while it is bound, and then read in its zone. Passes of `When.JOB` are run by JobRunner, through
`jobs/bad_casts.py` and `jobs/two_stage_rules.py`, over a job of its own; jobs that share a query ask for none of them.
`rewrite_pipeline` is what JobRunner runs last, over the outputs of one pipeline, be they of one job or of a cohort.
EXPLAIN shows a plan after `When.QUERY`, and beneath it what `rewrite_pipeline` decides.

A job's fingerprint is taken after `When.JOB`, so what `rewrite_pipeline` does may differ from start to start.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from millstream.streams.optimizer.local_time_zones import read_in_zone
from millstream.streams.optimizer.lookup_pushdown import push_into_lookups
from millstream.streams.optimizer.merge_queries import MergedQuery, merge_queries
from millstream.streams.optimizer.predicate_pushdown import PushdownDecision, SourceStage, push_predicates
from millstream.streams.optimizer.prune_columns import prune_columns
from millstream.streams.plan.nodes import Node

__all__ = ["PASSES", "Pass", "PipelinePlan", "When", "rewrite_pipeline", "rewrite_query"]


class When(Enum):
    """What a pass runs over."""

    RULES = "the rules of an import, before they become plans"
    QUERY = "the plan of each SELECT and INSERT, when a session binds it"
    JOB = "the outputs of a job, when it starts"
    PIPELINE = "the outputs of one pipeline, of one job or of a cohort, when it starts or goes on"


class Pass(NamedTuple):
    """One pass, by the name of its file."""

    name: str
    when: When
    condition: str = ""
    """When it changes anything; blank where that depends on the plan alone."""


PASSES: Final = (
    Pass("sliding_windows", When.RULES, "--windows sliding"),
    Pass("prune_columns", When.QUERY),
    Pass("local_time_zones", When.QUERY, "'table.local-time-zone' is not UTC"),
    Pass("strict_casts", When.JOB, "'millstream.bad-cast' is not null"),
    Pass("two_stage_rules", When.JOB, "a table of hits has 'hits.topic', and the job is no batch"),
    Pass("merge_queries", When.PIPELINE),
    Pass("lookup_pushdown", When.PIPELINE),
    Pass("predicate_pushdown", When.PIPELINE, "'millstream.rules.stage' is not never"),
)
"""In the order in which they run."""


def rewrite_query(node: Node, zone: str) -> Node:
    """The bound plan of a SELECT as a job has it, reading only what it needs; `zone` is the session's time zone."""
    return read_in_zone(prune_columns(node), zone)


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """The outputs of one pipeline as they run."""

    queries: Sequence[MergedQuery]
    """Which outputs run as one, before all else."""
    nodes: Sequence[Node]
    """The plans of `queries`, rewritten."""
    stages: Mapping[str, SourceStage]
    """What sources evaluate, by the names of their tables."""
    decisions: Sequence[PushdownDecision]
    """What became of the conditions on each table."""


def rewrite_pipeline(
    outputs: Sequence[tuple[Node, Hashable]], stage_mode: str, *, beside: Sequence[Node] = (), has_engine: bool = True
) -> PipelinePlan:
    """The outputs, each with the key of its sink (see `sink_keys`), as one pipeline runs them.

    `stage_mode` is auto, always or never; `beside` are reads of the pipeline that are no outputs. `has_engine` says
    whether there is an engine that finds many patterns in one pass.
    """
    queries = merge_queries(outputs)
    nodes = [push_into_lookups(one.node) for one in queries]
    pushed = push_predicates([*nodes, *beside], stage_mode, has_engine=has_engine)
    return PipelinePlan(queries, pushed.nodes[: len(nodes)], pushed.stages, pushed.decisions)
