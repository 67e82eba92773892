"""Machines publish over MQTT, 300 tasks look at each reading in one query, and alerts go back over MQTT.

    pip install "millstream[streams]"
    python examples/iot/factory.py [--devices N] [--readings N] [--rate N] [--tasks N]

It starts a server and a job of its own, counts in plain Python which alerts must come, and ends when they have come.
The last line of the output is the summary as one JSON object. Exit code 1: other alerts came than must come.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connection import Connection, ConnectionEnded
from devices import Device, make_devices, make_readings, payload_of
from tasks import Task, make_tasks, write_tasks

from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.protocol.mqtt.packets import Publish
from millstream.server.child import ServerProcess
from millstream.telemetry.processes import ProcessTree, TreeRecorder

SCRIPT = Path(__file__).parent / "factory.sql"
TOPIC = "mqtt"
INTERRUPTED = 130
"""The exit code of what Ctrl-C ended."""

FIRST_ALERT_S = 420.0
"""How long the start of Spark may take on a machine that is busy."""
NEXT_ALERT_S = 60.0
"""How long no alert may come while some are missing."""
STOP_S = 60.0
LOOK_S = 0.02
SEND_EVERY_S = 0.005
LOG = "job.log"
LOG_CHARACTERS = 2_000
SHOWN_ALERTS = 5


class Failed(Exception):
    """Something of the example ended before it should; the words say what."""


class Alerts:
    """The alerts that must come and those that came, each by its task and its device."""

    def __init__(self, tasks: list[Task]) -> None:
        self.expected: Counter[tuple[str, str]] = Counter()
        self.received: Counter[tuple[str, str]] = Counter()
        self.latencies_ms: list[float] = []
        self._tasks: dict[str, list[Task]] = {}
        for task in tasks:
            self._tasks.setdefault(task.kind, []).append(task)

    def expect(self, device: Device, reading: dict[str, Any]) -> None:
        """Count what a reading that is sent must lead to."""
        if device.is_watched:
            fitting = (task.name for task in self._tasks.get(device.kind, ()) if task.fits(reading))
            self.expected.update((name, device.name) for name in fitting)

    def take(self, message: Publish) -> None:
        """Count an alert that has come over MQTT."""
        alert = json.loads(message.payload)
        self.latencies_ms.append(time.time() * 1000 - json.loads(alert["reading"])["sent_ms"])
        self.received[alert["rule"], message.topic.removeprefix("alerts/")] += 1
        if self.received.total() <= SHOWN_ALERTS:
            print(f"  {message.topic}  {alert['level']:8}  {alert['rule']}  {alert['place']}, {alert['site']}")

    def latencies_after(self, seen: int) -> dict[str, float]:
        """Milliseconds from a device to the subscriber, of the alerts behind the first `seen`."""
        latencies = sorted(self.latencies_ms[seen:])
        if len(latencies) < 2:
            return {}
        cuts = statistics.quantiles(latencies, n=100)
        return {"p50": round(cuts[49]), "p95": round(cuts[94]), "p99": round(cuts[98]), "max": round(latencies[-1])}


def import_tasks(tasks: list[Task], directory: Path) -> Path:
    """The store of rules, made by `millstream rules import`."""
    store = directory / "rules"
    words = ["rules", "import", *map(str, write_tasks(tasks, directory)), "--store", str(store)]
    done = subprocess.run([sys.executable, "-m", "millstream", *words], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"millstream rules import ended with {done.returncode}: {done.stderr}")
    return store


@contextmanager
def running_job(nameserver: str, store: Path, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job of factory.sql in a process of its own, which ends with the block."""
    words = ["sql", "-f", str(SCRIPT), "--nameserver", nameserver, "--checkpoint-dir", str(directory / "checkpoints")]
    variables = {"FACTORY_RULES": str(store), "FACTORY_DEVICES": str(directory / "devices")}
    variables["MILLSTREAM_DIMENSIONS"] = str(directory / "dimensions")
    with (directory / LOG).open("wb") as log:
        job = subprocess.Popen(
            [sys.executable, "-m", "millstream", *words],
            stdout=log,
            stderr=log,
            env={**os.environ, **variables},
            process_group=0,
        )
    try:
        yield job
    finally:
        job.send_signal(signal.SIGINT)
        try:
            job.wait(STOP_S)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


