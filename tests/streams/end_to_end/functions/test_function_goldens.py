"""Every documented example and every trap of the functions has its value on Spark: one row, one query a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession

from golden_rows import GOLDENS, Golden, differences_from_flink, goldens_of, shown
from millstream.streams.functions.registry import FUNCTIONS
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Project, QueryPlan
from millstream.streams.spark.translation.expressions import column_of
from millstream.streams.sql.session.compiler import SqlSession

pytestmark = pytest.mark.spark

_TABLE = "CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq', 'topic' = 't');"
_EAGER = ("ConstantFolding", "ConvertToLocalRelation")
_FILES = sorted(path.name for path in GOLDENS.iterdir())
EXAMPLES = [Golden(spec.example, spec.result_shown, "", name) for name, spec in FUNCTIONS.items() if spec.result_shown]


def _bound(expressions: Sequence[str]) -> list[Expression]:
    named = ", ".join(f"{expression} AS x{place}" for place, expression in enumerate(expressions))
    plan = SqlSession().compile(f"{_TABLE} SELECT {named} FROM t")[-1]
    assert isinstance(plan, QueryPlan)
    assert isinstance(plan.query, Project)
    return [column[1] for column in plan.query.columns]


def _values(spark: SparkSession, columns: Sequence[SparkColumn]) -> list[object]:
    """The values of one query; each alone where that fails, to name the one that does."""
    row = spark.range(1)
    named = [column.alias(f"c{place}") for place, column in enumerate(columns)]
    try:
        return list(row.select(*named).collect()[0])
    except PySparkException as error:
        if len(columns) == 1:
            return [f"{type(error).__name__}: {error}"]
        return [value for column in named for value in _values(spark, [column])]


@pytest.fixture
def unfolded(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which tasks compute constants, not Spark while it plans."""
    rules = ",".join(f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in _EAGER)
    spark.conf.set("spark.sql.optimizer.excludedRules", rules)
    yield spark
    spark.conf.unset("spark.sql.optimizer.excludedRules")


def _wrong(spark: SparkSession, rows: Sequence[Golden]) -> dict[str, tuple[str, ...]]:
    """What differs, by place: the value, the one wanted, the type, the one wanted."""
    bound = _bound([row.expression for row in rows])
    values = map(shown, _values(spark, [column_of(expression, {}) for expression in bound]))
    told = zip(rows, values, (str(expression.type) for expression in bound), strict=True)
    return {
        f"{row.place} {row.expression}": (value, row.value, data_type, row.type)
        for row, value, data_type in told
        if value != row.value or row.type not in ("", data_type)
    }


@pytest.mark.parametrize("file", _FILES)
def test_an_expression_has_the_value_that_flink_documents(file: str, unfolded: SparkSession) -> None:
    assert _wrong(unfolded, goldens_of(GOLDENS / file)) == {}


def test_an_expression_that_differs_from_flink_does_as_the_page_says(unfolded: SparkSession) -> None:
    assert _wrong(unfolded, differences_from_flink()) == {}


def test_an_example_of_the_reference_has_the_result_that_stands_beside_it(unfolded: SparkSession) -> None:
    assert _wrong(unfolded, EXAMPLES) == {}
