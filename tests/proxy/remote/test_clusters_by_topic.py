"""A proxy before several broker clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_ground import Ground, outgoing, refused, running_site

from millstream.model.clock import ManualClock
from millstream.model.errors import StartRefused
from millstream.model.group import GroupConfig
from millstream.model.operations import AckRequest, PopRequest
from millstream.model.topic import TopicConfig
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remote.routes import ClusterRule, Clusters, parse_cluster_rule


def test_the_first_rule_that_fits_says_where_a_topic_lies() -> None:
    clusters = Clusters("own:1", [ClusterRule("a-*", "first:1"), ClusterRule("*-z", "second:1")])
    assert [clusters.of(topic) for topic in ("a-z", "b-z", "b")] == ["first:1", "second:1", "own:1"]
    assert clusters.all() == ["own:1", "first:1", "second:1"]


def test_a_rule_is_read_from_its_words() -> None:
    assert parse_cluster_rule("a-*=x:1; y:2") == ClusterRule("a-*", "x:1;y:2")


@pytest.mark.parametrize("text", ["", "a-*", "=x:1", "a=", "a=x", "a=x:y"])
def test_words_that_are_no_rule_are_refused(text: str) -> None:
    with pytest.raises(StartRefused) as refusal:
        parse_cluster_rule(text)
    assert refusal.value.name == "ILLEGAL_SETTING"


async def test_topics_of_two_clusters_are_served_by_one_proxy_though_brokers_have_the_same_names(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_site(tmp_path / "one", clock, 1) as one, running_site(tmp_path / "two", clock, 1) as two:
        one.create(TopicConfig("orders"))
        two.create(TopicConfig("billing-eu"))
        two.brokers[0].groups.create(GroupConfig("strict", max_attempts=3))
        rules = [ClusterRule("*billing-*", two.nameserver_address)]
        backend = RemoteBackend(one.nameserver_address, clock=clock, clusters=rules, failover_s=0.1)
        try:
            for topic, site in (("orders", one), ("billing-eu", two)):
                await backend.send([outgoing(topic)])
                (popped,) = await backend.pop("broker-a", PopRequest("g", topic, 30_000))
                await backend.ack(AckRequest("g", topic, popped.handle))
                queue = popped.handle.queue_id
                assert site.brokers[0].queues.committed_offset("g", topic, queue) == 1
            assert (await backend.group("strict")).max_attempts == 3
            assert one.brokers[0].groups.find("strict") is None
            assert {name for name, _ in await backend.passage.masters()} == {"broker-a"}
            await two.nameserver.close()
            assert await refused(backend.send([outgoing("billing-us")])) == "UNREACHABLE"
            await Ground(backend, one.brokers, clock).send("orders", b"x")
        finally:
            await backend.close()
