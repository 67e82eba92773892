"""The main job from end to end: a server, a topic of security events, five detections and a window count in Flink SQL.

    python examples/security/demo.py [--input events.jsonl[.zst]] [--events N]

Without an input it makes synthetic events. The events are sent in the order of their event time, as a collector would
deliver them. Ctrl-C ends it. The last line of the output is the summary as one JSON object.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from event_file import InputRefused, read_events
from synthetic import synthetic_events

from millstream.cli.streams.sql_shell.engine import SparkEngine
from millstream.cli.streams.sql_shell.interrupts import Interrupts
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.session.compiler import SqlSession
from millstream.telemetry.processes import TreeRecorder

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

INTERRUPTED = 130
"""The exit code of what Ctrl-C ended."""

LOOK_S = 0.2
LINE_EVERY_S = 5.0
"""How often progress is a line where there is no terminal to turn a sign on."""


def choose_events(source: Path | None, count: int) -> list[str]:
    """The events of the file, or that many synthetic ones without a file. Raises InputRefused."""
    return read_events(source) if source else list(synthetic_events(count))


class Stopped(Exception):
    """The user stopped it by Ctrl-C; the words say how far it was."""


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
                    self._alert(values)
                else:
                    self._window(values)

    def _alert(self, values: dict[str, object]) -> None:
        rule = str(values["rule"])
        self.alerts[rule] += 1
        if self.alerts[rule] <= SHOWN_ALERTS_PER_RULE:
            print(f"  alert   {values['ts']}  {rule:26} {values['host']}  {str(values['command_line'])[:70]}")
        elif self.alerts[rule] == SHOWN_ALERTS_PER_RULE + 1:
            print(f"  alert   further ones of {rule} are counted and not shown")

    def _window(self, values: dict[str, object]) -> None:
        self.windows += 1
        self.events_in_windows += int(str(values["events"]))
        if self.windows <= SHOWN_WINDOWS:
            print(f"  window  {values['window_start']}  {values['host']}: {values['events']} events")
        elif self.windows == SHOWN_WINDOWS + 1:
            print("  window  further ones are counted and not shown")


class Watch:
    """How far the job is, told until it is over or the user stops it."""

    def __init__(self, results: Results, total: int, stopped: threading.Event, tell: Callable[[str], None]) -> None:
        self._results, self._total, self._stopped, self._tell = results, total, stopped, tell

    def until(self, is_over: Callable[[], bool], job: JobHandle, before: int = 0) -> None:
        """Return once it is over, or at the latest after CATCH_UP_S. Raises Stopped, JobError."""
        deadline_s = time.monotonic() + CATCH_UP_S
        while not (job.wait(LOOK_S) or is_over()) and time.monotonic() < deadline_s:
            read = before + job.progress().rows_in
            words = f"{read:,} of {self._total:,} events read"
            if self._stopped.is_set():
                raise Stopped(words)
            self._tell(f"{words}, {self._results.alerts.total():,} alerts, {self._results.windows:,} windows")


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Shows words beside a turning sign on a terminal; elsewhere as lines, not too many of them."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("waiting for the first rows") as status:
            yield lambda words: status.update(f"{words} (Ctrl-C to stop)")
        return
    last_s = time.monotonic()

    def line(words: str) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= LINE_EVERY_S:
            last_s = time.monotonic()
            print(f"  {words}", file=sys.stderr, flush=True)

    yield line


def send(nameserver: str, events: list[str], stopped: threading.Event) -> None:
    """Send the events in their order, spread over the topic's queues, until `stopped`."""
    with BlockingClient(nameserver, timeout_s=PATIENCE_S) as client:
        for start in range(0, len(events), EVENTS_PER_CALL):
            if stopped.is_set():
                return
            chunk = events[start : start + EVENTS_PER_CALL]
            client.send_many([Message(TOPIC, event.encode()) for event in chunk], ordered=True)


def run(arguments: argparse.Namespace, stopped: threading.Event) -> dict[str, object]:
    events = choose_events(arguments.input, arguments.events)
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
                seconds, parts = run_job(plan, nameserver, events, directory, results, stopped)
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
    plan: JobPlan, nameserver: str, events: list[str], directory: Path, results: Results, stopped: threading.Event
) -> tuple[float, tuple[JobProgress, ...]]:
    """Run the job while the events arrive, then let it finish: seconds from the first event to the last result."""
    engine = SparkEngine()
    try:
        runner = engine.runner(stopped, nameserver, directory / "checkpoints")
        if runner is None:
            raise Stopped("Spark had not started yet")
        started_s = time.monotonic()
        # Jobs end before Spark does, also where the user stops them; stopping twice is no error.
        with telling() as tell, ThreadPoolExecutor(1) as pool, ExitStack() as jobs:
            watch = Watch(results, len(events), stopped, tell)
            job = runner.start(plan, name="detect", on_rows=results.take)
            jobs.callback(job.stop)
            sending = pool.submit(send, nameserver, events, stopped)
            watch.until(lambda: sending.done() and job.progress().rows_in >= len(events), job)
            sending.result()
            live = job.progress()
            job.stop()
            # The same job goes on from its checkpoint as a bounded one: it closes the windows that are still open.
            job = runner.start(plan, name="detect", bounded=True, on_rows=results.take)
            jobs.callback(job.stop)
            watch.until(lambda: False, job, live.rows_in)
            return time.monotonic() - started_s, (live, job.progress())
    finally:
        engine.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Detections and windows over a live topic, in Flink SQL.")
    parser.add_argument("--input", type=Path, help="JSON lines, .jsonl or .jsonl.zst; default: synthetic events")
    parser.add_argument("--events", type=int, default=SYNTHETIC_EVENTS, help="how many synthetic events")
    arguments = parser.parse_args()
    if arguments.events < 1:
        parser.error("--events is at least 1")
    if arguments.input is not None and not arguments.input.is_file():
        print(f"error: there is no file {arguments.input}.", file=sys.stderr)
        return 1
    interrupts = Interrupts()
    interrupts.install()
    try:
        summary = run(arguments, interrupts.stopped)
    except Stopped as words:
        print(f"stopped: {words}; nothing is kept", file=sys.stderr)
        return INTERRUPTED
    except InputRefused as words:
        print(f"error: {words}", file=sys.stderr)
        return 1
    except MillstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
