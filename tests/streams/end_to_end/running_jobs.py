"""Topics with known contents, and jobs over them whose rows are collected."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream.client.blocking import BlockingClient
from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.store.message_store import MessageStore, PendingRecord
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.session.compiler import SqlSession
from servers import SMALL_STORE, running_servers_in_thread

LIMIT_S = 240.0


@dataclass(frozen=True)
class Topic:
    """A running server with the topic `t`."""

    nameserver: str
    directory: Path


@dataclass
class Collected:
    """The rows of a job by sink, and its last progress."""

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    progress: JobProgress = field(default_factory=JobProgress)
    kinds: dict[str, list[RowKind]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, result: ResultRows) -> None:
        with self._lock:
            self.rows.setdefault(result.sink, []).extend(result.rows)
            self.kinds.setdefault(result.sink, []).extend(result.kinds or [RowKind.INSERT] * len(result.rows))

    def sorted(self, sink: str) -> list[tuple[Any, ...]]:
        return sorted(self.rows.get(sink, []), key=repr)

    def table(self, sink: str) -> Counter[tuple[Any, ...]]:
        """What the changes that a sink was told add up to."""
        table: Counter[tuple[Any, ...]] = Counter()
        for row, kind in zip(self.rows.get(sink, []), self.kinds.get(sink, []), strict=True):
            table[row] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
        assert min(table.values(), default=0) >= 0
        return +table


@contextmanager
def filled_topic(directory: Path, rows: Sequence[tuple[int, bytes]], queues: int) -> Iterator[Topic]:
    """A server in `directory` with the rows in the topic `t`."""
    store = MessageStore.open(directory / "data" / "store", SMALL_STORE, clock=ManualClock(step_ms=1))
    for queue_id, body in rows:
        store.put([PendingRecord(OutgoingMessage("t", body, {}), queue_id)])
    store.close()
    with running_servers_in_thread(directory / "data") as servers:
        with BlockingClient(servers.nameserver) as client:
            client.create_topic(TopicConfig("t", read_queues=queues, write_queues=queues))
        yield Topic(servers.nameserver, directory)


def compiled(script: str, nameserver: str) -> JobPlan | QueryPlan:
    """The last command of the script."""
    plan = SqlSession(nameserver=nameserver).compile(script)[-1]
    assert isinstance(plan, JobPlan | QueryPlan)
    return plan


def bounded_run(spark: SparkSession, topic: Topic, script: str, *, name: str, limit_s: float = LIMIT_S) -> Collected:
    """The script's job over what the topic holds, until it has ended."""
    collected = Collected()
    runner = JobRunner(spark, nameserver=topic.nameserver, checkpoint_root=topic.directory / "checkpoints")
    job = runner.start(compiled(script, topic.nameserver), name=name, bounded=True, on_rows=collected.take)
    assert job.wait(limit_s), job.progress()
    collected.progress = job.progress()
    return collected
