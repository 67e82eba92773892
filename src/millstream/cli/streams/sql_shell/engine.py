"""Spark for one shell or script, started in its own thread when the first job needs it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.model.errors import ExtraMissing, MillstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.streams.jobs.runner import JobRunner

__all__ = ["SparkEngine", "start_spark"]

_POLL_S = 0.1

Tell = Callable[[str], None]


class SparkEngine:
    """Starts Spark once; `begin` does it while the user types. `start` runs in another thread and tells its steps."""

    def __init__(self, start: Callable[[Tell], SparkSession] | None = None) -> None:
        self._start = start or start_spark
        self._thread: threading.Thread | None = None
        self._session: SparkSession | None = None
        self._failure: Exception | None = None
        self._step = "starting Spark"
        self._runners: dict[Path, JobRunner] = {}

    def begin(self) -> None:
        """Start Spark, unless it has been started; returns at once. What goes wrong is told by `session`."""
        if self._thread is None:
            self._failure = None
            # A daemon: a user who leaves before Spark has started does not wait for it.
            self._thread = threading.Thread(target=self._work, name="millstream-spark", daemon=True)
            self._thread.start()

    def session(self, stopped: threading.Event) -> SparkSession | None:
        """The session, once it is there; until then the user sees what is waited for. None if `stopped` is set first.

        Raises JobError JAVA_MISSING or SPARK_START_FAILED, ExtraMissing; the next call tries again.
        """
        self.begin()
        if self._session is None and self._failure is None:
            began_s = time.monotonic()
            with _spinner() as tell:
                while self._is_starting() and not stopped.is_set():
                    tell(f"{self._step} ({time.monotonic() - began_s:.0f} s; Ctrl-C to stop waiting)")
                    stopped.wait(_POLL_S)
        if self._failure is not None:
            self._thread = None
            raise self._failure
        return self._session

    def runner(self, stopped: threading.Event, nameserver: str, checkpoint_root: Path) -> JobRunner | None:
        """Runs jobs on the session; None if `stopped` is set before it is there."""
        session = self.session(stopped)
        if session is None:
            return None
        from millstream.streams.jobs.runner import JobRunner

        if checkpoint_root not in self._runners:
            self._runners[checkpoint_root] = JobRunner(session, nameserver=nameserver, checkpoint_root=checkpoint_root)
        return self._runners[checkpoint_root]

    def close(self) -> None:
        """End Spark, where it has started."""
        if self._session is not None:
            self._session.stop()

    def _is_starting(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._session = self._start(self._tell)
        except MillstreamError as error:
            self._failure = error
        except Exception as unexpected:  # noqa: BLE001 - told in the thread that waits
            self._failure = MillstreamError("SPARK_START_FAILED", f"Spark did not start: {unexpected}.")

    def _tell(self, step: str) -> None:
        self._step = step


def start_spark(tell: Tell, *, few_rows_in_java: bool = False) -> SparkSession:
    """A session beside this process; see `SessionOptions`. Raises JobError, ExtraMissing."""
    try:
        from millstream.streams.spark.runtime.session import SessionOptions, start_session
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    return start_session(SessionOptions(few_rows_in_java=few_rows_in_java), tell)


@contextmanager
def _spinner() -> Iterator[Tell]:
    """Shows words beside a turning sign on a terminal; once, as a line, elsewhere."""
    if not sys.stderr.isatty():
        print("starting Spark ...", file=sys.stderr, flush=True)
        yield lambda _words: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting Spark") as status:
        yield status.update
