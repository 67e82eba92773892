"""All of TPC-DS is bound, and runs in batch mode with the answers that Spark gives for the same text.

The texts and the data are read where the environment names copies of them (`make tpcds` makes both).
"""

from __future__ import annotations

import datetime
import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tpcds_texts import DIFFERENCES, declared, found_queries, found_tables, needs_copies, query_text, without_limit

from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

pytestmark = needs_copies

_log = logging.getLogger(__name__)

Row = tuple[Any, ...]

LIMIT_S = 900.0


@pytest.fixture(scope="module")
def tables() -> SqlSession:
    """A session in batch mode that knows the tables."""
    session = SqlSession()
    session.compile(f"SET 'execution.runtime-mode' = 'batch'; {declared()}")
    return session


@pytest.fixture(scope="module")
def with_views(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark with the same tables as its own views."""
    for path in found_tables():
        spark.read.parquet(str(path)).createOrReplaceTempView(path.stem)
    yield spark
    for path in found_tables():
        spark.catalog.dropTempView(path.stem)


def bound(text: str, tables: SqlSession) -> QueryPlan:
    (plan,) = tables.compile(text)
    assert isinstance(plan, QueryPlan)
    return plan


def answered(plan: QueryPlan, spark: SparkSession, directory: Path) -> list[Row]:
    rows: Counter[Row] = Counter()

    def take(result: ResultRows) -> None:
        kinds = result.kinds or [RowKind.INSERT] * len(result.rows)
        for row, kind in zip(result.rows, kinds, strict=True):
            rows[row] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1

    runner = JobRunner(spark, nameserver="127.0.0.1:9", checkpoint_root=directory)
    assert runner.start(plan, name="tpcds", bounded=True, on_rows=take).wait(LIMIT_S)
    assert min(rows.values(), default=0) >= 0
    return list(rows.elements())


def number(value: Any) -> Any:
    """Numbers as one type: the scale of a DECIMAL differs between both."""
    return float(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else value


def text(value: Any) -> str:
    value = number(value)
    return f"{value:.2f}" if isinstance(value, float) else f"{value}"


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted((tuple(map(number, row)) for row in rows), key=lambda row: tuple(map(text, row)))


def is_equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return math.isclose(mine, theirs, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(mine, datetime.date) or isinstance(theirs, datetime.date):
        return str(mine) == str(theirs)
    return bool(mine == theirs)


@pytest.mark.parametrize("name", found_queries())
def test_each_query_is_bound(name: str, tables: SqlSession) -> None:
    assert bound(query_text(name), tables).query.schema.fields


@pytest.mark.spark
@pytest.mark.parametrize("name", found_queries())
def test_each_query_answers_as_spark_does(
    name: str, tables: SqlSession, with_views: SparkSession, tmp_path: Path
) -> None:
    different = first_difference(query_text(name), tables, with_views, tmp_path / "limited")
    if different and "limit" in query_text(name):
        # Of rows that are equal in the order, any may be the last one under a LIMIT.
        different = first_difference(without_limit(query_text(name)), tables, with_views, tmp_path / "whole")
    if different and name in DIFFERENCES:
        pytest.xfail(f"{DIFFERENCES[name]}: {different}")
    assert not different


def first_difference(text: str, tables: SqlSession, spark: SparkSession, directory: Path) -> str:
    """The first rows, in an order of their own, that our answer and Spark's have not in common; blank if there are none."""
    mine = in_order(answered(bound(text, tables), spark, directory))
    theirs = in_order([tuple(row) for row in spark.sql(text).collect()])
    _log.info("%s rows, Spark %s", len(mine), len(theirs))
    for one, other in zip_longest(mine, theirs, fillvalue=()):
        if len(one) != len(other) or not all(map(is_equal, one, other)):
            return f"{one} is {other} in Spark"
    return ""
