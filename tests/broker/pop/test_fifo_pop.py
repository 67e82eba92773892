"""FIFO groups over a real store: order per message group, attempts that come twice, dead letters, restarts."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from broker_bench import Bench, attempts, bodies, open_bench, settle

from millstream.model.errors import ConsumeRefused
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, PoppedMessage
from millstream.model.topic import MessageType, TopicConfig
from patience import within_patience

open_mixed = partial(open_bench, takes=MessageType.MIXED)


@pytest.fixture
async def fifo(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_mixed(tmp_path) as bench:
        bench.broker.groups.create(GroupConfig("g", fifo=True, max_attempts=3))
        yield bench


async def send(bench: Bench, *bodies: str) -> None:
    """Messages into queue 0, each of the message group that its first letter names."""
    for body in bodies:
        await bench.send(body, __SHARDINGKEY=body[0])


async def test_a_stuck_message_group_holds_up_no_other_group_of_its_queue(fifo: Bench) -> None:
    await send(fifo, "a1", "a2", "b1", "a3", "b2")
    (stuck,) = await fifo.pop(max_messages=1)
    others = await fifo.pop()
    assert bodies(others) == ["b1", "b2"]
    fifo.ack(*others)
    await send(fifo, "b3", "a4")
    assert bodies(await fifo.pop()) == ["b3"]
    fifo.ack(stuck)
    assert bodies(await fifo.pop()) == ["a2", "a3", "a4"]


async def test_a_waiting_pop_is_answered_when_a_held_group_is_free_again(fifo: Bench) -> None:
    await send(fifo, "a1", "a2")
    (first,) = await fifo.pop(max_messages=1)
    waiting = fifo.waiting_pop()
    await settle()
    assert not waiting.done()
    fifo.ack(first)
    (second,) = await within_patience(waiting)
    assert (second.message.body, second.delivery_attempt) == (b"a2", 1)


async def test_a_waiting_pop_is_answered_when_the_time_of_a_held_group_is_over(tmp_path: Path) -> None:
    async with open_mixed(tmp_path, real_time=True) as bench:
        bench.broker.groups.create(GroupConfig("g", fifo=True))
        await send(bench, "a1", "a2")
        await bench.pop(max_messages=1, invisible_ms=30)
        assert bodies(await within_patience(bench.waiting_pop())) == ["a1", "a2"]


async def test_a_suspended_delivery_does_not_count_as_an_attempt(fifo: Bench) -> None:
    await send(fifo, "a1")
    for _ in range(5):
        (popped,) = await fifo.pop(invisible_ms=1_000)
        assert popped.delivery_attempt == 1
        fifo.change(popped, 0, suspend=True)
    (popped,) = await fifo.pop()
    fifo.change(popped, 0)
    assert attempts(await fifo.pop()) == [2]


async def test_the_dead_letter_of_one_group_lets_its_next_message_come_and_holds_up_no_other(fifo: Bench) -> None:
    await send(fifo, "a1", "a2", "b1")
    for _ in range(3):
        popped = await fifo.pop(invisible_ms=1_000)
        fifo.ack(*[one for one in popped if one.message.body != b"a1"])
        fifo.clock.advance_ms(1_000)
        await send(fifo, "a2", "b1")
    found = await fifo.pop()
    assert bodies(found)[0] == "b1"
    fifo.ack(*found)
    assert bodies(await fifo.pop())[0] == "a2"
    assert bodies(await fifo.pop("undertaker", topic="%DLQ%g")) == ["a1"]


async def test_a_consumers_own_dead_letter_frees_its_group_at_once(fifo: Bench) -> None:
    await send(fifo, "a1", "a2")
    (first,) = await fifo.pop(max_messages=1)
    assert await fifo.pop() == []
    await fifo.broker.delivery.move_to_dead_letter(AckRequest("g", "t", first.handle))
    assert bodies(await fifo.pop()) == ["a2"]


async def test_the_same_attempt_gets_the_rest_of_its_batch_after_a_part_was_acknowledged(fifo: Bench) -> None:
    await send(fifo, "a1", "a2")
    await fifo.send("c", queue_id=1)
    batch = await fifo.pop(attempt_id="one")
    fifo.ack(batch[0])
    again = await fifo.pop(attempt_id="one")
    assert sorted(bodies(again)) == sorted(bodies(batch[1:]))
    assert {popped.handle for popped in again} == {popped.handle for popped in batch[1:]}
    fifo.ack(*again)
    assert await fifo.pop(attempt_id="one") == []


async def test_a_repeated_attempt_has_time_to_do_its_work(fifo: Bench) -> None:
    await send(fifo, "a1")
    (first,) = await fifo.pop(attempt_id="one", invisible_ms=1_000)
    fifo.clock.advance_ms(600)
    (again,) = await fifo.pop(attempt_id="one", invisible_ms=1_000)
    assert (again.delivery_attempt, again.handle.expires_ms) == (1, first.handle.expires_ms + 600)
    fifo.clock.advance_ms(999)
    assert await fifo.pop() == []
    fifo.ack(again)


async def test_an_attempt_is_known_after_a_restart(tmp_path: Path) -> None:
    async with open_mixed(tmp_path) as bench:
        clock = bench.clock
        bench.broker.groups.create(GroupConfig("g", fifo=True))
        await send(bench, "a1", "b1", "a2")
        batch = await bench.pop(attempt_id="one", max_messages=2)
    async with open_mixed(tmp_path, clock=clock) as bench:
        assert await bench.pop(attempt_id="two") == []
        again = await bench.pop(attempt_id="one")
        assert {popped.handle for popped in again} == {popped.handle for popped in batch}
        bench.ack(*again)
        assert bodies(await bench.pop(attempt_id="two")) == ["a2"]


async def test_members_without_attempt_ids_keep_the_order_too(fifo: Bench) -> None:
    await send(fifo, "a1", "b1", "a2", "b2")
    first, second = await fifo.pop(max_messages=1), await fifo.pop(max_messages=1)
    assert bodies([*first, *second]) == ["a1", "b1"]
    assert await fifo.pop() == []
    fifo.ack(*second)
    assert bodies(await fifo.pop()) == ["b2"]


async def test_a_group_that_begins_or_ceases_to_keep_order_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with open_mixed(tmp_path) as bench:
        groups = bench.broker.groups
        await send(bench, "a1", "a2", "a3")
        (first,) = await bench.pop(max_messages=1)
        for fifo in (True, False):
            groups.update(GroupConfig("g", fifo=fifo))
            found = await bench.pop(max_messages=1)
            assert bodies(found) == (["a2"] if fifo else ["a3"])
        bench.ack(first)


async def test_a_message_group_has_one_queue_even_where_its_senders_name_others(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("ordered", message_type=MessageType.FIFO))
    sent = [OutgoingMessage("ordered", b"x", {"__SHARDINGKEY": "ann"}, queue_id=n) for n in (0, 1, 2, 3, None)]
    assert len({receipt.queue_id for receipt in await bench.broker.delivery.send(sent)}) == 1


async def test_a_stuck_group_holds_up_its_queue_only_when_as_many_wait_as_there_is_room_for(tmp_path: Path) -> None:
    async with open_mixed(tmp_path, max_in_flight=4) as bench:
        bench.broker.groups.create(GroupConfig("g", fifo=True))
        await send(bench, "a1", "a2", "a3", "a4", "b1")
        (stuck,) = await bench.pop(max_messages=1)
        assert await bench.pop() == []
        bench.ack(stuck)
        assert bodies(await bench.pop()) == ["a2", "a3", "a4", "b1"]


async def test_handles_of_others_and_made_up_ones_change_nothing(fifo: Bench) -> None:
    await send(fifo, "a1", "a2")
    (first,) = await fifo.pop(max_messages=1)
    await fifo.pop()
    for handle in (
        replace(first.handle, queue_offset=1),
        replace(first.handle, queue_offset=1, pop_time_ms=0),
        replace(first.handle, pop_time_ms=first.handle.pop_time_ms + 1),
    ):
        with pytest.raises(ConsumeRefused) as refused:
            fifo.broker.delivery.ack(AckRequest("g", "t", handle))
        assert refused.value.name == "INVALID_RECEIPT_HANDLE"
    assert fifo.broker.queues.committed_offset("g", "t", 0) == 0


@pytest.mark.parametrize("seed", range(4))
async def test_unreliable_consumers_see_each_message_group_in_order(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with open_mixed(tmp_path, max_in_flight=40) as bench:
        bench.broker.groups.create(GroupConfig("g", fifo=True, max_attempts=1_000))
        bench.broker.topics.create(TopicConfig("ordered", message_type=MessageType.FIFO, read_queues=2, write_queues=2))
        for number in range(200):
            await bench.send(f"{number}", topic="ordered", queue_id=None, __SHARDINGKEY=str(number % 7))
        consumed: dict[int, list[int]] = {line: [] for line in range(7)}
        held: dict[int, tuple[PoppedMessage, int]] = {}
        while sum(map(len, consumed.values())) < 200:
            now_ms = bench.clock.now_ms()
            batch = await bench.pop(
                topic="ordered", max_messages=chance.randint(1, 32), invisible_ms=chance.randint(1, 50)
            )
            for popped in batch:
                number = int(popped.message.body)
                assert number not in held or held[number][1] <= now_ms, "two members hold one message"
                held[number] = (popped, popped.handle.expires_ms)
            for number in sorted(held):
                popped, expires_ms = held[number]
                line = number % 7
                is_next = len(consumed[line]) * 7 + line == number
                if is_next and expires_ms > now_ms and chance.random() < 0.6:
                    bench.ack(popped, topic="ordered")
                    consumed[line].append(number)
                    del held[number]
            bench.clock.advance_ms(chance.randint(0, 20))
        assert all(numbers == sorted(numbers) for numbers in consumed.values())
        assert await bench.pop(topic="ordered") == []
