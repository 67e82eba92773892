"""Which topic holds the messages of an MQTT topic, and where a subscription has to look."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import StartRefused
from millstream.protocol.mqtt.topics import filter_matches
from millstream.proxy.mqtt.topic_rules import DEFAULT_TOPIC, TopicRules, may_overlap, parse_topic_rule

levels = st.sampled_from(["a", "b", "+", ""])
filters = st.builds(
    lambda parts, rest: "/".join([*parts, *(["#"] if rest else [])]),
    st.lists(levels, min_size=1, max_size=3),
    st.booleans(),
)
names = st.builds("/".join, st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=4)).filter(bool)


def test_the_first_rule_that_fits_counts() -> None:
    rules = TopicRules([parse_topic_rule("factory/1/#=one"), parse_topic_rule(" factory/#=telemetry")])
    found = [rules.topic_of(name) for name in ("factory/1/x", "factory/2", "factory", "other/factory")]
    assert found == ["one", "telemetry", "telemetry", DEFAULT_TOPIC]


@given(filters, filters, names)
def test_filters_that_match_one_name_overlap(one: str, other: str, name: str) -> None:
    if filter_matches(one, name) and filter_matches(other, name):
        assert may_overlap(one, other)
        assert may_overlap(other, one)


@given(st.lists(filters, max_size=3), filters, names)
def test_a_subscription_looks_wherever_a_message_that_it_matches_may_be(
    of_rules: list[str], wanted: str, name: str
) -> None:
    rules = TopicRules([parse_topic_rule(f"{one}=topic-{number}") for number, one in enumerate(of_rules) if one])
    if filter_matches(wanted, name):
        assert rules.topic_of(name) in rules.topics_for(wanted)


@pytest.mark.parametrize("text", ["", "factory/#", "=orders", "a#=orders", "a=no name", "a="])
def test_a_rule_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(StartRefused) as refusal:
        parse_topic_rule(text)
    assert refusal.value.name == "ILLEGAL_SETTING"
