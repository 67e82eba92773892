"""Jobs on one Spark session that all sessions of a gateway share."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.model.errors import MillstreamError
from millstream.streams.jobs.job_book import Job, directory_of
from millstream.streams.plan.nodes import JobPlan, QueryPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.streams.jobs.progress import ResultRows
    from millstream.streams.jobs.runner import JobRunner

__all__ = ["SparkJobs"]

_WARM_NAME: Final = "warm-up"
_WARM_UP: Final = """
CREATE TABLE warm (n INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
SELECT n, COUNT(*) FROM warm GROUP BY n
"""
_WARM_UP_S: Final = 60.0
"""Seconds that the first query may take before nobody waits for it any more."""


class SparkJobs:
    """Starts Spark with the first job, or before with `warm`. Checkpoints that last lie in `checkpoints`."""

    def __init__(self, nameserver: str, checkpoints: Path, start: Callable[[], SparkSession] | None = None) -> None:
        self._nameserver = nameserver
        self._checkpoints = checkpoints
        self._start = start or _start_spark
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._runners: dict[Path, JobRunner] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="millstream-sql-gateway-", ignore_cleanup_errors=True)
        self._scratch = Path(self._directory.name)

    def warm(self) -> None:
        """Start Spark and read a table, so that the first user waits for neither. Raises what `start` raises.

        The processes that read tables start with the first one that is read.
        """
        from millstream.streams.sql.session.compiler import SqlSession

        plan = SqlSession().compile(_WARM_UP)[-1]
        assert isinstance(plan, QueryPlan)
        job = self.start(plan, _WARM_NAME, lambda _rows: None, keeps_state=False)
        job.wait(_WARM_UP_S)
        job.stop()
        self.forget(_WARM_NAME)

    def start(
        self, plan: JobPlan | QueryPlan, name: str, on_rows: Callable[[ResultRows], None], *, keeps_state: bool
    ) -> Job:
        """A running job. Raises JobError JAVA_MISSING or SPARK_START_FAILED, and what the runner raises."""
        runner = self._runner(self._checkpoints if keeps_state else self._scratch)
        return runner.start(plan, name=directory_of(name), on_rows=on_rows)

    def forget(self, name: str) -> None:
        """Remove what a job left that kept no state."""
        shutil.rmtree(self._scratch / directory_of(name), ignore_errors=True)

    def close(self) -> None:
        """End Spark, where it has started."""
        with self._lock:
            if self._session is not None:
                self._session.stop()
        self._directory.cleanup()

    def _runner(self, root: Path) -> JobRunner:
        from millstream.streams.jobs.runner import JobRunner

        with self._lock:
            if self._session is None:
                try:
                    self._session = self._start()
                except MillstreamError:
                    raise
                except Exception as unexpected:  # noqa: BLE001 - Java and Spark fail in many ways
                    raise MillstreamError("SPARK_START_FAILED", f"Spark did not start: {unexpected}.") from None
            if root not in self._runners:
                self._runners[root] = JobRunner(self._session, nameserver=self._nameserver, checkpoint_root=root)
            return self._runners[root]


def _start_spark() -> SparkSession:
    from millstream.streams.spark.runtime.session import SessionOptions, start_session

    return start_session(SessionOptions(name="millstream-sql-gateway"))
