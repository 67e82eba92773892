"""Which micro-batch a Python worker works for."""

from __future__ import annotations

from pyspark import TaskContext

__all__ = ["micro_batch"]


def micro_batch() -> int:
    """The number of the micro-batch that Spark runs; 0 in a batch job."""
    context = TaskContext.get()
    text = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return int(text) if text else 0
