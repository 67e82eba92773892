from __future__ import annotations

import math

import pytest

from millstream.cluster import nameserver
from millstream.cluster.nameserver import FAILOVER_S, LEASE_S, BrokerRegistration, RouteRegistry
from millstream.model.errors import NameRefused
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.remoting.bodies import DataVersion


def broker(name: str = "b", *topics: TopicConfig, number: int = 0, cluster: str = "c") -> BrokerRegistration:
    return BrokerRegistration(cluster, name, f"{name}-{number}:10911", topics, number)


def test_a_route_has_the_queues_and_addresses_of_every_broker_that_holds_the_topic() -> None:
    registry = RouteRegistry()
    registry.register(broker("b2", TopicConfig("t", read_queues=8, write_queues=2)))
    registry.register(broker("b1", TopicConfig("t", permission=Permission.READ), TopicConfig("u")))
    route = registry.route("t")
    assert route is not None
    assert [(data.broker_name, data.broker_addrs, data.cluster) for data in route.broker_datas] == [
        ("b1", {0: "b1-0:10911"}, "c"),
        ("b2", {0: "b2-0:10911"}, "c"),
    ]
    assert [(d.broker_name, d.read_queue_nums, d.write_queue_nums, d.perm) for d in route.queue_datas] == [
        ("b1", 4, 4, 4),
        ("b2", 8, 2, 6),
    ]


def test_an_unknown_topic_has_no_route() -> None:
    assert RouteRegistry().route("t") is None


def test_a_new_registration_replaces_the_topics_of_the_old_one() -> None:
    registry = RouteRegistry()
    registry.register(broker("b", TopicConfig("t"), TopicConfig("u")))
    registry.register(broker("b", TopicConfig("u"), TopicConfig("v")))
    assert registry.topics() == ["u", "v"]


def test_a_registration_counts_until_its_lease_ends_and_is_then_forgotten() -> None:
    registry = RouteRegistry()
    registry.register(broker("b", TopicConfig("t")), 1000.0)
    registry.register(broker("b2", TopicConfig("t")), 1050.0)
    assert registry.expire(1000.0 + LEASE_S - 0.1) == []
    assert registry.expire(1000.0 + LEASE_S) == ["b"]
    route = registry.route("t")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["b2"]
    assert registry.expire(1050.0 + LEASE_S) == ["b2"]
    assert registry.route("t") is None


def test_a_repeated_registration_extends_the_lease() -> None:
    registry = RouteRegistry()
    registry.register(broker("b", TopicConfig("t")), 0.0)
    registry.register(broker("b", TopicConfig("t")), 100.0)
    assert registry.expire(LEASE_S + 1) == []
    assert registry.expire(100.0 + LEASE_S) == ["b"]


def test_a_broker_of_the_same_process_never_expires() -> None:
    registry = RouteRegistry()
    registry.register(broker("b", TopicConfig("t")), lease_s=math.inf)
    assert registry.expire(1e12) == []
    assert registry.topics() == ["t"]


def test_replicas_share_a_name_and_the_master_decides_the_topics() -> None:
    registry = RouteRegistry()
    registry.register(broker("b", TopicConfig("t"), number=0))
    registry.register(broker("b", TopicConfig("old"), number=1))
    assert registry.topics() == ["t"]
    route = registry.route("t")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "b-0:10911", 1: "b-1:10911"}
    assert registry.master_address("b") == "b-0:10911"
    registry.unregister("b", 0)
    assert registry.master_address("b") is None
    assert registry.topics() == ["t"]
    registry.unregister("b", 1)
    assert registry.topics() == []


def test_single_topics_change_between_registrations() -> None:
    registry = RouteRegistry()
    registry.register(broker("b"))
    registry.update_topic("b", "t", TopicConfig("t"))
    registry.update_topic("stranger", "u", TopicConfig("u"))
    assert registry.topics() == ["t"]
    registry.update_topic("b", "t", None)
    assert registry.topics() == []


def test_a_deleted_topic_is_gone_from_all_brokers() -> None:
    registry = RouteRegistry()
    registry.register(broker("b1", TopicConfig("t")))
    registry.register(broker("b2", TopicConfig("t"), TopicConfig("u")))
    registry.delete_topic("t")
    assert registry.topics() == ["u"]


def test_cluster_info_lists_brokers_by_cluster() -> None:
    registry = RouteRegistry()
    for name, cluster in (("b2", "east"), ("b1", "east"), ("b3", "west")):
        registry.register(broker(name, cluster=cluster))
    info = registry.cluster_info()
    assert info.cluster_addr_table == {"east": ["b1", "b2"], "west": ["b3"]}
    assert info.broker_addr_table["b3"].broker_addrs == {0: "b3-0:10911"}


def test_unregistering_a_stranger_is_no_error() -> None:
    RouteRegistry().unregister("b")


def test_there_are_only_so_many_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nameserver, "MAX_BROKERS", 2)
    registry = RouteRegistry()
    assert [registry.register(broker(name)) for name in ("a", "b", "c", "a")] == [True, True, False, True]


