"""The rule stage says what the plain judge says, whatever the rules, the events and the cuts between batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
from drawn_rules import EVENTS, FORMULAS, PATHS
from hypothesis import HealthCheck, given, settings

from millstream.streams.rules.event_rows import JsonEvents
from millstream.streams.rules.formulas import Formula
from millstream.streams.rules.plain import field_reader, judge
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.stage import RuleStage

Event = Mapping[str, Any]


def rule_set(conditions: Sequence[Formula], **more: Any) -> RuleSet:
    rules = tuple(Rule(f"r{number}", "a rule", condition) for number, condition in enumerate(conditions))
    return RuleSet(1, rules, **more)


def plain_hits(rules: RuleSet, events: Sequence[Event]) -> list[tuple[int, int]]:
    return [
        (row, number)
        for row, event in enumerate(events)
        for number, rule in enumerate(rules.rules)
        if judge(rule.condition, field_reader(event, rules.paths)) is True
    ]


def stage_hits(stage: RuleStage, events: Sequence[Event]) -> list[tuple[int, int]]:
    hits = stage.judge(JsonEvents(events, stage.rule_set.paths))
    return list(zip(hits.rows.tolist(), hits.rules.tolist(), strict=True))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(FORMULAS, min_size=1, max_size=12),
    st.lists(EVENTS, max_size=12),
    st.integers(0, 12),
    st.sampled_from((0, 1)),
)
def test_the_stage_says_what_the_plain_judge_says(conditions, events, cut, cache_mb):
    rules = rule_set(conditions, paths=PATHS)
    stage = RuleStage(rules, cache_mb=cache_mb)
    for part in (events[:cut], events[cut:], events):
        assert stage_hits(stage, part) == plain_hits(rules, part)
    assert stage.quarantined == ()
