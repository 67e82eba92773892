from __future__ import annotations

import math
from pathlib import Path

import pytest

from millstream.broker import runtime_report as module
from millstream.broker.runtime_report import broker_report
from millstream.client.client import Client
from millstream.client.cluster_operations import ClusterOperations
from millstream.client.metadata_copier import BrokerMetadataCopier
from millstream.client.producer import Producer
from millstream.cluster.nameserver import BrokerRegistration
from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.group import GroupConfig
from millstream.model.message import Message
from millstream.model.topic import MessageType, Permission, TopicConfig
from servers import running_servers


async def test_a_report_tells_what_waits_for_groups_their_time_and_nobody(tmp_path: Path) -> None:
    async with running_servers(tmp_path) as servers, Client(servers.nameserver) as client:
        for name in ("t", "u"):
            await client.create_topic(TopicConfig(name, read_queues=1, write_queues=1))
        await client.create_topic(TopicConfig("later", MessageType.DELAY))
        await client.create_group(GroupConfig("g"))
        producer = Producer(client)
        for topic in ("t", "t", "t", "u"):
            await producer.send(Message(topic, b"x"))
        await producer.send(Message("later", b"x", delivery_timestamp_ms=servers.broker.clock.now_ms() + 60_000))
        [queue] = await client.queues("t")
        await client.commit_offset("g", queue, 1)
        report = await broker_report(servers.broker, probes_disk=True, tells_readers=True)
        assert [(one.group, one.topic, one.ready, one.in_flight) for one in report.backlog] == [("g", "t", 2, 0)]
        assert (report.waiting_messages, report.delayed_messages, report.open_transactions) == (2, 1, 0)
        assert (report.unread_topics, report.readers) == (["u"], {"t": ["g"]})
        assert not report.is_empty
        assert report.disk_bytes > report.disk_free_bytes > 0
        assert report.sync_ms is not None
        assert not (tmp_path / "probe").exists()


async def test_a_report_names_the_largest_backlogs_and_counts_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TOLD", 1)
    async with running_servers(tmp_path) as servers, Client(servers.nameserver) as client:
        producer = Producer(client)
        for name, count in (("t", 1), ("u", 2)):
            await client.create_topic(TopicConfig(name, read_queues=1, write_queues=1))
            for _ in range(count):
                await producer.send(Message(name, b"x"))
            await client.commit_offset("g", (await client.queues(name))[0], 0)
        report = await broker_report(servers.broker)
        assert [one.topic for one in report.backlog] == ["u"]
        assert report.waiting_messages == 3


async def test_a_drained_broker_is_read_refuses_sends_and_stays_so_over_a_restart(tmp_path: Path) -> None:
    async with running_servers(tmp_path) as servers, Client(servers.nameserver) as client:
        await client.create_topic(TopicConfig("t", read_queues=1, write_queues=1))
        await Producer(client).send(Message("t", b"x"))
        await client.run(ClusterOperations(client.conversations).put_permission("broker-a", Permission.READ))
    async with running_servers(tmp_path) as servers, Client(servers.nameserver) as client:
        with pytest.raises(NameRefused, match="broker-a is drained"):
            await Producer(client, retries=0).send(Message("t", b"y"))
        [item] = await client.queue_ranges("t")
        assert item.range.max_offset == 1
        await client.run(
            ClusterOperations(client.conversations).put_permission("broker-a", Permission.READ | Permission.WRITE)
        )
        await Producer(client).send(Message("t", b"y"))


async def test_a_permission_that_is_none_is_refused(tmp_path: Path) -> None:
    async with running_servers(tmp_path) as servers, Client(servers.nameserver) as client:
        cluster = ClusterOperations(client.conversations)
        for value in (Permission.NONE, Permission.WRITE):
            with pytest.raises(MillstreamError, match="none of 4"):
                await client.run(cluster.put_permission("broker-a", value))
        with pytest.raises(NameRefused, match="'broker-b'"):
            await client.run(cluster.put_permission("broker-b", Permission.READ))
        assert servers.broker.maintenance.permission.value == Permission.READ | Permission.WRITE


async def test_a_new_broker_is_given_the_topics_and_groups_of_the_others_and_nothing_of_their_own(
    tmp_path: Path,
) -> None:
    async with running_servers(tmp_path / "a", name="a") as a, running_servers(tmp_path / "b", name="b") as b:
        fifo = TopicConfig("orders", MessageType.FIFO, read_queues=3, write_queues=3)
        group = GroupConfig("g", fifo=True, max_attempts=3)
        for registry, name in ((a.broker, "a"), (b.broker, "b")):
            registry.topics.create(TopicConfig("same" if name == "a" else "only-b"))
        a.broker.topics.create(fifo)
        a.broker.topics.create(TopicConfig("differs", read_queues=1, write_queues=1))
        b.broker.topics.create(TopicConfig("differs", read_queues=2, write_queues=2))
        a.broker.groups.create(group)
        a.routes.register(BrokerRegistration("DefaultCluster", "b", b.broker_address), lease_s=math.inf)
        async with Client(a.nameserver) as client:
            outfit = await client.run(BrokerMetadataCopier(client.conversations).equip("b"))
            assert (outfit.topics, outfit.groups, outfit.differing) == (("orders", "same"), ("g",), ("differs",))
            assert b.broker.topics.get("orders") == fifo
            assert b.broker.groups.get("g") == group
            again = await client.run(BrokerMetadataCopier(client.conversations).equip("b"))
            assert (again.topics, again.groups) == ((), ())


async def test_what_a_group_has_not_begun_on_a_broker_waits_there_if_it_reads_the_topic_elsewhere(
    tmp_path: Path,
) -> None:
    async with running_servers(tmp_path / "a", name="a") as a, running_servers(tmp_path / "b", name="b") as b:
        # One nameserver for both: b is told to a's.
        topic = TopicConfig("t", read_queues=1, write_queues=1)
        a.routes.register(BrokerRegistration("DefaultCluster", "b", b.broker_address, (topic,)), lease_s=math.inf)
        async with Client(a.nameserver) as client:
            await client.create_topic(topic)
            producer = Producer(client)
            for _ in range(4):
                await producer.send(Message("t", b"x"))
            first, second = await client.queues("t")
            assert (first.broker_name, second.broker_name) == ("a", "b")
            await client.commit_offset("g", first, 2)
            report = await client.run(ClusterOperations(client.conversations).report_backlog("b"))
            assert [(one.group, one.topic, one.ready) for one in report.backlog] == [("g", "t", 2)]
            await client.commit_offset("g", second, 2)
            assert (await client.run(ClusterOperations(client.conversations).report_backlog("b"))).is_empty
