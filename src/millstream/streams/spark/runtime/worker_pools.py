"""Python workers apart from the others: those that keep much in memory, which not every worker should come to keep.

Spark takes the worker that has been idle for longest, whatever it did before, so that in time each of them has done
everything. It keeps apart, with a daemon of their own, workers whose environments differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from millstream.streams.spark.runtime.worker_daemon import POOL_VARIABLE, RULES_WORKERS

__all__ = ["RULES_WORKERS", "workers_for"]


@contextmanager
def workers_for(spark: SparkSession, pool: str) -> Iterator[None]:
    """What is given to Spark meanwhile runs in workers of that pool."""
    environment = spark.sparkContext.environment
    environment[POOL_VARIABLE] = pool
    try:
        yield
    finally:
        del environment[POOL_VARIABLE]
