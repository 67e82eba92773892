"""Functions of users: their types, and what is said of those that cannot be used."""

from __future__ import annotations

import pytest

from millstream.streams.functions.spec import array_of, map_of
from millstream.streams.functions.user_functions.user import (
    UserFunctionProblem,
    load_user_function,
    root_of,
    user_callable,
)
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.plan.types import BIGINT, DOUBLE, INT, NULL, STRING, DataType, Field, TypeKind
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_node

TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)


def row(**fields: DataType) -> DataType:
    return DataType(TypeKind.ROW, fields=tuple(Field(name, data_type) for name, data_type in fields.items()))


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("tripled", (BIGINT,), BIGINT),
        ("greeted", (STRING, STRING), STRING),
        ("day_later", (TIMESTAMP,), TIMESTAMP),
        ("words", (STRING,), array_of(row(f0=STRING))),
        ("numbered", (STRING,), array_of(row(place=BIGINT, word=STRING))),
        ("point", (DOUBLE, DOUBLE), row(x=DOUBLE, y=DOUBLE)),
        ("counted", (STRING,), map_of(STRING, BIGINT)),
        ("declared", (INT,), STRING),
        ("Doubler", (BIGINT,), BIGINT),
    ],
)
def test_the_annotations_of_a_function_are_its_types(
    name: str, arguments: tuple[DataType, ...], result: DataType
) -> None:
    function = load_user_function("f", f"sample_functions.{name}")
    assert function.arguments == arguments
    assert function.type_rule(arguments) == result
    assert function.call_name == f"python:sample_functions.{name}"


def test_a_function_tells_how_many_arguments_it_takes() -> None:
    greeted = load_user_function("greeted", "sample_functions.greeted")
    assert (greeted.min_args, greeted.max_args) == (1, 2)
    joined = load_user_function("joined", "sample_functions.joined")
    assert (joined.min_args, joined.max_args) == (0, None)
    assert joined.wanted_types([STRING, NULL]) == [None, STRING]


def test_a_function_that_yields_rows_is_a_table_function() -> None:
    assert load_user_function("f", "sample_functions.words").is_table
    assert not load_user_function("f", "sample_functions.counted").is_table


def test_numbers_become_the_declared_ones_and_other_types_are_refused() -> None:
    tripled = load_user_function("tripled", "sample_functions.tripled")
    assert tripled.wanted_types([INT]) == [BIGINT]
    with pytest.raises(TypeError, match="BIGINT as argument 1"):
        tripled.type_rule([STRING])


def test_a_declaration_says_what_may_differ_by_itself() -> None:
    assert not load_user_function("f", "sample_functions.declared").deterministic
    assert load_user_function("f", "sample_functions.tripled").deterministic


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("tripled", "no path"),
        ("sample_functions.nothing", "no callable 'nothing'"),
        ("sample_functions.NOT_CALLABLE", "no callable"),
        ("sample_functions.Point", "no callable|cannot"),
        ("no_such_module.f", "cannot be imported"),
        ("sample_functions.without_types", "has no annotation"),
        ("sample_functions.of_strange_type", "no type of SQL"),
        ("os; import sys.f", "no path"),
    ],
)
def test_what_cannot_be_used_is_told_with_what_to_do(path: str, said: str) -> None:
    with pytest.raises(UserFunctionProblem, match=said) as problem:
        load_user_function("f", path)
    assert problem.value.remedy


def test_a_worker_finds_the_module_in_the_directory_it_came_from() -> None:
    user_callable("sample_functions.tripled")
    assert (root_of("sample_functions.tripled") + "/sample_functions.py").endswith(
        "tests/streams/functions/sample_functions.py"
    )


def test_a_plan_tells_which_functions_run_in_python_below_a_node() -> None:
    script = """CREATE FUNCTION tripled AS 'sample_functions:tripled' LANGUAGE PYTHON;
    CREATE TABLE t (n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 't');
    SELECT CASE WHEN n > 1 THEN tripled(n) END AS h, tripled(n + 1) AS m FROM t"""
    plan = SqlSession().compile(script)[-1]
    assert isinstance(plan, QueryPlan)
    assert explain_node(plan.query)[1] == "  calls in Python: sample_functions.tripled"


def test_both_spellings_of_a_path_mean_one_function() -> None:
    spelled = [load_user_function("f", f"sample_functions{mark}tripled").call_name for mark in ".:"]
    assert spelled == ["python:sample_functions.tripled"] * 2
