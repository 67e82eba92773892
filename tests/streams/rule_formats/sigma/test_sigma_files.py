"""Files of Sigma rules: what is kept of a rule, and that a bad one harms no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from written_rules import read_text

from millstream.streams.rule_formats.sigma import read_rules

GOOD = """title: %s
id: %s
logsource: {product: windows, service: security}
detection:
    s: {A: x}
    condition: s
"""

FULL = """title: Whole rule
id: 8a4d2b8e-1111-4222-8333-000000000001
status: test
description: What it is about
references:
    - https://example.org
author: Somebody Else, Another
date: 2026-01-02
tags:
    - attack.execution
    - attack.t1059.001
logsource:
    category: process_creation
    product: windows
detection:
    selection:
        Image|endswith: '\\a.exe'
    condition: selection
fields:
    - CommandLine
    - User
falsepositives:
    - Unknown
level: critical
license: Own Licence 1
"""


def test_a_rule_keeps_what_its_author_said(tmp_path: Path) -> None:
    (tmp_path / "full.yml").write_text(FULL)
    read = read_rules(str(tmp_path))
    (rule,) = read.rules
    assert read.refused == ()
    assert (rule.id, rule.title) == ("8a4d2b8e-1111-4222-8333-000000000001", "Whole rule")
    assert (rule.kind, rule.level, rule.author) == ("sigma", "critical", "Somebody Else, Another")
    assert rule.tags == ("attack.execution", "attack.t1059.001")
    assert rule.shows == ("CommandLine", "User")
    assert rule.license == "Own Licence 1"
    assert rule.text == FULL
    assert rule.enabled
    assert rule.alerts
    assert set(read.paths) == {"Channel", "EventID", "Image", "CommandLine", "User"}


def test_the_licence_beside_the_rules_is_kept_with_each(tmp_path: Path) -> None:
    (tmp_path / "rules" / "windows").mkdir(parents=True)
    (tmp_path / "rules" / "windows" / "a.yml").write_text(GOOD % ("a", "a"))
    assert read_rules(tmp_path).rules[0].license == ""
    elsewhere = tmp_path / "under"
    (elsewhere / "rules").mkdir(parents=True)
    (elsewhere / "LICENSE").write_text("Rules are under the [Detection Rule License (DRL) 1.1](somewhere)")
    (elsewhere / "rules" / "a.yml").write_text(GOOD % ("a", "a"))
    assert read_rules(elsewhere / "rules").rules[0].license == "Detection Rule License 1.1"


def test_rules_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b/x.yml", "a.yaml", "b/a.yml", "c.yml", ".hidden/d.yml", "e.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(GOOD % (name, name))
    assert [rule.title for rule in read_rules(tmp_path).rules] == ["a.yaml", "b/a.yml", "b/x.yml", "c.yml"]
    given_twice = [tmp_path / "c.yml", tmp_path / "e.txt", tmp_path / "c.yml"]
    assert [rule.title for rule in read_rules(given_twice).rules] == ["c.yml", "e.txt"]


def test_one_bad_file_stops_no_other(tmp_path: Path) -> None:
    bad = {
        "b.yml": b"title: [",
        "c.yml": b"\xff\xfe",
        "d.yml": b"- a list\n",
        "e.yml": b"",
        "f.yml": b"x" * (1024 * 1024 + 1),
        "g.yml": b"title: a\x00b\n",
        "h.yml": b"[" * 20_000,
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    for name in ("a.yml", "z.yml"):
        (tmp_path / name).write_text(GOOD % (name, name))
    read = read_rules([tmp_path, tmp_path / "nothing.yml"])
    assert [rule.title for rule in read.rules] == ["a.yml", "z.yml"]
    refused = {Path(one.path).name: one.reason for one in read.refused}
    assert list(refused) == [*sorted(bad), "nothing.yml"]
    assert "no YAML" in refused["b.yml"]
    assert refused["c.yml"] == "the file is not UTF-8"
    assert refused["d.yml"] == "a rule is a map of keys and values"
    assert refused["e.yml"] == "the file has no rule"
    assert refused["f.yml"] == "the file is larger than 1,048,576 bytes"
    assert "no YAML" in refused["g.yml"]
    assert "nested" in refused["h.yml"] or "no YAML" in refused["h.yml"]
    assert "No such file" in refused["nothing.yml"]


def test_a_fault_is_told_with_its_line() -> None:
    for text, line, reason in (
        (GOOD % ("a", "a") + "level: hgih\n", 7, "'hgih' is no level"),
        (GOOD % ("a", "a") + "title: again\n", 7, "the key 'title' stands twice"),
        (GOOD.replace("title", "titel") % ("a", "a"), 1, "a rule needs a title"),
        ("title: a\nid: a\n", 1, "a rule needs a map `detection`"),
        ("title: a\ndetection: {s: x, condition: s}\n", 1, "a rule needs a map `logsource`"),
        ("title: a\naction: globe\n", 2, "no action 'globe' is known; 'global' is"),
        ("title: a\naction: repeat\n", 2, "no rule before it"),
        ("title: a\nfilter: {rules: [a]}\n", 1, "a filter needs a log source"),
        ("title: a\n  b: c\n", 2, "no YAML"),
    ):
        (refused,) = read_text(text).refused
        assert reason in refused.reason
        assert refused.line == line, refused
        assert str(refused).endswith(f"rule.yml:{line}: {refused.reason}")


def test_aliases_that_would_fill_the_memory_are_refused() -> None:
    lists = "".join(f"    a{place}: &a{place} [*a{place - 1}, *a{place - 1}]\n" for place in range(1, 40))
    maps = "".join(f"    a{place}: &a{place} {{<<: [*a{place - 1}, *a{place - 1}]}}\n" for place in range(1, 40))
    for first, bomb, reason in (("[x, y]", lists, "aliases"), ("{A: x}", maps, "maps cannot be merged")):
        text = f"title: t\nlogsource: {{product: windows}}\ndetection:\n    a0: &a0 {first}\n{bomb}    condition: a39\n"
        assert reason in read_text(text).refused[0].reason
    assert "Recursive" in read_text("title: t\ndetection: &a [*a]\n").refused[0].reason
    alias = "title: t\nlogsource: {product: windows}\ndetection:\n    a: &a [x]\n    b: *a\n    condition: a and b\n"
    assert len(read_text(alias).rules) == 1


def test_several_documents_of_one_file_are_rules_of_their_own() -> None:
    text = "\n---\n".join((GOOD % ("a", "a"), "title: bad\n", GOOD.replace("id: ", "name: ") % ("b", "b")))
    read = read_text(text)
    assert [rule.id for rule in read.rules] == ["a", "b"]
    assert [one.line for one in read.refused] == [9]
    assert {name: line for name, (_, line) in read.places.items()} == {"a": 1, "b": 12}
    assert read.rules[1].text.startswith("title: b\n")
    assert "title: b\n" not in read.rules[0].text


def test_a_second_rule_with_one_id_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(GOOD % ("first", "one"))
    (tmp_path / "b.yml").write_text(GOOD % ("second", "one"))
    read = read_rules(tmp_path)
    assert [rule.title for rule in read.rules] == ["first"]
    assert "a.yml" in read.refused[0].reason
    assert read.refused[0].line == 2


def test_a_rule_without_id_is_called_by_its_file() -> None:
    assert read_text(GOOD.replace("id: ", "note: ") % ("a", "a"), "by_file.yml").rules[0].id == "by_file"


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.dates())
KEYS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["A|contains", "A|re", "B|windash|all", "C|cidr", "|all", "D|expand", "E|hour", "condition"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@example(detection={}, condition="1 of them", others={"id": []}, correlation=[])
@given(
    detection=st.dictionaries(KEYS, VALUES, max_size=4) | VALUES,
    condition=st.sampled_from(["1 of them", "all of them and not A", "A"]) | VALUES,
    others=st.dictionaries(
        st.sampled_from(["level", "tags", "logsource", "id", "fields", "author", "action", "generate"]),
        VALUES,
        max_size=3,
    ),
    correlation=st.none() | VALUES,
)
def test_whatever_stands_in_a_file_is_taken_or_refused_and_never_raises(
    detection: Any, condition: Any, others: dict[str, Any], correlation: Any
) -> None:
    if isinstance(detection, dict):
        detection = {**detection, "condition": condition}
    rule = {"title": "t", "logsource": {"product": "windows"}, "detection": detection, **others}
    if correlation is not None:
        rule["correlation"] = correlation
    read = read_text(yaml.safe_dump(rule, allow_unicode=True))
    assert len(read.rules) + len(read.refused) == 1


@pytest.mark.process
def test_importing_the_package_does_not_import_pysigma() -> None:
    code = "import sys; import millstream.streams.rule_formats.sigma; assert not {'sigma', 'yaml'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.process
def test_without_pysigma_the_remedy_is_told() -> None:
    code = """
import sys
sys.modules["sigma"] = None
from millstream.model.errors import ExtraMissing
from millstream.streams.rule_formats.sigma import read_rules
try:
    read_rules(".")
except ExtraMissing as error:
    print(error, error.remedy)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert 'pip install "millstream[sigma]"' in done.stdout
