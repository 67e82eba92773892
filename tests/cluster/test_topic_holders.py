from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.nameserver import BrokerRegistration, RouteRegistry
from millstream.cluster.topic_holders import TopicHolders
from millstream.model.topic import TopicConfig

NAMES = st.sampled_from(["a", "b", "c"])
TOPICS = st.frozensets(st.sampled_from(["t", "u", "v", "w"]))
STEPS = st.one_of(
    st.tuples(st.just("register"), NAMES, TOPICS, st.booleans()),
    st.tuples(st.just("unregister"), NAMES),
    st.tuples(st.just("add"), NAMES, st.sampled_from("tuvw")),
    st.tuples(st.just("update"), NAMES, st.sampled_from("tuvw"), st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from("tuvw")),
)


def test_holders_are_sorted_and_a_topic_that_nobody_has_is_gone() -> None:
    holders = TopicHolders()
    holders.add("b", ["t"])
    holders.add("a", ["t", "u"])
    assert (list(holders.of("t")), holders.topics()) == (["a", "b"], ["t", "u"])
    holders.remove("a", ["t", "u"])
    assert (list(holders.of("t")), list(holders.of("u")), holders.topics()) == (["b"], [], ["t"])


@given(st.lists(STEPS, max_size=30))
def test_routes_name_exactly_the_brokers_that_have_the_topic_whatever_happened(steps: list[tuple[object, ...]]) -> None:
    registry, expected = RouteRegistry(), {}
    for step in steps:
        _take(registry, expected, *step)
    for topic in "tuvw":
        route = registry.route(topic)
        found = [] if route is None else [queues.broker_name for queues in route.queue_datas]
        assert found == sorted(name for name, topics in expected.items() if topic in topics)
    assert registry.topics() == sorted(set().union(*expected.values()))


def _take(registry: RouteRegistry, expected: dict[str, set[str]], kind: object, *told: object) -> None:
    match kind, told:
        case "register", (str(name), frozenset(topics), bool(whole)):
            configs = tuple(map(TopicConfig, sorted(topics)))
            registry.register(BrokerRegistration("c", name, f"{name}:1", configs), whole=whole)
            expected[name] = set(topics) | (set() if whole else expected.get(name, set()))
        case "unregister", (str(name),):
            registry.unregister(name)
            expected.pop(name, None)
        case "add", (str(name), str(topic)):
            registry.add_topic(name, TopicConfig(topic))
            if name in expected:
                expected[name].add(topic)
        case "update", (str(name), str(topic), bool(is_there)):
            registry.update_topic(name, topic, TopicConfig(topic) if is_there else None)
            if name in expected:
                (expected[name].add if is_there else expected[name].discard)(topic)
        case "delete", (str(topic),):
            registry.delete_topic(topic)
            for topics in expected.values():
                topics.discard(topic)
