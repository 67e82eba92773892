"""Runs of one query: what its changes add up to after each micro-batch."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.nexmark.scripts import events_text, query_text, tables_text
from nexmark_answers import side_input
from nexmark_events import COUNT, variables
from nexmark_published import published_query
from pyspark.sql import SparkSession

from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["Changes", "Table", "compiled", "played"]

LIMIT_S = 240.0

Table = Counter[tuple[Any, ...]]


@dataclass
class Changes:
    """What a job told, by the micro-batch in which it did."""

    by_batch: dict[int, list[tuple[tuple[Any, ...], bool]]] = field(default_factory=lambda: defaultdict(list))
    progress: JobProgress = field(default_factory=JobProgress)
    _started: threading.Event = field(default_factory=threading.Event)
    _job: JobHandle | None = None

    def of(self, job: JobHandle) -> None:
        """The job that tells; until it is known what it tells waits."""
        self._job = job
        self._started.set()

    def take(self, result: ResultRows) -> None:
        assert self._started.wait(LIMIT_S)
        assert self._job is not None
        adds = [kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) for kind in result.kinds or ()] or [True] * len(
            result.rows
        )
        self.by_batch[self._job.progress().batches].extend(zip(result.rows, adds, strict=True))

    def table(self, batches: int | None = None) -> Table:
        """What the changes of the first micro-batches (None: of all) add up to; a row is never taken that is not there."""
        found: Table = Counter()
        for batch, changes in sorted(self.by_batch.items()):
            if batches is None or batch < batches:
                for row, adds in changes:
                    found[row] += 1 if adds else -1
                wrong = [row for row, count in found.items() if count < 0]
                assert not wrong, f"micro-batch {batch} takes back what was never there: {wrong[:3]}"
        return +found


def compiled(script: str, values: dict[str, str], *, sink: str = "print") -> JobPlan:
    """The query over made-up events, with its result in a table of that connector."""
    plan = SqlSession(variables=values).compile(script)[-1]
    assert isinstance(plan, JobPlan)
    (only,) = plan.sinks
    if only.table.connector != "blackhole":
        return plan
    return replace(plan, sinks=(replace(only, table=replace(only.table, options={"connector": sink})),))


def played(
    spark: SparkSession,
    directory: Path,
    name: str,
    *,
    rows: int = COUNT,
    count: int = COUNT,
    max_delay_ms: int = 0,
    batch: bool = False,
    published: bool = False,
) -> Changes:
    """A bounded run of a query with at most `rows` events in a micro-batch, or in batch mode; of ours or the published."""
    words = directory / "data" / "side_input.txt"
    words.parent.mkdir(parents=True, exist_ok=True)
    words.write_text("".join(f"{key},{word}\n" for key, word in side_input().items()))
    values = {
        **variables(max_delay_ms, count),
        "SIDE_INPUT": str(words),
        "OUTPUT": str(directory / "output"),
        "NEXMARK_TABLE": "events",
        "NEXMARK_DIR": str(directory),
        "FLINK_HOME": str(directory),
        "SUBMIT_TIME": "now",
    }
    script = events_text("made") + published_query(name, None) if published else tables_text("made") + query_text(name)
    plan = compiled(script, values)
    mode = {"execution.runtime-mode": "batch"} if batch else {"millstream.max-rows-per-trigger": str(rows)}
    changes = Changes()
    runner = JobRunner(spark, nameserver="127.0.0.1:9", checkpoint_root=directory / "checkpoints")
    job = runner.start(
        replace(plan, settings={**plan.settings, **mode}), name="nexmark", bounded=True, on_rows=changes.take
    )
    changes.of(job)
    assert job.wait(LIMIT_S), job.progress()
    changes.progress = job.progress()
    return changes
