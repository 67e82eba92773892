"""Send: which queue a message goes to, and what its sender is told."""

from __future__ import annotations

import pytest
from broker_bench import Bench

from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.filter import java_hash_code
from millstream.model.message import OutgoingMessage
from millstream.model.topic import MessageType, TopicConfig


async def test_a_receipt_says_where_the_message_is(bench: Bench) -> None:
    first, second = await bench.send("a", "b", queue_id=2, UNIQ_KEY="id-1")
    assert (first.message_id, first.queue_id, first.queue_offset) == ("id-1", 2, 0)
    assert (second.queue_offset, second.store_timestamp_ms) == (1, bench.clock.now_ms())
    assert first.offset_message_id == f"7F00000100002A9F{first.log_offset:016X}"
    assert second.offset_message_id == f"7F00000100002A9F{second.log_offset:016X}"


async def test_calls_take_the_queues_in_turn_and_one_call_stays_together(bench: Bench) -> None:
    queues = []
    for _ in range(5):
        receipts = await bench.send("a", "b", queue_id=None)
        assert receipts[0].queue_id == receipts[1].queue_id
        queues.append(receipts[0].queue_id)
    assert queues == [0, 1, 2, 3, 0]


async def test_a_message_group_has_a_queue_of_its_own(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("ordered", MessageType.FIFO, write_queues=3, read_queues=3))
    for group in ("ann", "bob", "eve", "zoë"):
        for _ in range(2):
            (receipt,) = await bench.send("x", topic="ordered", queue_id=None, __SHARDINGKEY=group)
            assert receipt.queue_id == java_hash_code(group) % 3


async def test_a_queue_that_the_sender_names_is_taken(bench: Bench) -> None:
    (receipt,) = await bench.send("x", queue_id=3)
    assert receipt.queue_id == 3


async def test_nothing_of_a_send_is_stored_if_one_message_is_refused(bench: Bench) -> None:
    good = OutgoingMessage("t", b"x", {}, queue_id=0)
    with pytest.raises(MessageRefused) as refused:
        await bench.broker.delivery.send([good, OutgoingMessage("t", b"", {}, queue_id=0)])
    assert refused.value.name == "BODY_EMPTY"
    assert bench.broker.queues.ranges("t")[0].max_offset == 0


async def test_a_send_without_messages_or_topic_is_refused(bench: Bench) -> None:
    with pytest.raises(MessageRefused) as empty:
        await bench.broker.delivery.send([])
    assert empty.value.name == "MESSAGE_MALFORMED"
    with pytest.raises(NameRefused) as missing:
        await bench.send("x", topic="nowhere")
    assert missing.value.name == "TOPIC_NOT_FOUND"
