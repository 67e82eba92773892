"""The main job from end to end: a server, a topic of security events, five detections and a window count in Flink SQL.

    python examples/security/demo.py [--input events.jsonl[.zst]] [--events N]

Without an input it makes synthetic events. The events are sent in the order of their event time, as a collector would
deliver them. The last line of the output is the summary as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from synthetic import synthetic_events

from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.session import SessionOptions, start_session
from millstream.streams.sql.compiler import SqlSession
from millstream.telemetry.process_tree import TreeRecorder

TOPIC = "windows-events"
QUEUES = 4
SCRIPT = Path(__file__).parent / "detect.sql"
SYNTHETIC_EVENTS = 50_000
CATCH_UP_S = 300.0
EVENTS_PER_CALL = 2000
PATIENCE_S = 30.0
"""The server shares its cores with Spark here: where the machine has other work, an answer may take seconds."""

SHOWN_ALERTS_PER_RULE = 3
SHOWN_WINDOWS = 8


def read_events(path: Path | None, count: int) -> list[str]:
    """The events of a file in the order of their event time, or synthetic ones."""
    if path is None:
        return list(synthetic_events(count))
    opened = path.open("rb")
    if path.suffix == ".zst":
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        opened = zstd.ZstdFile(opened)
    with opened:
        lines = [line.decode() for line in opened.read().splitlines() if line.strip()]
    return sorted(lines, key=event_time)


def event_time(line: str) -> str:
    """The event's time as text that sorts by time; blank (first) where it has none."""
    try:
        event = json.loads(line)
        return str(event.get("@timestamp") or event.get("TimeCreated") or "")[:23].replace("T", " ")
    except (ValueError, AttributeError):
        return ""


class Results:
    """Counts alerts and windows, and shows the first of each."""

    def __init__(self) -> None:
        self.alerts: Counter[str] = Counter()
        self.windows = 0
        self.events_in_windows = 0
        self._lock = threading.Lock()

    def take(self, rows: ResultRows) -> None:
        with self._lock:
            for row in rows.rows:
                values = dict(zip(rows.columns, row, strict=True))
                if rows.sink == "alerts":
                    self.alerts[values["rule"]] += 1
                    if self.alerts[values["rule"]] <= SHOWN_ALERTS_PER_RULE:
                        line = str(values["command_line"])[:70]
                        print(f"  alert   {values['ts']}  {values['rule']:26} {values['host']}  {line}")
                else:
                    self.windows += 1
                    self.events_in_windows += values["events"]
                    if self.windows <= SHOWN_WINDOWS:
                        print(f"  window  {values['window_start']}  {values['host']}: {values['events']} events")


def send(nameserver: str, events: list[str]) -> None:
    """Send the events in their order, spread over the topic's queues."""
    with BlockingClient(nameserver, timeout_s=PATIENCE_S) as client:
        for start in range(0, len(events), EVENTS_PER_CALL):
            chunk = events[start : start + EVENTS_PER_CALL]
            client.send_many([Message(TOPIC, event.encode()) for event in chunk], ordered=True)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    events = read_events(arguments.input, arguments.events)
    kind = str(arguments.input) if arguments.input else "synthetic events"
    print(f"{len(events):,} events from {kind}")
    results = Results()
    with tempfile.TemporaryDirectory(prefix="millstream-demo-") as scratch:
        directory = Path(scratch)
        with ServerProcess(directory / "data") as server:
            nameserver = server.addresses.nameserver
            print(f"server {server.ready_line} on {server.addresses.grpc} (gRPC), {nameserver} (nameserver)")
            with BlockingClient(nameserver, timeout_s=PATIENCE_S) as client:
                client.create_topic(TopicConfig(TOPIC, read_queues=QUEUES, write_queues=QUEUES))
            commands = SqlSession(nameserver=nameserver).compile(SCRIPT.read_text())
            (plan,) = (command for command in commands if isinstance(command, JobPlan))
            with TreeRecorder([os.getpid(), server.pid]) as memory:
                seconds, parts = run_job(plan, nameserver, events, directory, results)
    rows_per_s = round(len(events) / seconds)
    malformed, late = sum(part.malformed for part in parts), sum(part.late for part in parts)
    untimed = sum(sum(part.without_event_time.values()) for part in parts)
    print(f"\nevents {len(events):,}, malformed {malformed}, late {late}, without event time {untimed}")
    for rule, count in sorted(results.alerts.items()):
        print(f"  {rule:28}{count:8,}")
    print(f"windows {results.windows:,} with {results.events_in_windows:,} events in them")
    print(f"{seconds:.1f} s, {rows_per_s:,} rows/s")
    for name, peak in sorted(memory.peak_bytes_by_kind.items()):
        print(f"  peak memory {name:8}{peak / 2**20:8,.0f} MB")
    return {
        "events": sum(part.rows_in for part in parts),
        "alerts": dict(sorted(results.alerts.items())),
        "windows": results.windows,
        "seconds": round(seconds, 2),
        "rows_per_s": rows_per_s,
        "peak_mb": None if memory.peak_bytes is None else round(memory.peak_bytes / 2**20),
        "events_in_windows": results.events_in_windows,
        "malformed": malformed,
        "late": late,
        "without_event_time": untimed,
    }


def run_job(
    plan: JobPlan, nameserver: str, events: list[str], directory: Path, results: Results
) -> tuple[float, tuple[JobProgress, ...]]:
    """Run the job while the events arrive, then let it finish: seconds from the first event to the last result."""
    print("starting Spark ...")
    session = start_session(SessionOptions())
    try:
        runner = JobRunner(session, nameserver=nameserver, checkpoint_root=directory / "checkpoints")
        job = runner.start(plan, name="detect", on_rows=results.take)
        started_s = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send, nameserver, events)
            while not sending.done() or job.progress().rows_in < len(events):
                if job.wait(0.2) or time.monotonic() - started_s > CATCH_UP_S:
                    break
                if sending.done():
                    sending.result()
        live = job.progress()
        job.stop()
        # The same job goes on from its checkpoint as a bounded one: it closes the windows that are still open.
        job = runner.start(plan, name="detect", bounded=True, on_rows=results.take)
        job.wait(CATCH_UP_S)
        return time.monotonic() - started_s, (live, job.progress())
    finally:
        session.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Detections and windows over a live topic, in Flink SQL.")
    parser.add_argument("--input", type=Path, help="JSON lines, .jsonl or .jsonl.zst; default: synthetic events")
    parser.add_argument("--events", type=int, default=SYNTHETIC_EVENTS, help="how many synthetic events")
    arguments = parser.parse_args()
    if arguments.input is not None and not arguments.input.is_file():
        print(f"error: there is no file {arguments.input}.", file=sys.stderr)
        return 1
    try:
        summary = run(arguments)
    except MillstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
