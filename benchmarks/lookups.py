"""A job with a lookup join in a dimension table beside the same job without it."""

from __future__ import annotations

import os
import random
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.job_runs import JobRun, measured_run, medians
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["KEY", "TABLES", "TABLE_ROWS", "measure_lookups", "write_assets"]

_ROWS = int(os.environ.get("LOOKUP_ROWS", "400000"))
TABLE_ROWS = int(os.environ.get("LOOKUP_TABLE_ROWS", "1000000"))
_ROWS_PER_CALL = 1_000
_RUNS = 3
_LIMIT_S = 900.0
_SEED = 7
KEY = "asset-{:044d}"
"""50 bytes, as of a path or an identity."""

TABLES = """
CREATE TABLE lines (k STRING, v BIGINT, p AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = 'lines');
CREATE TABLE assets (k STRING, owner STRING) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet',
  'lookup.store' = 'dimension');
CREATE TABLE nowhere (k STRING, v BIGINT, owner STRING) WITH ('connector' = 'blackhole');
"""
_JOBS = {
    "without": "INSERT INTO nowhere SELECT k, v, k FROM lines;",
    "with": """INSERT INTO nowhere SELECT l.k, l.v, a.owner
      FROM lines AS l JOIN assets FOR SYSTEM_TIME AS OF l.p AS a ON l.k = a.k;""",
}

Figures = dict[str, Any]


def measure_lookups() -> Figures:
    """Seconds and processor seconds of bounded jobs over a topic, each `_RUNS` times in turns, and their ratios.

    The first run of each is left out: that of the join loads the table.
    """
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver, directory = server.addresses.nameserver, Path(scratch)
        os.environ["MILLSTREAM_DIMENSIONS"] = str(directory / "dimensions")
        write_assets(directory / "assets")
        _fill(nameserver)
        session = start_session(SessionOptions())
        try:
            runs: dict[str, list[JobRun]] = {name: [] for name in _JOBS}
            for number in range(_RUNS + 1):
                for name, insert in _JOBS.items():
                    script = TABLES.format(path=directory / "assets") + insert
                    plan = SqlSession(nameserver=nameserver).compile(script)[-1]
                    assert isinstance(plan, JobPlan)
                    runner = JobRunner(session, nameserver=nameserver, checkpoint_root=directory / f"{name}{number}")
                    runs[name].append(measured_run(partial(runner.start, plan, name="lookups", bounded=True), _LIMIT_S))
                    print(name, runs[name][-1].seconds, runs[name][-1].cpu_s, flush=True)
        finally:
            session.stop()
    found = {name: medians(several[1:]) for name, several in runs.items()}
    return {
        "rows": _ROWS,
        "table_rows": TABLE_ROWS,
        "first_with": medians(runs["with"][:1]),
        **found,
        "seconds_ratio": round(found["with"]["seconds"] / found["without"]["seconds"], 2),
        "cpu_ratio": round(found["with"]["cpu_s"] / found["without"]["cpu_s"], 2),
    }


def write_assets(directory: Path) -> None:
    """A table of `TABLE_ROWS` rows as a file of Parquet."""
    directory.mkdir()
    numbers = range(TABLE_ROWS)
    rows = pa.table(
        {"k": [KEY.format(number) for number in numbers], "owner": [f"owner of asset {number}" for number in numbers]}
    )
    pq.write_table(rows, directory / "assets.parquet")


def _fill(nameserver: str) -> None:
    chance = random.Random(_SEED)
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("lines", read_queues=2, write_queues=2))
        for start in range(0, _ROWS, _ROWS_PER_CALL):
            rows = [
                {"k": KEY.format(chance.randrange(TABLE_ROWS)), "v": number}
                for number in range(start, start + _ROWS_PER_CALL)
            ]
            client.send_many([Message("lines", orjson.dumps(row)) for row in rows])
