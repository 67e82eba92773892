"""Checkpoints of jobs that stand after a micro-batch, for tests of savepoints."""

from __future__ import annotations

import json
from pathlib import Path

from millstream.streams.jobs.identity import JobIdentity, write_identity
from millstream.streams.jobs.state_fit import PlannedOperator, PlannedSource, PlanState, StateRecord
from millstream.streams.plan.state_forms import StateForm

FORM = StateForm("abc", "GROUP BY", ("t.k STRING",), ("COUNT(*) BIGINT",), ("t",))
PLAN = PlanState((PlannedOperator(FORM, ("out",), "aggregate"),), (PlannedSource("t", "topic=t"),), ("out",))


def job_at(root: Path, batch: int = 4) -> Path:
    """A job whose query stands after a micro-batch, with files of the next one."""
    place = root / "job" / "t"
    start = {"queues": {"b/0": 0}, "cut_ms": 0, "ended": False, "name": "t", "wakes": 0}
    write_identity(place, JobIdentity("id", "print", {"t": start}, ["Output out"], 16, StateRecord.fresh(PLAN)))
    for part, content in (
        ("offsets", "v1\n{}\n" + json.dumps({**start, "queues": {"b/0": 70}})),
        ("commits", "v1\n{}"),
    ):
        (place / "spark" / part).mkdir(parents=True)
        (place / "spark" / part / str(batch)).write_text(content)
    operator = place / "operators" / "0-aggregate"
    operator.mkdir(parents=True)
    for name in (f"{batch - 1}.0-15.groups", f"{batch}.0-15.delta", f"{batch + 1}.0-15.delta", ".5.tmp"):
        (operator / name).write_bytes(name.encode())
    (place / "lookups").mkdir()
    (place / "lookups" / "4.version").write_text("3")
    (place / "malformed").mkdir()
    (place / "malformed" / "left").write_text("scratch")
    return root / "job"


def names_in(directory: Path) -> set[str]:
    return {str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file()}
