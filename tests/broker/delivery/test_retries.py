"""What consumers give back: when it comes again, under which name, and where it goes after its last attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_bench import Bench, open_bench

from millstream.broker.queues.queue_locks import LockedQueue
from millstream.model.errors import ConsumeRefused, MessageRefused, NameRefused
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.operations import PullRequest, SendBackRequest
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from millstream.protocol.remoting.messages.batch import encode_batch_item

GROUP = GroupConfig("g", max_attempts=3)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "data") as opened:
        opened.broker.groups.create(GROUP)
        # Its rounds are run by `after` alone.
        await opened.broker.maintenance.timers._task.close()
        yield opened


async def stored(bench: Bench, topic: str) -> list[StoredMessage]:
    if bench.broker.topics.find(topic) is None:
        return []
    found = await bench.broker.queues.pull(PullRequest("g", topic, 0, 0, max_messages=100))
    return [decode_record(record) for record in found.records]


async def give_back(bench: Bench, message: StoredMessage, level: int = 0, limit: int | None = None) -> None:
    request = SendBackRequest("g", message.log_offset, level, message.message_id, limit, topics=("t",))
    await bench.broker.delivery.send_back(request)


async def after(bench: Bench, seconds: float) -> list[StoredMessage]:
    """What lies in the retry topic so many seconds later."""
    bench.clock.advance_ms(int(seconds * 1000))
    while await bench.broker.maintenance.timers._round():
        pass
    return await stored(bench, "%RETRY%g")


async def test_a_message_comes_again_after_its_delay_with_its_origin_and_one_delivery_more(bench: Bench) -> None:
    held = {"UNIQ_KEY": "ID", "TAGS": "a", "KEYS": "k", "DELAY": "0", "own": "x"}
    [receipt] = await bench.send("hello", **held)
    [message] = await stored(bench, "t")
    await give_back(bench, message)
    assert await after(bench, 9.9) == []
    [first] = await after(bench, 0.2)
    assert (first.body, first.reconsume_times, first.topic) == (b"hello", 1, "%RETRY%g")
    kept = {name: first.properties[name] for name in ("UNIQ_KEY", "TAGS", "KEYS", "own")}
    assert kept == {name: held[name] for name in kept}
    assert first.properties["RETRY_TOPIC"] == "t"
    assert first.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_message_id
    assert "DELAY" not in first.properties
    assert (first.born_timestamp_ms, first.born_host) == (message.born_timestamp_ms, message.born_host)
    await give_back(bench, first)
    assert len(await after(bench, 29)) == 1
    second = (await after(bench, 2))[1]
    assert (second.reconsume_times, second.properties["RETRY_TOPIC"]) == (2, "t")
    assert second.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_message_id


async def test_after_the_last_attempt_a_message_is_a_dead_letter_of_its_own_topic(bench: Bench) -> None:
    await bench.send("bad", UNIQ_KEY="ID")
    [message] = await stored(bench, "t")
    for _ in range(GROUP.max_attempts - 1):
        await give_back(bench, message)
        message = (await after(bench, 60))[-1]
    await give_back(bench, message)
    [dead] = await stored(bench, "%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"bad", 3)
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "t"
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == "ID"
    assert dead.properties["__DLQ_REASON"] == "attempts used up"
    assert len(await after(bench, 7200)) == 2


async def test_a_consumer_may_give_a_message_up_or_have_a_limit_of_its_own(bench: Bench) -> None:
    await bench.send("1", "2", "3")
    up, at_once, longer = await stored(bench, "t")
    await give_back(bench, up, level=-1)
    await give_back(bench, at_once, limit=0)
    await give_back(bench, longer, level=1, limit=9)
    [copy] = await after(bench, 1)
    await give_back(bench, copy, level=1, limit=9)
    [_, copy] = await after(bench, 1)
    await give_back(bench, copy, level=1, limit=9)
    assert (await after(bench, 1))[-1].reconsume_times == 3
    dead = await stored(bench, "%DLQ%g")
    assert [one.properties["__DLQ_REASON"] for one in dead] == ["given up by the consumer", "attempts used up"]
    # None of them has an id of its own: the one of its first record stands for it.
    assert [len(one.properties["DLQ_ORIGIN_MESSAGE_ID"]) for one in dead] == [32, 32]


async def test_a_group_whose_backoff_begins_at_once_has_the_message_again_at_once(bench: Bench) -> None:
    bench.broker.groups.update(GroupConfig("g", backoff_s=(0,)))
    await bench.send("again")
    await give_back(bench, (await stored(bench, "t"))[0])
    assert [message.body for message in await stored(bench, "%RETRY%g")] == [b"again"]


async def test_only_what_the_group_may_have_got_can_be_given_back(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("secret"))
    await bench.send("hidden", topic="secret")
    [message] = await stored(bench, "secret")
    for log_offset in (message.log_offset, message.log_offset + 1, -1, 1 << 40):
        with pytest.raises(ConsumeRefused, match="none of its messages is"):
            await bench.broker.delivery.send_back(SendBackRequest("g", log_offset, topics=("t",)))
    assert bench.broker.topics.find("%RETRY%g") is None


async def test_of_a_batch_the_message_that_is_named_comes_again_alone(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("b", attributes={"queue.type": "BatchCQ"}))
    items = b"".join(encode_batch_item(name.encode(), {"UNIQ_KEY": f"ID{name}"}) for name in "12")
    flags = SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP
    batch = OutgoingMessage("b", items, {"UNIQ_KEY": "B"}, queue_id=0, system_flag=flags, message_count=2)
    [receipt] = await bench.broker.delivery.send([batch])
    await bench.broker.delivery.send_back(SendBackRequest("g", receipt.log_offset, 1, "ID2", topics=("b",)))
    with pytest.raises(ConsumeRefused):
        await bench.broker.delivery.send_back(SendBackRequest("g", receipt.log_offset, 1, "ID3", topics=("b",)))
    [copy] = await after(bench, 1)
    assert (copy.body, copy.message_id, copy.system_flag) == (b"2", "ID2", SystemFlag.NONE)


def own_copy(times: int, **held: str) -> OutgoingMessage:
    properties = {"RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": "FIRST", **held}
    return OutgoingMessage("%RETRY%g", b"own", properties, queue_id=0, reconsume_times=times)


@pytest.mark.parametrize(("level", "seconds"), [("3", 10), ("18", 7200), ("20", 7200), ("0", 0), (None, 0)])
async def test_a_copy_that_a_consumer_sends_itself_waits_for_its_level(
    bench: Bench, level: str | None, seconds: int
) -> None:
    held = {} if level is None else {"DELAY": level}
    receipt = await bench.broker.delivery.send_retry(own_copy(1, **held, TRAN_MSG="true", __SHARDINGKEY="s"), None)
    assert receipt.log_offset >= 0
    if seconds:
        assert await after(bench, seconds - 1) == []
    [copy] = await after(bench, 1)
    assert (copy.reconsume_times, copy.properties["RETRY_TOPIC"]) == (1, "t")
    assert "DELAY" not in copy.properties
    assert "TRAN_MSG" not in copy.properties


async def test_a_copy_over_the_limit_or_of_an_ordered_group_is_a_dead_letter(bench: Bench) -> None:
    await bench.broker.delivery.send_retry(own_copy(2), None)
    await bench.broker.delivery.send_retry(own_copy(3), None)
    await bench.broker.delivery.send_retry(own_copy(3), 3)
    assert len(await after(bench, 0)) == 2
    [dead] = await stored(bench, "%DLQ%g")
    assert (dead.reconsume_times, dead.properties["DLQ_ORIGIN_TOPIC"]) == (3, "t")
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == "FIRST"
    bench.broker.groups.lock_queues("g", "c", [LockedQueue("t", "b", 0)])
    await bench.broker.delivery.send_retry(own_copy(1), None)
    assert len(await after(bench, 0)) == 2
    bench.clock.advance_ms(61_000)
    await bench.broker.delivery.send_retry(own_copy(1), None)
    assert len(await after(bench, 0)) == 3


async def test_a_copy_that_cannot_be_stored_is_refused(bench: Bench) -> None:
    with pytest.raises(MessageRefused, match="limit"):
        await bench.broker.delivery.send_retry(OutgoingMessage("%RETRY%g", b"x" * (4 * 1024 * 1024 + 1), {}), None)
    with pytest.raises(MessageRefused):
        await bench.broker.delivery.send_retry(own_copy(1, DELAY="soon"), None)


async def test_where_groups_are_made_by_hand_an_unknown_one_is_told(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "data", auto_create_groups=False) as bench:
        [receipt] = await bench.send("hello")
        with pytest.raises(NameRefused):
            await bench.broker.delivery.send_back(SendBackRequest("nobody", receipt.log_offset, topics=("t",)))
        with pytest.raises(NameRefused):
            await bench.broker.delivery.send_retry(OutgoingMessage("%RETRY%nobody", b"x", {}), None)


async def test_a_message_of_any_type_of_topic_may_come_again(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("tx", MessageType.MIXED))
    await bench.send("ordered", topic="tx", __SHARDINGKEY="s")
    [message] = await stored(bench, "tx")
    await bench.broker.delivery.send_back(SendBackRequest("g", message.log_offset, 1, topics=("tx",)))
    [copy] = await after(bench, 1)
    assert copy.properties["__SHARDINGKEY"] == "s"
