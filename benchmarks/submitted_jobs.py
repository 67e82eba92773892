"""A hundred small jobs that are submitted to a job server within a minute: when they run, what they take."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.merged import RULE, STEADY_ROWS_PER_S, TABLES, fill_topic, send_steadily
from millstream.client.blocking import BlockingClient
from millstream.client.job_server import JobServerClient
from millstream.model.errors import MillstreamError
from millstream.server.child import RoleProcess, ServerProcess
from millstream.telemetry.processes import TreeRecorder

__all__ = ["measure_submitted_jobs"]

_JOBS: Final = int(os.environ.get("SUBMITTED_JOBS", "100"))
_SPREAD_S: Final = float(os.environ.get("SUBMITTED_SPREAD_S", "55"))
_INTERVAL: Final = os.environ.get("SUBMITTED_INTERVAL", "1 s")
_HELD_ROWS: Final = 1_000
_STEADY_S: Final = 30.0
_LOOK_S: Final = 0.5
_LIMIT_S: Final = 500.0

Figures = dict[str, Any]


def measure_submitted_jobs() -> Figures:
    """SUBMITTED_JOBS jobs (100) over one topic, handed in evenly within SUBMITTED_SPREAD_S seconds (55).

    Then half a minute at 1,000 rows a second. Cores and memory (PSS) are of the job server and all below it: driver,
    JVM and Python workers; not of the broker.
    """
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as broker:
        nameserver = broker.addresses.nameserver
        with BlockingClient(nameserver) as client:
            fill_topic(client, "steady", _HELD_ROWS)
            shared = ("--checkpoint-root", str(Path(scratch) / "checkpoints"))
            options = ("--port", "0", "--nameservers", nameserver, "--metrics-port", "-1", *shared)
            with RoleProcess("jobs", Path(scratch) / "server", options=options) as server:
                jobs = JobServerClient(f"http://{server.addresses['http']}")
                _wait_until_leading(jobs)
                with TreeRecorder([server.pid]) as recorder:
                    return _measure(jobs, client, recorder)


def _measure(jobs: JobServerClient, client: BlockingClient, recorder: TreeRecorder) -> Figures:
    began_s = time.monotonic()
    for number in range(_JOBS):
        script = TABLES.format(topic="steady", kind="resource-sensitive", interval=_INTERVAL)
        jobs.submit(name=f"job-{number}", kind="sql", text=script + RULE.format(name=f"r{number}", number=number))
        time.sleep(max(0.0, began_s + (number + 1) * _SPREAD_S / _JOBS - time.monotonic()))
    submitted_s = time.monotonic() - began_s
    _wait_until_running(jobs)
    running_s = time.monotonic() - began_s
    recorder.take()
    starts_cpu_s = recorder.cpu_s()
    ended = threading.Event()
    sender = threading.Thread(target=send_steadily, args=(client, ended))
    sender.start()
    try:
        _wait_until_read(jobs, _HELD_ROWS + STEADY_ROWS_PER_S)
        recorder.take()
        before_cpu_s, before_s, rows = recorder.cpu_s(), time.monotonic(), _rows_in(jobs)
        time.sleep(_STEADY_S)
        recorder.take()
        seconds = time.monotonic() - before_s
        states = [job["state"] for job in jobs.jobs()]
        return {
            "jobs": _JOBS,
            "submitted_s": round(submitted_s, 1),
            "all_running_s": round(running_s, 1),
            "running_at_the_end": states.count("running"),
            "queries": len({query for job in jobs.jobs() for query in job["queries"]}),
            "cpu_s_until_all_run": round(starts_cpu_s, 1),
            "rows_per_s": round((_rows_in(jobs) - rows) / seconds),
            "cores": round((recorder.cpu_s() - before_cpu_s) / seconds, 2),
            "peak_mb": round((recorder.peak_bytes or 0) / 2**20),
            "load_1_min": round(os.getloadavg()[0], 1),
        }
    finally:
        ended.set()
        sender.join()


def _rows_in(jobs: JobServerClient) -> int:
    """Rows that the first and the last job have read, the fewer of both."""
    progress = (jobs.describe(f"job-{number}")["progress"] or {} for number in (0, _JOBS - 1))
    return min(int(one.get("rows_in", 0)) for one in progress)


def _wait_until_leading(jobs: JobServerClient) -> None:
    until_s = time.monotonic() + _LIMIT_S
    while True:
        try:
            jobs.jobs()
        except MillstreamError:
            if time.monotonic() > until_s:
                raise
            time.sleep(_LOOK_S)
        else:
            return


def _wait_until_running(jobs: JobServerClient) -> None:
    until_s = time.monotonic() + _LIMIT_S
    while {job["state"] for job in jobs.jobs()} != {"running"}:
        if time.monotonic() > until_s:
            raise AssertionError(f"not all jobs run: {[job['state'] for job in jobs.jobs()]}")
        time.sleep(_LOOK_S)


def _wait_until_read(jobs: JobServerClient, rows: int) -> None:
    until_s = time.monotonic() + _LIMIT_S
    while _rows_in(jobs) < rows:
        if time.monotonic() > until_s:
            raise AssertionError(f"the jobs have read {_rows_in(jobs)} of {rows} rows")
        time.sleep(_LOOK_S)
