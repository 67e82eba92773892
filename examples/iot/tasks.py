"""The tasks that look at each reading: half of them are INSERTs in SQL, half of them rules in YAML."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FIELDS", "KINDS", "Task", "make_tasks", "write_tasks"]

KINDS = ("pump", "press", "oven", "lathe", "mixer", "fan", "robot", "boiler", "belt", "drill")
"""Kinds of machines."""

FIELDS = ("temperature", "pressure", "vibration")
"""What each machine measures; usual values are between 0 and 80."""

_FIRST_LIMIT = 85

_TABLES = """CREATE TABLE readings (kind STRING, temperature DOUBLE, pressure DOUBLE, vibration DOUBLE, note STRING)
WITH ('connector' = 'rocketmq', 'topic' = 'mqtt', 'format' = 'json');
CREATE TABLE found (rule STRING, temperature DOUBLE, pressure DOUBLE, vibration DOUBLE)
WITH ('connector' = 'rocketmq', 'topic' = 'found', 'format' = 'json');
"""


@dataclass(frozen=True, slots=True)
class Task:
    """Readings of a kind of machine with a value above `limit` in `field`, or with a fault's code in their note."""

    name: str
    kind: str
    field: str
    limit: int | str

    @property
    def is_sql(self) -> bool:
        """Whether it is an INSERT; else a rule."""
        return isinstance(self.limit, int)

    def fits(self, reading: Mapping[str, Any]) -> bool:
        """The same in Python, by which the example counts the alerts that must come."""
        if reading["kind"] != self.kind:
            return False
        value = reading[self.field]
        return self.limit in value if isinstance(self.limit, str) else value > self.limit


def make_tasks(count: int) -> list[Task]:
    """So many tasks; every other one is in SQL."""
    kinds = itertools.zip_longest(
        itertools.islice(_limits(), count - count // 2), itertools.islice(_faults(), count // 2)
    )
    return [task for pair in kinds for task in pair if task is not None]


def _limits() -> Iterator[Task]:
    for limit in itertools.count(_FIRST_LIMIT):
        for field, kind in itertools.product(FIELDS, KINDS):
            yield Task(f"{kind}-{field}-{limit}", kind, field, limit)


def _faults() -> Iterator[Task]:
    for number in itertools.count(1):
        for kind in KINDS:
            yield Task(f"{kind}-fault-{number}", kind, "note", f"E{number:03}")


def write_tasks(tasks: Sequence[Task], directory: Path) -> list[Path]:
    """The files for `millstream rules import`: tasks.sql and tasks.yml."""
    inserts = [
        f"INSERT INTO found SELECT '{task.name}', temperature, pressure, vibration FROM readings"
        f" WHERE kind = '{task.kind}' AND {task.field} > {task.limit};"
        for task in tasks
        if task.is_sql
    ]
    rules = [
        f"---\nrule: {task.name}\ntitle: Fault {task.limit} of a {task.kind}\n"
        f"when: {{kind: {task.kind}, note: {{contains: {task.limit}}}}}"
        for task in tasks
        if not task.is_sql
    ]
    written = []
    for name, lines in (("tasks.sql", [_TABLES, *inserts]), ("tasks.yml", rules)):
        if len(lines) > (name == "tasks.sql"):
            written.append(directory / name)
            written[-1].write_text("\n".join(lines) + "\n")
    return written
