"""Patterns of MQTT topics against the enumeration of all topics over a small alphabet."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import AccessRefused
from millstream.security.mqtt_pattern import MqttClient, MqttPattern

ANN = MqttClient("s", "b")
WORDS = ("a", "b", "", "$s", "z")
"""`z` stands in no filter: it is what any other text would be."""
TOPICS = ["/".join(levels) for count in (1, 2, 3, 4) for levels in product(WORDS, repeat=count)]

levels = st.sampled_from(["a", "b", "", "$s", "+"])
templates = st.one_of(levels, st.just("${clientid}"), st.just("$${username}"))


def filters(of: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Filters of up to three levels, some of which end in `#`."""
    parts = st.lists(of, max_size=2)
    ends = st.one_of(of, st.just("#"))
    return st.tuples(parts, ends).map(lambda made: "/".join([*made[0], made[1]])).filter(bool)


def matches(topic_filter: str, topic: str, client: MqttClient = ANN) -> bool:
    """MQTT 5.0, 4.7, read out level by level."""
    filled = topic_filter.replace("${clientid}", client.client_id).replace("${username}", client.user)
    wanted, found = filled.split("/"), topic.split("/")
    if found[0].startswith("$") and wanted[0] in ("+", "#"):
        return False
    if wanted[-1] == "#":
        kept = wanted[:-1]
        if len(found) < len(kept):
            return False
        return all(one in ("+", level) for one, level in zip(kept, found, strict=False))
    return len(wanted) == len(found) and all(one in ("+", level) for one, level in zip(wanted, found, strict=True))


@given(filters(templates), filters(levels))
def test_a_pattern_covers_a_filter_exactly_where_it_matches_each_of_its_topics(pattern: str, asked: str) -> None:
    topics = [topic for topic in TOPICS if matches(asked, topic)]
    assert MqttPattern.parse(pattern).covers(asked, ANN) is all(matches(pattern, topic) for topic in topics)


@given(filters(templates), filters(levels))
def test_a_pattern_overlaps_a_filter_exactly_where_they_share_a_topic(pattern: str, asked: str) -> None:
    shared = any(matches(asked, topic) and matches(pattern, topic) for topic in TOPICS)
    assert MqttPattern.parse(pattern).overlaps(asked, ANN) is shared


@given(filters(levels), filters(levels))
def test_a_pattern_within_another_one_is_more_specific(one: str, other: str) -> None:
    first, second = MqttPattern.parse(one), MqttPattern.parse(other)
    if second.covers(one, ANN) and not first.covers(other, ANN):
        assert first.rank < second.rank


@pytest.mark.parametrize("client_id", ["+", "#", "a/b", "a/#"])
def test_a_client_id_is_text_whatever_it_looks_like(client_id: str) -> None:
    client = MqttClient("ann", client_id)
    pattern = MqttPattern.parse("dev/${clientid}/#")
    for asked in ("dev/+/x", "dev/#", "dev/a/b/c", "dev/a/x", "dev/+/#", "#"):
        assert not pattern.covers(asked, client), asked


def test_who_has_no_client_id_is_in_no_pattern_that_names_one() -> None:
    pattern = MqttPattern.parse("dev/${clientid}/#")
    nobody = MqttClient("ann")
    assert not pattern.covers("dev//x", nobody)
    assert not pattern.overlaps("dev/+/x", nobody)
    assert pattern.covers("dev/b/x", ANN)


@pytest.mark.parametrize("text", ["", "a#", "#/a", "a/+b", "a/#/b", "++", "a/${who}", "a\x00b", "x" * 1025, "dev/${}"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(AccessRefused, match="MS-2307"):
        MqttPattern.parse(text)
