"""Documents of one file that share what they say: the collections of Sigma's first version."""

from __future__ import annotations

import pytest
from written_rules import read_text

from millstream.streams.rule_formats.sigma import rule_reader as collection
from millstream.streams.rules.imported_rules import ImportedRules
from millstream.streams.rules.reference import evaluate, field_reader

SHARED = """action: global
title: Shared
id: shared
level: high
logsource: {product: windows, service: security}
detection:
    ours: {Owner: us}
    condition: s and not ours
"""
PART = """detection:
    s: {EventID: %d}
"""


def read(*documents: str) -> ImportedRules:
    return read_text("---\n".join(documents))


def fits(found: ImportedRules, number: int, **event: object) -> bool:
    told = {"Channel": "Security", **event}
    return evaluate(found.rules[number].condition, field_reader(told, found.paths)) is True


def test_what_is_global_is_part_of_all_rules_behind_it() -> None:
    found = read(SHARED, PART % 1, PART % 2 + "level: low\nid: own\n")
    assert found.refused == ()
    assert [(rule.id, rule.title, rule.level) for rule in found.rules] == [
        ("shared", "Shared", "high"), ("own", "Shared", "high"),
    ]  # fmt: skip
    assert fits(found, 0, EventID=1)
    assert not fits(found, 0, EventID=1, Owner="us")
    assert not fits(found, 0, EventID=2)
    assert fits(found, 1, EventID=2)


def test_rules_that_share_an_id_are_numbered() -> None:
    assert [rule.id for rule in read(SHARED, PART % 1, PART % 2, PART % 3).rules] == ["shared", "shared-2", "shared-3"]


def test_what_is_global_adds_up_until_it_is_reset() -> None:
    whole = (SHARED + PART % 3).replace("action: global\n", "").replace("id: shared", "id: alone").replace(
        "detection:\n    s", "    s", 1
    )  # fmt: skip
    found = read(SHARED, "action: global\nlevel: low\n", PART % 1, "action: reset\n", whole)
    assert found.refused == ()
    assert [(rule.id, rule.level) for rule in found.rules] == [("shared", "low"), ("alone", "high")]


def test_a_repeated_rule_is_the_one_before_with_changes() -> None:
    found = read(SHARED, PART % 1, "action: repeat\ntitle: Again\ndetection:\n    s: {EventID: 7}\n")
    assert [(rule.id, rule.title) for rule in found.rules] == [("shared", "Shared"), ("shared-2", "Again")]
    assert fits(found, 1, EventID=7)
    assert not fits(found, 1, EventID=7, Owner="us")
    assert not fits(found, 1, EventID=1)


def test_correlations_take_nothing_of_what_is_global() -> None:
    together = "title: t\nid: t\ncorrelation: {type: event_count, rules: [shared], timespan: 1m, condition: {gte: 2}}\n"
    found = read(SHARED, PART % 1, together)
    assert [(rule.id, rule.level) for rule in found.rules] == [("shared", "high"), ("t", "medium")]


def test_a_fault_is_told_where_it_stands_in_either_document() -> None:
    found = read(SHARED, PART % 1, "detection:\n    s: {EventID|lt: x}\n")
    assert [(one.line, "does not take 'x'" in one.reason) for one in found.refused] == [(14, True)]
    found = read(SHARED.replace("s and not ours", "s and nobody"), PART % 1)
    assert [(one.line, "nobody" in one.reason) for one in found.refused] == [(8, True)]


def test_the_text_of_a_rule_has_what_it_shares() -> None:
    text = read(SHARED, PART % 1, PART % 2).rules[1].text
    assert text.startswith("action: global")
    assert "EventID: 2" in text
    assert "EventID: 1" not in text


def test_documents_that_share_more_than_memory_should_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MAX_COLLECTED_CHARACTERS", 500)
    found = read(SHARED, PART % 1, PART % 2, PART % 3)
    assert len(found.rules) == 2
    assert "more than 500 characters" in found.refused[0].reason
