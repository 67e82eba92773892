"""Our formulas against a second reading of the rules: real rules over made-up events, and made-up rules."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from real_input import imported, needs_real_input
from sigma_by_hand import fits, made_up
from written_rules import HEAD, read_text

from millstream.streams.rule_formats.sigma.conditions import detection_condition
from millstream.streams.rule_formats.sigma.documents import SigmaDocument, documents_of
from millstream.streams.rules.conditions import Condition
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import Rule

EVENTS = 8 if os.environ.get("MILLSTREAM_SIGMA") == "full" else 2
"""Made up for each rule."""

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def formula_of(rule: Rule) -> Condition:
    """What the rule asks beside its log source."""
    (document,) = documents_of(rule.text)
    assert isinstance(document, SigmaDocument)
    condition = document.value["detection"]["condition"]
    return detection_condition(document, condition if isinstance(condition, list) else [condition], {})


@pytest.mark.data
@pytest.mark.long
@needs_real_input
def test_formulas_say_what_a_second_reading_of_the_rules_says() -> None:
    differences, fitting = [], set()
    for rule in imported().rules:
        detection, formula, draw = yaml.load(rule.text, LOADER)["detection"], formula_of(rule), Random(rule.id)
        for _ in range(EVENTS):
            event = made_up(detection, draw)
            expected = fits(detection, event)
            held = evaluate(formula, lambda name, event=event: event.get(name) if name else "\n".join(event.values()))  # type: ignore[misc]
            if held is not expected:
                differences.append((rule.title, expected, event))
            if expected:
                fitting.add(rule.id)
    assert differences[:3] == []
    assert len(fitting) > 1_800


TEXTS = st.text(alphabet="aB*?\\-/ ", max_size=5)
KEYS = st.builds(
    "|".join,
    st.tuples(
        st.sampled_from("FGH"),
        st.sampled_from(["contains", "startswith", "endswith", "contains|windash", "contains|all", "neq"]),
    )
    | st.tuples(st.sampled_from("FGH")),
)
VALUES = TEXTS | st.none() | st.integers(-3, 12) | st.booleans() | st.lists(TEXTS, min_size=1, max_size=3)
MAPS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=3).filter(
    lambda asked: all("|" not in key or isinstance(value, (str, list)) for key, value in asked.items())
)
NAMED = st.fixed_dictionaries({name: MAPS | st.lists(MAPS, min_size=1, max_size=2) for name in ("s_a", "s_b", "t")})
CONDITIONS = st.recursive(
    st.sampled_from(["s_a", "s_b", "t", "1 of s_*", "all of s_*", "1 of them", "all of them"]),
    lambda inner: st.one_of(
        st.builds("not {}".format, inner),
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("({} or not {} and {})".format, inner, inner, inner),
    ),
    max_leaves=5,
)
EVENT = st.dictionaries(st.sampled_from("FGH"), TEXTS | st.sampled_from(["true", "3", "3.0", "-1", "a-B"]), max_size=3)


@given(named=NAMED, condition=CONDITIONS, events=st.lists(EVENT, min_size=1, max_size=6))
def test_rules_of_any_shape_are_read_alike(named: Any, condition: str, events: list[dict[str, str]]) -> None:
    detection = {**named, "condition": condition}
    written = yaml.safe_dump({"detection": detection}, allow_unicode=True)
    read = read_text(HEAD.replace("detection:\n", "") + written)
    assert read.refused == ()
    for event in events:
        held = evaluate(read.rules[0].condition, field_reader({"Channel": "Security", **event}, read.paths))
        assert held is fits(detection, event)
