"""The process that Spark's Python workers, and readers of sources, are forked from, with what they import imported.

Run as `python -m millstream.streams.spark.runtime.worker_daemon MODULE`, in the place of `pyspark.daemon`. A worker
starts in milliseconds then, and the pages of its modules are shared with the others.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from millstream.streams.spark.runtime.micro_batch import TaskEndCollector
from millstream.streams.spark.runtime.source_forks import FORKS_VARIABLE, start_forks

__all__ = ["DAEMON_MODULE", "POOL_VARIABLE", "RULES_WORKERS", "preload"]

DAEMON_MODULE: Final = "millstream.streams.spark.runtime.worker_daemon"
"""For Spark's setting `spark.python.daemon.module`."""

POOL_VARIABLE: Final = "MILLSTREAM_WORKERS"
"""Names in the environment what the workers are for, where they are not for everything."""

RULES_WORKERS: Final = "rules"
"""Workers that judge: a stage of some thousand rules takes seconds and a hundred megabytes."""

_WORKER: Final = "pyspark.worker"
_OF_ALL_WORKERS: Final = (
    # PySpark imports it in each worker that is given Arrow batches; no module of ours uses it.
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyspark.sql.conversion",
    # And these in the reader of a source.
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.worker.plan_data_source_read",
)
_OF_WORKERS: Final = {
    "": (
        "millstream.streams.connectors.rocketmq.reader",
        "millstream.streams.operators.grouping",
        "millstream.streams.spark.translation.operator_host",
        "millstream.streams.connectors.print.sink",
        "millstream.streams.spark.sinks.router",
        "millstream.streams.spark.source.data_source",
    ),
    RULES_WORKERS: (
        "millstream.streams.spark.rules.hit_rows",
        "millstream.streams.connectors.rules.reader",
        "millstream.streams.spark.rules.stages",
    ),
}


def preload(worker_module: str) -> None:
    """Import what the workers of `worker_module` import. No thread of ours may live when a process is forked."""
    # A BLAS with threads would start them here, in the process that forks.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    of_pool = _OF_WORKERS[os.environ.get(POOL_VARIABLE, "")] if worker_module == _WORKER else ()
    for name in (worker_module, *of_pool, *(_OF_ALL_WORKERS if of_pool else ())):
        importlib.import_module(name)
    # PySpark collects garbage behind each task: 55 ms to look through what was imported, whose pages a look would also
    # make the worker's own.
    gc.collect()
    gc.freeze()


def _until_unheard(work: Callable[..., int]) -> Callable[..., int]:
    """The worker's `work`, which ends without a word where Spark has ended its task and hears no more, as in a stop."""

    def worker(*arguments: object) -> int:
        try:
            return work(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)

    return worker


def _main(arguments: Sequence[str]) -> None:
    from pyspark import daemon

    daemon.gc = TaskEndCollector  # type: ignore[assignment, attr-defined]
    daemon.worker = _until_unheard(daemon.worker)
    worker_module = arguments[0] if arguments else _WORKER
    preload(worker_module)
    place = os.environ.get(FORKS_VARIABLE)
    if place and worker_module == _WORKER and not os.environ.get(POOL_VARIABLE):
        start_forks(Path(place))
    daemon.manager()


if __name__ == "__main__":
    _main(sys.argv[1:])
