"""A filter of many regular expressions as Spark asks it, one after another, and as the rule stage does."""

from __future__ import annotations

import itertools
import os
import random
import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.job_runs import measured_run
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["measure_chains"]

_ROWS = int(os.environ.get("CHAIN_ROWS", "400000"))
_EXPRESSIONS: Final = (10, 100, 1_000)
_ASKED_BY_SPARK: Final = 4_000_000
"""Rows times expressions of one of Spark's runs at most: it does less than a million of them in a second."""

_BATCHES: Final = 8
_TURNS: Final = 3
_ROWS_PER_CALL: Final = 1_000
_LIMIT_S: Final = 900.0
_SEED: Final = 5

_JOB: Final = """
CREATE TABLE lines (line STRING) WITH ('connector' = 'rocketmq', 'topic' = '{topic}');
CREATE TABLE nowhere (line STRING) WITH ('connector' = 'blackhole');
SET 'millstream.rules.stage' = '{stage}';
SET 'millstream.max-rows-per-trigger' = '{most}';
INSERT INTO nowhere SELECT line FROM lines WHERE {conditions};
"""
_WAYS: Final = {"spark": "never", "stage": "always"}

Figures = dict[str, Any]


def measure_chains() -> Figures:
    """Rows a second of all cores once a job runs, the reading of the topic included, and the ratio of both ways."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver = server.addresses.nameserver
        with BlockingClient(nameserver) as client:
            for rows in sorted({_rows(way, count) for way in _WAYS for count in _EXPRESSIONS}):
                _fill(client, rows)
        session = start_session(SessionOptions())
        try:
            runners = (
                JobRunner(session, nameserver=nameserver, checkpoint_root=Path(scratch) / f"jobs{number}")
                for number in itertools.count()
            )
            return {f"expressions_{count}": _both(runners, nameserver, count) for count in _EXPRESSIONS}
        finally:
            session.stop()


def _rows(way: str, count: int) -> int:
    return min(_ROWS, _ASKED_BY_SPARK // count) if way == "spark" else _ROWS


def _both(runners: Iterator[JobRunner], nameserver: str, count: int) -> Figures:
    found: dict[str, list[float]] = {way: [] for way in _WAYS}
    for _ in range(_TURNS):
        for way, rates in found.items():
            rates.append(_rows_per_s(next(runners), nameserver, way, count))
    medians = {way: statistics.median(rates) for way, rates in found.items()}
    figures: Figures = {f"{way}_rows_per_s": round(rate) for way, rate in medians.items()}
    figures["ratio"] = round(medians["stage"] / medians["spark"], 2)
    print(count, figures, flush=True)
    return figures


def _rows_per_s(runner: JobRunner, nameserver: str, way: str, count: int) -> float:
    rows = _rows(way, count)
    conditions = " OR ".join(
        rf"REGEXP(line, '(?i)(open|start) user=u\d+ path=\S+\\tool{number}\.exe code=\d*{number % 10} ')"
        for number in range(count)
    )
    text = _JOB.format(topic=f"lines{rows}", stage=_WAYS[way], most=rows // _BATCHES, conditions=conditions)
    plan = SqlSession(nameserver=nameserver).compile(text)[-1]
    assert isinstance(plan, JobPlan)
    run = measured_run(partial(runner.start, plan, name=f"{way}{count}", bounded=True), _LIMIT_S)
    if run.steady_rows_per_s is None:
        raise RuntimeError(f"{rows:,} rows are too few to tell a rate from")
    return run.steady_rows_per_s


def _fill(client: BlockingClient, rows: int) -> None:
    chance, topic = random.Random(_SEED), f"lines{rows}"
    client.create_topic(TopicConfig(topic, read_queues=4, write_queues=4))
    for _ in range(0, rows, _ROWS_PER_CALL):
        client.send_many([Message(topic, orjson.dumps({"line": _line(chance)})) for _ in range(_ROWS_PER_CALL)])


def _line(chance: random.Random) -> str:
    """About 110 characters, as those of `benchmarks.rules`."""
    return (
        f"2026-01-{chance.randrange(1, 29):02d} host{chance.randrange(500)} "
        f"{chance.choice(('open', 'read', 'write', 'close', 'start', 'stop'))} "
        f"user=u{chance.randrange(10_000)} path=C:\\data\\p{chance.randrange(100_000)}"
        f"\\tool{chance.randrange(4_000)}.exe code={chance.randrange(1_000_000)} took={chance.randrange(10_000)}ms"
    )
