"""A driver: a process with one Spark session that runs the jobs its server assigns.

`python -m millstream.job_server.driver OPTIONS`, where OPTIONS is a `DriverOptions` in JSON. It reads orders from
standard input and writes events to standard output, see `driver_messages`; all else goes to standard error. At the end
of standard input it stops its jobs and ends: a server that is killed leaves no driver behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from millstream.job_server.binding import give_parts, plans_of_program, plans_of_script, program_file_name
from millstream.job_server.driver_job import DriverJob
from millstream.job_server.driver_messages import (
    JAVA_FULL,
    MAX_LINE_BYTES,
    ORDERS,
    Ended,
    Event,
    Failed,
    JobOrder,
    JobsProgress,
    Order,
    Ready,
    SaveJob,
    SavepointFailed,
    SavepointWritten,
    Start,
    Started,
    Stopped,
    encode_line,
)
from millstream.job_server.errors import JobServerError, words_of
from millstream.job_server.job_record import JobFailure
from millstream.model.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.streams.jobs.progress import ResultRows
    from millstream.streams.jobs.runner import JobRunner
    from millstream.streams.plan.nodes import JobPlan

__all__ = ["JAVA_ENDED", "STOP_S", "DriverOptions", "JobDriver", "bind_order", "failure_of", "main"]

_log = logging.getLogger(__name__)

STOP_S: Final = 15.0
"""Seconds that the jobs get to stop at the end of standard input; then the process ends without them."""

JAVA_ENDED: Final = 70
"""The exit code of a driver whose Java process has ended."""

JAVA_END_S: Final = 0.2
"""Seconds that a driver waits, when a job fails, to see whether Java has ended."""

_POLL_S: Final = 0.25
_PROGRESS_S: Final = 1.0


class DriverOptions(msgspec.Struct, frozen=True):
    """How to run. `work` is a directory of its own, `lock` the descriptor of a file that is locked while it lives."""

    cores: int
    memory_mb: int
    nameserver: str
    checkpoints: str
    work: str
    lock: int = -1
    settings: dict[str, str] = {}


def failure_of(error: Exception) -> JobFailure:
    """The error as a row of the catalogue."""
    now_ms = time.time_ns() // 1_000_000
    if isinstance(error, MillstreamError):
        return JobFailure(now_ms, error.name, error.label, *words_of(error)).shorten()
    unexpected = MillstreamError("INTERNAL_ERROR", f"{type(error).__name__}: {error}.")
    return JobFailure(now_ms, unexpected.name, unexpected.label, unexpected.message, unexpected.remedy).shorten()


class JobDriver:
    """Runs the jobs of orders on `runner` and tells `tell` what becomes of them. One thread calls `obey` and `look`.

    `bind` gives the plans of a job. What fails together with others is tried again in halves, until the job that fails
    is alone: the others go on.
    """

    def __init__(
        self,
        runner: JobRunner,
        bind: Callable[[JobOrder], list[JobPlan]],
        tell: Callable[[Event], None],
        *,
        on_rows: Callable[[ResultRows], None] | None = None,
        has_java_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._runner = runner
        self._has_java_ended = has_java_ended
        self._on_rows = on_rows
        self._bind = bind
        self._tell = tell
        self._jobs: dict[str, DriverJob] = {}
        self._lock = threading.Lock()

    def obey(self, order: Order) -> None:
        """Start or stop jobs; returns when that is done."""
        if isinstance(order, Start):
            self._start(order.jobs)
            return
        if isinstance(order, SaveJob):
            # In a thread of its own: it waits for the micro-batch under way, and reads all files.
            threading.Thread(target=self._save, args=(order,), name="millstream-savepoint", daemon=True).start()
            return
        for name in order.names:
            job = self._take(name)
            if job is not None:
                job.stop()
            self._tell(Stopped(name))

    def look(self) -> None:
        """Tell of jobs that have ended or failed since the last look."""
        failed: list[tuple[DriverJob, Exception]] = []
        for job in list(self._jobs.values()):
            try:
                if job.has_ended():
                    self._take(job.order.name)
                    self._tell(Ended(job.order.name))
            except Exception as error:  # noqa: BLE001 - the edge of one job: the others go on
                failed.append((job, error))
        for job, _ in failed:
            self._take(job.order.name)
            job.stop()
        for together, cause in _by_query(failed):
            _log.warning("%s failed: %s", ", ".join(one.order.name for one in together), cause)
            self._part([one.order for one in together], cause)

    def progress(self) -> JobsProgress:
        """The counts of all jobs; safe to call from another thread."""
        with self._lock:
            jobs = list(self._jobs.values())
        return JobsProgress({job.order.name: job.progress() for job in jobs})

    def stop(self) -> None:
        """Stop all jobs."""
        for name in list(self._jobs):
            job = self._take(name)
            if job is not None:
                job.stop()

    def _start(self, orders: Sequence[JobOrder]) -> None:
        legal: list[JobOrder] = []
        plans: dict[str, list[JobPlan]] = {}
        for order in orders:
            try:
                plans[order.name] = self._bind(order)
                legal.append(order)
            except Exception as error:  # noqa: BLE001 - the edge of one job: the others go on
                self._fail(order, error)
        if legal:
            self._start_together(legal, plans)

    def _start_together(self, orders: Sequence[JobOrder], plans: dict[str, list[JobPlan]]) -> None:
        parts = [(order, number, plan) for order in orders for number, plan in enumerate(plans[order.name])]
        names = [order.directory + (f"+{number}" if number else "") for order, number, _ in parts]
        try:
            handles = self._runner.start_merged([plan for _, _, plan in parts], names=names, on_rows=self._on_rows)
        except Exception as error:  # noqa: BLE001 - the edge of these jobs: those that can run do
            self._part(orders, error)
            return
        for order in orders:
            own = [handle for (one, _, _), handle in zip(parts, handles, strict=True) if one is order]
            job = DriverJob(order, own)
            with self._lock:
                self._jobs[order.name] = job
            self._tell(Started(order.name, sorted(job.queries)))

    def _save(self, order: SaveJob) -> None:
        with self._lock:
            job = self._jobs.get(order.name)
        try:
            if job is None:
                words = f"The job {order.name} does not run in this driver."
                raise JobServerError("JOB_STATE", words)
            written = job.write_savepoint(Path(order.target), order.label)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the job goes on
            _log.warning("No savepoint of %s is written: %s", order.name, error)
            self._tell(SavepointFailed(order.id, order.name, failure_of(error)))
        else:
            self._tell(SavepointWritten(order.id, order.name, written))

    def _part(self, orders: Sequence[JobOrder], error: Exception) -> None:
        """Start the halves apart, or tell of the failure of one."""
        if len(orders) == 1:
            self._fail(orders[0], error)
            return
        half = len(orders) // 2
        self._start(orders[:half])
        self._start(orders[half:])

    def _fail(self, order: JobOrder, error: Exception) -> None:
        from millstream.streams.jobs.restarts import may_pass

        _log.warning("The job %s failed: %s", order.name, error)
        if self._has_java_ended():
            # What failed was every call of Java: the end of this process says why, and the job is started again.
            return
        self._tell(Failed(order.name, failure_of(error), may_pass(error)))

    def _take(self, name: str) -> DriverJob | None:
        with self._lock:
            return self._jobs.pop(name, None)


def _by_query(failed: Sequence[tuple[DriverJob, Exception]]) -> list[tuple[list[DriverJob], Exception]]:
    """Those that failed, by the queries that they share."""
    groups: list[tuple[set[str], list[DriverJob], Exception]] = []
    for job, error in failed:
        group = next((one for one in groups if one[0] & job.queries), None)
        if group is None:
            groups.append((set(job.queries), [job], error))
        else:
            group[0].update(job.queries)
            group[1].append(job)
    return [(jobs, error) for _, jobs, error in groups]


def main() -> None:
    """The process. Standard output belongs to the server; what else writes there writes to standard error."""
    options = msgspec.json.decode(sys.argv[1], type=DriverOptions)
    # The lock was taken for this process before it was there; what it starts itself is not to keep it.
    os.set_inheritable(options.lock, False)
    os.pwrite(options.lock, str(os.getpid()).encode(), 0)
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    telling = threading.Lock()

    def tell(event: Event) -> None:
        with telling:
            try:
                events.write(encode_line(event))
                events.flush()
            except OSError:
                pass  # The server is gone; the end of standard input says so, too.

    orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders,), name="millstream-orders", daemon=True).start()
    os._exit(_run(options, orders, tell))


def _read_orders(orders: queue.SimpleQueue[Order | None]) -> None:
    """Hand on the lines of standard input; at its end the process has `STOP_S` left."""
    with os.fdopen(os.dup(0), "rb") as lines:
        while line := lines.readline(MAX_LINE_BYTES):
            orders.put(ORDERS.decode(line))
    orders.put(None)
    time.sleep(STOP_S)
    os._exit(1)


def _run(options: DriverOptions, orders: queue.SimpleQueue[Order | None], tell: Callable[[Event], None]) -> int:
    from millstream.streams.jobs.runner import JobRunner
    from millstream.streams.sdk.running import print_rows
    from millstream.streams.spark.runtime.session import JAVA_WITHOUT_MEMORY, SessionOptions, start_session

    work = Path(options.work)
    try:
        spark = start_session(
            SessionOptions(
                "millstream-jobs",
                options.cores,
                options.memory_mb,
                scratch=work,
                settings=options.settings,
                ends_without_memory=True,
            ),
            lambda step: _log.info("%s", step),
        )
    except MillstreamError as error:
        _log.error("%s", error)
        return 1
    java = getattr(spark.sparkContext._gateway, "proc", None)
    runner = JobRunner(spark, nameserver=options.nameserver, checkpoint_root=Path(options.checkpoints))

    def has_java_ended() -> bool:
        # A call fails a moment before the process is over.
        with contextlib.suppress(subprocess.TimeoutExpired):
            return java is not None and java.wait(JAVA_END_S) is not None
        return False

    driver = JobDriver(
        runner, lambda order: bind_order(order, options), tell, on_rows=print_rows, has_java_ended=has_java_ended
    )
    tell(Ready())
    threading.Thread(target=_tell_progress, args=(driver, tell), name="millstream-progress", daemon=True).start()
    while True:
        try:
            order = orders.get(timeout=_POLL_S)
        except queue.Empty:
            if java is not None and java.poll() is not None:
                _log.error("Java has ended with the code %s.", java.returncode)
                return JAVA_FULL if java.returncode == JAVA_WITHOUT_MEMORY else JAVA_ENDED
            driver.look()
            continue
        if order is None:
            driver.stop()
            spark.stop()
            return 0
        driver.obey(order)


def bind_order(order: JobOrder, options: DriverOptions) -> list[JobPlan]:
    """The plans of a job; a program runs for that, here. Raises MillstreamError for all that it does."""
    if order.kind == "sql":
        return give_parts(plans_of_script(order.text, order.settings, options.nameserver))
    programs = Path(options.work) / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    file = programs / program_file_name(order.name)
    file.write_text(order.text, encoding="utf-8")
    try:
        return give_parts(plans_of_program(file, order.settings, file.stem))
    except SystemExit as end:
        # It would end the driver with all other jobs in it.
        words = f"The program has ended by itself with {end.code!r} while its jobs were read."
        raise MillstreamError("JOB_FAILED", words, remedy="Return from main() where it calls exit().") from None


def _tell_progress(driver: JobDriver, tell: Callable[[Event], None]) -> None:
    while True:
        time.sleep(_PROGRESS_S)
        try:
            tell(driver.progress())
        except Exception:  # noqa: BLE001 - the edge of the thread: the jobs run without it
            _log.exception("The progress cannot be told.")


if __name__ == "__main__":
    main()
