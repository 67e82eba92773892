"""The rule stage says what the plain judge says, whatever the rules, the events and the cuts between batches."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from drawn_rules import EVENTS, FORMULAS, PATHS
from hypothesis import HealthCheck, given, settings
from stages import plain_hits, rule_set, stage_hits

from example_counts import scaled
from millstream.streams.rules.conditions import Not, Op, Predicate, all_of, any_of
from millstream.streams.rules.engines import literals
from millstream.streams.rules.stage.stage import RuleStage


@settings(deadline=None, max_examples=scaled(60), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(FORMULAS, min_size=1, max_size=12),
    st.lists(EVENTS, max_size=12),
    st.integers(0, 12),
    st.sampled_from((0, 1)),
)
def test_the_stage_says_what_the_plain_judge_says(conditions, events, cut, cache_mb):
    rules = rule_set(*conditions, paths=PATHS)
    stage = RuleStage(rules, cache_mb=cache_mb)
    for part in (events[:cut], events[cut:], events):
        assert stage_hits(stage, part) == plain_hits(rules, part)
    assert stage.quarantined == ()


def is_in(field, *values):
    return Predicate(field, Op.IN, values, caseless=isinstance(values[0], str))


@pytest.mark.parametrize("patience", [0, 1_000_000])
def test_rules_bound_to_classes_hold_in_their_class_alone(monkeypatch, patience):
    monkeypatch.setattr(literals, "PATIENCE_TEXTS", patience)
    channels = ("Sysmon", "security", "System")
    conditions = [
        all_of(
            any_of(
                all_of(is_in("channel", channels[number % 3]), is_in("id", number % 5)),
                all_of(is_in("channel", "old"), is_in("id", 77)),
            ),
            Predicate("image", (Op.ENDS, Op.CONTAINS, Op.STARTS)[number % 3], (f"\\a{number % 7}.exe",), caseless=True),
            Not(Predicate("user", Op.STARTS, ("svc",), absent=False)),
        )
        for number in range(90)
    ]
    conditions += [
        Not(is_in("channel", "system")),
        is_in("user", "root"),
        all_of(Not(is_in("id", 1)), is_in("channel", "SYSMON")),
    ]
    rules = rule_set(*conditions)
    stage = RuleStage(rules, cache_mb=1)
    assert stage.explain().class_fields == ("channel", "id")
    every = [
        {"channel": channel, "id": number, "image": f"{image}\\A{int(number) % 7}.exe", "user": user}
        for channel in ("SYSMON", "Security", "system", "old", "other", None)
        for number in (*range(6), 77, "3", True)
        for image in ("", "c:\\x", "C:\\A3.exe\\")
        for user in ("svc1", "root", None)
    ]
    wanted = plain_hits(rules, every)
    assert {number for _, number in wanted} >= {90, 91, 92}
    assert len(wanted) > 400
    for _ in range(3):
        assert stage_hits(stage, every) == wanted


def test_a_key_that_is_found_too_often_is_chosen_again_without_a_difference():
    rules = rule_set(
        *(
            all_of(Predicate("a", Op.CONTAINS, ("common",)), Predicate("b", Op.CONTAINS, (f"rare{number}",)))
            for number in range(20)
        )
    )
    stage = RuleStage(rules)
    first = [{"a": "nothing", "b": f"rare{number % 20}"} for number in range(500)]
    later = [
        {"a": f"common{number}", "b": f"rare{number % 25}" if number % 100 == 0 else "x"} for number in range(5_000)
    ]
    for events in (first, later, later, first, later):
        assert stage_hits(stage, events) == plain_hits(rules, events)
    assert set(stage.statistics().found) >= {"b contains ('rare0')"}


def test_rules_that_are_not_enabled_hit_nothing():
    rules = rule_set(is_in("a", "x"))
    stage = RuleStage(type(rules)(1, (type(rules.rules[0])("r0", "", is_in("a", "x"), enabled=False),)))
    assert stage_hits(stage, [{"a": "x"}]) == []


def test_the_statistics_count_hits_by_rule_and_what_was_found():
    stage = RuleStage(rule_set(is_in("a", "x"), all_of(is_in("a", "x"), is_in("b", 1)), is_in("a", "nowhere")))
    stage_hits(stage, [{"a": "x"}, {"a": "X", "b": 1}, {}])
    stage_hits(stage, [{"a": "y", "b": 1}])
    told = stage.statistics()
    assert told.events == 4
    assert told.hits == {"r0": 2, "r1": 1, "r2": 0}
    assert (told.atoms, told.shared_atoms) == (3, 1)
    assert sum(told.found.values()) >= 3
    assert {group.field for group in told.groups} <= {"a", "b"}


def test_explain_tells_the_groups_and_their_engines():
    conditions = [Predicate("text", Op.CONTAINS, (f"word{number}",)) for number in range(20)]
    conditions += [
        Predicate("text", Op.MATCHES, ("a+b",)),
        all_of(conditions[0], is_in("n", 1)),
        Predicate("n", Op.GREATER, (3,)),
    ]
    told = RuleStage(rule_set(*conditions)).explain()
    text, number = sorted(told.groups, key=lambda group: -group.atoms)
    assert (text.field, text.atoms, text.shared_atoms) == ("text", 21, 1)
    assert text.engines == {"hyperscan literals": 20, "hyperscan expressions": 1}
    assert text.database_bytes > 0
    assert number.engines == {"table": 1, "sorted bounds": 1}
    assert str(told).startswith("23 rules, 23 atoms, 1 shared by several rules; classes by: none\n")
