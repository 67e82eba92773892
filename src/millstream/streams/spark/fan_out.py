"""Rows for many branches at once. Spark's plan holds one literal for the constants, however many branches there are."""

from __future__ import annotations

import json

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.types import ArrayType

from millstream.streams.plan.fan_out import Constants, FanOut
from millstream.streams.spark.copies import expanded
from millstream.streams.spark.expressions import column_of
from millstream.streams.spark.rows import Rows
from millstream.streams.spark.types import spark_type

__all__ = ["fanned_out_rows"]


def fanned_out_rows(node: FanOut, rows: Rows) -> Rows:
    """Each row of `rows` once for each branch that wants it."""
    branches = column_of(node.branches, rows.columns)

    def of_branch(number: SparkColumn) -> dict[str, SparkColumn]:
        return {constants.name: _constant_at(constants, number) for constants in node.constants}

    return expanded(rows, branches, of_branch)


def _constant_at(constants: Constants, number: SparkColumn) -> SparkColumn:
    """Spark reads the text once, when it plans the query."""
    values = F.from_json(F.lit(json.dumps(constants.values)), ArrayType(spark_type(constants.type)))
    return F.element_at(values, number + 1)
