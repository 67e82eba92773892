"""Filters of Sigma: what they are a part of, and which of their rules are not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_rules import read_text

from millstream.streams.rule_formats.rule_files import read_rule_files
from millstream.streams.rule_formats.sigma import read_rules
from millstream.streams.rules.imported_rules import AppliedFilter, ImportedRules
from millstream.streams.rules.reference import evaluate, field_reader

BASE = """title: %(name)s
id: id-%(name)s
name: %(name)s
logsource: {product: windows, %(source)s}
detection:
    selection: {Image: '*x.exe'}
    condition: selection
"""
BASES = "---\n".join(
    BASE % {"name": name, "source": source}
    for name, source in (
        ("created", "category: process_creation"),
        ("started", "category: process_creation"),
        ("changed", "category: file_event"),
    )
)
FILTER = """title: Our own tools
logsource: {%s}
filter:
    rules: %s
    selection: {User|startswith: 'adm_'}
    condition: not selection
"""
EVENT = {"Channel": "Microsoft-Windows-Sysmon/Operational", "EventID": 1, "Image": "x.exe"}
BEGIN = BASES.count("\n") + 2
"""The line at which what stands behind the rules begins."""


def filtered(rules: str, source: str = "product: windows, category: process_creation") -> ImportedRules:
    return read_text(f"{BASES}---\n{FILTER % (source, rules)}")


def fitting(found: ImportedRules, **event: object) -> list[str]:
    read = field_reader({**EVENT, **event}, found.paths)
    return [rule.title for rule in found.rules if evaluate(rule.condition, read) is True]


@pytest.mark.parametrize(
    ("rules", "source", "ids"),
    [
        ("[id-created]", "category: process_creation", ["id-created"]),
        ("created", "product: windows", ["id-created"]),
        ("[created, id-started, id-created]", "product: windows", ["id-created", "id-started"]),
        ("any", "product: windows", ["id-created", "id-started", "id-changed"]),
        ("Any", "product: windows, category: file_event", ["id-changed"]),
        ("[]", "category: process_creation", ["id-created", "id-started"]),
    ],
)
def test_a_filter_is_part_of_the_rules_it_names_that_have_its_log_source(
    rules: str, source: str, ids: list[str]
) -> None:
    found = filtered(rules, source)
    assert found.refused == ()
    (told,) = found.filters
    assert (told.title, told.line, list(told.rules)) == ("Our own tools", BEGIN, ids)
    assert [rule.id for rule in found.rules if rule.filters == ("Our own tools",)] == ids
    assert "User" in found.paths


def test_a_filtered_rule_holds_where_its_filter_does_too() -> None:
    found = filtered("[created]")
    assert fitting(found, User="eve") == ["created", "started"]
    assert fitting(found, User="ADM_ada") == ["started"]
    assert fitting(found) == ["created", "started"]


def test_several_filters_of_a_rule_all_count() -> None:
    second = FILTER.replace("User|startswith: 'adm_'", "Image: '*y.exe'") % ("product: windows", "any")
    found = read_text(f"{BASES}---\n{FILTER % ('product: windows', 'created')}---\n{second}")
    assert found.rules[0].filters == ("Our own tools",) * 2
    assert fitting(found, User="adm_", Image="x.exe") == ["started"]
    assert fitting(found, User="eve", Image="y.exe") == []


def test_a_correlation_counts_what_the_filter_left(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(
        "title: many\nid: many\ncorrelation: {type: event_count, rules: [created], timespan: 1m, condition: {gte: 2}}\n"
    )
    (tmp_path / "b.yml").write_text(FILTER % ("product: windows", "created"))
    (tmp_path / "c.yml").write_text(BASES)
    found = read_rules(tmp_path)
    assert found.refused == ()
    assert fitting(found, User="adm_ada") == ["started"]
    assert fitting(found, User="eve") == ["many", "created", "started"]


@pytest.mark.parametrize(
    ("rules", "source", "line", "reason"),
    [
        ("[created, gone]", "product: windows", 3, "no rule 'gone' was read with the filter"),
        ("[created, changed]", "category: process_creation", 3, "'changed' has another log source"),
    ],
)
def test_a_rule_that_the_filter_cannot_be_part_of_is_told_and_the_others_are_filtered(
    rules: str, source: str, line: int, reason: str
) -> None:
    found = filtered(rules, source)
    (refused,) = found.refused
    assert reason in refused.reason
    assert refused.line == BEGIN + line
    assert [one.rules for one in found.filters] == [("id-created",)]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (FILTER % ("product: linux", "any"), 0, "no rule that was read with the filter has its log source"),
        (FILTER % ("product: windows", "gone"), 3, "no rule 'gone'"),
        (FILTER % ("product: windows", "{a: b}"), 3, "names its rules in `rules`"),
        (FILTER.replace("    rules: %s\n", "") % "product: windows", 2, "names its rules in `rules`"),
        (FILTER % ("definition: x", "any"), 1, "needs a log source"),
        (FILTER.replace("title", "name") % ("product: windows", "any"), 0, "needs a title"),
        (FILTER.replace("not selection", "[not selection]") % ("product: windows", "any"), 5, "must be a text"),
        (FILTER.replace("not selection", "not others") % ("product: windows", "any"), 5, "'others' not defined"),
        (FILTER.replace("startswith", "begins") % ("product: windows", "any"), 4, "no modifier 'begins'"),
        ("title: t\nlogsource: {product: windows}\nfilter: any\n", 2, "a map of keys and values"),
    ],
)
def test_a_filter_that_cannot_be_taken_is_told_at_its_line(text: str, line: int, reason: str) -> None:
    found = read_text(f"{BASES}---\n{text}")
    (refused,) = found.refused
    assert reason in refused.reason
    assert refused.line == BEGIN + line
    assert found.filters == ()
    assert len(found.rules) == 3


def test_a_correlation_itself_cannot_be_filtered() -> None:
    many = (
        "title: many\nid: many\ncorrelation: {type: event_count, rules: [created], timespan: 1m, condition: {gte: 2}}\n"
    )
    found = read_text(f"{BASES}---\n{many}---\n{FILTER % ('product: windows', 'many')}")
    assert "'many' is a correlation" in found.refused[0].reason


def test_a_file_of_a_filter_alone_is_known_as_sigmas(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(BASES)
    (tmp_path / "filter.yml").write_text(
        "filter:\n    rules: any\n    s: {A: b}\n    condition: s\ntitle: t\nlogsource: {product: windows}\n"
    )
    found = read_rule_files([tmp_path])
    assert found.refused == ()
    assert found.filters == (
        AppliedFilter("t", str(tmp_path / "filter.yml"), 1, ("id-created", "id-started", "id-changed")),
    )


def test_the_rules_of_a_filter_are_told_up_to_a_number() -> None:
    assert AppliedFilter("t", "f.yml", 3, ("a",)).describe(2) == "f.yml:3: the filter 't' is part of the rule a"
    assert (
        AppliedFilter("t", "f.yml", 3, ("a", "b", "c")).describe(2)
        == "f.yml:3: the filter 't' is part of 3 rules: a, b and 1 more"
    )
