"""A driver that may be killed: `python -m crash.nexmark_job DIRECTORY QUERY EVENTS ROWS` runs one of Nexmark's queries.

Each micro-batch's rows are a file of their own, which a replay writes anew; so the files hold what a sink holds that
takes each micro-batch once.
"""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.nexmark.scripts import query_text, tables_text

from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["BASE_TIME_MS", "table_of"]

BASE_TIME_MS = 1_767_225_585_000

_LIMIT_S = 600.0
_ADDING = (RowKind.INSERT, RowKind.UPDATE_AFTER)


def main() -> int:
    directory, name, events, rows = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    told = directory / "told"
    told.mkdir(parents=True, exist_ok=True)
    seen: set[Path] = set()

    def take(result: ResultRows) -> None:
        # Spark writes down what a micro-batch reads before it runs: the newest is the one that is told.
        planned = (directory / "checkpoints").glob("job/*/spark/offsets/*")
        number = max(int(path.name) for path in planned if path.name.isdigit())
        file = told / f"{number:06}"
        adds = [kind in _ADDING for kind in result.kinds or ()] or [True] * len(result.rows)
        changes = list(zip(result.rows, adds, strict=True))
        if file in seen:
            changes = pickle.loads(file.read_bytes()) + changes
        seen.add(file)
        unfinished = directory / "unfinished"
        unfinished.write_bytes(pickle.dumps(changes))
        unfinished.replace(file)

    session = start_session(SessionOptions(memory_mb=600))
    try:
        runner = JobRunner(session, nameserver="127.0.0.1:9", checkpoint_root=directory / "checkpoints")
        job = runner.start(_plan(name, events, rows), name="job", bounded=True, on_rows=take)
        job.wait(_LIMIT_S)
        return int(job.progress().state != "ended")
    finally:
        session.stop()


def _plan(name: str, events: str, rows: str) -> JobPlan:
    values = {"EVENTS": events, "RATE": "20", "BASE_TIME_MS": str(BASE_TIME_MS), "MAX_DELAY": "3 s", "SEED": "7"}
    plan = SqlSession(variables=values).compile(tables_text("made") + query_text(name))[-1]
    assert isinstance(plan, JobPlan)
    shown = tuple(replace(sink, table=replace(sink.table, options={"connector": "print"})) for sink in plan.sinks)
    return replace(plan, sinks=shown, settings={**plan.settings, "millstream.max-rows-per-trigger": rows})


def table_of(directory: Path) -> tuple[Counter[tuple[Any, ...]], list[str]]:
    """What the files add up to, and the micro-batches that take back what was never there."""
    table: Counter[tuple[Any, ...]] = Counter()
    wrong = []
    for file in sorted((directory / "told").iterdir()):
        for row, adds in pickle.loads(file.read_bytes()):
            table[row] += 1 if adds else -1
        if any(count < 0 for count in table.values()):
            wrong.append(file.name)
    return +table, wrong


if __name__ == "__main__":
    raise SystemExit(main())
