"""The optimized outputs of a pipeline: merged where similar, with conditions pushed to their sources.

What a job is (its fingerprint, its checkpoint) is told by its outputs before that, so it goes on whatever is decided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from millstream.streams.jobs.outputs import Output
from millstream.streams.optimizer.merge_queries import sink_keys
from millstream.streams.optimizer.passes import rewrite_pipeline
from millstream.streams.optimizer.predicate_pushdown import SourceStage
from millstream.streams.optimizer.scan_predicates import scan_predicates
from millstream.streams.plan.branch import columns_read
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Node, Scan
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.reading import Judging
from millstream.streams.state.atomic_file import write_file

__all__ = ["Optimized", "optimize_outputs"]


@dataclass(frozen=True)
class Optimized:
    """The outputs that run, and what their tables' sources judge, by name. `given` are the nodes as planned.

    `timed` are reads beside the outputs, for event time alone.
    """

    outputs: list[Output]
    stages: Mapping[str, SourceStage]
    given: Sequence[Node]
    timed: Sequence[Scan]

    def judging(self, table: Table, directory: Path) -> Judging | None:
        """What the source of `table` judges, in a file of `directory`; None if nothing."""
        stage = self.stages.get(table.name)
        if stage is None:
            return None
        text = stage.rule_set().encode()
        file = directory / f"{hashlib.sha256(text).hexdigest()[:16]}.rules"
        # Each start writes it again.
        write_file(file, text, durable=False)
        needed = self.columns(table)
        judged_only = {name: kind for name, kind in self._read(table).items() if name not in needed}
        return Judging(file, judged_only, stage.drops)

    def columns(self, table: Table) -> dict[str, DataType]:
        """The columns of `table` that the outputs read, with the types that they have without a stage.

        What is no row by its malformed values is the same either way.
        """
        still = columns_read(table, [*(output.node for output in self.outputs), *self.timed])
        return {name: kind for name, kind in self._read(table).items() if name in still}

    def conditions(self, table: Table) -> tuple[Expression, ...]:
        """What all rows of `table` fulfil that anybody wants."""
        return scan_predicates(table, [*(output.node for output in self.outputs), *self.timed])

    def _read(self, table: Table) -> dict[str, DataType]:
        return columns_read(table, [*self.given, *self.timed])


def optimize_outputs(outputs: Sequence[Output], rules_stage: str, timed: Sequence[Scan] = ()) -> Optimized:
    """The outputs of one pipeline; `rules_stage` is auto, always or never."""
    keys = sink_keys([output.table for output in outputs])
    plan = rewrite_pipeline(
        [(output.node, key) for output, key in zip(outputs, keys, strict=True)],
        rules_stage,
        beside=timed,
        has_engine=find_spec("hyperscan") is not None,
    )
    rewritten = [
        replace(outputs[one.numbers[0]], node=node, told_by=one.name_column)
        for one, node in zip(plan.queries, plan.nodes, strict=True)
    ]
    return Optimized(rewritten, plan.stages, [output.node for output in outputs], timed)
