"""Calls with words of their own, constructors in square brackets and access to elements."""

from __future__ import annotations

import pytest
from compiling import explained, refused


def projected(expression: str) -> str:
    """The bound expression as the plan shows it."""
    first = explained(f"SELECT {expression} AS x FROM events")[0]
    return first.removeprefix("Project [").removesuffix("]").removesuffix(" AS x")


@pytest.mark.parametrize(
    ("written", "bound"),
    [
        ("tags[1]", "ITEM(tags, 1)"),
        ("ARRAY[1, id][2]", "ITEM(ARRAY(CAST(1 AS BIGINT NOT NULL), id), 2)"),
        ("MAP['a', 1]['a']", "ITEM(MAP('a', 1), 'a')"),
        ("CAST(place AS ROW<a STRING, b INT>).b", "FIELD(CAST(place AS ROW<a STRING, b INT>), 'b')"),
        ("OVERLAY(host PLACING 'x' FROM 2 FOR 1)", "OVERLAY(host, 'x', 2, 1)"),
        ("OVERLAY(host PLACING 'x' FROM 2)", "OVERLAY(host, 'x', 2)"),
        ("host IS DISTINCT FROM 'a'", "IS DISTINCT FROM(host, 'a')"),
        ("host IS NOT DISTINCT FROM 'a'", "NOT(IS DISTINCT FROM(host, 'a'))"),
        ("ok IS UNKNOWN", "IS NULL(ok)"),
        ("small BETWEEN SYMMETRIC 9 AND 1", "OR(BETWEEN(small, 9, 1), BETWEEN(small, 1, 9))"),
        ("CURRENT_DATE", "CURRENT_DATE()"),
        ("TIME '12:44:31'", "CAST('12:44:31' AS TIME(0))"),
    ],
)
def test_a_special_form_becomes_a_plain_call(written: str, bound: str) -> None:
    assert projected(written) == bound


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("tags[0]", "SQL_TYPE"),
        ("tags['a']", "SQL_TYPE"),
        ("host[1]", "SQL_TYPE"),
        ("tags[1", "SQL_SYNTAX"),
        ("ARRAY[1, 'a']", "SQL_TYPE"),
        ("MAP['a']", "SQL_TYPE"),
        ("TIME '25:00:00'", "SQL_SYNTAX"),
        ("MAP[]", "SQL_UNKNOWN_FUNCTION"),
        ("OVERLAY(host PLACING 'x')", "SQL_SYNTAX"),
        ("CAST(place AS ROW<a STRING, b INT>).c", "SQL_TYPE"),
        ("id IS DISTINCT FROM", "SQL_SYNTAX"),
        (f"{'ARRAY[' * 50}1{']' * 50}", "SQL_UNSUPPORTED"),
    ],
)
def test_a_wrong_special_form_is_refused(written: str, name: str) -> None:
    assert refused(f"SELECT {written} FROM events").name == name


def test_a_function_of_flink_that_is_missing_is_refused_with_the_reason() -> None:
    error = refused("SELECT SOURCE_WATERMARK() FROM events")
    assert error.name == "SQL_UNSUPPORTED"
    assert "no source here has watermarks" in error.message


def test_an_unknown_function_is_refused_with_the_nearest_name() -> None:
    error = refused("SELECT REGEXP_EXTRAKT(host, 'a') FROM events")
    assert error.name == "SQL_UNKNOWN_FUNCTION"
    assert "REGEXP_EXTRACT" in str(error.remedy)
