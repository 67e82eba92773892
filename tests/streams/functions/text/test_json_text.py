"""Reading JSON text by paths: what is found, and that nothing raises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.functions.text.json_text import (
    JsonPathError,
    SearchEnd,
    is_json,
    json_exists,
    json_path,
    json_query,
    json_value,
    json_value_state,
    quoted_json,
    unquoted_json,
)

STORE = '{"a": {"b": [10, 20, 30], "c d": "x"}, "n": null, "list": [{"p": 1, "q": "u"}, {"p": 7}]}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PATHS = st.text("$.[]*'\"ab01:,?(@>=) -", max_size=14).map(lambda text: "$" + text)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.a.b[0]", 10),
        ("$.a.b[-1]", 30),
        ("$['a'][\"c d\"]", "x"),
        ("$.['a'].b[1]", 20),
        ("$.a.b[*]", [10, 20, 30]),
        ("$.a.b[0,2]", [10, 30]),
        ("$.a.b[1:]", [20, 30]),
        ("$.a.b[:-1]", [10, 20]),
        ("$..p", [1, 7]),
        ("$.list[?(@.p > 3)].p", [7]),
        ("$.list[?(@.q)].p", [1]),
        ("$.list[?(@.q == 'u')].p", [1]),
        ("$.list[?(@.q > 3)].p", []),
        ("lax $.nothing.more", None),
        ("$.n", None),
        ("$", json.loads(STORE)),
    ],
)
def test_a_path_leads_to_its_value(path: str, found: object) -> None:
    assert json_path(path).read(json.loads(STORE)) == found


@pytest.mark.parametrize("path", ["", "a", "$.", "$[", "$.a b", "$[?(@.a = 1)]", "$[?(@.a > x)]", "loose $.a"])
def test_a_text_that_is_no_path_is_said_to_be_none(path: str) -> None:
    with pytest.raises(JsonPathError):
        json_path(path)


def test_what_is_missing_is_an_error_in_mode_strict_and_in_no_mode() -> None:
    for path in ("strict $.x", "$.x"):
        with pytest.raises(JsonPathError):
            json_path(path).read({})
        assert json_value_state("{}", path, "STRING") == SearchEnd.ERROR
    assert json_value_state("{}", "lax $.x", "STRING") == SearchEnd.EMPTY


def test_a_number_that_is_too_long_for_64_bits_keeps_its_digits() -> None:
    assert json_value('{"a": 123456789012345678901234567890}', "$.a", "STRING") == "123456789012345678901234567890"


def test_a_document_that_is_too_deep_is_none_and_no_error() -> None:
    assert not is_json("[" * 100_000, "VALUE")
    assert json_value("[" * 100_000 + "]" * 100_000, "$.a", "STRING") is None


@given(JSON, PATHS, st.sampled_from(["STRING", "INT", "BIGINT", "DOUBLE", "BOOLEAN"]))
def test_no_document_and_no_path_raises(document: object, path: str, returning: str) -> None:
    text = json.dumps(document)
    json_value(text, path, returning)
    json_exists(text, path, "UNKNOWN")
    json_query(text, path, "CONDITIONAL", "NULL", "EMPTY ARRAY")


@given(st.text(), st.text())
def test_no_text_raises(document: str, path: str) -> None:
    json_value(document, path, "STRING")
    json_query(document, path, "WITHOUT", "NULL", "NULL")
    is_json(document, "VALUE")
    unquoted_json(document)


@given(JSON.filter(lambda value: isinstance(value, dict | list)))
def test_a_whole_document_read_and_written_is_the_same_document(document: object) -> None:
    assert json.loads(json_query(json.dumps(document), "$", "WITHOUT", "NULL", "NULL") or "") == document


@given(st.text())
def test_a_quoted_text_is_its_own_text_again(text: str) -> None:
    assert unquoted_json(quoted_json(text)) == text
