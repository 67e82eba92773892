"""Ten jobs over one topic as one query, as ten and as ten programs, and a hundred as one at a steady rate."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession
from millstream.telemetry.processes import TreeRecorder

__all__ = ["RULE", "STEADY_ROWS_PER_S", "TABLES", "fill_topic", "measure_merged", "send_steadily"]

_ROWS = int(os.environ.get("MERGED_ROWS", "200000"))
_ROWS_PER_CALL = 1_000
STEADY_ROWS_PER_S = 1_000
_STEADY_S = 30.0
_INTERVALS = ("0 s", "1 s")
"""Between micro-batches: as soon as one is done, and once a second."""

_TENTH_S = 0.1
_LIMIT_S = 900.0
_SEED = 7

TABLES = """
CREATE TABLE lines (host STRING, image STRING, line STRING) WITH ('connector' = 'rocketmq', 'topic' = '{topic}');
CREATE TABLE nowhere (rule STRING, host STRING, line STRING) WITH ('connector' = 'blackhole');
SET 'millstream.task-type' = '{kind}';
SET 'execution.checkpointing.interval' = '{interval}';
"""
RULE = """INSERT INTO nowhere SELECT '{name}', host, line FROM lines
  WHERE image LIKE '%tool{number}.exe' AND (line LIKE '%-flag{number}%' OR line LIKE '%secret{number}%');"""

Figures = dict[str, Any]


def measure_merged() -> Figures:
    """Processor time and memory of ten jobs, merged and separate, and the cores that a hundred merged ones take."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver = server.addresses.nameserver
        with BlockingClient(nameserver) as client:
            fill_topic(client, "held", _ROWS)
            fill_topic(client, "steady", _ROWS_PER_CALL)
            programs = _as_programs(nameserver, Path(scratch))
            session = start_session(SessionOptions())
            try:
                runner = JobRunner(session, nameserver=nameserver, checkpoint_root=Path(scratch) / "jobs")
                # What only the first job of a session pays for is no part of the comparison.
                _bounded(runner, nameserver, "warm", 1, "resource-sensitive")
                merged = _bounded(runner, nameserver, "merged", 10, "resource-sensitive")
                separate = _bounded(runner, nameserver, "separate", 10, "error-sensitive")
                steady = {interval: _steady(runner, nameserver, client, interval) for interval in _INTERVALS}
            finally:
                session.stop()
    return {
        "rows": _ROWS,
        "ten_merged": merged,
        "ten_separate": separate,
        "cpu_ratio": round(merged["cpu_s"] / separate["cpu_s"], 2),
        "memory_ratio": round(merged["peak_mb"] / separate["peak_mb"], 2),
        "programs": programs,
        "hundred_merged": steady,
    }


