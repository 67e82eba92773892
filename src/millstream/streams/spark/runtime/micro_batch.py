"""What a Python worker knows of its task: the micro-batch, when it began, and when to collect garbage."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

__all__ = ["LoggedTime", "TaskEndCollector", "ToldTime", "collector_paused", "micro_batch"]


class TaskEndCollector:
    """In the place of the module `gc` where PySpark looks for cycles behind each task.

    What is alive between two tasks stays, as a rule: modules, and the state that operators and rules keep. It is set
    aside, so that each value is looked at once. What a task makes is not, since it is over. Who drops something that
    holds cycles calls `gc.unfreeze()`: the next task's end looks at everything again.
    """

    @staticmethod
    def collect() -> None:
        """Free what the task has left behind, and set aside what lives on."""
        gc.collect()
        gc.freeze()


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without looks for cycles meanwhile: plain values have none, and looking at them costs up to half of the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def micro_batch() -> int:
    """The number of the micro-batch that Spark runs; 0 in a batch job."""
    context = TaskContext.get()
    text = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return int(text) if text else 0


@dataclass(frozen=True, slots=True)
class LoggedTime:
    """When a micro-batch began, in microseconds since 1970: the same as CURRENT_TIMESTAMP says in it.

    It is read from Spark's offset log in `directory`, which is written before the micro-batch runs and is read again
    where it is repeated. The time itself would be in the code that Spark makes of a plan, which then is made, compiled
    and warmed again in every micro-batch.
    """

    directory: str

    def __call__(self) -> int:
        # A line with the version, one with what holds for the micro-batch, then the offsets.
        _, batch, *_ = (Path(self.directory) / str(micro_batch())).read_text().split("\n", 2)
        return int(json.loads(batch)["batchTimestampMs"]) * 1000


@dataclass(frozen=True, slots=True)
class ToldTime:
    """The time that was told beforehand, in microseconds since 1970: that of a batch job."""

    now_us: int

    def __call__(self) -> int:
        return self.now_us
