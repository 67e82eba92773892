"""The SQL job over a topic, and the first result of `millstream sql`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.job_runs import measured_run
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["measure_first_result", "measure_job"]

_SCRIPT = Path(__file__).parent.parent / "examples" / "security" / "detect.sql"
_TOPIC = "windows-events"
_LIMIT_S = 600.0
_EVENTS_PER_CALL = 2000


def _filled(nameserver: str, events: Sequence[str]) -> None:
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(_TOPIC))
        for start in range(0, len(events), _EVENTS_PER_CALL):
            chunk = events[start : start + _EVENTS_PER_CALL]
            client.send_many([Message(_TOPIC, event.encode()) for event in chunk], ordered=True)


def _plan(nameserver: str, script: str) -> JobPlan:
    (plan,) = (c for c in SqlSession(nameserver=nameserver).compile(script) if isinstance(c, JobPlan))
    return plan


def measure_job(events: Sequence[str]) -> dict[str, object]:
    """detect.sql over a filled topic, twice on one session: rows/s and processor seconds of driver, JVM and workers."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver = server.addresses.nameserver
        _filled(nameserver, events)
        session = start_session(SessionOptions())
        figures: dict[str, object] = {"rows": len(events)}
        try:
            for name in ("cold", "warm"):
                runner = JobRunner(session, nameserver=nameserver, checkpoint_root=Path(scratch) / name)
                plan = _plan(nameserver, _SCRIPT.read_text())
                start = partial(runner.start, plan, name=name, bounded=True, on_rows=print_none)
                run = measured_run(start, _LIMIT_S)
                figures[name] = {
                    "seconds": round(run.seconds, 2),
                    "rows_per_s": round(len(events) / run.seconds),
                    "cpu_s": round(run.cpu_s, 2),
                    "rows_per_cpu_s": round(len(events) / run.cpu_s),
                }
        finally:
            session.stop()
        return figures


def print_none(_rows: ResultRows) -> None:
    """Takes rows and shows nothing."""


def measure_first_result() -> dict[str, object]:
    """Seconds from the start of `millstream sql` to its first row on standard output."""
    script = (
        f"CREATE TABLE events (Hostname STRING) WITH ('connector' = 'rocketmq', 'topic' = '{_TOPIC}');"
        "SELECT Hostname FROM events"
    )
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver = server.addresses.nameserver
        _filled(nameserver, ['{"Hostname": "h"}'])
        seconds = []
        for _ in range(3):
            started_s = time.monotonic()
            command = [
                sys.executable,
                "-m",
                "millstream",
                "sql",
                "-e",
                script,
                "-o",
                "plain",
                "--nameserver",
                nameserver,
            ]
            shell = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert shell.stdout is not None
            if not shell.stdout.readline():
                raise RuntimeError(f"millstream sql ended without a row, code {shell.wait()}")
            seconds.append(time.monotonic() - started_s)
            shell.terminate()
            shell.wait()
        return {"seconds": [round(value, 2) for value in seconds]}
