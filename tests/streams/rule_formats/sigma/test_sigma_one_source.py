"""Imports that say of which log source all events are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.streams.rule_formats.rule_files import SigmaEvents, log_source_of, read_rule_files
from millstream.streams.rules.imported_rules import ImportedRules
from millstream.streams.rules.reference import evaluate, field_reader

RULE = """title: {id}
id: {id}
logsource: {{{source}}}
detection:
    s: {{X: x}}
    condition: s
"""
SOURCES = {
    "trail": "product: aws, service: cloudtrail",
    "aws": "product: aws",
    "auditd": "product: linux, service: auditd",
    "processes": "category: process_creation",
    "web": "category: webserver",
    "security": "product: windows, service: security",
}
COUNT = """title: {id}
id: {id}
correlation: {{type: event_count, rules: [{of}], timespan: 5m, condition: {{gte: 2}}}}
"""
FILTER = """title: {id}
logsource: {{{source}}}
filter:
    rules: {rules}
    s: {{Y: y}}
    condition: not s
"""


def read(tmp_path: Path, *log_sources: str, more: tuple[str, ...] = (), mapping: str = "") -> ImportedRules:
    texts = [RULE.format(id=name, source=source) for name, source in SOURCES.items()]
    (tmp_path / "rules.yml").write_text("---\n".join([*texts, *more]))
    file = tmp_path / "mapping.yaml.txt"
    file.write_text(mapping or "fields: {}\n")
    return read_rule_files(
        [tmp_path / "rules.yml"], SigmaEvents(file, tuple(log_source_of(one) for one in log_sources))
    )


def taken(found: ImportedRules) -> set[str]:
    assert found.refused == ()
    return {rule.id for rule in found.rules}


def fits(found: ImportedRules, name: str, event: dict[str, Any]) -> bool:
    (rule,) = (rule for rule in found.rules if rule.id == name)
    return evaluate(rule.condition, field_reader(event, found.paths)) is True


@pytest.mark.parametrize(
    ("log_sources", "names"),
    [
        ((), set(SOURCES)),
        (("product=aws,service=cloudtrail",), {"trail", "aws"}),
        (("product=aws",), {"trail", "aws"}),
        (("product=aws,service=vpcflow",), {"aws"}),
        (("product=linux, category=process_creation",), {"processes"}),
        (("product=linux", "category=webserver"), {"auditd", "web"}),
        (("product=okta",), set()),
    ],
)
def test_rules_for_other_log_sources_are_left_out(
    tmp_path: Path, log_sources: tuple[str, ...], names: set[str]
) -> None:
    found = read(tmp_path, *log_sources)
    assert taken(found) == names
    assert sum(one.rules for one in found.sources if not one.looks_at) == len(SOURCES) - len(names)


def test_rules_for_the_log_source_look_at_every_event(tmp_path: Path) -> None:
    found = read(tmp_path, "product=aws,service=cloudtrail", "product=windows,service=security", "product=linux")
    for name in ("trail", "aws", "security", "auditd"):
        assert fits(found, name, {"X": "x", "Channel": "own"})
        assert not fits(found, name, {"X": "y"})
    assert not [one for one in found.sources if one.looks_at]


def test_of_a_part_of_the_log_source_events_must_show_what_they_show_elsewhere(tmp_path: Path) -> None:
    found = read(
        tmp_path, "product=windows", "product=linux", mapping="log sources: [{service: auditd, when: {type: a}}]"
    )
    assert taken(found) == {"security", "auditd"}
    assert fits(found, "security", {"X": "x", "Channel": "Security"})
    assert not fits(found, "security", {"X": "x"})
    assert fits(found, "auditd", {"X": "x", "type": "a"})
    assert not fits(found, "auditd", {"X": "x"})


def test_what_is_about_rules_that_are_left_out_is_left_out_and_no_fault(tmp_path: Path) -> None:
    more = (
        COUNT.format(id="many", of="auditd"),
        COUNT.format(id="most", of="trail"),
        FILTER.format(id="f", source=SOURCES["auditd"], rules="any"),
        FILTER.format(id="g", source="product: linux", rules="[auditd]"),
        FILTER.format(id="h", source="product: aws", rules="[trail]"),
    )
    found = read(tmp_path, "product=aws", more=more)
    assert taken(found) == {"trail", "aws", "most"}
    assert [one.title for one in found.filters] == ["h"]
    assert {one.source: one.rules for one in found.sources}["correlation"] == 1


@pytest.mark.parametrize(
    "text", ["", "aws", "product=", "vendor=aws", "product=aws,product=okta", "product=aws;x", "=aws"]
)
def test_a_text_that_names_no_log_source_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="^" + text):
        log_source_of(text)
