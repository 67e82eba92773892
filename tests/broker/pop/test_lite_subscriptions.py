"""Who reads which lite topic, against a plain set of facts; and the count of lite topics against a plain dictionary."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from example_counts import scaled
from millstream.broker.pop.lite_subscriptions import MAX_ATTEMPTS, LiteSubscriptions, Subscriber
from millstream.broker.pop.lite_topics import LiteTopics
from millstream.model.errors import ConsumeRefused, MessageRefused
from millstream.model.lite import bind_topic_of, lite_queue, lite_topic_of

CLIENTS = st.sampled_from(["c", "d", "e"])
GROUPS = st.sampled_from(["shared", "exclusive"])
TOPICS = st.sampled_from(["t", "u"])
NAMES = ["ann", "bob", "eve", "joe"]
LITE = st.lists(st.sampled_from(NAMES), unique=True)
PER_CLIENT, TOTAL = 6, 11

Fact = tuple[str, str, str, str]
"""Client, group, bind topic, lite topic."""


class SubscriptionMachine(RuleBasedStateMachine):
    """The table against a set that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.table = LiteSubscriptions(per_client=PER_CLIENT, total=TOTAL)
        self.facts: set[Fact] = set()

    @rule(client=CLIENTS, group=GROUPS, topic=TOPICS, lite=LITE, takes=st.booleans())
    def add(self, client: str, group: str, topic: str, lite: list[str], takes: bool) -> None:
        exclusive = group == "exclusive"
        fresh = [name for name in lite if (client, group, topic, name) not in self.facts]
        mine = sum(fact[0] == client for fact in self.facts)
        if mine + len(fresh) > PER_CLIENT or len(self.facts) + len(fresh) > TOTAL:
            with pytest.raises(ConsumeRefused) as refused:
                self.table.add(client, group, topic, lite, exclusive=exclusive, takes=takes)
            assert refused.value.name == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"
            return
        added = self.table.add(client, group, topic, lite, exclusive=exclusive, takes=takes)
        new, lost = [], []
        for name in fresh:
            others = [fact[0] for fact in self.facts if exclusive and fact[1:] == (group, topic, name)]
            if others and not takes:
                lost.append((client, name))
                continue
            lost.extend((other, name) for other in others)
            self.facts -= {(other, group, topic, name) for other in others}
            self.facts.add((client, group, topic, name))
            new.append(lite_queue(topic, name))
        assert (list(added.new), list(added.lost)) == (new, lost)

    @rule(client=CLIENTS, group=GROUPS, topic=TOPICS, lite=LITE)
    def remove(self, client: str, group: str, topic: str, lite: list[str]) -> None:
        self.table.remove(client, group, topic, lite)
        self.facts -= {(client, group, topic, name) for name in lite}

    @rule(client=CLIENTS, group=GROUPS, topic=TOPICS, lite=LITE)
    def keep(self, client: str, group: str, topic: str, lite: list[str]) -> None:
        self.table.keep(client, group, topic, lite)
        self.facts -= {fact for fact in self.facts if fact[:3] == (client, group, topic) and fact[3] not in lite}

    @rule(client=CLIENTS)
    def a_client_goes(self, client: str) -> None:
        self.table.remove_client(client)
        self.facts = {fact for fact in self.facts if fact[0] != client}

    @rule(group=GROUPS)
    def a_group_is_deleted(self, group: str) -> None:
        self.table.forget(group=group)
        self.facts = {fact for fact in self.facts if fact[1] != group}

    @rule(topic=TOPICS)
    def a_bind_topic_is_deleted(self, topic: str) -> None:
        self.table.forget(topic=topic)
        self.facts = {fact for fact in self.facts if fact[2] != topic}

    @invariant()
    def all_that_is_read_is_known_from_both_sides(self) -> None:
        assert len(self.table) == len(self.facts)
        for topic in ("t", "u"):
            for name in NAMES:
                readers = {(one.client_id, one.group) for one in self.table.readers(lite_queue(topic, name))}
                assert readers == {fact[:2] for fact in self.facts if fact[2:] == (topic, name)}
        for client in ("c", "d", "e"):
            for group in ("shared", "exclusive"):
                for topic in ("t", "u"):
                    found = self.table.find(client, group, topic)
                    expected = {fact[3] for fact in self.facts if fact[:3] == (client, group, topic)}
                    assert {lite_topic_of(name) for name in (found.names if found else ())} == expected
                    assert set(found.pending if found else ()) == set(found.names if found else ())
                    assert (found is None) is (not expected), "nobody is kept who reads nothing"

    @invariant()
    def an_exclusive_group_has_one_reader_for_a_lite_topic(self) -> None:
        taken = [fact[2:] for fact in self.facts if fact[1] == "exclusive"]
        assert len(taken) == len(set(taken))


SubscriptionMachine.TestCase.settings = settings(max_examples=scaled(80), stateful_step_count=30, deadline=None)
TestSubscriptionMachine = SubscriptionMachine.TestCase


def test_of_a_clients_attempts_the_last_ones_are_remembered() -> None:
    subscriber = Subscriber("c", "g", "t")
    for attempt in range(10):
        subscriber.remember(attempt, ["name"])
    assert list(subscriber.attempts) == list(range(10 - MAX_ATTEMPTS, 10))
    assert 0 not in subscriber.attempts


def test_lite_topics_are_counted_for_their_bind_topic_and_for_all() -> None:
    topics = LiteTopics(per_topic=2, total=3)
    topics.write("t", "ann", 1)
    topics.write("t", "ann", 2)
    topics.write("t", "bob", 3)
    with pytest.raises(MessageRefused, match="'t' has 2 lite topics"):
        topics.write("t", "eve", 4)
    topics.write("u", "ann", 5)
    with pytest.raises(MessageRefused, match="the broker 3"):
        topics.write("v", "ann", 6)
    topics.remove([lite_queue("t", "ann"), lite_queue("t", "nobody")])
    assert len(topics) == 2
    topics.write("v", "ann", 7)
    topics.restore(lite_queue("t", "joe"), 8)
    assert (len(topics), topics.has("t", "joe"), topics.has("t", "ann")) == (4, True, False)
    assert list(topics.unwritten_since("t", 8)) == [lite_queue("t", "bob")]


@pytest.mark.parametrize("bind_topic", ["t", "%DLQ%g", "a|b-c_d"])
def test_a_stored_name_tells_both_its_topics(bind_topic: str) -> None:
    name = lite_queue(bind_topic, "ann-1_2")
    assert (bind_topic_of(name), lite_topic_of(name)) == (bind_topic, "ann-1_2")
    assert (bind_topic_of(bind_topic), lite_topic_of(bind_topic)) == (bind_topic, "")
