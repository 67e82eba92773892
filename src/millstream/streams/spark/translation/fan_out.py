"""Rows for many branches at once. Spark's plan holds one literal for the constants, however many branches there are."""

from __future__ import annotations

import json
from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.types import ArrayType

from millstream.streams.plan.fan_out import Constants, FanOut
from millstream.streams.spark.translation.expressions import column_of
from millstream.streams.spark.translation.rows import Copies, Rows
from millstream.streams.spark.translation.types import spark_type

__all__ = ["fanned_out_rows"]


def fanned_out_rows(node: FanOut, rows: Rows) -> Rows:
    """The rows that some branch wants, as a copy for each branch that does: no row is read twice for that."""
    branches = column_of(node.branches, rows.columns)

    def of_branch(number: SparkColumn) -> dict[str, SparkColumn]:
        constants = {one.name: _constant_at(one, number) for one in node.constants}
        return {**rows.columns, **constants}

    return replace(rows.where(F.size(branches) > 0), copies=Copies(branches, of_branch))


def _constant_at(constants: Constants, number: SparkColumn) -> SparkColumn:
    """Spark reads the text once, when it plans the query."""
    values = F.from_json(F.lit(json.dumps(constants.values)), ArrayType(spark_type(constants.type)))
    return F.element_at(values, number + 1)
