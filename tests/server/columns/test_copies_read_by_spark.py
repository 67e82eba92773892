"""Spark reads the Parquet files of a copy as they lie there, and finds what the topic has."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyiceberg")

from column_bench import CopyBench

from millstream.streams.spark.runtime.session import SessionOptions, start_session

pytestmark = pytest.mark.spark


async def test_spark_finds_each_message_once(tmp_path: Path) -> None:
    bench = CopyBench(tmp_path)
    await bench.open()
    await bench.send(60)
    await bench.upload()
    await bench.copy()
    files = bench.table_files()
    await bench.close()
    spark = start_session(SessionOptions(cores=2, memory_mb=900))
    try:
        rows = spark.read.parquet(*files).orderBy("_queue_id", "_queue_offset").collect()
    finally:
        spark.stop()
    wanted = [
        (queue, offset, json.loads(message.body), message.properties["KEYS"].split(), {"color": "red"})
        for queue in sorted(bench.sent)
        for offset, message in enumerate(bench.sent[queue])
    ]
    found = [
        (
            row["_queue_id"],
            row["_queue_offset"],
            {"id": row["id"], "name": row["name"], "price": str(row["price"])},
            row["_keys"],
            row["_properties"],
        )
        for row in rows
    ]
    assert found == wanted
    assert all(isinstance(row["price"], Decimal) for row in rows)
