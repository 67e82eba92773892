"""From the append of a message to its row in the topic of the sink, at the default trigger."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import orjson
from pyspark.sql import SparkSession

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["measure_latency"]

_ROWS = int(os.environ.get("LATENCY_ROWS", "100"))
_WARM_UP = 10
_GAP_S = 0.6
_WAIT_MS = 1_000
_LIMIT_S = 60.0
_TABLES = """
CREATE TABLE events (sent_ms BIGINT, ts AS TO_TIMESTAMP_LTZ(sent_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '0' SECOND)
WITH ('connector' = 'rocketmq', 'topic' = 'events');
CREATE TABLE found (sent_ms BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'found');
INSERT INTO found
"""
_QUERIES = {
    "stateless": "SELECT sent_ms FROM events;",
    "windowed": """SELECT MAX(sent_ms) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.2' SECOND))
      GROUP BY window_start, window_end;""",
}

Figures = dict[str, object]


def measure_latency() -> Figures:
    """Milliseconds of a stateless and of a windowed job: LATENCY_ROWS messages (100), one each 0.6 s.

    Each is measured from before its send until a consumer of the sink's topic, in a long poll, has the row. A window's
    row counts from the message that closes it. The second half is given by itself too: Java compiles what a micro-batch
    does for the first hundred or so.
    """
    figures: Figures = {"load_15_min": round(os.getloadavg()[2], 1)}
    session = start_session(SessionOptions())
    try:
        for name, query in _QUERIES.items():
            with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
                waits_ms = _waits_ms(session, server.addresses.nameserver, _TABLES + query, Path(scratch))
                figures[name] = _summary(waits_ms)
                print(name, figures[name], flush=True)
    finally:
        session.stop()
    return figures


def _waits_ms(session: SparkSession, nameserver: str, script: str, scratch: Path) -> list[float]:
    with BlockingClient(nameserver) as client:
        for topic in ("events", "found"):
            client.create_topic(TopicConfig(topic, read_queues=1, write_queues=1))
        plan = SqlSession(nameserver=nameserver).compile(script)[-1]
        assert isinstance(plan, JobPlan)
        runner = JobRunner(session, nameserver=nameserver, checkpoint_root=scratch / "checkpoint")
        job = runner.start(plan, name="latency")
        arrivals = _Arrivals(nameserver)
        arrivals.start()
        sent_ms: list[int] = []
        left = _ROWS + _WARM_UP
        while left:
            time.sleep(_GAP_S)
            sent_ms.append(int(time.time() * 1000))
            client.send_many([Message("events", orjson.dumps({"sent_ms": sent_ms[-1]}))])
            # What a job needs to start is measured elsewhere.
            left -= bool(arrivals.found)
        arrivals.stop_at(sent_ms[-2])
        job.stop()
    # The message behind a window's last one closes it.
    late = 1 if "TUMBLE" in script else 0
    causes = dict(zip(sent_ms, sent_ms[late:], strict=False))
    waits = [(value, moment_ms - causes[value]) for value, moment_ms in arrivals.found if value in causes]
    return [wait_ms for value, wait_ms in waits if value > sent_ms[-_ROWS - 1]]


class _Arrivals(threading.Thread):
    """Reads the sink's topic in long polls and notes when each value came, in milliseconds since 1970."""

    def __init__(self, nameserver: str) -> None:
        super().__init__(daemon=True)
        self.found: list[tuple[int, float]] = []
        self._nameserver = nameserver
        self._last: int | None = None
        self._limit_s = 0.0

    def run(self) -> None:
        offset = 0
        with BlockingClient(self._nameserver) as client:
            (queue,) = client.queues("found")
            while not self._is_done():
                batch = client.pull(queue, offset, wait_ms=_WAIT_MS)
                now_ms = time.time() * 1000
                offset = batch.next_offset
                self.found += [(orjson.loads(message.body)["sent_ms"], now_ms) for message in batch.messages()]

    def stop_at(self, value: int) -> None:
        """Read on until that value has come, a minute at most."""
        self._limit_s = time.monotonic() + _LIMIT_S
        self._last = value
        self.join()

    def _is_done(self) -> bool:
        if self._last is None:
            return False
        return any(value >= self._last for value, _ in self.found) or time.monotonic() > self._limit_s


def _summary(waits_ms: list[float]) -> Figures:
    if not waits_ms:
        return {"rows": 0}
    ordered = sorted(waits_ms)
    return {
        "rows": len(ordered),
        "p50_ms": round(statistics.median(ordered)),
        "p50_ms_of_second_half": round(statistics.median(waits_ms[len(waits_ms) // 2 :])),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]),
    }