def _lines(seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    while True:
        number = chance.randrange(1_000)
        line = f"run -flag{chance.randrange(1_000)} --path /srv/data/{chance.randrange(10_000)} --user u{number}"
        yield orjson.dumps({"host": f"h{number}", "image": f"C:\\bin\\tool{chance.randrange(200)}.exe", "line": line})


def fill_topic(client: BlockingClient, topic: str, rows: int) -> None:
    client.create_topic(TopicConfig(topic, read_queues=2, write_queues=2))
    lines = itertools.islice(_lines(_SEED), rows)
    while batch := [Message(topic, body) for body in itertools.islice(lines, _ROWS_PER_CALL)]:
        client.send_many(batch)


def _plans(nameserver: str, topic: str, count: int, kind: str, interval: str = "0 s") -> list[JobPlan]:
    plans = []
    for number in range(count):
        script = TABLES.format(topic=topic, kind=kind, interval=interval) + RULE.format(
            name=f"r{number}", number=number
        )
        plan = SqlSession(nameserver=nameserver).compile(script)[-1]
        assert isinstance(plan, JobPlan)
        plans.append(plan)
    return plans


def _bounded(runner: JobRunner, nameserver: str, name: str, count: int, kind: str) -> dict[str, float]:
    plans = _plans(nameserver, "held", count, kind)
    with TreeRecorder([os.getpid()]) as recorder:
        recorder.take()
        before_s, began_s = recorder.cpu_s(), time.monotonic()
        for job in runner.start_merged(plans, names=[f"{name}{number}" for number in range(count)], bounded=True):
            job.wait(_LIMIT_S)
        return _taken(recorder, before_s, began_s)


def _taken(recorder: TreeRecorder, before_s: float, began_s: float) -> dict[str, float]:
    seconds = time.monotonic() - began_s
    recorder.take()
    return {
        "seconds": round(seconds, 1),
        "cpu_s": round(recorder.cpu_s() - before_s, 1),
        "peak_mb": round((recorder.peak_bytes or 0) / 2**20),
    }


def _as_programs(nameserver: str, directory: Path) -> Figures:
    """The same ten jobs by the command line: as one script, and as ten at a time, their starts included."""
    found: Figures = {}
    every = "".join(RULE.format(name=f"r{number}", number=number) for number in range(10))
    tables = TABLES.format(topic="held", kind="resource-sensitive", interval="0 s")
    found["one_merged"] = _programs(nameserver, directory / "one", [tables + every])
    single = [tables + RULE.format(name=f"r{number}", number=number) for number in range(10)]
    found["ten_separate"] = _programs(nameserver, directory / "ten", single)
    for name, what in (("cpu_ratio", "cpu_s"), ("memory_ratio", "peak_mb")):
        found[name] = round(found["one_merged"][what] / found["ten_separate"][what], 2)
    return found


def _programs(nameserver: str, directory: Path, scripts: Sequence[str]) -> dict[str, float]:
    directory.mkdir()
    command = [sys.executable, "-m", "millstream", "sql", "--bounded", "--nameserver", nameserver, "-f"]
    paths = [directory / f"{number}.sql" for number in range(len(scripts))]
    for path, script in zip(paths, scripts, strict=True):
        path.write_text(script)
    began_s = time.monotonic()
    running = [subprocess.Popen([*command, str(path)], stdout=subprocess.DEVNULL) for path in paths]
    # Without this process: looking at the memory of ten programs takes time that is none of theirs.
    with TreeRecorder([program.pid for program in running]) as recorder:
        for program in running:
            if program.wait(_LIMIT_S):
                raise RuntimeError(f"a job ended with {program.returncode}")
        return _taken(recorder, 0.0, began_s)


def _steady(runner: JobRunner, nameserver: str, client: BlockingClient, interval: str) -> dict[str, float]:
    plans = _plans(nameserver, "steady", 100, "resource-sensitive", interval)
    jobs = runner.start_merged(plans, names=[f"steady {interval} {number}".replace(" ", "-") for number in range(100)])
    ended = threading.Event()
    sender = threading.Thread(target=send_steadily, args=(client, ended))
    sender.start()
    try:
        _wait_for(jobs)
        with TreeRecorder([os.getpid()]) as recorder:
            recorder.take()
            before_s, began_s, rows = recorder.cpu_s(), time.monotonic(), jobs[0].progress().rows_in
            time.sleep(_STEADY_S)
            recorder.take()
            seconds = time.monotonic() - began_s
            return {
                "rows_per_s": round((jobs[0].progress().rows_in - rows) / seconds),
                "cores": round((recorder.cpu_s() - before_s) / seconds, 2),
                "peak_mb": round((recorder.peak_bytes or 0) / 2**20),
            }
    finally:
        ended.set()
        sender.join()
        for job in jobs:
            job.stop()


def send_steadily(client: BlockingClient, ended: threading.Event) -> None:
    lines, began_s, sent = _lines(_SEED + 1), time.monotonic(), 0
    while not ended.wait(_TENTH_S):
        # By the clock: a wait and a call take longer than a tenth of a second together.
        count = round((time.monotonic() - began_s) * STEADY_ROWS_PER_S) - sent
        client.send_many([Message("steady", body) for body in itertools.islice(lines, count)])
        sent += count


def _wait_for(jobs: Sequence[JobHandle]) -> None:
    """Until the held rows were read and new ones come."""
    until_s = time.monotonic() + _LIMIT_S
    while jobs[0].progress().rows_in <= _ROWS_PER_CALL and time.monotonic() < until_s:
        time.sleep(_TENTH_S)
