"""`millstream start spark-master` and `spark-worker`: a standalone Spark cluster from the installed PySpark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.servers.serving import serve
from millstream.model.errors import ExtraMissing

if TYPE_CHECKING:
    from millstream.streams.spark.runtime.standalone import SparkMaster, SparkWorker

__all__ = ["spark_master", "spark_worker"]


def spark_master(*, host: str = "127.0.0.1", port: int = 7077, dir: Path = Path("spark-master")) -> int:
    """Run the master of a Spark cluster until Ctrl-C; jobs use it with job run --master spark://HOST:PORT.

    Workers and jobs on other machines need a secret: set MILLSTREAM_SPARK_SECRET everywhere, to the same text.

    Parameters
    ----------
    host
        Address to listen on, by which the others reach it.
    port
        Port of the master; 0 takes a free one.
    dir
        Where its log is written.
    """
    try:
        from millstream.streams.spark.runtime.standalone import SparkMaster
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    return _run(SparkMaster(host, port), dir / "master.log")


def spark_worker(
    master: str,
    /,
    *,
    host: str = "127.0.0.1",
    cores: int = 0,
    memory_mb: int = 1024,
    dir: Path = Path("spark-worker"),
) -> int:
    """Run a worker of the Spark cluster at MASTER (spark://HOST:PORT) until Ctrl-C.

    Its interpreter is this one, so its jobs have what is installed here.

    Parameters
    ----------
    master
        Address of the master, as spark-master prints it.
    host
        Address of this machine, by which the others reach it.
    cores
        Cores for jobs; default: all.
    memory_mb
        Memory for the Java processes of jobs; each of them starts Python processes of about 80 MB beside it.
    dir
        Where jobs work here, and the worker's log is written.
    """
    try:
        from millstream.streams.spark.runtime.standalone import SparkWorker
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    return _run(SparkWorker(master, host, cores or os.cpu_count() or 1, memory_mb, dir / "work"), dir / "worker.log")


def _run(role: SparkMaster | SparkWorker, log: Path) -> int:
    from millstream.streams.spark.runtime.standalone import SparkDaemon

    daemon = SparkDaemon(role, log)
    serve(daemon, lambda address: print(f"spark   {address}"), "stopped", has_tls=False, until=daemon.wait)
    return 0
