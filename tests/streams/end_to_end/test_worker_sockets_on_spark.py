"""How Spark talks to the workers of a local session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_workers_are_talked_to_over_sockets_in_a_directory_that_is_the_users_alone(spark: SparkSession) -> None:
    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kind = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false")
            yield pa.RecordBatch.from_pydict({"kind": [kind] * batch.num_rows})

    assert spark.range(1).mapInArrow(told, "kind string").first() == ("True",)
    directory = Path(spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir") or "")
    assert directory.stat().st_mode & 0o077 == 0
    assert any(path.is_socket() for path in directory.iterdir())
