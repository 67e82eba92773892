"""The rule stage with all real rules over real events, against the plain judge one rule at a time.

MILLSTREAM_SIGMA=full takes all events: many minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest
import yaml
from real_input import event_lines, imported, needs_real_input
from sigma_by_hand import made_up

from millstream.streams.rules.conditions import All, Condition, predicates_of
from millstream.streams.rules.event_rows import JsonEvents, Places
from millstream.streams.rules.reference import FieldOf, evaluate, field_reader
from millstream.streams.rules.rule import Path as FieldPath
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.stage.raw_events import EventReader
from millstream.streams.rules.stage.stage import RuleStage

pytestmark = [pytest.mark.data, pytest.mark.long, needs_real_input]

FULL = os.environ.get("MILLSTREAM_SIGMA") == "full"
STEP = 1 if FULL else 88
"""Every so manieth event is judged."""

BATCH = 1_000
HEAD = ("Channel", "EventID", "Provider_Name")


class Text(str):
    """A text that is made lower case once: most of what the plain judge does."""

    @cached_property
    def low(self) -> str:
        return super().lower()

    def lower(self) -> str:
        return self.low


def read_once(event: dict[str, Any], paths: dict[str, tuple[FieldPath, ...]]) -> FieldOf:
    """The fields of an event, each looked for once."""
    read = field_reader(event, paths)

    @cache
    def field_of(name: str) -> Any:
        value = read(name)
        return Text(value) if isinstance(value, str) else value

    return field_of


def of_the_head(formula: Condition) -> bool:
    """Whether the formula looks at nothing but the head of an event."""
    return all(predicate.field in HEAD for predicate in predicates_of(formula))


class Plain:
    """All rules judged plainly; those whose log source an event cannot be of are passed over."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self._possible: dict[tuple[str, ...], list[int]] = {}

    def hits(self, field_of: FieldOf) -> list[int]:
        """Numbers of the rules that the event fits."""
        head = tuple(repr(field_of(name)) for name in HEAD)
        if head not in self._possible:
            self._possible[head] = [
                number
                for number, rule in enumerate(self._rules)
                if isinstance(rule.condition, All)
                and all(evaluate(part, field_of) for part in rule.condition.parts if of_the_head(part))
            ]
        return [number for number in self._possible[head] if evaluate(self._rules[number].condition, field_of)]


def batches() -> Iterator[list[bytes]]:
    """The events that are judged."""
    lines = islice(event_lines(), 0, None, STEP)
    while taken := list(islice(lines, BATCH)):
        yield taken


@pytest.mark.timeout(3_600)
def test_the_stage_and_the_plain_judge_agree_on_real_events() -> None:
    read = imported()
    assert all(isinstance(rule.condition, All) for rule in read.rules)
    plain, stage = Plain(read.rules), RuleStage(RuleSet(1, read.rules, read.paths))
    events = hits = 0
    reader = EventReader(Places(read.paths), stage.class_fields)
    for bodies in batches():
        batch = [msgspec.json.decode(body) for body in bodies]
        found = stage.evaluate(reader.read(bodies)[0])
        staged = list(zip(found.rows.tolist(), found.rules.tolist(), strict=True))
        assert staged == [
            (row, number) for row, event in enumerate(batch) for number in plain.hits(read_once(event, read.paths))
        ]
        events += len(batch)
        hits += len(staged)
    assert stage.quarantined == ()
    assert events == -(-110_769 // STEP)
    assert hits > (1_000 if FULL else 10)


def made_up_for(rule: Rule) -> dict[str, Any]:
    """An event of the rule's log source, made up from the rule's own values."""
    head: dict[str, Any] = {}
    for predicate in predicates_of(rule.condition):
        if predicate.field in HEAD and predicate.operands:
            head.setdefault(predicate.field, predicate.operands[0])
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {**head, **made_up(yaml.load(rule.text, loader)["detection"], Random(rule.id))}


@pytest.mark.timeout(3_600)
def test_the_stage_and_the_plain_judge_agree_on_events_made_up_from_rules() -> None:
    read = imported()
    plain, stage = Plain(read.rules), RuleStage(RuleSet(1, read.rules, read.paths))
    numbers = range(0, len(read.rules), 1 if FULL else 10)
    events = [made_up_for(read.rules[number]) for number in numbers]
    found = stage.evaluate(JsonEvents(events, read.paths))
    staged = list(zip(found.rows.tolist(), found.rules.tolist(), strict=True))
    assert staged == [
        (row, number) for row, event in enumerate(events) for number in plain.hits(read_once(event, read.paths))
    ]
    assert sum(numbers[row] == number for row, number in staged) > len(events) // 2