async def wait_for(
    alerts: Alerts, quiet_s: float, job: subprocess.Popen[bytes], subscriber: Connection, directory: Path
) -> None:
    """Return when all alerts that must come have; raises Failed where none comes for so long, or the job ends."""
    until_s, count, seen = time.monotonic() + quiet_s, alerts.expected.total(), 0
    while (received := alerts.received.total()) < count:
        subscriber.check()
        if received > seen:
            until_s, seen = time.monotonic() + quiet_s, received
        if job.poll() is not None or time.monotonic() > until_s:
            ended = "the job has ended" if job.poll() is not None else f"none came for {quiet_s:.0f} s"
            raise Failed(f"{received} of {count} alerts came, {ended}:\n{last_words(directory)}")
        await asyncio.sleep(LOOK_S)


def last_words(directory: Path) -> str:
    """The end of what the job said."""
    return (directory / LOG).read_text(errors="replace")[-LOG_CHARACTERS:]


async def publish_next(
    connections: dict[str, Connection], readings: Iterator[tuple[Device, dict[str, Any]]], alerts: Alerts
) -> None:
    """Send one reading on the connection of its device."""
    device, reading = next(readings)
    alerts.expect(device, reading)
    await connections[device.name].publish(device.topic, payload_of(reading, round(time.time() * 1000)))


async def publish(
    connections: dict[str, Connection],
    readings: Iterator[tuple[Device, dict[str, Any]]],
    count: int,
    rate: float,
    alerts: Alerts,
) -> float:
    """Send readings at a rate; the seconds until the server has stored all."""
    began_s, sent = time.monotonic(), 0
    while sent < count:
        due = min(count, int((time.monotonic() - began_s) * rate) + 1)
        for _ in range(due - sent):
            await publish_next(connections, readings, alerts)
        sent = due
        await asyncio.sleep(SEND_EVERY_S)
    for connection in connections.values():
        await connection.finish()
    return time.monotonic() - began_s


def stored_messages(nameserver: str) -> int:
    """How many messages the topic holds: readings and alerts."""
    with BlockingClient(nameserver, timeout_s=NEXT_ALERT_S) as client:
        return sum(held.range.max_offset - held.range.min_offset for held in client.queue_ranges(TOPIC))


class Costs:
    """Processor seconds of server and job (each with the processes below it) and of this process, inside the block;
    memory of all at its end, in MB by the kind of process (PSS: what several share counts once)."""

    def __init__(self, server: int, job: int) -> None:
        self._recorders = {"server": TreeRecorder([server], memory=False), "spark": TreeRecorder([job], memory=False)}
        self._before: dict[str, float] = {}
        self.cpu_s: dict[str, float] = {}
        self.memory_mb: Counter[str] = Counter()

    def __enter__(self) -> Costs:
        for recorder in self._recorders.values():
            recorder.__enter__()
        self._before = self._spent()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.cpu_s = {name: round(spent - self._before[name], 1) for name, spent in self._spent().items()}
        for recorder in self._recorders.values():
            recorder.__exit__()
        for sample in ProcessTree([os.getpid()]).sample() or []:
            self.memory_mb["devices" if sample.pid == os.getpid() else sample.kind] += sample.memory_bytes >> 20

    def _spent(self) -> dict[str, float]:
        for recorder in self._recorders.values():
            recorder.take()
        spent = {name: recorder.cpu_s() for name, recorder in self._recorders.items()}
        return spent | {"devices": time.process_time()}


