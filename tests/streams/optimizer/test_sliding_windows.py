"""Which rules can count in windows that slide, and what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.streams.optimizer.sliding_windows import slide_windows
from millstream.streams.rules.conditions import Truth
from millstream.streams.rules.rule import Combination, Measure, MeasureKind, Rule, RuleStatistics


def counting(name: str, kind: MeasureKind, *parts: str, percent: int | None = None, **bounds: Any) -> Rule:
    measure = Measure(kind, "x", percent=percent)
    return Rule(name, name, Truth(True), statistics=RuleStatistics(measure, 1_000, parts=parts, **bounds))


def sliding(*rules: Rule) -> set[str]:
    return {rule.id for rule in slide_windows(rules) if rule.statistics and rule.statistics.measure.sliding}


@pytest.mark.parametrize(
    ("rule", "slides"),
    [
        (counting("r", MeasureKind.EVENTS, at_least=2), True),
        (counting("r", MeasureKind.VALUES, at_least=2), True),
        (counting("r", MeasureKind.PARTS, "a", "b", at_least=2), True),
        (counting("r", MeasureKind.SUM, at_least=None, above=2), True),
        (counting("r", MeasureKind.AVERAGE, at_least=None, below=2), True),
        (counting("r", MeasureKind.EVENTS, at_least=1, at_most=2), False),
        (counting("r", MeasureKind.EVENTS, other_than=2), False),
        (counting("r", MeasureKind.COMBINATION, "a", "b", combination=Combination("a and not b", "0100")), False),
        (counting("r", MeasureKind.SEQUENCE, "a", "b", at_least=2), False),
        (counting("r", MeasureKind.PERCENTILE, percent=95, above=2), False),
        (Rule("r", "", Truth(True)), False),
    ],
)
def test_what_can_hold_from_an_event_on_slides_and_all_else_stays(rule: Rule, slides: bool) -> None:
    assert sliding(rule) == ({"r"} if slides else set())
    if not slides:
        assert slide_windows([rule]) == (rule,)


def test_rules_that_count_alerts_and_those_whose_alerts_are_counted_stay_as_they_are() -> None:
    inner, outer = counting("inner", MeasureKind.EVENTS), counting("outer", MeasureKind.EVENTS, "inner", at_least=2)
    other = counting("other", MeasureKind.EVENTS, "plain", at_least=2)
    assert sliding(inner, outer, other, Rule("plain", "", Truth(True))) == {"other"}
