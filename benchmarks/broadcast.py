"""A join of Spark with a table: broadcast to its tasks, or a dimension table; rows a second and memory of both."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.dimension.builder import TableBuilder
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.spark.columns.types import arrow_schema
from millstream.streams.spark.lookups.dimension_stage import DimensionStage, DimensionStep
from millstream.streams.spark.lookups.open_tables import TableUse
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.telemetry.processes import TreeRecorder

__all__ = ["measure_broadcast"]

_ROWS = int(os.environ.get("BROADCAST_ROWS", "2000000"))
_TABLE_ROWS = int(os.environ.get("BROADCAST_TABLE_ROWS", "1000000"))
_RUNS = 3
_HEAP_MB = 3072
_SEED = 11
_BY_KEY = IndexKey.equal("k")
_FILES = 8

Figures = dict[str, Any]


def measure_broadcast() -> Figures:
    """The same rows joined both ways in turns, `_RUNS` times each; what the first runs made ready is left out."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        table = _table()
        pq.write_table(table, directory / "table.parquet")
        _write_rows(directory / "rows")
        built = _built(directory / "dimension", table)
        session = start_session(SessionOptions(memory_mb=_HEAP_MB))
        try:
            session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
            joins: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
                "without": _plain,
                "broadcast": _broadcast,
                "dimension": _looked_up,
            }
            runs: dict[str, list[Figures]] = {name: [] for name in joins}
            for _ in range(_RUNS + 1):
                for name, join in joins.items():
                    runs[name].append(_run(session, join(session, directory)))
                    print(name, json.dumps(runs[name][-1]), flush=True)
        finally:
            session.stop()
    return {
        "rows": _ROWS,
        "table_rows": _TABLE_ROWS,
        "dimension_files_mb": round(built / 2**20, 1),
        **{name: _medians(several[1:]) for name, several in runs.items()},
    }


def _table() -> pa.Table:
    numbers = range(_TABLE_ROWS)
    return pa.table({"k": [_key(one) for one in numbers], "owner": [f"owner of asset {one}" for one in numbers]})


def _key(number: int) -> str:
    return f"asset-{number:044d}"


def _write_rows(directory: Path) -> None:
    """Rows in several files, so that all cores read them; each finds something."""
    directory.mkdir()
    chance = np.random.default_rng(_SEED)
    for number in range(_FILES):
        keys = [_key(int(one)) for one in chance.integers(0, _TABLE_ROWS, _ROWS // _FILES)]
        pq.write_table(pa.table({"k": keys, "v": range(len(keys))}), directory / f"{number}.parquet")


def _built(directory: Path, table: pa.Table) -> int:
    schema = pa.schema([("k", pa.string()), ("owner", pa.string())])
    builder = TableBuilder(directory, schema, [_BY_KEY], stored=["owner"])
    for batch in table.to_batches(100_000):
        builder.add(batch)
    return builder.finish().size_bytes


def _plain(session: SparkSession, directory: Path) -> DataFrame:
    return session.read.parquet(str(directory / "rows")).select("v", F.col("k").alias("owner"))


def _broadcast(session: SparkSession, directory: Path) -> DataFrame:
    rows, table = session.read.parquet(str(directory / "rows")), session.read.parquet(str(directory / "table.parquet"))
    return rows.join(F.broadcast(table), "k").select("v", "owner")


def _looked_up(session: SparkSession, directory: Path) -> DataFrame:
    rows = session.read.parquet(str(directory / "rows")).select("k", "v", F.lit(True).alias("asks"))
    schema = rows.selectExpr("k", "v", "asks", "true AS found", "k AS owner").schema
    step = DimensionStep(TableUse("table", "", "", "", _BY_KEY), (0,), 2, ("owner",), arrow_schema(schema))
    stage = DimensionStage(step, partial(_opened, str(directory / "dimension")))
    return rows.mapInArrow(stage, schema).where("found").select("v", "owner")


def _opened(directory: str, _use: TableUse) -> DimensionTable:
    return DimensionTable.open(Path(directory))


def _run(session: SparkSession, joined: DataFrame) -> Figures:
    """One run; the heap after it is what the collector leaves while the query's plan, and what it sent, are held."""
    total: Column = F.sum(F.length("owner"))
    query = joined.agg(F.count("*").alias("rows"), total.alias("characters"))
    idle_mb = _heap_mb(session)
    with TreeRecorder([os.getpid()], memory=False) as recorder:
        recorder.take()
        before_s, began_s = recorder.cpu_s(), time.monotonic()
        (answer,) = query.collect()
        seconds = time.monotonic() - began_s
        recorder.take()
        cpu_s = recorder.cpu_s() - before_s
    assert answer["rows"] == _ROWS // _FILES * _FILES
    return {"seconds": seconds, "cpu_s": cpu_s, "heap_mb": _heap_mb(session) - idle_mb}


def _heap_mb(session: SparkSession) -> float:
    virtual_machine: Any = session._jvm
    runtime = virtual_machine.java.lang.Runtime.getRuntime()
    for _ in range(3):
        virtual_machine.java.lang.System.gc()
        time.sleep(0.2)
    used: int = runtime.totalMemory() - runtime.freeMemory()
    return used / 2**20


def _medians(runs: list[Figures]) -> Figures:
    seconds, cpu_s, heap_mb = (statistics.median(run[name] for run in runs) for name in ("seconds", "cpu_s", "heap_mb"))
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "rows_per_s": round(_ROWS / seconds),
        "heap_mb": round(heap_mb),
    }
