"""Files that Spark writes on this machine: checkpoints are replaced in one step, so they have no companions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_no_file_of_checksums_lies_beside_a_file(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.csv(str(tmp_path / "rows"))
    names = [path.name for path in (tmp_path / "rows").iterdir()]
    assert any(name.startswith("part-") for name in names)
    assert [name for name in names if name.endswith(".crc")] == []


def test_a_file_takes_the_place_of_an_older_one(spark: SparkSession, tmp_path: Path) -> None:
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(context._jsc.hadoopConfiguration())
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    assert files.rename(hadoop.Path(str(tmp_path / "new")), hadoop.Path(str(tmp_path / "old")))
    assert (tmp_path / "old").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
