"""Conditions of SQL as formulas: the same answer for every row, NULL included, or a refusal."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.operators.evaluate import evaluator
from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Filter, Node, QueryPlan, inputs_of
from millstream.streams.rules.conditions import All, Condition, Not, Op, Predicate, TextStep, Truth, all_of
from millstream.streams.rules.reference import evaluate
from millstream.streams.rules_sql.from_sql import InexpressibleCondition, condition_of, split_conjuncts
from millstream.streams.sql.session.compiler import SqlSession

TABLE = """
CREATE TABLE t (a STRING, b STRING, n INT, l BIGINT, x DOUBLE, f FLOAT, ok BOOLEAN, price DECIMAL(10, 2),
  place ROW<city STRING, at ROW<zip INT>>, places ARRAY<STRING>, `a->b` STRING, ts TIMESTAMP(3)) WITH ('connector' = 'rocketmq', 'topic' = 't', 'format' = 'json');
"""
SESSION = SqlSession()
SESSION.compile(TABLE)
NAMES = ("a", "b", "n", "l", "x", "ok")


def condition(text: str) -> Expression:
    """The bound condition."""
    plan = SESSION.compile(f"SELECT a FROM t WHERE {text}")[-1]
    assert isinstance(plan, QueryPlan)
    node: Node = plan.query
    while not isinstance(node, Filter):
        (node,) = inputs_of(node)
    return node.predicate


def said(text: str) -> Condition:
    return condition_of(condition(text))


def answers(text: str, column: str, *values: Any) -> list[bool | None]:
    formula = said(text)
    return [evaluate(formula, {column: value}.get) for value in values]


TEXTS = ("", "a", "A", "abc", "x%y", "a_c", " a ", "é", "1", "ab\nc")
NUMBERS = (-3, 0, 1, 2, 3)
FLOATS = (-1.5, 0.5, 1.0, 2.5)
leaves = st.one_of(
    st.sampled_from(["a", "b", "LOWER(a)", "UPPER(TRIM(b))", "TRIM(a)"]).flatmap(
        lambda field: st.one_of(
            st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.sampled_from(TEXTS)).map(
                lambda pair: f"{field} {pair[0]} '{pair[1]}'"
            ),
            st.sampled_from(["%", "a%", "%c", "%b%", "a_c", "%!%%", "", "a%c", "_"]).map(
                lambda pattern: f"{field} LIKE '{pattern}' ESCAPE '!'"
            ),
            st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map(
                lambda options: f"{field} IN ({', '.join(repr(one) for one in options)})".replace("\\n", "\n")
            ),
            st.sampled_from(["b+c", "^a", "[a-c]{2}", "x|é", "a c", "c$"]).map(
                lambda pattern: f"REGEXP({field}, '{pattern}')"
            ),
            st.sampled_from(["a", "bc", "%"]).map(lambda part: f"STARTSWITH({field}, '{part}')"),
            st.sampled_from(["a", "bc", "%"]).map(lambda part: f"ENDSWITH({field}, '{part}')"),
            st.sampled_from(["> 0", "= 0", "= 1", "<> 0", "< 1"]).map(lambda end: f"POSITION('b' IN {field}) {end}"),
            st.just(f"{field} IS NULL"),
            st.just(f"{field} IS DISTINCT FROM 'a'"),
            st.just(f"COALESCE({field.replace('LOWER(a)', 'a')}, 'abc') = 'abc'") if field in ("a", "b") else st.just(f"{field} IS NOT NULL"),
        )
    ),
    st.tuples(st.sampled_from(["n", "l"]), st.sampled_from(["=", "<>", "<", "<=", ">", ">="])).flatmap(
        lambda pair: st.sampled_from([*NUMBERS, 1.5, 2.1]).map(lambda number: f"{pair[0]} {pair[1]} {number}")
    ),
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.sampled_from([0, 1, 2.5, 0.5])).map(
        lambda pair: f"x {pair[0]} {pair[1]}"
    ),
    st.sampled_from(
        ["ok", "ok = FALSE", "ok IS TRUE", "ok IS NOT FALSE", "n BETWEEN 0 AND 2", "n NOT BETWEEN 1 AND 2",
         "n IN (1, 2)", "l NOT IN (0, 3)", "n IN (1, NULL)", "2 < n", "TRUE", "FALSE", "a = b", "(a = 'a') IS UNKNOWN"]
    ),
)  # fmt: skip
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' AND '.join(f'({one})' for one in parts)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(f'({one})' for one in parts)})"),
        inner.map(lambda part: f"NOT ({part})"),
        inner.map(lambda part: f"({part}) IS TRUE"),
        inner.map(lambda part: f"({part}) IS NOT TRUE"),
        inner.map(lambda part: f"({part}) IS FALSE"),
        st.tuples(inner, inner, inner).map(lambda three: "CASE WHEN {} THEN {} ELSE {} END".format(*three)),
        st.tuples(inner, inner).map(lambda two: "COALESCE({}, {})".format(*two)),
    ),
    max_leaves=8,
)
rows = st.fixed_dictionaries(
    {
        "a": st.one_of(st.none(), st.sampled_from(TEXTS)),
        "b": st.one_of(st.none(), st.sampled_from(TEXTS)),
        "n": st.one_of(st.none(), st.sampled_from(NUMBERS)),
        "l": st.one_of(st.none(), st.sampled_from(NUMBERS)),
        "x": st.one_of(st.none(), st.sampled_from(FLOATS)),
        "ok": st.one_of(st.none(), st.booleans()),
    }
)


@settings(max_examples=scaled(200), deadline=None)
@given(conditions, st.lists(rows, min_size=1, max_size=20))
def test_a_formula_answers_as_the_condition_does_for_every_row(text: str, events: list[dict[str, Any]]) -> None:
    predicate = condition(text)
    evaluate_row = evaluator(predicate, {name: place for place, name in enumerate(NAMES)})
    formula = condition_of(predicate)
    for event in events:
        assert evaluate(formula, event.get) is evaluate_row(tuple(event[name] for name in NAMES)), (
            text,
            event,
            str(formula),
        )


def test_equal_questions_become_equal_atoms() -> None:
    assert said("a IN ('y', 'x')") == said("a IN ('x', 'y', 'x')") == Predicate("a", Op.IN, ("x", "y"))
    assert said("a LIKE '%x%'") == said("POSITION('x' IN a) > 0") == said("INSTR(a, 'x') <> 0")
    assert said("3 < n") == said("n > 3") == Predicate("n", Op.GREATER, (3,))
    assert said("LOWER(TRIM(a)) = 'x'") == Predicate("a", Op.IN, ("x",), steps=(TextStep.TRIM, TextStep.LOWER))


def test_a_like_pattern_asks_the_cheapest_question() -> None:
    assert said("a LIKE 'x'") == Predicate("a", Op.IN, ("x",))
    assert said("a LIKE 'x%'") == said("a LIKE 'x%%'") == Predicate("a", Op.STARTS, ("x",))
    assert said("a LIKE '%x'") == Predicate("a", Op.ENDS, ("x",))
    assert said("a LIKE '%a.b%'") == Predicate("a", Op.CONTAINS, ("a.b",))
    assert answers("a LIKE 'a.%c'", "a", "a.\nc", "axc", None) == [True, False, None]
    assert answers("a LIKE 'x!y' ESCAPE '!'", "a", "x!y", None) == [None, None], "an escape before what needs none"


def test_not_a_number_is_greater_than_all_numbers_as_in_spark() -> None:
    nan = math.nan
    assert answers("x > 3", "x", nan, 4.0, 3.0, None) == [True, True, False, None]
    assert answers("x >= 3", "x", nan, 3.0) == [True, True]
    assert answers("x < 3", "x", nan, 2.0) == [False, True]
    assert answers("x = 3", "x", nan, 3.0) == [False, True]
    assert answers("x <> 3", "x", nan, 3.0) == [True, False]
    assert answers("x BETWEEN 1 AND 5", "x", nan, 3.0) == [False, True]


def test_whole_numbers_meet_fractions_exactly() -> None:
    assert answers("n > 2.1", "n", 2, 3) == [False, True]
    assert answers("n <= 2.1", "n", 2, 3) == [True, False]
    assert answers("n = 2.1", "n", 2, None) == [False, None]
    assert answers("n IN (2.0, 2.5)", "n", 2, 3) == [True, False]
    assert answers("l = 9007199254740993", "l", 9007199254740993, 9007199254740992) == [True, False]


def test_similar_to_speaks_of_the_whole_text() -> None:
    assert answers("a SIMILAR TO 'a|b'", "a", "a", "ab", None) == [True, False, None]
    assert answers("a SIMILAR TO 'x_[0-9]+%'", "a", "xy12\nz", "x12", "xy") == [True, True, False]
    assert answers("a SIMILAR TO 'a.c'", "a", "a.c", "abc") == [True, False]


def test_a_blank_regular_expression_is_found_nowhere() -> None:
    assert answers("REGEXP(a, '')", "a", "", "x", None) == [False, False, None]


def test_fields_of_rows_are_fields_of_their_own() -> None:
    assert said("place.city = 'x' AND place.at.zip > 3") == all_of(
        Predicate("place->city", Op.IN, ("x",)), Predicate("place->at->zip", Op.GREATER, (3,))
    )
    assert said("LOWER(place.city) IS NULL") == Predicate("place->city", Op.IS_NULL)


def test_networks_hold_addresses_in_either_form() -> None:
    text = "CIDR_MATCH(a, '10.0.0.0/8')"
    assert answers(text, "a", "10.1.2.3", "::ffff:10.1.2.3", "11.0.0.1", "none", None) == [
        True,
        True,
        False,
        None,
        None,
    ]


@pytest.mark.parametrize(
    "text",
    ["price > 2.5", "places[1] = 'x'", "CHAR_LENGTH(a) > 3", "n + 1 > 3", "a || 'x' = 'y'", "CAST(n AS STRING) = '3'",
     "ts > TIMESTAMP '2024-01-01 00:00:00'", "l > 1e300", "f = 0.1", "x IN (0, 1)", "n = l", "a < b",
     "REGEXP(a, b)", "a LIKE b", r"REGEXP(a, '\bword')", "REGEXP(a, '(?=x)')", "POSITION('x' IN a) > 3",
     "TRIM(LEADING 'x' FROM a) = 'y'", "RAND() < 0.5", "`a->b` = 'x'"],
)  # fmt: skip
def test_what_atoms_cannot_say_exactly_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(InexpressibleCondition, match=r"\w"):
        said(text)


def test_the_parts_of_an_and_are_said_one_by_one() -> None:
    parts = split_conjuncts([condition("a = 'x' AND CHAR_LENGTH(a) > 3 AND NOT ok")])
    assert parts.said == All(
        (
            Predicate("a", Op.IN, ("x",), whole_lists=True),
            Not(Predicate("ok", Op.IN, (True,), whole_lists=True)),
        )
    )
    assert [str(one) for one in parts.rest] == [">(CHAR_LENGTH(a), 3)"]
    assert "CHAR_LENGTH" in parts.reasons[0]


def test_no_condition_always_holds() -> None:
    assert split_conjuncts([]).said == Truth(True)
    assert said("NOT (a IS NULL)") == Not(Predicate("a", Op.IS_NULL))