async def run(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """The summary of one run."""
    devices, tasks = make_devices(arguments.devices), make_tasks(arguments.tasks)
    (directory / "devices").mkdir()
    (directory / "devices" / "devices.csv").write_text("".join(device.csv_line for device in devices))
    store = import_tasks(tasks, directory)
    in_sql = sum(task.is_sql for task in tasks)
    print(f"{len(devices):,} devices, {len(tasks)} tasks: {in_sql} in SQL, {len(tasks) - in_sql} rules in YAML")
    ports = ("--mqtt-port", "0", "--amqp-port", "off", "--http-port", "off")
    alerts, readings = Alerts(tasks), make_readings(devices, arguments.unusual)
    with ServerProcess(directory / "data", options=ports) as server:
        nameserver, address = server.addresses.nameserver, server.addresses.protocols["mqtt"]
        print(f"server on {address} (MQTT), {nameserver} (nameserver)")
        subscriber = await Connection.open(address, "operator", alerts.take)
        await subscriber.subscribe("alerts/#")
        connections = {device.name: await Connection.open(address, device.name) for device in devices}
        # The topic is there from the first message on, and the first alert shows that the job runs.
        await publish_next(connections, readings, alerts)
        print("starting Spark ...", flush=True)
        with running_job(nameserver, store, directory) as job:
            await wait_for(alerts, FIRST_ALERT_S, job, subscriber, directory)
            first = alerts.received.total()
            with Costs(server.pid, job.pid) as costs:
                seconds = await publish(connections, readings, arguments.readings - 1, arguments.rate, alerts)
                await wait_for(alerts, NEXT_ALERT_S, job, subscriber, directory)
        # The job has ended, so this is all that it has written.
        matched = stored_messages(nameserver) - arguments.readings
        await subscriber.finish()
    return {
        "devices": len(devices),
        "tasks": len(tasks),
        "sent": arguments.readings,
        "expected": alerts.expected.total(),
        "matched": matched,
        "received": alerts.received.total(),
        "as_expected": alerts.expected == alerts.received and matched == alerts.expected.total(),
        "messages_per_s": round((arguments.readings - 1) / seconds),
        "seconds": round(seconds, 1),
        "latency_ms": alerts.latencies_after(first),
        "cpu_s": costs.cpu_s,
        "memory_mb": dict(sorted(costs.memory_mb.items())),
    }


def show(summary: dict[str, Any]) -> None:
    """The summary for people."""
    print(f"sent      {summary['sent']:8,} readings, {summary['messages_per_s']:,} a second")
    print(f"matched   {summary['matched']:8,} alerts of watched devices in the topic")
    print(f"received  {summary['received']:8,} over MQTT, {summary['expected']:,} must come")
    if latency := summary["latency_ms"]:
        print(f"latency   p50 {latency['p50']:,} ms, p95 {latency['p95']:,} ms, p99 {latency['p99']:,} ms")
    print("processor " + ", ".join(f"{name} {value} s" for name, value in summary["cpu_s"].items()))
    print("memory    " + ", ".join(f"{name} {value:,} MB" for name, value in summary["memory_mb"].items()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Devices, 300 tasks and alerts over MQTT.")
    parser.add_argument("--devices", type=int, default=100, help="connections that publish")
    parser.add_argument("--readings", type=int, default=10_000, help="how many they publish together")
    parser.add_argument("--rate", type=float, default=1_000.0, help="readings a second of all together")
    parser.add_argument("--tasks", type=int, default=300, help="half in SQL, half rules in YAML")
    parser.add_argument("--unusual", type=float, default=0.02, help="share of readings that some task may want")
    arguments = parser.parse_args()
    if min(arguments.devices, arguments.readings, arguments.tasks) < 1 or arguments.rate <= 0:
        parser.error("--devices, --readings and --tasks are at least 1, --rate is above 0")
    try:
        with tempfile.TemporaryDirectory(prefix="millstream-iot-") as scratch:
            summary = asyncio.run(run(arguments, Path(scratch)))
    except KeyboardInterrupt:
        print("stopped; nothing is kept", file=sys.stderr)
        return INTERRUPTED
    except (Failed, ConnectionEnded, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except MillstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    show(summary)
    print(json.dumps(summary))
    return 0 if summary["as_expected"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
