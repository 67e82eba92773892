"""Runs of records: what is found is what a pop would deliver, and nothing is taken until it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from broker_bench import Bench, bodies, settle

from millstream.broker.pop.run_popper import DeliveredRun
from millstream.model.filter import parse_tag_filter
from millstream.model.operations import PopRequest
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.message_run import decode_run


def found(bench: Bench, group: str = "g", topic: str = "t", **more: Any) -> list[DeliveredRun]:
    return bench.broker.delivery.find_runs(PopRequest(group, topic, 60_000, **more))


def texts(runs: list[DeliveredRun]) -> list[str]:
    messages = [decode_run(run.data, run.places) or [] for run in runs]
    return [message.body.decode() for run in messages for message in run]


def take(bench: Bench, runs: list[DeliveredRun], group: str = "g", **more: Any) -> None:
    bench.broker.delivery.take_runs(PopRequest(group, "t", 60_000, **more), runs, 0)


async def test_what_is_found_is_there_until_it_is_taken_and_then_is_in_flight(bench: Bench) -> None:
    await bench.pop()
    await bench.send(*"abc")
    await bench.send("d", queue_id=2)
    assert sorted(texts(found(bench))) == ["a", "b", "c", "d"]
    runs = found(bench)
    assert sorted(texts(runs)) == ["a", "b", "c", "d"]
    take(bench, runs)
    assert found(bench) == []
    assert await bench.pop() == []
    assert bench.broker.queues.committed_offset("g", "t", 0) == 0
    bench.clock.advance_ms(60_000)
    await bench.send("e")
    assert found(bench) == [], "what is due again comes first, the general way"
    assert sorted(bodies(await bench.pop())) == ["a", "b", "c", "d", "e"]


async def test_it_takes_as_many_as_are_wanted_and_begins_with_another_queue_each_time(bench: Bench) -> None:
    await bench.pop()
    for queue_id in range(4):
        await bench.send(*[f"{queue_id}{number}" for number in range(6)], queue_id=queue_id)
    seen = []
    for _ in range(4):
        runs = found(bench, max_messages=3)
        seen.append(texts(runs))
        take(bench, runs, max_messages=3)
    assert sorted(seen) == [[f"{queue_id}{number}" for number in range(3)] for queue_id in range(4)]


async def test_taking_all_that_is_wanted_wakes_the_next_that_waits(bench: Bench) -> None:
    await bench.pop()
    waiting, delivery = [bench.waiting_pop(), bench.waiting_pop()], bench.broker.delivery
    await settle()
    await bench.send("a", "b", "c")
    assert delivery.count_waiting_pops("g", "t", None) == 1
    take(bench, found(bench, max_messages=2), max_messages=2)
    assert delivery.count_waiting_pops("g", "t", None) == 0
    await settle()
    await bench.send("d")
    assert sorted([*bodies(await waiting[0]), *bodies(await waiting[1])]) == ["c", "d"]


async def test_a_queue_that_the_group_has_not_begun_is_left_to_the_general_way(bench: Bench) -> None:
    await bench.send("a")
    assert found(bench) == []
    assert bodies(await bench.pop()) == ["a"]


async def test_a_group_begins_to_read_a_queue_that_was_added_before_it_takes_from_others(bench: Bench) -> None:
    await bench.pop()
    await bench.send(*"ab", queue_id=1)
    topics = bench.broker.topics
    topics.update(replace(topics.get("t"), read_queues=5, write_queues=5))
    assert found(bench, max_messages=1) == []
    assert bodies(await bench.pop(max_messages=1)) == ["a"]
    await bench.pop(max_messages=2)
    await bench.send("c")
    assert texts(found(bench)) == ["c"]


@pytest.mark.parametrize(
    "wish",
    [
        {"queue_id": 0},
        {"in_order": True},
        {"filter": parse_tag_filter("t")},
        {"group": "missing"},
        {"topic": "missing"},
    ],
    ids=str,
)
async def test_other_wishes_are_left_to_the_general_way(bench: Bench, wish: dict[str, Any]) -> None:
    await bench.pop()
    await bench.send("a")
    assert found(bench, **wish) == []
    assert texts(found(bench)) == ["a"]


async def test_groups_that_keep_order_or_are_switched_off_are_left_to_the_general_way(bench: Bench) -> None:
    groups = bench.broker.groups
    await bench.pop()
    await bench.send("a")
    plain = groups.get("g")
    for changed in (replace(plain, fifo=True), replace(plain, enabled=False)):
        groups.update(changed)
        assert found(bench) == []
    groups.update(plain)
    assert texts(found(bench)) == ["a"]


@pytest.mark.parametrize(
    ("kind", "held"), [(MessageType.FIFO, {"__SHARDINGKEY": "s"}), (MessageType.PRIORITY, {"_SYS_MSG_PRIORITY_": "1"})]
)
async def test_topics_of_other_types_are_left_to_the_general_way(
    bench: Bench, kind: MessageType, held: dict[str, str]
) -> None:
    bench.broker.topics.create(TopicConfig("other", kind))
    await bench.pop(topic="other")
    await bench.send("a", topic="other", queue_id=None, **held)
    assert found(bench, topic="other") == []
    assert bodies(await bench.pop(topic="other")) == ["a"]


async def test_a_topic_that_may_not_be_read_is_left_to_the_general_way(bench: Bench) -> None:
    await bench.pop()
    await bench.send("a")
    topics = bench.broker.topics
    topics.update(replace(topics.get("t"), permission=Permission.WRITE))
    assert found(bench) == []


async def test_what_was_given_back_to_the_group_comes_first_and_the_general_way(bench: Bench) -> None:
    await bench.pop()
    await bench.send("a")
    config = bench.broker.delivery.retries.ensure_topic("g")
    await bench.send("back", topic=config.name, RETRY_TOPIC="t")
    assert found(bench) == []
    assert bodies(await bench.pop()) == ["back", "a"]


async def test_a_full_ledger_gives_no_more(bench: Bench) -> None:
    await bench.pop()
    await bench.send("a", "b")
    ledger = bench.broker.delivery.popper.offsets.ledger("g", "t", 0)
    assert ledger is not None
    ledger.capacity = 1
    runs = found(bench)
    assert texts(runs) == ["a"]
    take(bench, runs)
    assert found(bench) == []
