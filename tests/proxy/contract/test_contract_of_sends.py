"""What backends do with messages on their way in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contract_ground import Ground, outgoing, refused

from millstream.model.message import Address, StoredMessage, SystemFlag
from millstream.model.operations import PullRequest
from millstream.model.topic import MessageType
from millstream.protocol.record import decode_record

DAY_MS = 24 * 3600 * 1000


async def stored(ground: Ground, topic: str, queues: int = 2) -> list[StoredMessage]:
    """All messages of a topic, queue by queue."""
    found: list[StoredMessage] = []
    for broker in ground.brokers:
        for queue_id in range(queues):
            result = await broker.queues.pull(PullRequest("g", topic, queue_id, 0))
            found += [decode_record(record) for record in result.records]
    return found


async def test_a_message_is_stored_as_it_was_given(ground: Ground) -> None:
    sent = replace(
        outgoing("orders", "é".encode(), TAGS="a", KEYS="k1 k2", näme="wért", empty=""),
        flag=7,
        system_flag=SystemFlag.COMPRESSED,
        born_host=Address("192.0.2.7", 4711),
    )
    (receipt,) = await ground.backend.send([sent])
    (found,) = await stored(ground, "orders")
    assert (found.body, found.properties) == (sent.body, sent.properties)
    assert (found.flag, found.system_flag) == (7, SystemFlag.COMPRESSED)
    assert (found.born_timestamp_ms, found.born_host) == (sent.born_timestamp_ms, sent.born_host)
    assert (receipt.message_id, receipt.queue_id) == (found.message_id, found.queue_id)
    assert (receipt.queue_offset, receipt.log_offset) == (found.queue_offset, found.log_offset)
    assert (receipt.broker_name, receipt.due_ms) == ("broker-a", None)


async def test_a_message_from_an_ipv6_address_keeps_it(ground: Ground) -> None:
    await ground.backend.send([replace(outgoing("orders"), born_host=Address("2001:db8::1", 5))])
    (found,) = await stored(ground, "orders")
    assert found.born_host == Address("2001:db8::1", 5)


async def test_messages_of_one_send_lie_in_order_and_are_all_told_where(ground: Ground) -> None:
    messages = [outgoing("orders", f"{number}".encode(), number=f"{number}") for number in range(5)]
    receipts = await ground.backend.send(messages)
    found = await stored(ground, "orders")
    assert [(one.body, one.properties) for one in found] == [(one.body, one.properties) for one in messages]
    assert [(one.queue_id, one.queue_offset, one.log_offset, one.message_id) for one in receipts] == [
        (one.queue_id, one.queue_offset, one.log_offset, one.message_id) for one in found
    ]


async def test_sends_take_the_queues_in_turn(ground: Ground) -> None:
    for _ in range(4):
        await ground.send("orders", b"x")
    assert sorted(one.queue_id for one in await stored(ground, "orders")) == [0, 0, 1, 1]


async def test_a_message_group_has_one_queue_however_it_is_sent(ground: Ground) -> None:
    ground.create("ordered", MessageType.FIFO, queues=4)
    group = {"__SHARDINGKEY": "customer-7"}
    for number in range(3):
        await ground.backend.send([outgoing("ordered", b"%d" % number, MessageType.FIFO, **group)])
    batch = [outgoing("ordered", b"3", MessageType.FIFO, **group), outgoing("ordered", b"4", MessageType.FIFO, **group)]
    await ground.backend.send(batch)
    found = await stored(ground, "ordered", 4)
    assert [one.body for one in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert len({one.queue_id for one in found}) == 1


async def test_messages_of_several_groups_in_one_send_are_told_their_own_places(ground: Ground) -> None:
    ground.create("ordered", MessageType.FIFO, queues=4)
    batch = [outgoing("ordered", b"x", MessageType.FIFO, __SHARDINGKEY=f"g{number}") for number in range(8)]
    receipts = await ground.backend.send(batch)
    places = {one.message_id: (one.queue_id, one.queue_offset) for one in await stored(ground, "ordered", 4)}
    assert len({queue for queue, _ in places.values()}) > 1, "the groups share no queue"
    assert {one.message_id: (one.queue_id, one.queue_offset) for one in receipts} == places


async def test_a_priority_chooses_its_queue(ground: Ground) -> None:
    ground.create("urgent", MessageType.PRIORITY, queues=3)
    (receipt,) = await ground.backend.send([outgoing("urgent", b"x", MessageType.PRIORITY, _SYS_MSG_PRIORITY_="2")])
    assert receipt.queue_id == 2


async def test_delayed_messages_say_when_they_are_due_and_can_be_recalled_once(ground: Ground) -> None:
    ground.create("later", MessageType.DELAY)
    due_ms = ground.clock.now_ms() + 60_000
    delayed = [outgoing("later", b"x", MessageType.DELAY, TIMER_DELIVER_MS=str(due_ms)) for _ in range(2)]
    alone = await ground.backend.send(delayed[:1])
    both = await ground.backend.send([delayed[1], outgoing("later", b"y", MessageType.DELAY, TIMER_DELIVER_MS="1")])
    assert [one.due_ms for one in [*alone, *both]] == [due_ms, due_ms, None]
    await ground.backend.recall("broker-a", "later", alone[0].message_id)
    recall = ground.backend.recall
    assert await refused(recall("broker-a", "later", alone[0].message_id)) == "MESSAGE_NOT_FOUND"
    assert await refused(recall("broker-a", "missing", "x")) == "TOPIC_NOT_FOUND"
    assert await refused(recall("broker-z", "later", "x")) == "QUEUE_NOT_FOUND"


@pytest.mark.parametrize(
    ("name", "body", "held"),
    [
        ("BODY_EMPTY", b"", {}),
        ("BODY_TOO_LARGE", bytes(4 * 1024 * 1024 + 1), {}),
        ("PROPERTIES_TOO_LARGE", b"x", {"mine": "x" * 40_000}),
        ("PROPERTIES_TOO_LARGE", b"x", {"mine": "x" * 32_000}),
        ("PROPERTIES_TOO_LARGE", b"x", {"mine": '"' * 32_000}),
        ("ILLEGAL_PROPERTY", b"x", {"mine": "a\x01b"}),
        ("ILLEGAL_PROPERTY", b"x", {"mine": "a\x02b"}),
        ("ILLEGAL_PROPERTY", b"x", {"mine": "\ud800"}),
        ("ILLEGAL_MESSAGE_GROUP", b"x", {"__SHARDINGKEY": " "}),
        ("MESSAGE_TYPE_MISMATCH", b"x", {"__SHARDINGKEY": "g"}),
        ("ILLEGAL_DELIVERY_TIME", b"x", {"TIMER_DELIVER_MS": str(2_000_000_000_000)}),
    ],
)
async def test_what_is_refused_has_the_same_name_alone_and_in_company(
    ground: Ground, name: str, body: bytes, held: dict[str, str]
) -> None:
    topic, kind = "orders", MessageType.NORMAL
    if name == "ILLEGAL_MESSAGE_GROUP":
        topic, kind = "ordered", MessageType.FIFO
    if name == "ILLEGAL_DELIVERY_TIME":
        topic, kind = "later", MessageType.DELAY
    if topic != "orders":
        ground.create(topic, kind)
    bad = outgoing(topic, body, kind, **held)
    assert await refused(ground.backend.send([bad])) == name
    good = outgoing(topic, b"good", kind, **{name: value for name, value in held.items() if name == "TIMER_DELIVER_MS"})
    assert await refused(ground.backend.send([good, bad])) == name
    assert await stored(ground, topic) == []


async def test_what_a_sender_calls_its_message_counts_where_its_properties_say_nothing(ground: Ground) -> None:
    ground.create("ordered", MessageType.FIFO)
    nameless = outgoing("ordered", b"x", MessageType.FIFO)
    assert await refused(ground.backend.send([nameless])) == "ILLEGAL_MESSAGE_GROUP"
    assert await refused(ground.backend.send([nameless, nameless])) == "ILLEGAL_MESSAGE_GROUP"


async def test_sends_to_what_is_not_there_or_is_not_to_be_written_are_refused(ground: Ground) -> None:
    assert await refused(ground.backend.send([outgoing("missing")])) == "TOPIC_NOT_FOUND"
    assert await refused(ground.backend.send([])) == "MESSAGE_MALFORMED"
    assert await refused(ground.backend.send([outgoing("orders"), outgoing("other")])) == "MESSAGE_MALFORMED"


async def test_properties_that_escapes_make_long_still_travel(ground: Ground) -> None:
    await ground.backend.send([outgoing("orders", b"x", mine='"' * 15_000, other="\\" * 1_000)])
    (found,) = await stored(ground, "orders")
    assert found.properties["mine"] == '"' * 15_000
