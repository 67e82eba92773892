"""The process that Spark's Python workers are forked from, with what all of them import already imported.

Run as `python -m millstream.streams.spark.worker_daemon MODULE`, in the place of `pyspark.daemon`. A worker starts in
milliseconds then, and the pages of its modules are shared with the others.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

__all__ = ["DAEMON_MODULE", "preload"]

DAEMON_MODULE: Final = "millstream.streams.spark.worker_daemon"
"""For Spark's setting `spark.python.daemon.module`."""

_WORKER: Final = "pyspark.worker"
_OF_WORKERS: Final = (
    "millstream.streams.operators.grouping",
    "millstream.streams.spark.operators.host",
    "millstream.streams.spark.sinks.console",
    "millstream.streams.spark.sinks.router",
    "millstream.streams.spark.source.data_source",
    # PySpark imports it in each worker that is given Arrow batches; no module of ours uses it.
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyspark.sql.conversion",
)


def preload(worker_module: str) -> None:
    """Import what the workers of `worker_module` import. No thread of ours may live when a process is forked."""
    # A BLAS with threads would start them here, in the process that forks.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in (worker_module, *(_OF_WORKERS if worker_module == _WORKER else ())):
        importlib.import_module(name)


def _main(arguments: Sequence[str]) -> None:
    from pyspark.daemon import manager

    preload(arguments[0] if arguments else _WORKER)
    manager()


if __name__ == "__main__":
    _main(sys.argv[1:])
