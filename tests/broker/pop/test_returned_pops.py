"""Pops of a group whose pulling consumers gave messages back: they come as if they lay in their own topic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_bench import Bench, attempts, bodies, open_bench, settle

from millstream.model.errors import ConsumeRefused
from millstream.model.group import GroupConfig
from millstream.model.operations import AckRequest, PopRequest, PullRequest, SendBackRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from patience import within_patience

GROUP = GroupConfig("g", max_attempts=4, backoff_s=(0,))
RETRY = "%RETRY%g"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "data") as opened:
        opened.broker.groups.create(GROUP)
        yield opened


async def given_back(bench: Bench, *messages: str, topic: str = "t", **held: str) -> None:
    """Have these messages consumed and given back by a consumer that pulls."""
    for receipt in await bench.send(*messages, topic=topic, **held):
        await bench.broker.delivery.send_back(SendBackRequest("g", receipt.log_offset, topics=(topic,)))
        bench.broker.queues.commit("g", topic, 0, receipt.queue_offset + 1)


async def dead_letters(bench: Bench) -> list[tuple[bytes, int, str]]:
    found = (await bench.broker.queues.pull(PullRequest("x", "%DLQ%g", 0, 0))).records
    messages = [decode_record(record) for record in found]
    return [(held.body, held.reconsume_times, held.properties["DLQ_ORIGIN_TOPIC"]) for held in messages]


async def test_what_a_group_gave_back_is_popped_under_its_own_topic_with_its_attempts_counted_on(bench: Bench) -> None:
    await given_back(bench, "again", TAGS="a")
    await bench.send("new")
    popped = await bench.pop()
    assert bodies(popped) == ["again", "new"]
    assert attempts(popped) == [2, 1]
    assert [one.message.topic for one in popped] == ["t", "t"]
    assert [one.handle.topic_kind for one in popped] == [1, 0]
    bench.ack(*popped)
    bench.clock.advance_ms(61_000)
    assert await bench.pop() == []


async def test_each_topic_gets_its_own_messages_and_leaves_those_of_others(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("u"))
    await given_back(bench, "t1")
    await given_back(bench, "u1", "u2", topic="u")
    await given_back(bench, "t2")
    assert bodies(await bench.pop(topic="u", max_messages=1)) == ["u1"]
    assert bodies(await bench.pop()) == ["t1", "t2"]
    assert bodies(await bench.pop(topic="u")) == ["u2"]


async def test_a_filter_holds_for_what_was_given_back(bench: Bench) -> None:
    await given_back(bench, "wanted", TAGS="a")
    await given_back(bench, "other", TAGS="b")
    assert bodies(await bench.pop(expression="a")) == ["wanted"]
    assert await bench.pop() == []


async def test_unacknowledged_it_comes_again_in_its_place_until_it_is_a_dead_letter_of_its_topic(bench: Bench) -> None:
    await given_back(bench, "bad", UNIQ_KEY="ID")
    for attempt in (2, 3, 4):
        [popped] = await bench.pop(invisible_ms=1000)
        assert popped.delivery_attempt == attempt
        assert await bench.pop() == []
        bench.clock.advance_ms(1000)
    assert await bench.pop() == []
    assert await dead_letters(bench) == [(b"bad", 4, "t")]
    assert bench.broker.maintenance.store.max_offset(RETRY, 0) == 1
    with pytest.raises(ConsumeRefused):
        bench.change(popped, 0)


async def test_a_consumer_may_give_it_up_delay_it_and_extend_it(bench: Bench) -> None:
    await given_back(bench, "1", "2", "3")
    first, second, third = await bench.pop(invisible_ms=10_000)
    await bench.broker.delivery.move_to_dead_letter(AckRequest("g", "t", first.handle))
    assert await dead_letters(bench) == [(b"1", 2, "t")]
    renewed = bench.change(second, 60_000)
    assert renewed.topic_kind == 1
    bench.change(third, 0)
    assert bodies(await bench.pop(invisible_ms=60_000)) == ["3"]
    bench.clock.advance_ms(20_000)
    assert await bench.pop() == []
    bench.broker.delivery.ack(AckRequest("g", "t", renewed))
    bench.clock.advance_ms(60_000)
    assert bodies(await bench.pop()) == ["3"]


@pytest.mark.parametrize("queue_id", [None, 2])
async def test_a_waiting_pop_hears_of_what_is_given_back(bench: Bench, queue_id: int | None) -> None:
    [receipt] = await bench.send("again")
    bench.broker.queues.commit("g", "t", 0, 1)
    task = bench.waiting_pop(queue_id=queue_id)
    await settle()
    await bench.broker.delivery.send_back(SendBackRequest("g", receipt.log_offset, topics=("t",)))
    popped = await within_patience(task)
    assert bodies(popped) == ["again"]
    task = bench.waiting_pop(queue_id=queue_id)
    await settle()
    bench.change(popped[0], 0)
    assert bodies(await within_patience(task)) == ["again"]


async def test_a_look_without_taking_sees_what_was_given_back_of_its_topic(bench: Bench) -> None:
    for topic in ("u", "v"):
        bench.broker.topics.create(TopicConfig(topic))
    await given_back(bench, "before", topic="v")
    await given_back(bench, "again")

    async def is_there(topic: str) -> bool:
        return await bench.broker.delivery.wait_for_message(PopRequest("g", topic, 60_000))

    assert await is_there("t")
    assert not await is_there("u")
    popped = await bench.pop(invisible_ms=1000)
    assert not await is_there("t")
    bench.clock.advance_ms(1000)
    assert await is_there("t")
    bench.ack(*popped)
    assert not await is_there("t")


async def test_a_waiting_pop_hears_when_its_time_out_of_sight_is_over(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "data", real_time=True) as bench:
        bench.broker.groups.create(GROUP)
        await given_back(bench, "again")
        await bench.pop(invisible_ms=50)
        assert attempts(await within_patience(bench.waiting_pop())) == [3]


async def test_what_pulling_consumers_have_had_already_is_not_popped(bench: Bench) -> None:
    await given_back(bench, "had", "left")
    bench.broker.queues.commit("g", RETRY, 0, 1)
    assert bodies(await bench.pop()) == ["left"]
    await given_back(bench, "later", "had as well", "last")
    bench.broker.queues.commit("g", RETRY, 0, 4)
    assert bodies(await bench.pop()) == ["last"]


async def test_a_restart_keeps_what_was_popped_and_what_was_not(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "data") as bench:
        bench.broker.groups.create(GROUP)
        await given_back(bench, "1", "2", "3")
        [first] = await bench.pop(max_messages=1)
        bench.ack(first)
        [second] = await bench.pop(max_messages=1)
        assert bodies([first, second]) == ["1", "2"]
    async with open_bench(tmp_path / "data", clock=bench.clock) as bench:
        assert bodies(await bench.pop()) == ["3"]
        bench.ack(second)
        bench.clock.advance_ms(61_000)
        assert bodies(await bench.pop()) == ["3"]


async def test_an_ordered_group_gets_its_messages_back_in_order(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "data", takes=MessageType.FIFO) as bench:
        bench.broker.groups.create(GroupConfig("g", fifo=True, backoff_s=(0,)))
        receipts = await bench.send("a1", "a2", __SHARDINGKEY="a")
        for receipt in receipts:
            await bench.broker.delivery.send_back(SendBackRequest("g", receipt.log_offset, topics=("t",)))
            bench.broker.queues.commit("g", "t", receipt.queue_id, receipt.queue_offset + 1)
        popped = await bench.pop(max_messages=1, attempt_id="x")
        assert bodies(popped) == ["a1"]
        assert bodies(await bench.pop(attempt_id="y")) == []
        assert bodies(await bench.pop(max_messages=1, attempt_id="x")) == ["a1"]
        bench.ack(*popped)
        assert bodies(await bench.pop(attempt_id="y")) == ["a2"]


async def test_a_group_that_gives_nothing_back_has_no_ledger_for_it(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig(RETRY, read_queues=1, write_queues=1))
    await bench.send("new")
    assert bodies(await bench.pop()) == ["new"]
    assert bench.broker._offsets.places("g") == [("t", queue_id) for queue_id in range(4)]


async def test_with_its_topic_or_its_group_goes_what_was_popped_of_it(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("u"))
    await given_back(bench, "1", "2")
    await given_back(bench, "3", topic="u")
    await bench.pop(max_messages=1)
    await bench.pop(topic="u")
    bench.broker.topics.delete("t")
    assert ("%RETRY%g+u", 0) in bench.broker._offsets.places("g")
    assert ("%RETRY%g+t", 0) not in bench.broker._offsets.places("g")
    bench.broker.groups.delete("g")
    assert bench.broker._offsets.places("g") == []


async def test_a_line_of_the_retry_topic_shows_nowhere_as_a_topic(bench: Bench) -> None:
    await given_back(bench, "1")
    await bench.pop()
    assert bench.broker.queues.topics_of("g") == ["t"]
    assert {position.topic for position in bench.broker.queues.all_offsets(10)[0]} == {"t"}
