"""What backends do with deliveries: pops, acknowledgements, changes of the invisible time, dead letters."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from contract_ground import Ground, outgoing, refused

from millstream.model.filter import parse_tag_filter
from millstream.model.group import GroupConfig
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage
from millstream.model.sql_filter import parse_filter
from millstream.model.topic import MessageType, Permission, TopicConfig

BROKER = "broker-a"


def bodies(popped: list[PoppedMessage]) -> list[bytes]:
    return [one.message.body for one in popped]


async def test_a_message_is_received_whole(ground: Ground) -> None:
    await ground.send("orders", b"body", TAGS="a", KEYS="k", mine="yes")
    (popped,) = await ground.pop()
    message, handle = popped.message, popped.handle
    assert (message.topic, message.body, message.tag, message.keys) == ("orders", b"body", "a", ("k",))
    assert (message.user_properties, message.store_timestamp_ms) == ({"mine": "yes"}, ground.clock.now_ms())
    assert (handle.broker_name, handle.queue_id, handle.queue_offset) == (BROKER, message.queue_id, 0)
    assert (handle.pop_time_ms, handle.invisible_ms) == (ground.clock.now_ms(), 30_000)
    assert (handle.log_offset, popped.delivery_attempt) == (message.log_offset, 1)


async def test_what_is_held_is_out_of_sight_and_comes_again_with_one_attempt_more(ground: Ground) -> None:
    await ground.send("orders", b"x")
    (first,) = await ground.pop()
    assert await ground.pop() == []
    ground.clock.advance_ms(30_000)
    (again,) = await ground.pop()
    assert again.delivery_attempt == 2
    assert again.handle != first.handle
    assert await refused(ground.backend.ack(AckRequest("g", "orders", first.handle))) == "INVALID_RECEIPT_HANDLE"
    await ground.backend.ack(AckRequest("g", "orders", again.handle))


async def test_a_handle_whose_time_is_over_is_refused_to_who_wants_that_and_the_message_comes_again(
    ground: Ground,
) -> None:
    await ground.send("orders", b"x")
    (popped,) = await ground.pop()
    backend, handle = ground.backend, popped.handle
    await backend.change_invisible(ChangeInvisibleRequest("g", "orders", handle, 30_000, renewal=True, in_time=True))
    ground.clock.advance_ms(29_999)
    change = ChangeInvisibleRequest("g", "orders", handle, 30_000, in_time=True)
    ground.clock.advance_ms(1)
    assert await refused(backend.ack(AckRequest("g", "orders", handle, in_time=True))) == "INVALID_RECEIPT_HANDLE"
    assert await refused(backend.change_invisible(change)) == "INVALID_RECEIPT_HANDLE"
    (again,) = await ground.pop()
    assert again.delivery_attempt == 2
    ground.clock.advance_ms(29_999)
    for _ in range(2):
        await backend.ack(AckRequest("g", "orders", again.handle, in_time=True))


async def test_new_and_returning_messages_can_come_together(ground: Ground) -> None:
    ground.create("single", queues=1)
    await ground.send("single", b"old")
    await ground.pop("single")
    ground.clock.advance_ms(30_000)
    await ground.send("single", b"new")
    popped = await ground.pop("single")
    assert [(one.message.body, one.delivery_attempt) for one in popped] == [(b"old", 2), (b"new", 1)]
    for one in popped:
        await ground.backend.ack(AckRequest("g", "single", one.handle))
    ground.clock.advance_ms(30_000)
    assert await ground.pop("single") == []


async def test_what_is_acknowledged_does_not_come_again_and_may_be_acknowledged_twice(ground: Ground) -> None:
    await ground.send("orders", b"1", b"2", b"3")
    one, two, three = await ground.pop()
    await ground.backend.ack(AckRequest("g", "orders", two.handle))
    await ground.backend.ack(AckRequest("g", "orders", two.handle))
    ground.clock.advance_ms(30_000)
    assert bodies(await ground.pop()) == [b"1", b"3"]
    assert await refused(ground.backend.ack(AckRequest("g", "orders", one.handle))) == "INVALID_RECEIPT_HANDLE"
    assert await refused(ground.backend.ack(AckRequest("other", "orders", three.handle))) == "INVALID_RECEIPT_HANDLE"
    elsewhere = replace(three.handle, broker_name="broker-z")
    assert await refused(ground.backend.ack(AckRequest("g", "orders", elsewhere))) == "INVALID_RECEIPT_HANDLE"


async def test_a_changed_delivery_has_another_handle_and_another_time(ground: Ground) -> None:
    await ground.send("orders", b"x")
    (popped,) = await ground.pop()
    ground.clock.advance_ms(10_000)
    changed = await ground.backend.change_invisible(ChangeInvisibleRequest("g", "orders", popped.handle, 60_000))
    assert (changed.pop_time_ms, changed.invisible_ms) == (ground.clock.now_ms(), 60_000)
    assert await refused(ground.backend.ack(AckRequest("g", "orders", popped.handle))) == "INVALID_RECEIPT_HANDLE"
    ground.clock.advance_ms(59_000)
    assert await ground.pop() == []
    ground.clock.advance_ms(1_000)
    (again,) = await ground.pop()
    assert again.delivery_attempt == 2


async def test_a_delivery_can_be_let_go_at_once_and_suspended_without_an_attempt(ground: Ground) -> None:
    await ground.send("orders", b"x")
    (first,) = await ground.pop()
    await ground.backend.change_invisible(ChangeInvisibleRequest("g", "orders", first.handle, 0))
    (second,) = await ground.pop()
    assert second.delivery_attempt == 2
    await ground.backend.change_invisible(ChangeInvisibleRequest("g", "orders", second.handle, 0, suspend=True))
    (third,) = await ground.pop()
    assert third.delivery_attempt == 2


async def test_a_renewed_delivery_can_be_acknowledged_with_the_old_handle(ground: Ground) -> None:
    await ground.send("orders", b"x")
    (popped,) = await ground.pop()
    ground.clock.advance_ms(10_000)
    request = ChangeInvisibleRequest("g", "orders", popped.handle, 60_000, renewal=True)
    renewed = await ground.backend.change_invisible(request)
    assert renewed != popped.handle
    await ground.backend.ack(AckRequest("g", "orders", popped.handle))
    ground.clock.advance_ms(60_000)
    assert await ground.pop() == []


async def test_invisible_times_out_of_range_are_refused(ground: Ground) -> None:
    assert await refused(ground.pop(invisible_ms=0)) == "ILLEGAL_INVISIBLE_TIME"
    await ground.send("orders", b"x")
    (popped,) = await ground.pop()
    change = ChangeInvisibleRequest("g", "orders", popped.handle, 13 * 3600 * 1000)
    assert await refused(ground.backend.change_invisible(change)) == "ILLEGAL_INVISIBLE_TIME"
    gone = replace(popped.handle, queue_offset=77)
    change = ChangeInvisibleRequest("g", "orders", gone, 1000)
    assert await refused(ground.backend.change_invisible(change)) == "INVALID_RECEIPT_HANDLE"


async def test_a_pop_takes_no_more_than_it_asks_for_and_from_one_queue_if_it_says_so(ground: Ground) -> None:
    for number in range(4):
        await ground.send("orders", b"%d" % number)
    assert len(await ground.pop(max_messages=3)) == 3
    (last,) = await ground.pop()
    ground.create("wide", queues=4)
    for number in range(8):
        await ground.send("wide", b"%d" % number)
    found = await ground.pop("wide", queue_id=2)
    assert {one.message.queue_id for one in found} == {2}
    assert len(found) == 2
    assert last.delivery_attempt == 1


async def test_a_pop_takes_what_its_filter_wants(ground: Ground) -> None:
    await ground.send("orders", b"1", TAGS="a", size="3")
    await ground.send("orders", b"2", TAGS="b", size="9")
    assert bodies(await ground.pop(filter=parse_tag_filter("b||c"))) == [b"2"]
    assert bodies(await ground.pop(group="other", filter=parse_filter("SQL92", "size < 5"))) == [b"1"]


async def test_a_pop_waits_and_what_comes_wakes_it(ground: Ground) -> None:
    popping = asyncio.create_task(ground.pop(wait_ms=20_000))
    await ground.someone_waits()
    await ground.send("orders", b"late")
    assert bodies(await popping) == [b"late"]


async def test_a_pop_that_waits_in_vain_is_empty(ground: Ground) -> None:
    assert await ground.pop(wait_ms=30) == []


async def test_a_cancelled_pop_takes_nothing(ground: Ground) -> None:
    popping = asyncio.create_task(ground.pop(wait_ms=20_000))
    await ground.someone_waits()
    popping.cancel()
    await asyncio.gather(popping, return_exceptions=True)
    await ground.send("orders", b"x")
    found = await ground.pop(wait_ms=5_000)
    assert [(one.message.body, one.delivery_attempt) for one in found] == [(b"x", 1)]


async def test_pops_that_cannot_be_are_refused_by_name(ground: Ground) -> None:
    assert await refused(ground.pop("missing")) == "TOPIC_NOT_FOUND"
    assert await refused(ground.pop(queue_id=9)) == "QUEUE_NOT_FOUND"
    assert await refused(ground.pop(group="no group")) == "ILLEGAL_GROUP"
    ground.broker.groups.create(GroupConfig("off", enabled=False))
    assert await refused(ground.pop(group="off")) == "GROUP_DISABLED"
    ground.broker.topics.create(TopicConfig("deaf", permission=Permission.WRITE))
    assert await refused(ground.pop("deaf")) == "FORBIDDEN"


async def test_a_fifo_group_gets_a_message_group_in_order_and_an_attempt_again(ground: Ground) -> None:
    ground.create("ordered", MessageType.FIFO)
    ground.broker.groups.create(GroupConfig("strict", fifo=True))
    for body in (b"1", b"2", b"3"):
        await ground.backend.send([outgoing("ordered", body, MessageType.FIFO, __SHARDINGKEY="g")])
    first = await ground.pop("ordered", "strict", max_messages=2, attempt_id="one")
    assert bodies(first) == [b"1", b"2"]
    again = await ground.pop("ordered", "strict", max_messages=2, attempt_id="one")
    assert [(one.message.body, one.delivery_attempt) for one in again] == [(b"1", 1), (b"2", 1)]
    assert await ground.pop("ordered", "strict", attempt_id="two") == []
    for one in again:
        await ground.backend.ack(AckRequest("strict", "ordered", one.handle))
    assert bodies(await ground.pop("ordered", "strict", attempt_id="three")) == [b"3"]


async def test_a_dead_letter_moves_to_the_groups_own_topic(ground: Ground) -> None:
    await ground.send("orders", b"bad", mine="yes")
    (popped,) = await ground.pop()
    await ground.backend.dead_letter(AckRequest("g", "orders", popped.handle))
    await ground.backend.dead_letter(AckRequest("g", "orders", popped.handle))
    ground.clock.advance_ms(60_000)
    assert await ground.pop() == []
    (buried,) = await ground.pop("%DLQ%g", "undertaker")
    assert (buried.message.body, buried.message.user_properties) == (b"bad", {"mine": "yes"})
    assert buried.message.properties["DLQ_ORIGIN_TOPIC"] == "orders"
    gone = AckRequest("g", "orders", replace(popped.handle, queue_offset=77))
    assert await refused(ground.backend.dead_letter(gone)) == "INVALID_RECEIPT_HANDLE"


async def test_a_message_without_attempts_left_is_buried_by_the_broker(ground: Ground) -> None:
    ground.broker.groups.create(GroupConfig("hasty", max_attempts=1))
    await ground.send("orders", b"bad")
    await ground.pop(group="hasty")
    ground.clock.advance_ms(30_000)
    assert await ground.pop(group="hasty") == []
    (buried,) = await ground.pop("%DLQ%hasty", "undertaker")
    assert buried.message.body == b"bad"
