"""Filters of subscriptions and CESQL as conditions that brokers evaluate."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.model.sql_filter import parse_sql_filter
from millstream.proxy.http.webhooks.cesql import translate_cesql
from millstream.proxy.http.webhooks.filters import condition_of_filters

ATTRIBUTES = ("type", "source", "subject")
texts = st.text(alphabet="ab'%.", min_size=1, max_size=4)
events = st.dictionaries(st.sampled_from(ATTRIBUTES), texts, max_size=3)
leaves = st.one_of(
    st.fixed_dictionaries({"exact": st.dictionaries(st.sampled_from(ATTRIBUTES), texts, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"prefix": st.dictionaries(st.sampled_from(ATTRIBUTES), texts, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"suffix": st.dictionaries(st.sampled_from(ATTRIBUTES), texts, min_size=1, max_size=2)}),
)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"all": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"not": inner}),
    ),
    max_leaves=5,
)


def takes(given_filter: dict[str, Any], event: dict[str, str]) -> bool:
    """What the Subscriptions API says of a filter, word for word."""
    [(dialect, value)] = given_filter.items()
    if dialect == "all":
        return all(takes(one, event) for one in value)
    if dialect == "any":
        return any(takes(one, event) for one in value)
    if dialect == "not":
        return not takes(value, event)
    tests = {"exact": str.__eq__, "prefix": str.startswith, "suffix": str.endswith}
    return all(name in event and tests[dialect](event[name], wanted) for name, wanted in value.items())


def properties(event: dict[str, str]) -> dict[str, str]:
    return {f"CE_{name}": value for name, value in event.items()}


@given(filters, events)
def test_a_filter_takes_the_events_that_the_specification_says(wanted: dict[str, Any], event: dict[str, str]) -> None:
    condition = condition_of_filters(None, (), [wanted])
    assert condition is not None
    assert parse_sql_filter(condition).matches(properties(event)) is takes(wanted, event)


@pytest.mark.parametrize(
    ("expression", "event", "holds"),
    [
        ("type = 'a'", {"type": "a"}, True),
        ('type = "a"', {"type": "b"}, False),
        ("type != 'a'", {"type": "b"}, True),
        ("type LIKE 'order.%'", {"type": "order.new"}, True),
        ("type LIKE '%new'", {"type": "order.new"}, True),
        ("type LIKE '%der%'", {"type": "order.new"}, True),
        ("type NOT LIKE 'order.%'", {"type": "order.new"}, False),
        (r"type LIKE 'a\%'", {"type": "a%"}, True),
        (r"type LIKE 'a\%'", {"type": "ab"}, False),
        ("type IN ('a', 'b')", {"type": "b"}, True),
        ("type NOT IN ('a', 'b')", {"type": "b"}, False),
        ("EXISTS subject", {"type": "b"}, False),
        ("NOT EXISTS subject", {"type": "b"}, True),
        ("n > 4 AND n <= 5", {"n": "5"}, True),
        ("n = -1", {"n": "-1"}, True),
        ("type = 'a' OR type = 'b' AND source = 'x'", {"type": "a"}, True),
        ("(type = 'a' OR type = 'b') AND source = 'x'", {"type": "a", "source": "y"}, False),
        ("type = 'a' XOR source = 'x'", {"type": "a", "source": "x"}, False),
        ("type = 'a' XOR source = 'x'", {"type": "a", "source": "y"}, True),
        ("urgent", {"urgent": "true"}, True),
        ("subject = 'a'", {"type": "b"}, False),
    ],
)
def test_an_expression_holds_as_cesql_says(expression: str, event: dict[str, str], holds: bool) -> None:
    assert parse_sql_filter(translate_cesql(expression)).matches(properties(event)) is holds


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "type =",
        "type LIKE 'a%b'",
        "type LIKE 'a_'",
        "LENGTH(type) > 3",
        "n + 1 = 2",
        "a.b = 1",
        "(" * 20,
        "type 'a'",
    ],
)
def test_an_expression_that_cannot_be_translated_is_refused(expression: str) -> None:
    with pytest.raises(MessageRefused) as refused:
        parse_sql_filter(translate_cesql(expression))
    assert refused.value.label == "MS-3101"


@pytest.mark.parametrize(
    "wrong",
    [{}, {"exact": {}}, {"exact": {"A": "x"}}, {"exact": {"type": ""}}, {"near": {}}, {"all": []}, [], {"cesql": 1}],
)
def test_a_filter_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(MessageRefused):
        condition_of_filters(None, (), [wrong])


@given(st.text(max_size=30))
def test_any_text_is_translated_or_refused(expression: str) -> None:
    with suppress(MessageRefused):
        parse_sql_filter(translate_cesql(expression))
