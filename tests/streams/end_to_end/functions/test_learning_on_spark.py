"""Models and scores in a job: new versions between micro-batches, crashes, and the batch beside the stream."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.streams.errors import JobError
from millstream.streams.learning.store import ModelStore
from millstream.testing import StreamTest

joblib = pytest.importorskip("joblib", reason="scikit-learn is not installed: millstream[learning]")
LIMIT_S = 600.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FLOWS = """CREATE TABLE flows (host STRING, bytes BIGINT, seconds DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'rocketmq', 'topic' = 'flows');
"""
SCORED = f"""{FLOWS}
CREATE MODEL line INPUT (b DOUBLE, s DOUBLE) OUTPUT (predict DOUBLE) WITH ('store' = '${{store}}');
SELECT host, predict FROM ML_PREDICT(TABLE flows, MODEL line, DESCRIPTOR(bytes, seconds)) WHERE host <> 'none';
"""


def weighted(directory: Path, of_bytes: float, of_seconds: float) -> bytes:
    """A model of the weighted sum of its two columns."""
    from sklearn.linear_model import LinearRegression

    rows = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    path = directory / "line.joblib"
    joblib.dump(LinearRegression().fit(rows, [0.0, of_bytes, of_seconds]), path)
    return path.read_bytes()


def flow(host: str, count: int | None, seconds: float, second: int = 0) -> dict[str, object]:
    return {"host": host, "bytes": count, "seconds": seconds, "ts": f"2026-01-01 00:00:{second:02}"}


def rounded(test: StreamTest, *, end: bool) -> dict[str, float | None]:
    rows = test.run(end=end).rows()
    return {row["host"]: None if row["predict"] is None else round(row["predict"], 6) for row in rows}


def test_a_new_version_of_a_model_scores_what_comes_later_and_a_crash_changes_no_score(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = ModelStore(tmp_path / "store")
    store.publish("line", weighted(tmp_path, 2.0, 1.0), "sklearn")
    test = StreamTest(SCORED, variables={"store": str(store.directory)}, spark=spark, limit_s=LIMIT_S)
    test.feed("flows", flow("a", 1, 0.5), flow("unknown", None, 1.0), flow("none", 1, 1.0)).crash_after(1)
    assert rounded(test, end=False) == {"a": 2.5, "unknown": None}
    store.publish("line", weighted(tmp_path, 10.0, 1.0), "sklearn")
    test.feed("flows", flow("b", 1, 0.5))
    assert rounded(test, end=True) == {"a": 2.5, "unknown": None, "b": 10.5}


def test_a_model_that_does_not_fit_ends_the_start_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "store")
    store.publish("line", weighted(tmp_path, 2.0, 1.0), "sklearn")
    script = SCORED.replace("(b DOUBLE, s DOUBLE)", "(b DOUBLE)").replace("(bytes, seconds)", "(bytes)")
    test = StreamTest(script, variables={"store": str(store.directory)}, spark=spark, limit_s=LIMIT_S)
    with pytest.raises(JobError, match="it takes 2 columns, and INPUT declares 1"):
        test.feed("flows", flow("a", 1, 0.5)).run()


def test_scores_are_those_of_the_plain_formulas_in_the_stream_and_in_the_batch(spark: SparkSession) -> None:
    over = "OVER (PARTITION BY host ORDER BY ts)"
    script = f"""{FLOWS} SELECT host, bytes, ZSCORE(bytes, 2) {over} AS z, EWMA(bytes, 0.5) {over} AS mean,
    HST(ARRAY[CAST(bytes AS DOUBLE), seconds], 2) {over} AS odd FROM flows;"""
    test = StreamTest(script, spark=spark, limit_s=LIMIT_S)
    test.feed("flows", flow("a", 1, 0.5, 1), flow("a", 3, 0.5, 2)).cut()
    test.feed("flows", flow("a", 9, 0.5, 3), flow("b", 5, 0.5, 4)).crash_after(2)
    rows = sorted(test.run().rows(), key=lambda row: (row["host"], row["bytes"]))
    assert [(row["host"], row["bytes"], row["mean"]) for row in rows] == [
        *[("a", 1, 1.0), ("a", 3, 2.0), ("a", 9, 5.5)],
        ("b", 5, 5.0),
    ]
    # The mean of 1 and 3 is 2, their deviation the root of 2.
    assert [row["z"] for row in rows] == [None, None, pytest.approx(7 / math.sqrt(2)), None]
    assert [row["odd"] is None for row in rows] == [True, True, False, True]
    test.assert_same_as_batch()
