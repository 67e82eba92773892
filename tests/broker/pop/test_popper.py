"""Pop over a real store: delivery, redelivery, filters, order, dead letters, and who is woken when."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from broker_bench import Bench, attempts, bodies, open_bench, settle

from millstream.broker.pop import pop_scan
from millstream.broker.pop.pop_scan import BURIAL_MS
from millstream.broker.pop.popper import MAX_INVISIBLE_MS
from millstream.model.errors import ConsumeRefused, NameRefused, StoreError
from millstream.model.group import GroupConfig
from millstream.model.handles import FIFO_REVIVE_QUEUE, ReceiptHandle
from millstream.model.operations import AckRequest, PoppedMessage, PopRequest
from millstream.model.topic import MessageType, Permission, TopicConfig
from patience import within_patience

Damage = Callable[[int], None]


async def test_every_group_gets_every_message_once(bench: Bench) -> None:
    await bench.send(*"abc")
    for group in ("g", "h"):
        popped = await bench.pop(group)
        assert bodies(popped) == ["a", "b", "c"]
        assert attempts(popped) == [1, 1, 1]
        assert await bench.pop(group) == []


async def test_a_message_that_is_not_acknowledged_comes_again_after_its_time_and_not_before(bench: Bench) -> None:
    await bench.send("a", "b")
    first, second = await bench.pop(invisible_ms=1_000)
    bench.ack(first)
    bench.clock.advance_ms(999)
    assert await bench.pop() == []
    bench.clock.advance_ms(1)
    (again,) = await bench.pop()
    assert (again.message.body, again.delivery_attempt) == (b"b", 2)
    assert again.handle != second.handle


async def test_redelivery_comes_before_what_is_new_and_a_stuck_message_blocks_no_other(bench: Bench) -> None:
    await bench.send("stuck")
    await bench.pop(invisible_ms=1_000)
    await bench.send("b")
    bench.ack(*await bench.pop())
    await bench.send("c")
    bench.clock.advance_ms(1_000)
    assert bodies(await bench.pop()) == ["stuck", "c"]
    assert bench.broker.queues.committed_offset("g", "t", 0) == 0


async def test_a_consumer_that_hangs_with_its_batch_holds_up_no_other_over_all_queues(bench: Bench) -> None:
    for queue_id in range(4):
        await bench.send(*[f"{queue_id}.{number}" for number in range(20)], queue_id=queue_id)
    hanging = await bench.pop()
    assert len(hanging) == 32
    consumed: list[str] = []
    while popped := await bench.pop():
        consumed.extend(bodies(popped))
        bench.ack(*popped)
    assert len(consumed) == 48
    assert set(consumed).isdisjoint(bodies(hanging))
    await bench.send("later", queue_id=0)
    assert bodies(await bench.pop()) == ["later"]


async def test_acknowledging_moves_the_committed_offset_over_what_is_consumed(bench: Bench) -> None:
    await bench.send(*"abc")
    a, b, c = await bench.pop()
    bench.ack(b)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 0
    bench.ack(a)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 2
    bench.ack(c)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 3


async def test_acknowledging_twice_is_no_error_and_a_replaced_handle_is_one(bench: Bench) -> None:
    await bench.send("a", "b")
    a, b = await bench.pop(invisible_ms=1_000)
    bench.ack(a, a)
    bench.clock.advance_ms(1_000)
    bench.ack(b)
    await bench.send("c")
    (c,) = await bench.pop(invisible_ms=1_000)
    bench.clock.advance_ms(1_000)
    (again,) = await bench.pop()
    with pytest.raises(ConsumeRefused) as refused:
        bench.ack(c)
    assert refused.value.name == "INVALID_RECEIPT_HANDLE"
    bench.ack(again)
    bench.ack(c)


async def test_handles_of_another_broker_group_or_queue_are_refused(bench: Bench) -> None:
    await bench.send("a")
    (a,) = await bench.pop()
    for group, handle in (
        ("g", replace(a.handle, broker_name="broker-b")),
        ("h", a.handle),
        ("g", replace(a.handle, queue_id=1, queue_offset=7)),
        ("g", replace(a.handle, queue_offset=9)),
        ("g", replace(a.handle, queue_id=99)),
    ):
        with pytest.raises(ConsumeRefused) as refused:
            bench.broker.delivery.ack(AckRequest(group, "t", handle))
        assert refused.value.name == "INVALID_RECEIPT_HANDLE"
    bench.ack(a)


async def test_a_handle_survives_its_text_form(bench: Bench) -> None:
    await bench.send("a")
    (a,) = await bench.pop()
    bench.broker.delivery.ack(AckRequest("g", "t", ReceiptHandle.decode(a.handle.encode())))
    assert bench.broker.queues.committed_offset("g", "t", 0) == 1


async def test_changing_the_invisible_time_replaces_the_handle(bench: Bench) -> None:
    await bench.send("a")
    (a,) = await bench.pop(invisible_ms=1_000)
    handle = bench.change(a, 5_000)
    with pytest.raises(ConsumeRefused):
        bench.ack(a)
    with pytest.raises(ConsumeRefused):
        bench.change(a, 5_000)
    bench.clock.advance_ms(4_999)
    assert await bench.pop() == []
    bench.broker.delivery.ack(AckRequest("g", "t", handle))
    bench.clock.advance_ms(1)
    assert await bench.pop() == []


async def test_an_invisible_time_of_nothing_gives_the_message_back_at_once(bench: Bench) -> None:
    await bench.send("a")
    (a,) = await bench.pop()
    bench.change(a, 0)
    (again,) = await bench.pop()
    assert again.delivery_attempt == 2


async def test_invisible_times_out_of_range_are_refused(bench: Bench) -> None:
    await bench.send("a")
    for invisible_ms in (-1, 0, MAX_INVISIBLE_MS + 1):
        with pytest.raises(ConsumeRefused, match=str(invisible_ms)) as refused:
            await bench.pop(invisible_ms=invisible_ms)
        assert refused.value.name == "ILLEGAL_INVISIBLE_TIME"
    (a,) = await bench.pop(invisible_ms=MAX_INVISIBLE_MS)
    for invisible_ms in (-1, MAX_INVISIBLE_MS + 1):
        with pytest.raises(ConsumeRefused) as refused:
            bench.change(a, invisible_ms)
        assert refused.value.name == "ILLEGAL_INVISIBLE_TIME"


async def test_a_pop_takes_32_messages_at_most_and_one_at_least(bench: Bench) -> None:
    await bench.send(*[str(number) for number in range(40)])
    assert len(await bench.pop(max_messages=1_000)) == 32
    assert len(await bench.pop(max_messages=0)) == 1


async def test_a_pop_ends_when_it_has_enough_bytes(bench: Bench) -> None:
    big = "x" * (3 * 1024 * 1024)
    await bench.send(big, big, big)
    assert len(await bench.pop()) == 2
    assert len(await bench.pop()) == 1


async def test_a_pop_fills_up_from_all_queues_and_begins_at_another_one_each_time(bench: Bench) -> None:
    for queue_id in range(4):
        await bench.send(*[f"{queue_id}.{number}" for number in range(3)], queue_id=queue_id)
    firsts = []
    for _ in range(4):
        popped = await bench.pop(max_messages=2)
        assert len(popped) == 2
        firsts.append(popped[0].message.queue_id)
    assert sorted(firsts) == [0, 1, 2, 3]
    assert len(await bench.pop()) == 4


async def test_a_pop_of_one_queue_takes_from_no_other(bench: Bench) -> None:
    for queue_id in range(4):
        await bench.send(str(queue_id), queue_id=queue_id)
    assert bodies(await bench.pop(queue_id=2)) == ["2"]
    assert await bench.pop(queue_id=2) == []


async def test_a_new_group_sees_the_history_of_the_queue(bench: Bench) -> None:
    await bench.send("old")
    assert bodies(await bench.pop("newcomer")) == ["old"]


async def test_what_the_filter_does_not_want_is_consumed_silently(bench: Bench) -> None:
    for tag in ("red", "blue", "red", "green"):
        await bench.send(tag, TAGS=tag)
    await bench.send("wrong", TAGS="BB")
    popped = await bench.pop(expression="blue||Aa")
    assert bodies(popped) == ["blue"]
    bench.ack(*popped)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 5
    assert await bench.pop() == []


async def test_a_filter_that_changes_applies_to_redelivery_too(bench: Bench) -> None:
    await bench.send("red", TAGS="red")
    await bench.pop(invisible_ms=1_000)
    bench.clock.advance_ms(1_000)
    assert await bench.pop(expression="blue") == []
    assert bench.broker.queues.committed_offset("g", "t", 0) == 1


async def test_a_filter_finds_its_message_behind_many_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_scan, "MAX_SCANNED_ENTRIES", 10)
    monkeypatch.setattr(pop_scan.PopScan, "__init__", _with_entries_left(pop_scan.PopScan.__init__, 10))
    await bench.send(*[str(number) for number in range(95)], TAGS="red")
    await bench.send("here", TAGS="blue")
    assert bodies(await bench.pop(expression="blue", wait_ms=30_000)) == ["here"]


def _with_entries_left(original: Callable[..., None], entries_left: int) -> Callable[..., None]:
    def init(*given: object, **named: object) -> None:
        original(*given, **{"entries_left": entries_left, **named})

    return init


async def test_deliveries_in_flight_are_bounded_and_an_acknowledgement_makes_room(tmp_path: Path) -> None:
    async with open_bench(tmp_path, max_in_flight=3) as bench:
        await bench.send(*"abcde")
        popped = await bench.pop(queue_id=0)
        assert bodies(popped) == ["a", "b", "c"]
        waiting = bench.waiting_pop(queue_id=0)
        await settle()
        assert not waiting.done()
        bench.ack(popped[1])
        assert bodies(await waiting) == ["d"]


async def test_a_damaged_record_is_passed_over_on_delivery_and_on_redelivery(
    bench: Bench, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.send("a", "b", "c")
    damage(1)
    with caplog.at_level(logging.ERROR):
        assert bodies(await bench.pop(invisible_ms=1_000)) == ["a", "c"]
        assert "topic t, queue 0, queue offset 1" in caplog.text
        damage(0)
        bench.clock.advance_ms(1_000)
        popped = await bench.pop()
    assert bodies(popped) == ["c"]
    assert "queue offset 0" in caplog.text
    bench.ack(*popped)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 3


async def test_what_cannot_be_popped_is_refused(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("sealed", permission=Permission.WRITE))
    for request, error in (
        (PopRequest("g", "nowhere", 1_000), "TOPIC_NOT_FOUND"),
        (PopRequest("g", "t", 1_000, queue_id=4), "QUEUE_NOT_FOUND"),
        (PopRequest("g", "sealed", 1_000), "FORBIDDEN"),
        (PopRequest("no good", "t", 1_000), "ILLEGAL_GROUP"),
    ):
        with pytest.raises(NameRefused) as refused:
            await bench.broker.delivery.pop(request)
        assert refused.value.name == error


@pytest.mark.parametrize("seed", range(4))
async def test_unreliable_consumers_consume_everything_and_never_hold_one_message_twice(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    async with open_bench(tmp_path, max_in_flight=40) as bench:
        bench.broker.groups.create(GroupConfig("g", max_attempts=1_000))
        for number in range(300):
            await bench.send(str(number), queue_id=number % 4)
        held: dict[str, tuple[PoppedMessage, int]] = {}
        consumed: set[str] = set()
        while len(consumed) < 300:
            now_ms = bench.clock.now_ms()
            for popped in await bench.pop(max_messages=chance.randint(1, 32), invisible_ms=chance.randint(1, 50)):
                body = popped.message.body.decode()
                assert body not in consumed
                assert body not in held or held[body][1] <= now_ms
                held[body] = (popped, popped.handle.expires_ms)
            for body, (popped, _) in chance.sample(sorted(held.items(), key=_name), k=(len(held) + 1) // 2):
                if chance.random() < 0.7:
                    bench.ack(popped)
                    consumed.add(body)
                    del held[body]
                else:
                    later_ms = chance.randint(0, 30)
                    held[body] = (replace(popped, handle=bench.change(popped, later_ms)), now_ms + later_ms)
            bench.clock.advance_ms(chance.randint(0, 20))
        assert [bench.broker.queues.committed_offset("g", "t", queue_id) for queue_id in range(4)] == [75] * 4
        assert await bench.pop() == []


def _name(item: tuple[str, object]) -> str:
    return item[0]


# Waiting


async def test_a_waiting_pop_is_answered_by_the_next_message(bench: Bench) -> None:
    waiting = bench.waiting_pop()
    await settle()
    await bench.send("a", queue_id=3)
    assert bodies(await waiting) == ["a"]
    assert bench.broker.maintenance.waiting_requests == 0


async def test_a_wait_for_nothing_ends_in_time(bench: Bench) -> None:
    assert await bench.pop(wait_ms=20) == []


async def test_members_of_a_group_that_wait_share_what_arrives_and_lose_nothing(bench: Bench) -> None:
    members = [bench.waiting_pop(max_messages=2) for _ in range(4)]
    other = bench.waiting_pop("h", max_messages=32)
    await settle()
    await bench.send(*"abcdefgh")
    taken = [body for popped in await asyncio.gather(*members) for body in bodies(popped)]
    assert sorted(taken) == list("abcdefgh")
    assert bodies(await other) == list("abcdefgh")


async def test_a_member_that_goes_away_when_a_message_arrives_leaves_it_to_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves, stays = bench.waiting_pop(), bench.waiting_pop()
    await settle()
    wake = bench.broker._polls.wake
    monkeypatch.setattr(bench.broker._appender, "on_visible", lambda queues: None)
    await bench.send("a")
    wake([("t", 0)])
    leaves.cancel()
    assert bodies(await within_patience(stays)) == ["a"]


async def test_a_waiting_pop_is_answered_when_a_delivery_becomes_visible_again(tmp_path: Path) -> None:
    async with open_bench(tmp_path, real_time=True) as bench:
        await bench.send("a")
        await bench.pop(invisible_ms=30)
        (again,) = await within_patience(bench.waiting_pop())
        assert again.delivery_attempt == 2


async def test_a_waiting_pop_is_answered_when_another_member_gives_its_message_back(tmp_path: Path) -> None:
    async with open_bench(tmp_path, real_time=True) as bench:
        first, second = bench.waiting_pop(invisible_ms=20_000), bench.waiting_pop()
        await settle()
        await bench.send("a")
        (a,) = await first
        bench.change(a, 0)
        (again,) = await within_patience(second)
        assert again.delivery_attempt == 2


async def test_a_waiting_pop_is_answered_when_what_was_taken_meanwhile_expires(tmp_path: Path) -> None:
    async with open_bench(tmp_path, real_time=True) as bench:
        first, second = bench.waiting_pop(invisible_ms=30), bench.waiting_pop()
        await settle()
        await bench.send("a")
        assert attempts(await first) == [1]
        assert attempts(await within_patience(second)) == [2]


async def test_too_many_waiting_pops_are_refused(tmp_path: Path) -> None:
    async with open_bench(tmp_path, max_waiting_per_key=2) as bench:
        waiting = [bench.waiting_pop(), bench.waiting_pop()]
        await settle()
        with pytest.raises(ConsumeRefused) as refused:
            await bench.waiting_pop()
        assert refused.value.name == "TOO_MANY_REQUESTS"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert bench.broker.maintenance.waiting_requests == 0


# Dead letters


async def test_after_its_last_attempt_a_message_moves_to_the_dead_letter_topic(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("g", max_attempts=2))
    await bench.send("poison", "fine", TAGS="red", UNIQ_KEY="id-1", colour="dark")
    for attempt in (1, 2):
        popped = await bench.pop(invisible_ms=1_000)
        assert popped[0].delivery_attempt == attempt
        bench.ack(*[message for message in popped if message.message.body == b"fine"])
        bench.clock.advance_ms(1_000)
    assert await bench.pop() == []
    assert bench.broker.queues.committed_offset("g", "t", 0) == 2

    (dead,) = await bench.pop("undertaker", topic="%DLQ%g")
    assert dead.message.body == b"poison"
    assert dead.message.tag == "red"
    assert dead.message.user_properties == {"colour": "dark"}
    assert dead.message.properties["DLQ_ORIGIN_TOPIC"] == "t"
    assert dead.message.properties["DLQ_ORIGIN_MESSAGE_ID"] == "id-1"
    topic = bench.broker.topics.get("%DLQ%g")
    assert (topic.read_queues, topic.write_queues) == (1, 1)


async def test_the_origin_of_a_message_without_id_is_its_place_in_the_log(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("g", max_attempts=1))
    (receipt,) = await bench.send("poison")
    await bench.pop(invisible_ms=1_000)
    bench.clock.advance_ms(1_000)
    await bench.pop()
    (dead,) = await bench.pop("undertaker", topic="%DLQ%g")
    assert dead.message.properties["DLQ_ORIGIN_MESSAGE_ID"] == receipt.offset_message_id


async def fail_to_bury(self: object, group: str, message: object, attempts: int) -> None:
    raise StoreError("DISK_FULL", "No room.")


async def test_a_message_that_cannot_be_moved_stays_and_is_moved_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.broker.groups.create(GroupConfig("g", max_attempts=1))
    await bench.send("poison")
    await bench.pop(invisible_ms=1_000)
    bench.clock.advance_ms(1_000)

    with monkeypatch.context() as patch:
        patch.setattr("millstream.broker.pop.dead_letters.DeadLetterQueues.bury", fail_to_bury)
        assert await bench.pop() == []
    assert "stays with the group g" in caplog.text
    assert bench.broker.queues.committed_offset("g", "t", 0) == 0
    assert await bench.pop() == []
    bench.clock.advance_ms(BURIAL_MS)
    assert await bench.pop() == []
    assert bench.broker.queues.committed_offset("g", "t", 0) == 1
    assert bodies(await bench.pop("undertaker", topic="%DLQ%g")) == ["poison"]


async def test_a_consumer_can_move_its_delivery_to_the_dead_letter_topic(bench: Bench) -> None:
    await bench.send("poison", "other")
    poison, other = await bench.pop(invisible_ms=1_000)
    request = AckRequest("g", "t", poison.handle)
    await bench.broker.delivery.move_to_dead_letter(request)
    await bench.broker.delivery.move_to_dead_letter(request)
    bench.ack(other)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 2
    assert bodies(await bench.pop("undertaker", topic="%DLQ%g")) == ["poison"]


async def test_a_replaced_handle_moves_nothing_to_the_dead_letter_topic(bench: Bench) -> None:
    await bench.send("a")
    (a,) = await bench.pop()
    bench.change(a, 5_000)
    with pytest.raises(ConsumeRefused) as refused:
        await bench.broker.delivery.move_to_dead_letter(AckRequest("g", "t", a.handle))
    assert refused.value.name == "INVALID_RECEIPT_HANDLE"
    assert bench.broker.topics.find("%DLQ%g") is None


# Order


@pytest.fixture
def fifo(bench: Bench) -> Bench:
    bench.broker.groups.create(GroupConfig("g", fifo=True, max_attempts=3))
    return bench


async def test_a_fifo_group_gets_nothing_more_of_a_queue_until_its_batch_is_acknowledged(fifo: Bench) -> None:
    await fifo.send(*"abcd")
    a, b = await fifo.pop(max_messages=2)
    assert a.handle.revive_queue == FIFO_REVIVE_QUEUE
    assert await fifo.pop() == []
    fifo.ack(b)
    assert await fifo.pop() == []
    fifo.ack(a)
    assert bodies(await fifo.pop()) == ["c", "d"]


async def test_other_queues_of_a_fifo_group_are_not_held_back(fifo: Bench) -> None:
    await fifo.send("a", "b", queue_id=0)
    await fifo.send("c", queue_id=1)
    await fifo.pop(queue_id=0, max_messages=1)
    assert bodies(await fifo.pop()) == ["c"]


async def test_a_fifo_group_begins_again_at_the_first_that_is_not_acknowledged(fifo: Bench) -> None:
    await fifo.send(*"abcd")
    popped = await fifo.pop(max_messages=3, invisible_ms=1_000)
    fifo.ack(popped[1])
    fifo.clock.advance_ms(1_000)
    again = await fifo.pop(max_messages=2)
    assert bodies(again) == ["a", "c"]
    assert attempts(again) == [2, 2]
    assert await fifo.pop() == []
    fifo.ack(*again)
    assert bodies(await fifo.pop()) == ["d"]


async def test_a_fifo_redelivery_that_is_cut_short_does_not_let_later_messages_pass(fifo: Bench) -> None:
    await fifo.send(*"abcd")
    await fifo.pop(max_messages=3, invisible_ms=1_000)
    fifo.clock.advance_ms(1_000)
    (a,) = await fifo.pop(max_messages=1)
    assert a.message.body == b"a"
    assert await fifo.pop() == []
    fifo.ack(a)
    assert bodies(await fifo.pop()) == ["b", "c", "d"]


async def test_the_same_attempt_gets_the_same_batch_with_the_same_handles(fifo: Bench) -> None:
    await fifo.send("a", "b", queue_id=0)
    await fifo.send("c", queue_id=1)
    batch = await fifo.pop(attempt_id="one")
    assert sorted(bodies(batch)) == ["a", "b", "c"]
    await fifo.send("d", queue_id=2)
    again = await fifo.pop(attempt_id="one")
    assert {(m.handle, m.delivery_attempt) for m in again} == {(m.handle, m.delivery_attempt) for m in batch}
    assert bodies(await fifo.pop(attempt_id="two")) == ["d"]
    fifo.ack(*again)
    assert fifo.broker.queues.committed_offset("g", "t", 0) == 2


async def test_a_waiting_fifo_pop_is_answered_when_the_queue_is_free_again(fifo: Bench) -> None:
    await fifo.send("a", "b")
    (a,) = await fifo.pop(max_messages=1)
    waiting = fifo.waiting_pop()
    await settle()
    assert not waiting.done()
    fifo.ack(a)
    assert bodies(await within_patience(waiting)) == ["b"]


async def test_a_fifo_message_without_attempts_left_makes_way_for_the_next(fifo: Bench) -> None:
    await fifo.send("poison", "b")
    for _ in range(3):
        assert bodies(await fifo.pop(max_messages=1, invisible_ms=1_000)) == ["poison"]
        fifo.clock.advance_ms(1_000)
    assert bodies(await fifo.pop()) == ["b"]
    assert bodies(await fifo.pop("undertaker", topic="%DLQ%g")) == ["poison"]


async def test_a_fifo_message_that_cannot_be_moved_lets_none_pass(fifo: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await fifo.send("poison", "b")
    for _ in range(3):
        await fifo.pop(max_messages=1, invisible_ms=1_000)
        fifo.clock.advance_ms(1_000)
    with monkeypatch.context() as patch:
        patch.setattr("millstream.broker.pop.dead_letters.DeadLetterQueues.bury", fail_to_bury)
        assert await fifo.pop() == []
    assert await fifo.pop() == []
    fifo.clock.advance_ms(BURIAL_MS)
    assert bodies(await fifo.pop()) == ["b"]


async def test_messages_of_one_message_group_stay_in_order_over_many_sends(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("g", fifo=True))
    bench.broker.topics.create(TopicConfig("ordered", message_type=MessageType.FIFO))
    for number in range(20):
        for customer in ("ann", "bob", "eve"):
            await bench.send(f"{customer} {number}", topic="ordered", queue_id=None, __SHARDINGKEY=customer)
    seen: dict[str, list[int]] = {}
    while popped := await bench.pop(topic="ordered", max_messages=5):
        for message in popped:
            customer, place = message.message.body.decode().split()
            seen.setdefault(customer, []).append(int(place))
        bench.ack(*popped, topic="ordered")
    assert seen == {customer: list(range(20)) for customer in ("ann", "bob", "eve")}


def places(popped: list[PoppedMessage]) -> list[tuple[int, int, int]]:
    return [(one.handle.queue_id, one.handle.queue_offset, one.handle.pop_time_ms) for one in popped]


async def test_acknowledgements_that_come_together_end_as_they_would_one_by_one(bench: Bench) -> None:
    await bench.send(*"abcd")
    popped = await bench.pop(invisible_ms=1_000)
    first, second, third, fourth = places(popped)
    delivery = bench.broker.delivery
    assert delivery.ack_all("g", "t", [second, first, second]) == {}
    assert bench.broker.queues.committed_offset("g", "t", 0) == 2
    bench.clock.advance_ms(1_000)
    errors = delivery.ack_all("g", "t", [third, (7, 0, third[2]), (0, 99, third[2]), first])
    assert errors is not None
    assert {position: error.name for position, error in errors.items()} == dict.fromkeys(
        (0, 1, 2), "INVALID_RECEIPT_HANDLE"
    )
    assert "ended 0 ms ago" in str(errors[0])
    assert "took nothing from queue 7" in str(errors[1])
    assert bodies(await bench.pop()) == ["c", "d"]
    errors = delivery.ack_all("g", "t", [fourth])
    assert errors is not None
    assert "was replaced" in str(errors[0])


async def test_acknowledgements_that_come_together_wake_who_waits_for_a_full_queue(tmp_path: Path) -> None:
    async with open_bench(tmp_path, max_in_flight=3) as bench:
        await bench.send(*"abcdef")
        popped = await bench.pop(queue_id=0)
        assert bodies(popped) == ["a", "b", "c"]
        waiting = bench.waiting_pop(queue_id=0)
        await settle()
        assert bench.broker.delivery.ack_all("g", "t", places(popped)) == {}
        assert bodies(await within_patience(waiting)) == ["d", "e", "f"]


async def test_acknowledgements_that_come_together_free_the_lines_of_a_group_that_keeps_order(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("ordered", fifo=True))
    await bench.send("a", "b")
    popped = await bench.pop("ordered", max_messages=1)
    waiting = bench.waiting_pop("ordered")
    await settle()
    assert not waiting.done()
    assert bench.broker.delivery.ack_all("ordered", "t", places(popped)) == {}
    assert bodies(await within_patience(waiting)) == ["b"]