def master(address: str, epoch: int, *, number: int = 0) -> BrokerRegistration:
    version = DataVersion(state_version=epoch)
    return BrokerRegistration("c", "b", address, (TopicConfig("t"),), number, data_version=version)


def test_an_old_master_does_not_take_the_route_back_6316() -> None:
    """RocketMQ issue 6316: a registration of an earlier epoch replaced that of the master elected after it."""
    registry = RouteRegistry()
    registry.register(master("old:1", 3), 0.0)
    registry.register(master("new:1", 4), 1.0)
    with pytest.raises(NameRefused, match="epoch 3") as refused:
        registry.register(master("old:1", 3), 2.0)
    assert refused.value.name == "FENCED_MASTER_EPOCH"
    assert registry.master_address("b") == "new:1"


def test_an_old_master_does_not_come_back_while_the_new_ones_connection_is_down_6316() -> None:
    """The epoch counts as long as the lease that it came with, whose end it does not outlive."""
    registry = RouteRegistry()
    registry.register(master("new:1", 4), 0.0)
    assert registry.renew("b", 0, 10.0)
    registry.unregister("b", 0)
    with pytest.raises(NameRefused):
        registry.register(master("old:1", 3), 10.0 + LEASE_S - 0.1)
    assert registry.register(master("old:1", 3), 10.0 + LEASE_S)
    assert registry.master_address("b") == "old:1"


def test_a_broker_may_begin_anew_with_a_lower_epoch_at_its_own_address() -> None:
    """So it does where the controllers' state was made anew."""
    registry = RouteRegistry()
    registry.register(master("one:1", 9), 0.0)
    assert registry.register(master("one:1", 1), 1.0)
    assert registry.register(master("two:1", 2), 2.0)
    assert registry.register(master("three:1", 2), 3.0), "an equal epoch is no earlier one"


def test_epochs_are_compared_for_each_id_apart_and_only_where_there_are_any() -> None:
    registry = RouteRegistry()
    registry.register(master("new:1", 4), 0.0)
    assert registry.register(master("old:1", 3, number=1), 1.0)
    registry.register(broker("d"))
    assert registry.register(BrokerRegistration("c", "d", "other:1"))


def test_what_a_replica_said_before_it_was_elected_does_not_take_the_master_out_of_the_route() -> None:
    registry = RouteRegistry()
    registry.register(master("one:1", 3), 0.0)
    registry.register(master("two:1", 3, number=2), 1.0)
    registry.register(master("two:1", 4), 2.0)
    with pytest.raises(NameRefused, match="master of 4") as refused:
        registry.register(master("two:1", 3, number=2), 3.0)
    assert refused.value.name == "FENCED_MASTER_EPOCH"
    assert registry.members("b") == {0: "two:1"}


def test_a_master_that_became_a_replica_keeps_the_route_until_the_next_one_registers() -> None:
    registry = RouteRegistry()
    registry.register(master("one:1", 3), 0.0)
    registry.register(master("one:1", 4, number=1), 5.0)
    assert registry.members("b") == {0: "one:1", 1: "one:1"}
    registry.register(master("two:1", 4), 6.0)
    assert registry.members("b") == {0: "two:1", 1: "one:1"}


def test_a_master_that_became_a_replica_is_none_any_more_where_no_other_one_registers() -> None:
    registry = RouteRegistry()
    registry.register(master("one:1", 3), 0.0)
    registry.register(master("one:1", 4, number=1), 5.0)
    assert registry.expire(5.0 + FAILOVER_S - 0.1) == []
    assert registry.expire(5.0 + FAILOVER_S) == ["b"]
    assert registry.members("b") == {1: "one:1"}
    assert registry.route("t") is not None, "the topic is that of the broker still"


def test_a_replica_without_topics_changes_none() -> None:
    """With its master there, and also while it is alone."""
    registry = RouteRegistry()
    told = DataVersion(state_version=3)
    replica = BrokerRegistration("c", "b", "two:1", (), 2, told)
    registry.register(master("one:1", 3), 0.0)
    registry.register(replica, 1.0, whole=False)
    registry.unregister("b", 0)
    registry.register(replica, 2.0, whole=False)
    route = registry.route("t")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {2: "two:1"}


def test_a_replica_whose_topics_were_not_read_is_to_tell_them_once_its_master_is_gone() -> None:
    registry = RouteRegistry()
    registry.register(BrokerRegistration("c", "b", "h:1", (TopicConfig("t"),)))
    assert not registry.needs_topics("b", 1, "h:2")
    registry.unregister("b")
    version = DataVersion(1, 2, 3)
    registry.register(BrokerRegistration("c", "b", "h:2", (), 1, version, tells_topics=False))
    assert (registry.needs_topics("b", 1, "h:2"), registry.is_whole("b")) == (True, False)
    assert registry.data_version("b", 1) is None


def test_brokers_that_have_equal_topics_hold_them_once() -> None:
    registry = RouteRegistry()
    for name in ("a", "b"):
        registry.register(BrokerRegistration("c", name, f"{name}:1", (TopicConfig("t"),)))
    first, second = (broker.topics["t"] for broker in registry._brokers.values())
    assert first is second
