"""The SQL job over a topic, the first result of `millstream sql`, and the latency from append to sink."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
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
from millstream.streams.spark.session import SessionOptions, start_session
from millstream.streams.sql.compiler import SqlSession

__all__ = ["measure_first_result", "measure_job", "measure_latency"]

_SCRIPT = Path(__file__).parent.parent / "examples" / "security" / "detect.sql"
_TOPIC = "windows-events"
_LIMIT_S = 600.0
_EVENTS_PER_CALL = 2000
_LATENCY_ROUNDS = 25
_LATENCY_GAP_S = 0.9


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


def measure_latency() -> dict[str, object]:
    """Append to sink at the default trigger, milliseconds: one row each 0.9 s, a stateless and a windowed job."""
    table = (
        "CREATE TABLE events (sent_ms BIGINT, ts AS TO_TIMESTAMP_LTZ(sent_ms, 3), "
        "WATERMARK FOR ts AS ts - INTERVAL '0' SECOND) "
        f"WITH ('connector' = 'rocketmq', 'topic' = '{_TOPIC}', 'format' = 'json');"
        "CREATE TABLE out_rows (sent_ms BIGINT) WITH ('connector' = 'print');"
    )
    stateless = table + "INSERT INTO out_rows SELECT sent_ms FROM events"
    windowed = table + (
        "INSERT INTO out_rows SELECT MAX(sent_ms) FROM TABLE("
        "TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.5' SECOND)) GROUP BY window_start, window_end"
    )
    figures: dict[str, object] = {}
    session = start_session(SessionOptions())
    try:
        for name, script in (("stateless", stateless), ("windowed", windowed)):
            with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
                figures[name] = _latency(session, server.addresses.nameserver, script, Path(scratch))
    finally:
        session.stop()
    return figures


def _latency(session: object, nameserver: str, script: str, scratch: Path) -> dict[str, object]:
    """A windowed row shows when the next row's time closes its window; the latency counts from that next row."""
    _filled(nameserver, [json.dumps({"sent_ms": 0})])
    sent_ms: list[int] = []
    arrived: list[tuple[int, float]] = []
    came = threading.Event()

    def take(rows: ResultRows) -> None:
        now_ms = time.time() * 1000
        arrived.extend((row[0], now_ms) for row in rows.rows)
        came.set()

    runner = JobRunner(session, nameserver=nameserver, checkpoint_root=scratch / "checkpoint")  # type: ignore[arg-type]
    job = runner.start(_plan(nameserver, script), name="latency", on_rows=take)
    with BlockingClient(nameserver) as client:
        for _ in range(_LATENCY_ROUNDS):
            time.sleep(_LATENCY_GAP_S)
            now_ms = int(time.time() * 1000)
            sent_ms.append(now_ms)
            client.send_many([Message(_TOPIC, json.dumps({"sent_ms": now_ms}).encode())])
        time.sleep(3 * _LATENCY_GAP_S)
    job.stop()
    waits = []
    for value, moment_ms in arrived:
        causes = [cause for cause in sent_ms if value <= cause <= moment_ms]
        if value in sent_ms and causes:
            waits.append(moment_ms - max(causes))
    waits = sorted(waits[2:])
    if not waits:
        return {"rows": 0, "p50_ms": None, "p90_ms": None}
    return {
        "rows": len(waits),
        "p50_ms": round(statistics.median(waits)),
        "p90_ms": round(waits[int(len(waits) * 0.9)]),
    }
