"""What nameservers hear of a broker: its topics, and a retry topic for each group, which tools look for."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bench import SMALL_STORE

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.registrar import TopicRegistration
from millstream.model.group import GroupConfig
from millstream.model.topic import Permission, TopicConfig


@pytest.fixture
async def broker(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = Broker(tmp_path, options=BrokerOptions(store=SMALL_STORE))
    await made.start()
    yield made
    await made.close()


def retry_names(told: TopicRegistration) -> list[str]:
    return [topic.name for topic in told.all() if topic.name.startswith("%RETRY%")]


async def test_a_groups_retry_topic_is_told_once_whether_it_is_there_or_not(broker: Broker) -> None:
    told = TopicRegistration(broker)
    broker.groups.create(GroupConfig("g"))
    assert retry_names(told) == ["%RETRY%g"]
    assert broker.topics.find("%RETRY%g") is None
    broker.topics.create(TopicConfig("%RETRY%g", read_queues=3, write_queues=3))
    assert retry_names(told) == ["%RETRY%g"]
    found = told.find("%RETRY%g")
    assert found is not None
    assert found.read_queues == 3
    assert told.find("%RETRY%nobody") is None


async def test_a_new_group_is_told_at_once_and_a_deleted_one_taken_back(broker: Broker) -> None:
    told, heard = TopicRegistration(broker), {}
    told.watch(lambda name, topic: heard.update({name: topic}))
    broker.groups.create(GroupConfig("g"))
    assert heard["%RETRY%g"] == TopicConfig("%RETRY%g", read_queues=1, write_queues=1)
    broker.topics.create(TopicConfig("%RETRY%g", read_queues=1, write_queues=1))
    broker.groups.delete("g")
    assert heard["%RETRY%g"] is None


async def test_a_drained_broker_tells_no_topic_as_writable(broker: Broker) -> None:
    broker.groups.create(GroupConfig("g"))
    broker.maintenance.permission.put(Permission.READ)
    found = TopicRegistration(broker).find("%RETRY%g")
    assert found is not None
    assert Permission.WRITE not in found.permission
