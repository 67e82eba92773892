"""One face for the broker's own queues and for logic queues."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
from broker_bench import Bench

from millstream.model.logic_queue import LogicQueue, MappingItem, TopicMapping
from millstream.model.operations import QueuePoint, QueueRange
from millstream.model.topic import Permission, TopicConfig

BOTH = Permission.READ | Permission.WRITE


@pytest.fixture
async def static(bench: Bench) -> Bench:
    """Logic queue 3 of the static topic `s` is queue 0 of this broker, from offset 100 on."""
    item = MappingItem(0, bench.broker.name, 0, 100)
    mapping = TopicMapping("s", bench.broker.name, 4, 1, queues={3: LogicQueue(3, (item,))})
    await bench.broker.queues.change_static(TopicConfig("s", read_queues=1, write_queues=1), mapping)
    await bench.send("a", "b", topic="s", queue_id=3)
    return bench


async def resolved(value: Any) -> Any:
    assert isinstance(value, Awaitable)
    return await value


async def test_what_is_known_of_own_queues_is_there_at_once(bench: Bench) -> None:
    await bench.send("a", "b")
    queues = bench.broker.queues
    assert queues.range_of("t", 0) == QueueRange(0, 0, 2, bench.clock.now_ms())
    assert queues.find_offset("t", 0, QueuePoint.LAST) == 2
    queues.commit("g", "t", 0, 1)
    assert queues.committed_offset("g", "t", 0) == 1
    assert queues.list_offered("t")[0] == (0, BOTH)


async def test_queues_of_a_static_topic_are_logic_ones(static: Bench) -> None:
    queues = static.broker.queues
    assert (await resolved(queues.range_of("s", 3))).max_offset == 102
    assert await resolved(queues.find_offset("s", 3, QueuePoint.FIRST)) == 100
    await resolved(queues.commit("g", "s", 3, 101))
    assert await resolved(queues.committed_offset("g", "s", 3)) == 101
    assert queues.list_offered("s") == [(3, BOTH)]


async def test_a_broker_can_be_asked_for_its_own_queue_of_a_static_topic(static: Bench) -> None:
    queues = static.broker.queues
    await resolved(queues.commit("g", "s", 3, 101))
    assert queues.range_of("s", 0, physical=True) == queues.own_range("s", 0)
    assert queues.committed_offset("g", "s", 0, physical=True) == queues.own_offset("g", "s", 0) == 1
    queues.commit("g", "s", 0, 2, physical=True)
    assert await resolved(queues.committed_offset("g", "s", 3)) == 102


async def test_a_group_begins_a_logic_queue_at_its_first_message_by_its_own_choice(static: Bench) -> None:
    queues = static.broker.queues
    assert await resolved(queues.committed_offset("new", "s", 3)) is None
    assert await resolved(queues.committed_or_first("new", "s", 3)) is None
    assert queues.committed_or_first("new", "s", 0, physical=True) == 0
