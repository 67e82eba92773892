"""How long micro-batches take while a dimension table is loaded again, and the one that takes the new version."""

from __future__ import annotations

import datetime
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
from pyspark.sql import SparkSession

from benchmarks.lookups import KEY, TABLE_ROWS, TABLES, write_assets
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.dimension.versions import ReloadRequest, TableVersion, VersionStore
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["measure_switch"]

_ROWS_PER_SEND: Final = 500
_SEND_EVERY_S: Final = 0.25
_STEADY_BATCHES: Final = 12
"""Micro-batches with rows before the load, of which the first starts the workers, and again behind it."""

_TRIGGER_MS: Final = 1000
_LIMIT_S: Final = 300.0
_SEED: Final = 5
_JOB = """INSERT INTO nowhere SELECT l.k, l.v, a.owner
  FROM lines AS l JOIN assets FOR SYSTEM_TIME AS OF l.p AS a ON l.k = a.k;"""

Figures = dict[str, Any]


def measure_switch() -> Figures:
    """Milliseconds of micro-batches before, while and after a table of `LOOKUP_TABLE_ROWS` rows is loaded again."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver, directory = server.addresses.nameserver, Path(scratch)
        os.environ["MILLSTREAM_DIMENSIONS"] = str(directory / "dimensions")
        write_assets(directory / "assets")
        stopping = threading.Event()
        with BlockingClient(nameserver) as client:
            client.create_topic(TopicConfig("lines", read_queues=2, write_queues=2))
        sender = threading.Thread(target=_send, args=(nameserver, stopping))
        session = start_session(SessionOptions())
        try:
            script = f"SET 'execution.checkpointing.interval' = '{_TRIGGER_MS} ms';" + TABLES.format(
                path=directory / "assets"
            )
            plan = SqlSession(nameserver=nameserver).compile(script + _JOB)[-1]
            assert isinstance(plan, JobPlan)
            job = JobRunner(session, nameserver=nameserver, checkpoint_root=directory / "checkpoints").start(
                plan, name="switched"
            )
            sender.start()
            (store,) = (VersionStore(path) for path in (directory / "dimensions").glob("assets-*"))
            _wait(session, lambda _began_ms: True)
            head = _loaded_again(store)
            durations = _wait(session, lambda began_ms: began_ms >= head.time_ms)
            stopping.set()
            job.stop()
            return _figures(durations, head)
        finally:
            stopping.set()
            session.stop()


def _send(nameserver: str, stopping: threading.Event) -> None:
    chance = random.Random(_SEED)
    with BlockingClient(nameserver) as client:
        while not stopping.wait(_SEND_EVERY_S):
            rows = [{"k": KEY.format(chance.randrange(TABLE_ROWS)), "v": 1} for _ in range(_ROWS_PER_SEND)]
            client.send_many([Message("lines", orjson.dumps(row)) for row in rows])


def _loaded_again(store: VersionStore) -> TableVersion:
    ReloadRequest(store.directory).request(time.time_ns() // 1_000_000)
    until_s = time.monotonic() + _LIMIT_S
    while (head := store.current()) is None or head.version < 2:
        if time.monotonic() > until_s:
            raise TimeoutError("the table is not loaded again")
        time.sleep(0.1)
    return head


def _wait(session: SparkSession, counts: Callable[[int], bool]) -> list[tuple[int, int]]:
    """The micro-batches, when there are enough of those whose beginnings count."""
    until_s = time.monotonic() + _LIMIT_S
    found = _durations(session)
    while sum(counts(began_ms) for began_ms, _ in found) < _STEADY_BATCHES:
        if time.monotonic() > until_s:
            raise TimeoutError("the micro-batches do not come")
        time.sleep(0.2)
        found = _durations(session)
    return found


def _durations(session: SparkSession) -> list[tuple[int, int]]:
    """When each micro-batch with rows began, in milliseconds, and how many it took."""
    (query,) = session.streams.active
    found = []
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            began = datetime.datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
            found.append((int(began.timestamp() * 1000), int(progress["durationMs"]["triggerExecution"])))
    return found


def _figures(durations: list[tuple[int, int]], head: TableVersion) -> Figures:
    begin_ms, end_ms = head.time_ms - head.load_ms, head.time_ms
    after = [took_ms for began_ms, took_ms in durations if began_ms >= end_ms]
    return {
        "table_rows": head.rows,
        "trigger_ms": _TRIGGER_MS,
        "load_ms": head.load_ms,
        # The first one starts the workers.
        "before": _spread([took_ms for began_ms, took_ms in durations[1:] if began_ms + took_ms < begin_ms]),
        "while_loading": _spread(
            [took_ms for began_ms, took_ms in durations if began_ms + took_ms >= begin_ms and began_ms < end_ms]
        ),
        "first_after_ms": after[0] if after else None,
        "after": _spread(after[1:]),
    }


def _spread(took_ms: list[int]) -> Figures:
    if not took_ms:
        return {"batches": 0}
    return {"batches": len(took_ms), "median_ms": round(statistics.median(took_ms)), "most_ms": max(took_ms)}
