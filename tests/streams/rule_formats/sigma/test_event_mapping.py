"""What a site says of its own events: log sources, fields and placeholders of Sigma's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from written_rules import SOURCE_RULE

from millstream.streams.errors import RuleError
from millstream.streams.rule_formats.rule_files import SigmaEvents, read_rule_files
from millstream.streams.rule_formats.sigma import read_rules
from millstream.streams.rule_formats.sigma.mapping import read_mapping, read_placeholders
from millstream.streams.rules.imported_rules import ImportedRules
from millstream.streams.rules.reference import evaluate, field_reader

MAPPING = """
log sources:
  - {product: linux, when: "os = 'Linux'"}
  - product: linux
    service: auditd
    when: {log_type: auditd}
fields:
  CommandLine: [process.command_line, cmd]
placeholders:
  Admins: [root, 42]
"""


def read(tmp_path: Path, source: str, asked: str, mapping: str = MAPPING) -> ImportedRules:
    (tmp_path / "mapping.yml").write_text(mapping)
    (tmp_path / "rule.yml").write_text(SOURCE_RULE % (source, asked))
    return read_rules(tmp_path / "rule.yml", read_mapping(tmp_path / "mapping.yml"))


def fits(found: ImportedRules, event: dict[str, Any]) -> bool:
    assert found.refused == ()
    return evaluate(found.rules[0].condition, field_reader(event, found.paths)) is True


def test_the_entry_with_most_words_says_what_an_event_of_a_log_source_is(tmp_path: Path) -> None:
    auditd = read(tmp_path, "product: linux, service: auditd", "X: x")
    assert fits(auditd, {"log_type": "Auditd", "X": "x"})
    assert not fits(auditd, {"os": "linux", "X": "x"})
    cron = read(tmp_path, "product: linux, service: cron", "X: x")
    assert fits(cron, {"os": "linux", "X": "x"})
    assert not fits(cron, {"X": "x"})


def test_a_source_that_the_mapping_leaves_out_is_what_it_is_without_one(tmp_path: Path) -> None:
    found = read(tmp_path, "product: windows, service: security", "X: x")
    assert fits(found, {"Channel": "Security", "X": "x"})
    assert not fits(found, {"os": "linux", "X": "x"})


def test_fields_are_sought_in_the_mappings_places_first_and_then_in_the_known_ones(tmp_path: Path) -> None:
    mapping = MAPPING.replace("{product: linux, when: \"os = 'Linux'\"}", "{product: macos, when: {Channel: ~}}")
    found = read(tmp_path, "product: macos", "CommandLine: x", mapping)
    assert fits(found, {"process": {"command_line": "x"}, "CommandLine": "y"})
    assert fits(found, {"process.command_line": "x"})
    assert fits(found, {"cmd": "x"})
    assert fits(found, {"CommandLine": "x"})
    assert not fits(found, {"cmd": "y", "CommandLine": "x"})


@pytest.mark.parametrize(
    ("asked", "value", "held"),
    [
        ("u|expand: '%Admins%'", "ROOT", True),
        ("u|expand: '%Admins%'", "42", True),
        ("u|expand: '%Admins%'", "%Admins%", False),
        ("u|expand|contains: 'dom-%Admins%'", "at dom-root.", True),
        ("u|re|expand: '^%Admins%+$'", "roott", True),
        ("u|re|i|expand: '^%Admins%+$'", "ROOT", True),
        ("u|re|expand: '^%Admins%+$'", "ROOT", False),
        ("u|expand|contains|all: ['%Admins%', x]", "42x", True),
        ("u|expand|contains|all: ['%Admins%', x]", "42", False),
    ],
)
def test_a_placeholder_stands_for_each_of_its_values(tmp_path: Path, asked: str, value: str, held: bool) -> None:
    assert fits(read(tmp_path, "product: linux", asked), {"os": "linux", "u": value}) is held


def test_a_placeholder_without_values_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (refused,) = read(tmp_path, "product: linux", "u|expand: '%Servers%'").refused
    assert refused.reason == (
        "the field 'u' of 't' asks for the placeholder %Servers%, which has no values: "
        "import with --placeholders FILE, in which a line says Servers: [value, ...]"
    )
    assert refused.line == 5
    (refused,) = read(tmp_path, "product: linux", "u|re|expand: '%Admin%'").refused
    assert "(there is %Admins%)" in refused.reason


PLACEHOLDERS = """
Admins: [ada, 'b*b']
Servers: db1
"""


@pytest.mark.parametrize(
    ("asked", "value", "held"),
    [
        ("u|expand: '%Admins%'", "ADA", True),
        ("u|expand: '%Admins%'", "root", False),
        ("u|expand: '%Admins%'", "b*b", True),
        ("u|expand: '%Admins%'", "bob", False),
        ("u|expand|startswith: '%Servers%.'", "db1.local", True),
        ("u|expand: ['%Servers%', '%Admins%']", "ada", True),
        ("u|re|expand: '^%Admins%$'", "b*b", True),
        ("u: '%Admins%'", "ada", False),
        ("u: '%Admins%'", "%admins%", True),
    ],
)
def test_placeholders_of_a_file_of_their_own_count_before_the_mappings(
    tmp_path: Path, asked: str, value: str, held: bool
) -> None:
    (tmp_path / "mapping.yml").write_text(MAPPING)
    (tmp_path / "values.yml").write_text(PLACEHOLDERS)
    (tmp_path / "rule.yml").write_text(SOURCE_RULE % ("product: linux", asked))
    events = SigmaEvents(tmp_path / "mapping.yml", placeholders=tmp_path / "values.yml")
    assert fits(read_rule_files([tmp_path / "rule.yml"], events), {"os": "linux", "u": value}) is held


def test_a_keyword_takes_the_values_of_a_placeholder(tmp_path: Path) -> None:
    text = "title: t\nid: a\nlogsource: {product: linux}\ndetection: {k: {'|expand': ['%Admins%']}, condition: k}\n"
    (tmp_path / "rule.yml").write_text(text)
    (tmp_path / "values.yml").write_text(PLACEHOLDERS)
    (refused,) = read_rule_files([tmp_path / "rule.yml"]).refused
    assert refused.reason.startswith("A keyword of 't' asks for the placeholder %Admins%, which has no values")
    found = read_rule_files([tmp_path / "rule.yml"], SigmaEvents(placeholders=tmp_path / "values.yml"))
    assert fits(found, {"facility": "auth", "message": "hello Ada"})
    assert not fits(found, {"facility": "auth", "message": "hello Eve"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Admins: []", "The file of placeholders cannot be taken: {0}:1:9: The placeholder 'Admins' needs a value"),
        ("Admins: {a: b}", "1:9: Expected a text or a number, found a map"),
        ("[a]", "1:1: Expected a map of placeholders"),
        ("", "0 documents instead of one"),
    ],
)
def test_a_file_of_placeholders_that_says_nothing_sensible_is_refused_at_its_place(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "values.yml").write_text(text)
    with pytest.raises(RuleError) as caught:
        read_placeholders(tmp_path / "values.yml")
    assert caught.value.name == "RULE_FILE"
    assert words.format(tmp_path / "values.yml") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log source: []", "1:1: There is no 'log source' here. Did you mean 'log sources'?"),
        ("log sources: [{when: a = 1}]", "1:15: A log source needs a product, a category or a service"),
        ("log sources: [{product: linux}]", "'when' is missing"),
        ("log sources: [{product: linux, when: 'a ='}]", "1:38"),
        ("fields: [a]", "1:9: Expected a map of fields"),
        ("placeholders: {a: {b: c}}", "1:19: Expected a text or a number, found a map"),
        ("a: b\n---\nc: d", "2 documents"),
        ("{", "no YAML"),
    ],
)
def test_a_mapping_that_says_nothing_sensible_is_refused_at_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        read(tmp_path, "product: linux", "X: x", text)
    assert caught.value.name == "RULE_FILE"
    assert words in str(caught.value)


def test_a_mapping_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"gone\.yml: No such file"):
        read_mapping(tmp_path / "gone.yml")
