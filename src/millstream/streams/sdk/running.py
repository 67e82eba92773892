"""Runs jobs inside the user's process."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millstream.streams.jobs.progress import JobProgress, JobState, ResultRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.streams.jobs.handle import JobHandle
    from millstream.streams.plan.nodes import JobPlan

__all__ = ["DEFAULT_NAMESERVER", "RunningJob", "print_rows", "start_job"]

DEFAULT_NAMESERVER = "127.0.0.1:9876"
"""Where `millstream quickstart` listens."""

_POLL_S = 0.25


class RunningJob:
    """A started job. As a context manager it is stopped at the block's end; awaited, it says its counts when it ends.

    Safe to call from any thread.
    """

    def __init__(self, handle: JobHandle, scratch: tempfile.TemporaryDirectory[str] | None) -> None:
        self._handle = handle
        self._scratch = scratch

    @property
    def name(self) -> str:
        """The job's id."""
        return self._handle.name

    @property
    def status(self) -> JobState:
        """Whether it is "running", has "ended" or has "failed"; `wait` raises why."""
        return self._handle.progress().state

    def progress(self) -> JobProgress:
        """Rows in and out, malformed and late ones, the watermark, and how far each queue is."""
        return self._handle.progress()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the job has ended within that time; None waits for its end. Raises JobError if it failed."""
        if timeout_s is not None:
            return self._handle.wait(timeout_s)
        while not self._handle.wait(_POLL_S):
            pass
        return True

    def stop(self) -> None:
        """End the job and wait for what is under way; its checkpoint stays. Stopping twice is no error."""
        self._handle.stop()
        if self._scratch is not None:
            self._scratch.cleanup()

    def until_interrupted(self) -> JobProgress:
        """Wait for the job's end, Ctrl-C or SIGTERM, which stop it cleanly; to be called in the main thread."""
        stopped = threading.Event()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, lambda _number, _frame: stopped.set())
        try:
            while not stopped.is_set() and not self._handle.wait(_POLL_S):
                pass
        finally:
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self.progress()

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def __await__(self) -> Generator[Any, None, JobProgress]:
        return self._wait_for_end().__await__()

    async def _wait_for_end(self) -> JobProgress:
        while not await asyncio.to_thread(self._handle.wait, _POLL_S):
            pass
        return self.progress()


def print_rows(result: ResultRows) -> None:
    """Show rows as lines: the sink's name, what kind of change it is if rows change, the columns."""
    for place, row in enumerate(result.rows):
        kind = f" {result.kinds[place].short}" if result.kinds is not None else ""
        values = ", ".join(f"{name}={value}" for name, value in zip(result.columns, row, strict=True))
        sys.stdout.write(f"{result.sink}{kind}: {values}\n")
    sys.stdout.flush()


def start_job(
    plan: JobPlan,
    *,
    name: str,
    nameserver: str,
    bounded: bool,
    spark: SparkSession | None,
    master: str,
    code: Sequence[Path],
    checkpoint_dir: Path | None,
    on_rows: Callable[[ResultRows], None],
) -> RunningJob:
    """Start Spark where it does not run yet, and the job on it. Raises JobError, NameRefused, ConnectionFailed."""
    from millstream.streams.jobs.runner import JobRunner
    from millstream.streams.spark.runtime.session import SessionOptions, start_session
    from millstream.streams.spark.runtime.shipping import ship

    if spark is None:
        spark = start_session(SessionOptions(master=master, self_test=not master))
        if master and not master.startswith("local["):
            ship(spark, code)
    scratch = tempfile.TemporaryDirectory(prefix="millstream-job-") if checkpoint_dir is None else None
    root = checkpoint_dir if scratch is None else Path(scratch.name)
    assert root is not None
    runner = JobRunner(spark, nameserver=nameserver or DEFAULT_NAMESERVER, checkpoint_root=root)
    try:
        return RunningJob(runner.start(plan, name=name, bounded=bounded, on_rows=on_rows), scratch)
    except BaseException:
        if scratch is not None:
            scratch.cleanup()
        raise
