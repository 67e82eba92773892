"""Conditions as texts of SQL in our YAML form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.streams.errors import SqlError
from millstream.streams.rule_formats.condition_text import condition_of_text
from millstream.streams.rule_formats.yaml.form import read_yaml_rules
from millstream.streams.rules.reference import evaluate, field_reader

EVENT = {
    "EventID": 1,
    "Image": "C:\\Windows\\cmd.exe",
    "Size": "30",
    "Ip": "10.1.2.3",
    "Ok": True,
    "Same": "30",
    "t": -2,
}


def holds(text: str, event: dict[str, Any] = EVENT, *, caseless: bool = False) -> bool | None:
    return evaluate(condition_of_text(text, caseless=caseless), field_reader(event, {}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EventID = 1", True),
        ("1 = EventID", True),
        ("EventID IN (1, 4688) AND Image LIKE '%\\cmd.exe'", True),
        ("EventID IN ('1', 3)", True),
        ("EventID NOT IN (1, 3)", False),
        ("EventID <> 1 OR Size > 29.5", True),
        ("31 > Size", True),
        ("Size BETWEEN 30 AND 31", True),
        ("t BETWEEN -3 AND -1", True),
        ("-1 < t", False),
        ("Image LIKE 'C:%q_'", False),
        ("Image LIKE 'C:%.ex_'", True),
        ("Image SIMILAR TO '%(cmd|sh).exe'", True),
        ("REGEXP(Image, 'c[a-m]d')", True),
        ("STARTSWITH(Image, 'C:') AND ENDSWITH(Image, '.exe') AND CONTAINS(Image, 'Win')", True),
        ("LOWER(Image) = 'c:\\windows\\cmd.exe'", True),
        ("CIDR_MATCH(Ip, '192.168.0.0/16', '10.0.0.0/8')", True),
        ("Size = Same AND NOT Size = Ip", True),
        ("Ok AND Ok = TRUE AND Ok IS TRUE", True),
        ("Gone = 1", None),
        ("NOT Gone = 1", None),
        ("Gone IS NULL AND Image IS NOT NULL", True),
        ("(Gone = 1) IS NOT TRUE", True),
        ("Gone IN ('x', NULL) OR EventID = 1", True),
        ("EventID IN (2, NULL)", None),
        ("Image = 'c:\\windows\\CMD.exe'", False),
        ("TRUE", True),
    ],
)
def test_a_condition_means_what_sql_means(text: str, expected: bool | None) -> None:
    assert holds(text) is expected


def test_texts_compare_whatever_their_case_where_the_rule_says_so() -> None:
    assert holds("Image = 'c:\\windows\\CMD.exe' AND Image LIKE '%CMD%' AND REGEXP(Image, 'CMD')", caseless=True)
    assert holds("EventID = 1 AND NOT Image = 'x' AND CIDR_MATCH(Ip, '10.0.0.0/8')", caseless=True)


def test_names_with_dots_and_strange_ones_are_fields() -> None:
    read = read_yaml_rules("{rule: a, when: \"process.name = 'x' AND `a b` = 1\"}", "r.yml")
    assert evaluate(read.rules[0].condition, field_reader({"process": {"name": "x"}, "a b": 1}, read.paths))


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("x + 1 = 2", 1, "Expected a field"),
        ("x = 1 y", 7, "the end of the condition"),
        ("x =", 3, "the end"),
        ("x = 'a", 5, "not closed"),
        ("FOO(x, 'a')", 1, "there are STARTSWITH"),
        ("STARTSWITH(x)", 1, "a field and a text"),
        ("STARTSWITH(x, 1)", 15, "Expected a text"),
        ("REGEXP(x, '(a')", 11, "regular expression"),
        ("CIDR_MATCH(x, '10.0.0.0/99')", 15, "a network"),
        ("x > TRUE", 5, "neither less nor greater"),
        ("x < y", 5, "whether they are equal"),
        ("LOWER(x) = 3", 12, "with a text"),
        ("x IN (SELECT 1)", 1, "no condition"),
        ("1 IS NULL", 1, "Expected a field"),
        ("x LIKE 1", 8, "Expected a text"),
        ("'a'", 1, "no condition"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_place(text: str, column: int, words: str) -> None:
    with pytest.raises(SqlError) as refused:
        condition_of_text(text, caseless=False)
    assert refused.value.position is not None
    assert refused.value.position.column == column
    assert words in refused.value.message


def test_a_fault_in_a_file_has_the_place_of_the_text_and_what_stands_at_the_fault() -> None:
    content = f"rule: a\nwhen: {json.dumps('x = 1 AND FOO(y)')}\n"
    [refused] = read_yaml_rules(content, "r.yml").refused
    assert (refused.line, refused.column) == (2, 7)
    assert refused.reason.startswith("In the condition at 'FOO(y)': FOO cannot be asked")
    [blank] = read_yaml_rules("rule: a\nwhen: ' '", "r.yml").refused
    assert "Expected a condition" in blank.reason
