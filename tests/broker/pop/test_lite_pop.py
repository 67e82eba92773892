"""Lite topics over a real store: made at their first message, in order, read by those who subscribed, gone in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker_bench import Bench, attempts, bodies, open_bench, settle

from millstream.broker.pop import lite_topics as lite_expiry_module
from millstream.broker.pop import lite_topics as lite_topics_module
from millstream.broker.pop.lite_topics import EMPTY_AFTER_MS
from millstream.model.errors import ConsumeRefused, MessageRefused, NameRefused, Refused
from millstream.model.group import GroupConfig
from millstream.model.handles import ReceiptHandle
from millstream.model.lite import LiteAction, LiteStart, LiteStartKind, LiteSync, lite_queue
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage, PopRequest
from millstream.model.topic import MessageType, TopicConfig
from patience import within_patience

MINUTE_MS = 60_000
LAST = LiteStart()


@dataclass
class LiteBench:
    """A bench whose topic `t` is of type LITE."""

    bench: Bench

    async def send(self, lite_topic: str, *bodies: str) -> None:
        await self.bench.send(*bodies, queue_id=None, __LITE_TOPIC=lite_topic)

    def sync(
        self,
        action: LiteAction,
        *lite_topics: str,
        client: str = "c",
        group: str = "g",
        start: LiteStart = LAST,
        topic: str = "t",
    ) -> list[tuple[str, str]]:
        return self.bench.broker.delivery.sync_lite_subscription(
            LiteSync(client, group, topic, action, lite_topics, start)
        )

    def subscribe(self, *lite_topics: str, client: str = "c", group: str = "g") -> list[tuple[str, str]]:
        return self.sync(LiteAction.PARTIAL_ADD, *lite_topics, client=client, group=group)

    async def pop(self, client: str = "c", group: str = "g", **more: int | str) -> list[PoppedMessage]:
        return await self.bench.pop(group, client_id=client, **more)

    def waiting_pop(self, client: str = "c", group: str = "g") -> asyncio.Task[list[PoppedMessage]]:
        return self.bench.waiting_pop(group, client_id=client)

    async def drain(self, client: str = "c", group: str = "g") -> list[str]:
        """All that the client can get, acknowledged."""
        found: list[str] = []
        while popped := await self.pop(client, group):
            found.extend(bodies(popped))
            self.bench.ack(*popped, group=group)
        return found


@pytest.fixture
async def lite(tmp_path: Path) -> AsyncIterator[LiteBench]:
    async with open_bench(tmp_path, takes=MessageType.LITE) as bench:
        yield LiteBench(bench)


# Receiving


async def test_a_client_gets_the_messages_of_the_lite_topics_that_it_subscribed_to(lite: LiteBench) -> None:
    await lite.send("ann", "a1")
    await lite.send("bob", "b1")
    assert await lite.pop() == []
    lite.subscribe("ann")
    (popped,) = await lite.pop()
    assert (popped.message.body, popped.handle.lite_topic, popped.delivery_attempt) == (b"a1", "ann", 1)
    assert await lite.pop() == []
    lite.subscribe("bob")
    assert bodies(await lite.pop()) == ["b1"]


async def test_one_receive_goes_over_all_lite_topics_of_its_client(lite: LiteBench) -> None:
    names = [f"user-{number}" for number in range(50)]
    for name in names:
        await lite.send(name, name)
    lite.subscribe(*names)
    assert bodies(await lite.pop()) == names[:32]
    assert bodies(await lite.pop()) == names[32:]


async def test_the_next_message_of_a_lite_topic_comes_after_the_one_before_was_acknowledged(lite: LiteBench) -> None:
    await lite.send("ann", "a1", "a2", "a3")
    await lite.send("bob", "b1")
    lite.subscribe("ann", "bob")
    first, other = await lite.pop()
    assert bodies([first, other]) == ["a1", "b1"]
    assert await lite.pop() == []
    lite.bench.ack(first)
    (second,) = await lite.pop()
    assert second.message.body == b"a2"
    lite.bench.ack(second)
    assert bodies(await lite.pop()) == ["a3"]


async def test_a_fifo_group_gets_several_messages_of_a_lite_topic_at_once(lite: LiteBench) -> None:
    lite.bench.broker.groups.create(GroupConfig("g", fifo=True))
    await lite.send("ann", "a1", "a2", "a3")
    lite.subscribe("ann")
    batch = await lite.pop(max_messages=2)
    assert bodies(batch) == ["a1", "a2"]
    lite.bench.ack(batch[1])
    assert await lite.pop() == []
    lite.bench.ack(batch[0])
    assert bodies(await lite.pop()) == ["a3"]


async def test_a_message_that_is_not_acknowledged_comes_again_to_any_member(lite: LiteBench) -> None:
    await lite.send("ann", "a1", "a2")
    lite.subscribe("ann", client="c")
    lite.subscribe("ann", client="d")
    assert bodies(await lite.pop("c", invisible_ms=1_000)) == ["a1"]
    assert await lite.pop("d") == []
    lite.bench.clock.advance_ms(1_000)
    (again,) = await lite.pop("d")
    assert (again.message.body, again.delivery_attempt) == (b"a1", 2)
    lite.bench.ack(again)
    assert await lite.drain("c") == ["a2"]


async def test_every_group_gets_every_message(lite: LiteBench) -> None:
    await lite.send("ann", "a1", "a2")
    for group in ("g", "h"):
        lite.subscribe("ann", group=group)
        assert await lite.drain(group=group) == ["a1", "a2"]


async def test_a_waiting_receive_is_answered_by_a_message_and_not_by_one_for_others(lite: LiteBench) -> None:
    lite.subscribe("ann")
    waiting = lite.waiting_pop()
    await settle()
    await lite.send("bob", "b1")
    await settle()
    assert not waiting.done()
    await lite.send("ann", "a1")
    assert bodies(await within_patience(waiting)) == ["a1"]


async def test_a_waiting_receive_is_answered_by_a_new_subscription(lite: LiteBench) -> None:
    await lite.send("ann", "a1")
    waiting = lite.waiting_pop()
    await settle()
    lite.subscribe("ann")
    assert bodies(await within_patience(waiting)) == ["a1"]


async def test_a_waiting_receive_is_answered_when_the_one_before_is_acknowledged(lite: LiteBench) -> None:
    await lite.send("ann", "a1", "a2")
    lite.subscribe("ann")
    (first,) = await lite.pop()
    waiting = lite.waiting_pop()
    await settle()
    assert not waiting.done()
    lite.bench.ack(first)
    assert bodies(await within_patience(waiting)) == ["a2"]


async def test_a_waiting_receive_is_answered_when_a_delivery_comes_back(tmp_path: Path) -> None:
    async with open_bench(tmp_path, real_time=True, takes=MessageType.LITE) as bench:
        lite = LiteBench(bench)
        await lite.send("ann", "a1")
        lite.subscribe("ann")
        await lite.pop(invisible_ms=30)
        assert attempts(await within_patience(lite.waiting_pop())) == [2]


async def test_a_waiting_receive_is_answered_when_a_member_gives_its_message_back(tmp_path: Path) -> None:
    async with open_bench(tmp_path, real_time=True, takes=MessageType.LITE) as bench:
        lite = LiteBench(bench)
        await lite.send("ann", "a1")
        lite.subscribe("ann", client="c")
        lite.subscribe("ann", client="d")
        (popped,) = await lite.pop("c")
        waiting = lite.waiting_pop("d")
        await settle()
        change = ChangeInvisibleRequest("g", "t", popped.handle, 20, suspend=True)
        lite.bench.broker.delivery.change_invisible(change)
        assert attempts(await within_patience(waiting)) == [1]


async def test_a_prolonged_delivery_stays_out_of_sight_until_its_new_time(lite: LiteBench) -> None:
    await lite.send("ann", "a1")
    lite.subscribe("ann")
    (popped,) = await lite.pop(invisible_ms=1_000)
    handle = lite.bench.change(popped, 5_000)
    assert handle.lite_topic == "ann"
    lite.bench.clock.advance_ms(4_999)
    assert await lite.pop() == []
    lite.bench.clock.advance_ms(1)
    assert bodies(await lite.pop()) == ["a1"]


async def test_the_same_attempt_gets_the_same_batch_again(lite: LiteBench) -> None:
    for name in ("ann", "bob", "eve"):
        await lite.send(name, name)
    lite.subscribe("ann", "bob", "eve")
    batch = await lite.pop(attempt_id="one", max_messages=2)
    again = await lite.pop(attempt_id="one")
    assert [popped.handle for popped in again] == [popped.handle for popped in batch]
    assert bodies(await lite.pop(attempt_id="two")) == ["eve"]


async def test_after_its_last_attempt_a_message_makes_way_and_is_a_dead_letter_of_the_bind_topic(
    lite: LiteBench,
) -> None:
    lite.bench.broker.groups.create(GroupConfig("g", max_attempts=2))
    await lite.send("ann", "poison", "a2")
    lite.subscribe("ann")
    for _ in range(2):
        assert bodies(await lite.pop(invisible_ms=1_000)) == ["poison"]
        lite.bench.clock.advance_ms(1_000)
    assert await lite.drain() == ["a2"]
    (dead,) = await lite.bench.pop("undertaker", topic="%DLQ%g")
    assert dead.message.properties["DLQ_ORIGIN_TOPIC"] == "t"
    assert dead.message.properties["__LITE_TOPIC"] == "ann"


async def test_a_consumers_own_dead_letter_frees_its_lite_topic(lite: LiteBench) -> None:
    await lite.send("ann", "poison", "a2")
    lite.subscribe("ann")
    (poison,) = await lite.pop()
    handle = ReceiptHandle.decode(poison.handle.encode())
    await lite.bench.broker.delivery.move_to_dead_letter(AckRequest("g", "t", handle))
    assert bodies(await lite.pop()) == ["a2"]


async def test_a_stuck_lite_topic_holds_up_no_other(lite: LiteBench) -> None:
    await lite.send("stuck", *[str(number) for number in range(100)])
    await lite.send("ann", "a1", "a2")
    lite.subscribe("stuck", "ann", client="c")
    lite.subscribe("stuck", "ann", client="d")
    popped = await lite.pop("c")
    assert bodies(popped) == ["0", "a1"]
    lite.bench.ack(popped[1])
    assert await lite.drain("d") == ["a2"]
    ledger = lite.bench.broker._offsets.ledger("g", lite_queue("t", "stuck"), 0)
    assert ledger is not None
    assert len(ledger.in_flight) == 1, "what is behind the stuck one is not even read"


async def test_handles_are_good_for_their_own_group_and_lite_topic_alone(lite: LiteBench) -> None:
    await lite.send("ann", "a1")
    await lite.send("bob", "b1")
    lite.subscribe("ann", "bob")
    ann, bob = await lite.pop()
    text = ann.handle.encode()
    for group, handle in (
        ("h", text),
        ("g", text.replace(" ann", " eve")),
        ("g", text.removesuffix(" ann")),
    ):
        with pytest.raises(ConsumeRefused) as refused:
            lite.bench.broker.delivery.ack(AckRequest(group, "t", ReceiptHandle.decode(handle)))
        assert refused.value.name == "INVALID_RECEIPT_HANDLE"
    lite.bench.ack(ann, bob)


# Subscribing


async def test_a_partial_removal_and_a_complete_one(lite: LiteBench) -> None:
    for name in ("ann", "bob", "eve"):
        await lite.send(name, name)
    lite.subscribe("ann", "bob", "eve")
    lite.sync(LiteAction.PARTIAL_REMOVE, "bob", "nobody")
    assert await lite.drain() == ["ann", "eve"]
    lite.subscribe("bob")
    lite.sync(LiteAction.COMPLETE_REMOVE)
    assert await lite.drain() == []


async def test_a_complete_addition_replaces_what_the_client_read(lite: LiteBench) -> None:
    for name in ("ann", "bob"):
        await lite.send(name, name)
    lite.subscribe("ann")
    lite.sync(LiteAction.COMPLETE_ADD, "bob")
    assert await lite.drain() == ["bob"]


async def test_a_client_that_went_reads_nothing_more(lite: LiteBench) -> None:
    lite.subscribe("ann")
    lite.bench.broker.delivery.leave_lite_topics("c")
    await lite.send("ann", "a1")
    assert await lite.pop() == []


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (LiteStart(), ["1", "2", "3", "4"]),
        (LiteStart(LiteStartKind.MIN), ["1", "2", "3", "4"]),
        (LiteStart(LiteStartKind.MAX), []),
        (LiteStart(LiteStartKind.OFFSET, 2), ["3", "4"]),
        (LiteStart(LiteStartKind.OFFSET, 99), []),
        (LiteStart(LiteStartKind.OFFSET, -5), ["1", "2", "3", "4"]),
        (LiteStart(LiteStartKind.TAIL, 1), ["4"]),
        (LiteStart(LiteStartKind.TAIL, 99), ["1", "2", "3", "4"]),
    ],
)
async def test_a_group_begins_where_its_reader_says(lite: LiteBench, start: LiteStart, expected: list[str]) -> None:
    await lite.send("ann", "1", "2", "3", "4")
    lite.sync(LiteAction.PARTIAL_ADD, "ann", start=start)
    await lite.send("ann", "new")
    assert await lite.drain() == [*expected, "new"]


async def test_a_group_can_begin_at_a_time(lite: LiteBench) -> None:
    await lite.send("ann", "old")
    lite.bench.clock.advance_ms(10_000)
    await lite.send("ann", "new")
    lite.sync(LiteAction.PARTIAL_ADD, "ann", start=LiteStart(LiteStartKind.TIME, lite.bench.clock.now_ms() - 5_000))
    assert await lite.drain() == ["new"]


async def test_a_second_reader_cannot_move_the_group(lite: LiteBench) -> None:
    await lite.send("ann", "1", "2")
    lite.subscribe("ann", client="c")
    assert await lite.drain("c") == ["1", "2"]
    lite.sync(LiteAction.PARTIAL_ADD, "ann", client="d", start=LiteStart(LiteStartKind.MIN))
    assert await lite.drain("d") == []


async def test_an_exclusive_group_has_one_reader_for_a_lite_topic_and_the_one_before_is_named(lite: LiteBench) -> None:
    lite.bench.broker.groups.create(GroupConfig("g", lite_exclusive=True))
    assert lite.subscribe("ann", client="c") == []
    assert lite.subscribe("ann", client="d") == [("c", "ann")]
    await lite.send("ann", "a1")
    assert await lite.pop("c") == []
    assert bodies(await lite.pop("d")) == ["a1"]


async def test_saying_again_what_one_read_does_not_take_it_back_in_an_exclusive_group(lite: LiteBench) -> None:
    lite.bench.broker.groups.create(GroupConfig("g", lite_exclusive=True))
    lite.subscribe("ann", client="c")
    lite.subscribe("ann", client="d")
    assert lite.sync(LiteAction.COMPLETE_ADD, "ann", client="c") == [("c", "ann")]
    await lite.send("ann", "a1")
    assert await lite.pop("c") == []
    assert bodies(await lite.pop("d")) == ["a1"]


async def test_subscriptions_that_cannot_be_are_refused(lite: LiteBench) -> None:
    lite.bench.broker.topics.create(TopicConfig("plain"))
    for request, name in (
        (LiteSync("c", "g", "nowhere", LiteAction.PARTIAL_ADD, ("ann",)), "TOPIC_NOT_FOUND"),
        (LiteSync("c", "g", "plain", LiteAction.PARTIAL_ADD, ("ann",)), "ILLEGAL_TOPIC"),
        (LiteSync("c", "no good", "t", LiteAction.PARTIAL_ADD, ("ann",)), "ILLEGAL_GROUP"),
        (LiteSync("c", "g", "t", LiteAction.PARTIAL_ADD, ("no good",)), "ILLEGAL_LITE_TOPIC"),
        (LiteSync("c", "g", "t", LiteAction.PARTIAL_ADD, ("x" * 65,)), "ILLEGAL_LITE_TOPIC"),
        (LiteSync("c", "g", "t", LiteAction.PARTIAL_REMOVE, ("x",) * 1_201), "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"),
    ):
        with pytest.raises(Refused) as refused:
            lite.bench.broker.delivery.sync_lite_subscription(request)
        assert refused.value.name == name


async def test_a_client_over_its_quota_keeps_what_it_has(lite: LiteBench) -> None:
    lite.subscribe(*[str(number) for number in range(1_200)])
    with pytest.raises(ConsumeRefused) as refused:
        lite.subscribe("one-more")
    assert refused.value.name == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"
    lite.subscribe("7", "8")
    await lite.send("7", "seven")
    assert await lite.drain() == ["seven"]
    lite.sync(LiteAction.PARTIAL_REMOVE, "7")
    lite.subscribe("one-more")


# Making and letting go


@pytest.mark.parametrize("name", ["", " ", "a b", "a$b", "é", "x" * 65, "a/b", "a\x01"])
async def test_what_is_no_name_of_a_lite_topic_is_refused(lite: LiteBench, name: str) -> None:
    with pytest.raises(MessageRefused) as refused:
        await lite.send(name, "a1")
    assert refused.value.name in ("ILLEGAL_LITE_TOPIC", "ILLEGAL_PROPERTY")


async def test_a_lite_topic_over_the_quota_is_refused_and_those_that_are_there_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lite_topics_module.LiteTopics.__init__, "__kwdefaults__", {"per_topic": 2, "total": 3})
    async with open_bench(tmp_path, takes=MessageType.LITE) as bench:
        lite = LiteBench(bench)
        bench.broker.topics.create(TopicConfig("u", MessageType.LITE))
        await lite.send("ann", "a1")
        await lite.send("bob", "b1")
        with pytest.raises(MessageRefused) as refused:
            await lite.send("eve", "e1")
        assert refused.value.name == "LITE_TOPIC_QUOTA_EXCEEDED"
        await lite.send("ann", "a2")
        await bench.send("x", topic="u", queue_id=None, __LITE_TOPIC="one")
        with pytest.raises(MessageRefused):
            await bench.send("x", topic="u", queue_id=None, __LITE_TOPIC="two")


@pytest.fixture
async def mortal(tmp_path: Path) -> AsyncIterator[LiteBench]:
    """Lite topics that go 30 minutes after their last message."""
    async with open_bench(tmp_path, takes=MessageType.LITE) as bench:
        bench.broker.topics.delete("t")
        bench.broker.topics.create(TopicConfig("t", MessageType.LITE, attributes={"lite.topic.expiration": "30"}))
        yield LiteBench(bench)


async def test_a_lite_topic_goes_when_its_time_since_the_last_message_is_over(mortal: LiteBench) -> None:
    bench = mortal.bench
    await mortal.send("ann", "a1", "a2")
    bench.clock.advance_ms(20 * MINUTE_MS)
    await mortal.send("bob", "b1")
    bench.clock.advance_ms(11 * MINUTE_MS)
    await bench.broker._lite_expiry.sweep()
    mortal.subscribe("ann", "bob")
    assert await mortal.drain() == ["b1"]


async def test_a_lite_topic_that_comes_again_begins_anew(mortal: LiteBench) -> None:
    bench = mortal.bench
    mortal.subscribe("ann")
    await mortal.send("ann", "1", "2", "3")
    assert await mortal.drain() == ["1", "2", "3"]
    bench.clock.advance_ms(31 * MINUTE_MS)
    await bench.broker._lite_expiry.sweep()
    await mortal.send("ann", "4")
    assert await mortal.drain() == ["4"]


async def test_a_message_that_is_sent_while_its_lite_topic_goes_is_the_first_of_the_next(mortal: LiteBench) -> None:
    bench = mortal.bench
    mortal.subscribe("ann")
    await mortal.send("ann", "1", "2")
    bench.clock.advance_ms(31 * MINUTE_MS)
    going = asyncio.create_task(bench.broker._lite_expiry.sweep())
    await asyncio.sleep(0)
    sent = asyncio.create_task(mortal.send("ann", "3"))
    await asyncio.sleep(0)
    assert not sent.done()
    assert await mortal.pop() == [], "what goes is not read any more"
    await asyncio.gather(going, sent)
    assert await mortal.drain() == ["3"]


async def test_a_lite_topic_without_an_expiry_goes_when_it_holds_nothing_any_more(lite: LiteBench) -> None:
    await lite.send("ann", "a1")
    lite.bench.clock.advance_ms(EMPTY_AFTER_MS + 1)
    await lite.bench.broker._lite_expiry.sweep()
    assert len(lite.bench.broker._lite_expiry.lite_topics) == 1
    queue = lite.bench.broker.maintenance.store._queues.find(lite_queue("t", "ann"), 0)
    assert queue is not None
    queue.min_offset = 1
    await lite.bench.broker._lite_expiry.sweep()
    assert len(lite.bench.broker._lite_expiry.lite_topics) == 0


async def test_a_sweep_lets_go_of_some_at_a_time(mortal: LiteBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite_expiry_module, "MAX_AT_ONCE", 2)
    for name in ("ann", "bob", "eve"):
        await mortal.send(name, name)
    mortal.bench.clock.advance_ms(31 * MINUTE_MS)
    expiry = mortal.bench.broker._lite_expiry
    await expiry.sweep()
    assert len(expiry.lite_topics) == 1
    await expiry.sweep()
    assert len(expiry.lite_topics) == 0


async def test_lite_topics_and_how_far_groups_are_survive_a_restart(tmp_path: Path) -> None:
    async with open_bench(tmp_path, takes=MessageType.LITE) as bench:
        lite, clock = LiteBench(bench), bench.clock
        await lite.send("ann", "a1", "a2")
        lite.subscribe("ann")
        bench.ack(*await lite.pop())
    async with open_bench(tmp_path, clock=clock, takes=MessageType.LITE) as bench:
        lite = LiteBench(bench)
        assert len(bench.broker._lite_expiry.lite_topics) == 1
        lite.sync(LiteAction.COMPLETE_ADD, "ann")
        assert await lite.drain() == ["a2"]


async def test_deleting_the_bind_topic_deletes_its_lite_topics(tmp_path: Path) -> None:
    async with open_bench(tmp_path, takes=MessageType.LITE) as bench:
        lite, clock = LiteBench(bench), bench.clock
        await lite.send("ann", "a1")
        lite.subscribe("ann")
        waiting = lite.waiting_pop()
        await settle()
        bench.ack(*await waiting)
        bench.broker.topics.delete("t")
        with pytest.raises(NameRefused):
            await lite.pop()
    async with open_bench(tmp_path, clock=clock, takes=MessageType.LITE) as bench:
        lite = LiteBench(bench)
        assert len(bench.broker._lite_expiry.lite_topics) == 0
        await lite.send("ann", "new")
        lite.subscribe("ann")
        assert await lite.drain() == ["new"]


async def test_the_stored_name_of_a_lite_topic_is_no_topic_for_clients(lite: LiteBench) -> None:
    await lite.send("ann", "a1")
    with pytest.raises(NameRefused) as refused:
        await lite.bench.broker.delivery.pop(PopRequest("g", lite_queue("t", "ann"), 1_000))
    assert refused.value.name == "TOPIC_NOT_FOUND"


@pytest.mark.parametrize("attributes", [{"queue.type": "BatchCQ"}, {"cleanup.policy": "COMPACTION"}])
async def test_a_bind_topic_holds_no_batches_and_is_not_compacted(lite: LiteBench, attributes: dict[str, str]) -> None:
    with pytest.raises(NameRefused):
        lite.bench.broker.topics.create(TopicConfig("u", MessageType.LITE, attributes=attributes))


@pytest.mark.parametrize(
    ("minutes", "legal"), [("-1", True), ("1", True), ("43200", True), ("43201", False), ("0", False)]
)
async def test_the_expiry_is_a_number_of_minutes_up_to_30_days(lite: LiteBench, minutes: str, legal: bool) -> None:
    topic = TopicConfig("u", MessageType.LITE, attributes={"lite.topic.expiration": minutes})
    if legal:
        assert lite.bench.broker.topics.create(topic)
    else:
        with pytest.raises(NameRefused, match="in minutes"):
            lite.bench.broker.topics.create(topic)


@pytest.mark.parametrize("step_ms", [60 * MINUTE_MS, -60 * MINUTE_MS])
async def test_a_lite_message_comes_again_after_its_time_whatever_the_wall_clock_does(
    lite: LiteBench, step_ms: int
) -> None:
    lite.subscribe("a")
    await lite.send("a", "1")
    await lite.pop(invisible_ms=30_000)
    lite.bench.clock.set_wall(step_ms)
    assert await lite.pop() == []
    lite.bench.clock.advance_ms(30_000)
    (again,) = await lite.pop()
    assert attempts([again]) == [2]
