"""Functions that are evaluated row by row have the values that Spark's have: the same goldens for both."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from golden_rows import GOLDENS, goldens_of, shown
from millstream.streams.errors import JobError
from millstream.streams.functions.registry import FUNCTIONS
from millstream.streams.functions.rowwise import NULLABLE, ROWWISE
from millstream.streams.operators.evaluate import EVALUATED, evaluator
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Project, QueryPlan
from millstream.streams.plan.types import TypeKind
from millstream.streams.sql.session.compiler import SqlSession

_TABLE = "CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq', 'topic' = 't');"
_FILES = (
    "choices.txt", "numbers.txt", "texts.txt", "patterns.txt", "documents.txt", "digests.txt", "security.txt",
    "times.txt", "intervals.txt", "bytes.txt",
)  # fmt: skip
_TIMES = (TypeKind.DATE, TypeKind.TIME, TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_LTZ)
_PYTHON_ALONE = {
    # Whole numbers have no bounds in Python.
    "CAST(2147483647 AS INT) + 1",
    "ROUND(CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)), -1)",
}
"""What a row's evaluation does not do as Spark does."""


def _bound(expressions: Sequence[str]) -> list[Expression]:
    named = ", ".join(f"{expression} AS x{place}" for place, expression in enumerate(expressions))
    plan = SqlSession().compile(f"{_TABLE} SELECT {named} FROM t")[-1]
    assert isinstance(plan, QueryPlan)
    assert isinstance(plan.query, Project)
    return [column[1] for column in plan.query.columns]


def _read(value: Any, kind: TypeKind) -> Any:
    """A number that stands for a time as that time."""
    if value is None or kind not in _TIMES:
        return value
    step = {TypeKind.DATE: "days", TypeKind.TIME: "milliseconds"}.get(kind, "microseconds")
    time = datetime.datetime(1970, 1, 1) + datetime.timedelta(**{step: value})
    return time.date() if kind is TypeKind.DATE else time


def _is(value: object, wanted: str) -> bool:
    if isinstance(value, Decimal) and wanted != "NULL":
        # Digits behind the point that are 0 are for Spark's column to add.
        return value == Decimal(wanted)
    return shown(value) == wanted


@pytest.mark.parametrize("file", _FILES)
def test_a_row_has_the_value_that_flink_documents(file: str) -> None:
    wrong, checked = {}, 0
    rows = goldens_of(GOLDENS / file)
    for row, bound in zip(rows, _bound([row.expression for row in rows]), strict=True):
        try:
            evaluate = evaluator(bound, {})
        except JobError:
            continue
        checked += 1
        value = _read(evaluate(()), bound.type.kind)
        if not _is(value, row.value) and row.expression not in _PYTHON_ALONE:
            wrong[row.expression] = (shown(value), row.value)
    assert wrong == {}
    assert checked > 8


def test_only_functions_of_the_registry_are_evaluated() -> None:
    assert {*ROWWISE, *NULLABLE} - {"IS DISTINCT FROM", "BETWEEN"} <= set(FUNCTIONS)
    # Those of numbers in the one, those of times in the other.
    assert set(EVALUATED) & {*ROWWISE, *NULLABLE} == {"FLOOR", "CEIL"}
