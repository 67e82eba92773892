"""Stages for tests: of conditions alone, and beside the plain judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.streams.rules.conditions import Condition
from millstream.streams.rules.event_rows import EventRows, JsonEvents
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.stage.stage import RuleStage

Event = Mapping[str, Any]
Pairs = list[tuple[int, int]]


def rule_set(*conditions: Condition, **more: Any) -> RuleSet:
    """Rules r0, r1, ... of these conditions."""
    return RuleSet(1, tuple(Rule(f"r{number}", "a rule", one) for number, one in enumerate(conditions)), **more)


def plain_hits(rules: RuleSet, events: Sequence[Event]) -> Pairs:
    """What the plain judge says: rows with the numbers of the rules that hold."""
    return [
        (row, number)
        for row, event in enumerate(events)
        for number, rule in enumerate(rules.rules)
        if rule.enabled and evaluate(rule.condition, field_reader(event, rules.paths)) is True
    ]


def stage_hits(stage: RuleStage, events: Sequence[Event] | EventRows) -> Pairs:
    """What the stage says of the events, in the same form."""
    rows = JsonEvents(events, stage.rule_set.paths) if isinstance(events, Sequence) else events
    hits = stage.evaluate(rows)
    return list(zip(hits.rows.tolist(), hits.rules.tolist(), strict=True))
