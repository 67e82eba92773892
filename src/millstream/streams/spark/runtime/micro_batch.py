"""Which micro-batch a Python worker works for, and when it began."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

__all__ = ["LoggedTime", "ToldTime", "micro_batch"]


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
    and warmed anew in every micro-batch.
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
