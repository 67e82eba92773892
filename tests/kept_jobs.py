"""The jobs whose checkpoints `tests/data` keeps, and how a start of one of them is run to its end."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.streams.errors import JobError
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobHandle, JobRunner
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

__all__ = [
    "EVENTS",
    "LIMIT_S",
    "OUT",
    "Rows",
    "bodies_out",
    "fail_at_once",
    "run_to_end",
    "send_events",
    "stop_when_read",
    "together",
]

LIMIT_S = 240.0

EVENTS = 90
"""Events of the topic `events`: a third lies in each of the parts that jobs read one after another."""

OUT = "windows_out"
"""The topic that the job `state` writes."""

KEYS = ("a", "b", "c")

Rows = dict[str, list[tuple[str, int]]]
"""Rows by sink, each as a text with how often it stands there once all changes are taken together."""


@dataclass
class Shown:
    """The rows that a job shows; with `fails_at` the micro-batch of that place fails before its rows are taken."""

    fails_at: int | None = None
    _tables: dict[str, Counter[str]] = field(default_factory=dict)
    _calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, result: ResultRows) -> None:
        with self._lock:
            self._calls += 1
            if self._calls == self.fails_at:
                raise OSError("this micro-batch fails")
            kinds = result.kinds or [RowKind.INSERT] * len(result.rows)
            table = self._tables.setdefault(result.sink, Counter())
            for row, kind in zip(result.rows, kinds, strict=True):
                table[repr(row)] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1

    def rows(self) -> Rows:
        return {sink: sorted((row, n) for row, n in table.items() if n) for sink, table in self._tables.items()}


def together(first: Rows, second: Rows) -> Rows:
    """The rows of both, as one job that shows all of them would count them."""
    tables = {sink: Counter(dict(first.get(sink, []))) for sink in {*first, *second}}
    for sink, rows in second.items():
        tables[sink].update(dict(rows))
    return {sink: sorted((row, n) for row, n in table.items() if n) for sink, table in tables.items()}


def _event(number: int) -> Message:
    body = {"n": number, "k": KEYS[number * 7 % 3], "v": number * number % 11, "at": _time(number)}
    return Message("events", json.dumps(body).encode())


def _time(number: int) -> str:
    return f"2026-01-01 12:{number // 60:02}:{number % 60:02}"


def send_events(client: BlockingClient, numbers: range) -> None:
    """Events of these numbers, a second apart, to both queues in turn; one by one, so that each queue is in order."""
    for number in numbers:
        client.send(_event(number))


def bodies_out(client: BlockingClient) -> list[str]:
    """What the topic OUT holds, sorted."""
    return sorted(
        message.body.decode()
        for held in client.queue_ranges(OUT)
        for batch in client.read(held.queue, held.range.min_offset, held.range.max_offset)
        for message in batch.messages()
    )


def kept_job(directory: Path, name: str, nameserver: str) -> JobPlan | QueryPlan:
    """The job of that name in what an archive holds, for where it lies now."""
    script = (directory / f"{name}.sql").read_text().replace("{directory}", str(directory))
    plan = SqlSession(nameserver=nameserver).compile(script)[-1]
    assert isinstance(plan, JobPlan | QueryPlan)
    return plan


def run_to_end(spark: SparkSession, directory: Path, name: str, nameserver: str, checkpoints: str) -> Rows:
    """What a job shows from its checkpoint on until it has read all."""
    shown = Shown()
    job = _start(spark, directory, name, nameserver, checkpoints, shown, bounded=True)
    assert job.wait(LIMIT_S), job.progress()
    assert job.progress().late == 0
    return shown.rows()


def stop_when_read(spark: SparkSession, directory: Path, name: str, nameserver: str, checkpoints: str) -> Rows:
    """What a job without an end shows until it has done with all that there is, where it is stopped."""
    shown = Shown()
    job = _start(spark, directory, name, nameserver, checkpoints, shown, bounded=False)
    with BlockingClient(nameserver) as client:
        until_s = time.monotonic() + LIMIT_S
        while not all(_is_done(client, checkpoint) for checkpoint in _checkpoints(directory / checkpoints / name)):
            assert not job.wait(0.05)
            assert time.monotonic() < until_s
    job.stop()
    return shown.rows()


def fail_at_once(spark: SparkSession, directory: Path, name: str, nameserver: str, checkpoints: str) -> None:
    """Let the next micro-batch of a job be planned and fail before anybody gets its rows."""
    job = _start(spark, directory, name, nameserver, checkpoints, Shown(fails_at=1), bounded=True)
    with suppress(JobError):
        job.wait(LIMIT_S)
    assert job.progress().state == "failed", job.progress()


def _start(
    spark: SparkSession, directory: Path, name: str, nameserver: str, checkpoints: str, shown: Shown, *, bounded: bool
) -> JobHandle:
    runner = JobRunner(spark, nameserver=nameserver, checkpoint_root=directory / checkpoints)
    return runner.start(kept_job(directory, name, nameserver), name=name, bounded=bounded, on_rows=shown.take)


def _checkpoints(job: Path) -> Iterator[Checkpoint]:
    found = [checkpoint for path in job.glob("*") if (checkpoint := Checkpoint.find(path)) is not None]
    assert found
    yield from found


def _is_done(client: BlockingClient, checkpoint: Checkpoint) -> bool:
    for name, position in checkpoint.delivered_ends().items():
        topic = "labels" if name == "labels" else "events"
        ranges = client.queue_ranges(topic)
        if position.queues != {f"{held.broker_name}/{held.range.queue_id}": held.range.max_offset for held in ranges}:
            return False
    return True
