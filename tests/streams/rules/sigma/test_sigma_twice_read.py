"""All real rules over events made up from their own values: our formulas against a second reading of the rules."""

from __future__ import annotations

from random import Random

import pytest
import yaml
from real_input import imported, needs_real_input
from sigma_by_hand import fits, made_up

from millstream.streams.rules.formulas import Formula
from millstream.streams.rules.plain import judge
from millstream.streams.rules.rule import Rule
from millstream.streams.rules.sigma.conditions import detection_formula
from millstream.streams.rules.sigma.documents import Document, documents_of

EVENTS = 4
"""Made up for each rule."""

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def formula_of(rule: Rule) -> Formula:
    """What the rule asks beside its log source."""
    (document,) = documents_of(rule.text)
    assert isinstance(document, Document)
    condition = document.value["detection"]["condition"]
    return detection_formula(document, condition if isinstance(condition, list) else [condition])


@pytest.mark.data
@needs_real_input
def test_formulas_say_what_a_second_reading_of_the_rules_says() -> None:
    differences, fitting = [], set()
    for rule in imported().rules:
        detection, formula, draw = yaml.load(rule.text, LOADER)["detection"], formula_of(rule), Random(rule.id)
        for _ in range(EVENTS):
            event = made_up(detection, draw)
            expected = fits(detection, event)
            held = judge(formula, lambda name, event=event: event.get(name) if name else "\n".join(event.values()))  # type: ignore[misc]
            if held is not expected:
                differences.append((rule.title, expected, event))
            if expected:
                fitting.add(rule.id)
    assert differences[:3] == []
    assert len(fitting) > 2_000
