"""Key groups: the smallest units of keyed state, assigned to tasks in ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.streams.operators.columns import Longs

__all__ = ["DEFAULT_KEY_GROUPS", "FIRST_KEY_GROUPS", "MAX_KEY_GROUPS", "KeyGroups"]

DEFAULT_KEY_GROUPS: Final = 128
"""Key groups of each operator of a new job (`pipeline.max-parallelism`): so many tasks share its work at most."""

MAX_KEY_GROUPS: Final = 32_768
"""The largest `pipeline.max-parallelism`, which is Flink's: the number of a group fits 16 bits."""


FIRST_KEY_GROUPS: Final = 8
"""Key groups of a job of a release that had buckets in place of them, and did not write their number."""


@dataclass(frozen=True, slots=True)
class KeyGroups:
    """How `count` key groups are dealt to `tasks`: in ranges, as Flink deals them. A job keeps its `count` for life."""

    count: int
    tasks: int

    @classmethod
    def deal(cls, count: int, parallelism: int) -> KeyGroups:
        """`count` groups for a parallelism; no task is without a group."""
        return cls(count, max(1, min(parallelism, count)))

    def task_of(self, groups: Longs) -> Longs:
        """The task that has each group."""
        return groups * self.tasks // self.count

    def range_of(self, task: int) -> range:
        """The groups of a task, which are neighbours."""
        return range(-(-task * self.count // self.tasks), -(-(task + 1) * self.count // self.tasks))
