"""Sigma rules that tests write, and whether an event fits one."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.streams.rule_formats.sigma import read_rules
from millstream.streams.rule_formats.sigma.mapping import EventMapping
from millstream.streams.rules.imported_rules import ImportedRules
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import Rule

HEAD = """title: A rule
id: 6f1b1a6c-0000-4000-8000-000000000001
level: high
logsource:
    product: windows
    service: security
detection:
"""

SOURCE_RULE = """title: t
id: a
logsource: {%s}
detection:
    s: {%s}
    condition: s
"""
"""A rule by the words of its log source and of what it asks."""


EVERYTHING = EventMapping(unmapped_judge_everything=True)
"""Rules of log sources that nothing tells judge all events beside those of Windows."""


def read_text(text: str, name: str = "rule.yml", mapping: EventMapping | None = None) -> ImportedRules:
    """What is read from a file with that text."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.write_text(text, encoding="utf-8")
        return read_rules(path, mapping)


def rule_of(detection: str) -> Rule:
    """The rule with that detection, over the Security channel."""
    read = read_text(HEAD + detection)
    assert read.refused == ()
    (rule,) = read.rules
    return rule


def fault_of(detection: str) -> tuple[int | None, str]:
    """Line and reason for which the rule with that detection is refused; its text begins at line 8."""
    read = read_text(HEAD + detection)
    assert read.rules == ()
    (refused,) = read.refused
    return refused.line, refused.reason


def fits(detection: str, event: Mapping[str, Any]) -> bool:
    """Whether an event of the Security channel with these fields fits the detection; never unknown."""
    read = read_text(HEAD + detection)
    assert read.refused == ()
    held = evaluate(read.rules[0].condition, field_reader({"Channel": "Security", **event}, read.paths))
    assert held is not None
    return held
