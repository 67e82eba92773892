"""Who may do what: the order of the entries, against a naive reading of the rules."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import AccessRefused
from millstream.model.state_topics import MQTT_SESSIONS_TOPIC
from millstream.security.guard import AccessVerdict, decide
from millstream.security.mqtt_pattern import MqttClient, MqttPattern
from millstream.security.policy import (
    Action,
    Decision,
    PolicyEntry,
    PolicyKind,
    RequiredAccess,
    check_source,
    parse_actions,
)
from millstream.security.resource import Resource, ResourceKind, ResourcePattern
from millstream.security.users import User, UserKind

ANN = User("ann", "secret-of-ann")
HERE = "192.0.2.7"
ORDERS = Resource.topic("orders")


def entry(
    resource: str, actions: str = "All", decision: str = "Allow", *sources: str, default: bool = False
) -> PolicyEntry:
    return PolicyEntry(
        ResourcePattern.parse(resource),
        parse_actions(actions.split(",")),
        Decision(decision),
        sources,
        PolicyKind.DEFAULT if default else PolicyKind.CUSTOM,
    )


def ask(
    *entries: PolicyEntry,
    resource: Resource = ORDERS,
    action: Action = Action.PUB,
    source: str = HERE,
    user: User = ANN,
) -> AccessVerdict:
    return decide(user, sorted(entries, key=lambda item: item.rank), RequiredAccess(resource, (action,)), source)


def test_without_an_entry_the_answer_is_no() -> None:
    verdict = ask()
    assert not verdict.allowed
    assert verdict.entry is None


def test_a_super_user_may_everything_but_not_when_disabled() -> None:
    assert ask(entry("*", "All", "Deny"), user=User("root", "secret-of-root", UserKind.SUPER)).allowed
    assert not ask(user=User("root", "secret-of-root", UserKind.SUPER, enabled=False)).allowed


def test_only_super_users_touch_the_topics_in_which_proxies_keep_their_state() -> None:
    sessions = Resource.topic(MQTT_SESSIONS_TOPIC)
    everything = entry("*"), entry("Topic:*"), entry(f"Topic:{MQTT_SESSIONS_TOPIC}")
    for action in (Action.PUB, Action.SUB, Action.GET, Action.CREATE, Action.DELETE):
        verdict = ask(*everything, resource=sessions, action=action)
        assert (verdict.allowed, verdict.entry) == (False, None)
    assert ask(resource=sessions, user=User("root", "secret-of-root", UserKind.SUPER)).allowed
    assert ask(*everything, resource=Resource.group(MQTT_SESSIONS_TOPIC)).allowed


def test_the_whole_name_decides_before_a_beginning_and_that_before_all_of_the_kind() -> None:
    assert ask(entry("Topic:*", "All", "Deny"), entry("Topic:ord*")).allowed
    assert not ask(entry("Topic:ord*"), entry("Topic:orders", "All", "Deny")).allowed
    assert ask(entry("Topic:o*", "All", "Deny"), entry("Topic:ord*")).allowed
    assert ask(entry("*", "All", "Deny"), entry("Topic:*")).allowed


def test_of_equal_entries_the_one_that_denies_decides() -> None:
    denies = entry("Topic:orders", "Pub", "Deny")
    assert ask(entry("Topic:orders", "Pub"), denies).entry is denies


def test_default_entries_are_asked_only_where_no_custom_one_matches() -> None:
    assert not ask(entry("Topic:orders", default=True), entry("*", "All", "Deny")).allowed
    assert ask(entry("Topic:orders", default=True), entry("*", "Sub", "Deny")).allowed


@pytest.mark.parametrize(
    ("source", "allowed"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.0.0.1", False), ("2001:db8::1", True), ("", False)],
)
def test_an_entry_with_sources_holds_for_them_only(source: str, allowed: bool) -> None:
    assert ask(entry("Topic:orders", "Pub", "Allow", "10.0.0.0/8", "2001:db8::1"), source=source).allowed is allowed


def test_a_caller_of_unknown_address_meets_every_entry_that_denies() -> None:
    assert not ask(entry("Topic:orders"), entry("Topic:orders", "All", "Deny", "10.0.0.0/8"), source="unix").allowed


def test_of_several_actions_one_that_is_allowed_is_enough() -> None:
    entries = [entry("Topic:orders", "Sub", "Deny"), entry("Topic:orders", "Pub")]
    wish = RequiredAccess(ORDERS, (Action.SUB, Action.PUB))
    assert decide(ANN, sorted(entries, key=lambda item: item.rank), wish, HERE).allowed


@pytest.mark.parametrize("name", ["%RETRY%billing", "%DLQ%billing"])
def test_a_groups_own_topics_are_asked_about_as_the_group(name: str) -> None:
    assert ask(entry("Group:billing", "Pub"), resource=Resource.topic(name)).allowed
    assert not ask(entry("Topic:*"), resource=Resource.topic(name)).allowed


def test_a_wish_for_all_of_a_kind_needs_an_entry_for_all_of_it() -> None:
    everything = Resource(ResourceKind.TOPIC, None)
    assert not ask(entry("Topic:o*"), entry("Topic:orders"), resource=everything).allowed
    assert ask(entry("Topic:*"), resource=everything).allowed


def test_a_name_that_looks_like_a_pattern_is_no_pattern() -> None:
    assert not ask(entry("Topic:orders"), resource=Resource.topic("*")).allowed
    assert not ask(entry("Topic:orders"), resource=Resource.topic("ord*")).allowed
    assert not ask(entry("Topic:orders"), resource=Resource.topic("orders ")).allowed
    assert not ask(entry("Topic:orders"), resource=Resource.topic("../orders")).allowed


@pytest.mark.parametrize(
    "text", ["", "Topic", "Topic:", "Queue:a", "Any:*", "Topic:a*b", "Topic:**", "orders", "Topic:" + "a" * 200]
)
def test_a_text_that_names_no_resources_is_refused(text: str) -> None:
    with pytest.raises(AccessRefused, match="MS-2307"):
        ResourcePattern.parse(text)


@pytest.mark.parametrize("text", ["Topic:orders", "Topic:ord*", "Group:*", "Cluster:DefaultCluster", "*"])
def test_a_pattern_reads_as_it_was_written(text: str) -> None:
    assert str(ResourcePattern.parse(text)) == text


def test_addresses_and_networks_are_kept_in_their_usual_spelling() -> None:
    assert check_source(" 10.1.2.3/8") == "10.0.0.0/8"
    assert check_source("2001:DB8::1/128") == "2001:db8::1"
    for text in ("10.0.0", "10.0.0.0/33", "example.org", "*"):
        with pytest.raises(AccessRefused):
            check_source(text)


def test_unknown_actions_are_refused_and_any_means_all() -> None:
    assert parse_actions(["any"]) == {Action.ALL}
    for texts in (["Read"], [], [""]):
        with pytest.raises(AccessRefused):
            parse_actions(texts)


def naive(entries: list[PolicyEntry], wish: RequiredAccess, source: str) -> bool:
    """The rules as one would read them out, without sorting."""

    def specificity(one: PolicyEntry) -> tuple[int, int, int]:
        text = str(one.pattern)
        kind = 0 if text == "*" else 1
        _, _, name = text.partition(":")
        if text == "*" or name == "*":
            return kind, 0, 0
        return (kind, 1, len(name)) if name.endswith("*") else (kind, 2, 0)

    def covers(one: PolicyEntry) -> bool:
        text = str(one.pattern)
        kind, _, name = text.partition(":")
        asked_kind, asked_name = wish.resource.kind.value, wish.resource.name
        assert asked_name is not None
        names = text == "*" or (
            kind == asked_kind and (asked_name.startswith(name[:-1]) if name.endswith("*") else asked_name == name)
        )
        comes = not one.sources or any(ip_address(source) in ip_network(network) for network in one.sources)
        return names and comes and bool({wish.actions[0], Action.ALL} & one.actions)

    for kind in PolicyKind:
        matching = [one for one in entries if one.kind is kind and covers(one)]
        if matching:
            best = max(specificity(one) for one in matching)
            return all(one.decision is Decision.ALLOW for one in matching if specificity(one) == best)
    return False


names = st.text("ab", min_size=1, max_size=3)
patterns = st.one_of(
    st.just("*"),
    st.builds("{}:{}{}".format, st.sampled_from(["Topic", "Group"]), names, st.sampled_from(["", "*"])),
    st.sampled_from(["Topic:*", "Group:*"]),
)
entries_of = st.builds(
    PolicyEntry,
    patterns.map(ResourcePattern.parse),
    st.frozensets(st.sampled_from([Action.PUB, Action.SUB, Action.ALL]), min_size=1),
    st.sampled_from(Decision),
    st.sampled_from([(), ("10.0.0.0/8",), ("10.1.0.0/16", "192.0.2.7")]),
    st.sampled_from(PolicyKind),
)
wishes = st.builds(
    RequiredAccess,
    st.builds(Resource, st.sampled_from([ResourceKind.TOPIC, ResourceKind.GROUP]), names),
    st.sampled_from([(Action.PUB,), (Action.SUB,)]),
)


@given(st.lists(entries_of, max_size=8), wishes, st.sampled_from([HERE, "10.1.0.1", "10.2.0.1", "172.16.0.1"]))
def test_every_verdict_is_that_of_the_rules_read_out_naively(
    entries: list[PolicyEntry], wish: RequiredAccess, source: str
) -> None:
    ordered = sorted(entries, key=lambda item: item.rank)
    assert decide(ANN, ordered, wish, source).allowed is naive(entries, wish, source)


DEVICE = MqttClient("ann", "dev1")


def ask_mqtt(topic_filter: str, *entries: PolicyEntry, topic: str | None = "mqtt", client: MqttClient = DEVICE) -> bool:
    wish = RequiredAccess.subscribe_mqtt(topic_filter, topic, client)
    return decide(ANN, sorted(entries, key=lambda item: item.rank), wish, HERE).allowed


def test_an_mqtt_client_may_what_a_filter_of_its_own_allows() -> None:
    own = entry("Mqtt:factory/${clientid}/#", "Pub,Sub")
    assert ask_mqtt("factory/dev1/#", own)
    assert ask_mqtt("factory/dev1/+/t", own)
    for foreign in ("factory/dev2/t", "factory/+/t", "factory/#", "#", "+/dev1/t"):
        assert not ask_mqtt(foreign, own), foreign
    assert not ask_mqtt("factory/dev1/t", entry("Mqtt:factory/${clientid}/#", "Pub"))
    publish = RequiredAccess.publish_mqtt("factory/dev1/t", "mqtt", DEVICE)
    assert decide(ANN, [own], publish, HERE).allowed


def test_where_no_entry_speaks_of_the_mqtt_topic_the_topic_that_holds_it_decides() -> None:
    assert ask_mqtt("a/b", entry("Topic:mqtt"))
    assert not ask_mqtt("a/b", entry("Topic:mqtt"), entry("Mqtt:a/#", "All", "Deny"))
    assert ask_mqtt("c/#", entry("Topic:mqtt"), entry("Mqtt:a/#", "All", "Deny"))
    assert not ask_mqtt("a/b", entry("*"), entry("Topic:mqtt", "All", "Deny"))
    assert not ask_mqtt("#", entry("Topic:mqtt"), topic=None)
    assert ask_mqtt("#", entry("Topic:*"), topic=None)
    assert not ask_mqtt("a/b", entry("Topic:*"), topic=MQTT_SESSIONS_TOPIC)


def test_a_filter_that_reaches_into_what_is_denied_is_refused() -> None:
    entries = entry("Mqtt:#"), entry("Mqtt:secret/#", "All", "Deny"), entry("Mqtt:secret/open")
    assert ask_mqtt("secret/open", *entries)
    assert ask_mqtt("other/#", *entries)
    for reaching in ("#", "+/open", "secret/+", "secret/#", "+/#"):
        assert not ask_mqtt(reaching, *entries), reaching


@pytest.mark.parametrize("text", ["Mqtt:*", "Mqtt:factory/+/line/#", "Mqtt:#", "Mqtt:dev/${clientid}", "Mqtt:a*/b"])
def test_a_pattern_of_mqtt_topics_reads_as_it_was_written(text: str) -> None:
    assert str(ResourcePattern.parse(text)) == text


mqtt_levels = st.sampled_from(["a", "b", "+", "$s", "${clientid}"])
mqtt_patterns = st.builds(
    lambda parts, end: "Mqtt:" + "/".join([*parts, end]),
    st.lists(mqtt_levels, max_size=1),
    st.one_of(mqtt_levels, st.just("#")),
)
mqtt_entries = st.lists(
    st.builds(
        PolicyEntry,
        mqtt_patterns.map(ResourcePattern.parse),
        st.just(frozenset((Action.SUB,))),
        st.sampled_from(Decision),
    ),
    max_size=5,
)
MQTT_TOPICS = ["/".join(parts) for count in (1, 2, 3) for parts in product(("a", "b", "$s", "z"), repeat=count)]


@given(mqtt_entries, mqtt_patterns)
def test_a_filter_is_allowed_only_if_each_of_its_topics_is(entries: list[PolicyEntry], asked: str) -> None:
    client = MqttClient("ann", "b")
    topic_filter = asked.removeprefix("Mqtt:").replace("${clientid}", "b")
    if not ask_mqtt(topic_filter, *entries, client=client):
        return
    pattern = MqttPattern.parse(topic_filter)
    for topic in MQTT_TOPICS:
        if pattern.covers(topic, client):
            assert ask_mqtt(topic, *entries, client=client), topic


@given(mqtt_entries, st.sampled_from(MQTT_TOPICS))
def test_of_the_entries_that_hold_an_mqtt_topic_the_most_specific_decides(
    entries: list[PolicyEntry], topic: str
) -> None:
    client = MqttClient("ann", "b")
    holding = [one for one in entries if one.pattern.mqtt is not None and one.pattern.mqtt.covers(topic, client)]
    best = min((one.pattern.rank for one in holding), default=None)
    allowed = bool(holding) and all(one.decision is Decision.ALLOW for one in holding if one.pattern.rank == best)
    assert ask_mqtt(topic, *entries, client=client) is allowed
