"""What the plan gives to Spark's own operators is what the translation can build."""

from __future__ import annotations

from millstream.streams.plan.backends import SPARK_AGGREGATES
from millstream.streams.spark.translation.expressions import AGGREGATES


def test_every_aggregate_that_spark_gets_has_a_column() -> None:
    assert set(AGGREGATES) == SPARK_AGGREGATES
