"""The broker as a whole: restarts, deletions, looking at queues, closing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from broker_bench import SMALL_STORE, Bench, attempts, bodies, open_bench, running, settle

from millstream.broker import maintenance
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.delivery.transactions import Transactions
from millstream.broker.pop.lite_topics import LiteExpiry
from millstream.broker.state.state_log import StateChange, StateLog
from millstream.model.clock import ManualClock
from millstream.model.errors import ConsumeRefused, NameRefused, StartRefused, StoreError
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import PullRequest, PullStatus, QueueRange
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.appender import Appender
from millstream.store.snapshot import Snapshot
from patience import within_patience


async def test_a_restart_keeps_messages_topics_groups_and_offsets(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_bench(tmp_path, clock=clock) as bench:
        bench.broker.groups.create(GroupConfig("g", max_attempts=3))
        await bench.send(*"abcd")
        a, b, c, d = await bench.pop(invisible_ms=1_000)
        bench.ack(a, c)
        bench.broker.queues.commit("reader", "t", 1, 0)
    async with open_bench(tmp_path, clock=clock) as bench:
        assert bench.broker.groups.get("g").max_attempts == 3
        assert bench.broker.queues.committed_offset("g", "t", 0) == 1
        assert bench.broker.queues.committed_offset("reader", "t", 1) == 0
        assert await bench.pop() == []
        bench.ack(b)
        clock.advance_ms(1_000)
        (again,) = await bench.pop()
        assert (again.message.body, again.delivery_attempt) == (b"d", 2)
        assert again.handle != d.handle


async def test_after_a_crash_everything_since_the_last_save_is_delivered_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_bench(tmp_path / "a", clock=clock) as bench:
        await bench.send(*"abcd")
        popped = await bench.pop(max_messages=3, invisible_ms=1_000)
        bench.ack(popped[1])
        bench.broker._offsets.write_changes()
        bench.ack(popped[0])
        bench.ack(*await bench.pop())
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    clock.advance_ms(1_000)
    async with open_bench(tmp_path / "b", clock=clock) as bench:
        again = await bench.pop()
        assert bodies(again) == ["a", "c", "d"]
        assert attempts(again) == [2, 2, 1]
        bench.ack(*again)
        assert bench.broker.queues.committed_offset("g", "t", 0) == 4


async def test_offsets_that_cannot_be_saved_are_saved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop, saved = asyncio.get_running_loop(), asyncio.Event()
    failures = [StoreError("DISK_FULL", "There is no room.")]
    append = StateLog.append

    def fail_once(self: StateLog, changes: Sequence[StateChange], *, durable: bool = True) -> None:
        if failures:
            raise failures.pop()
        append(self, changes, durable=durable)
        loop.call_soon_threadsafe(saved.set)

    async with open_bench(tmp_path, offset_save_interval_s=0.01) as bench:
        bench.broker.groups.ensure("g")
        monkeypatch.setattr(StateLog, "append", fail_once)
        monkeypatch.setattr(maintenance, "FAILURE_PAUSE_S", 0.01)
        bench.broker.queues.commit("g", "t", 0, 0)
        await within_patience(saved.wait())
    assert "will be tried again" in caplog.text
    async with open_bench(tmp_path) as bench:
        assert bench.broker.queues.committed_offset("g", "t", 0) == 0


async def test_nothing_of_a_deleted_topic_comes_back_with_a_new_one_of_its_name(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(*"abc")
        bench.ack(*await bench.pop())
        bench.broker.queues.commit("reader", "t", 0, 3)
        bench.broker.topics.delete("t")
        assert bench.broker.queues.committed_offset("g", "t", 0) is None
        with pytest.raises(NameRefused):
            await bench.send("d")
        bench.broker.topics.create(TopicConfig("t"))
        assert bench.broker.queues.committed_offset("reader", "t", 0) is None
        await bench.send("new")
        assert bodies(await bench.pop()) == ["new"]
    async with open_bench(tmp_path) as bench:
        assert bodies(await bench.pop("other")) == ["new"]


async def test_a_pop_that_waits_on_a_deleted_topic_is_refused(bench: Bench) -> None:
    waiting = bench.waiting_pop()
    await settle()
    bench.broker.topics.delete("t")
    with pytest.raises(NameRefused) as refused:
        await waiting
    assert refused.value.name == "TOPIC_NOT_FOUND"


async def test_a_deleted_group_begins_anew(bench: Bench) -> None:
    await bench.send("a")
    bench.ack(*await bench.pop())
    bench.broker.groups.delete("g")
    assert bench.broker.queues.committed_offset("g", "t", 0) is None
    bench.broker.groups.create(GroupConfig("g", fifo=True))
    assert bodies(await bench.pop()) == ["a"]


async def test_without_auto_creation_an_unknown_group_is_refused(tmp_path: Path) -> None:
    async with open_bench(tmp_path, auto_create_groups=False) as bench:
        for call in (bench.pop(), bench.pull(0)):
            with pytest.raises(NameRefused) as refused:
                await call
            assert refused.value.name == "GROUP_NOT_FOUND"
        with pytest.raises(NameRefused):
            bench.broker.queues.commit("g", "t", 0, 0)


async def test_a_look_at_the_queues_gives_their_ends_and_last_times(bench: Bench) -> None:
    await bench.send("a", "b", queue_id=1)
    bench.clock.advance_ms(5)
    stored_ms = bench.clock.now_ms()
    await bench.send("c", queue_id=3)
    assert bench.broker.queues.ranges("t") == [
        QueueRange(0, 0, 0, 0),
        QueueRange(1, 0, 2, stored_ms - 5),
        QueueRange(2, 0, 0, 0),
        QueueRange(3, 0, 1, stored_ms),
    ]
    with pytest.raises(NameRefused):
        bench.broker.queues.ranges("nowhere")


async def test_an_offset_can_be_found_by_time(bench: Bench) -> None:
    for body in "abc":
        await bench.send(body)
        bench.clock.advance_ms(10)
    begin_ms = bench.clock.now_ms() - 30
    assert bench.broker.queues.offset_by_time("t", 0, begin_ms + 5) == 1
    assert bench.broker.queues.offset_by_time("t", 0, begin_ms + 10, upper=True) == 1
    with pytest.raises(NameRefused) as refused:
        bench.broker.queues.offset_by_time("t", 4, begin_ms)
    assert refused.value.name == "QUEUE_NOT_FOUND"


async def test_offsets_are_committed_for_queues_that_exist(bench: Bench) -> None:
    await bench.broker.delivery.send([OutgoingMessage("t", b"x", {}, queue_id=3)])
    bench.broker.queues.commit("g", "t", 3, 1)
    bench.broker.queues.commit("g", "t", 3, -1)
    assert bench.broker.queues.committed_offset("g", "t", 3) == 1
    with pytest.raises(NameRefused) as refused:
        bench.broker.queues.commit("g", "t", 4, 7)
    assert refused.value.name == "QUEUE_NOT_FOUND"


@pytest.mark.parametrize("offset", [2, (1 << 63) - 1])
@pytest.mark.parametrize("pops", [False, True])
async def test_no_commit_takes_a_group_beyond_the_end_of_a_queue(bench: Bench, offset: int, pops: bool) -> None:
    await bench.broker.delivery.send([OutgoingMessage("t", b"first", {}, queue_id=0)])
    if pops:
        await bench.pop()
    with pytest.raises(ConsumeRefused, match=rf"0 to 1; {offset} is outside") as refused:
        bench.broker.queues.commit("g", "t", 0, offset)
    assert refused.value.name == "ILLEGAL_OFFSET"
    await bench.broker.delivery.send([OutgoingMessage("t", b"second", {}, queue_id=0)])
    bodies = [popped.message.body for popped in await bench.pop(max_messages=10)]
    assert bodies == ([b"second"] if pops else [b"first", b"second"])


async def test_closing_ends_what_waits(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        pop = bench.waiting_pop()
        pull = asyncio.create_task(bench.broker.queues.pull(PullRequest("g", "t", 0, 0, wait_ms=30_000)))
        await settle()
    assert await pop == []
    assert (await pull).status is PullStatus.NOTHING_NEW


async def test_closing_twice_or_without_a_start_does_nothing(tmp_path: Path) -> None:
    broker = Broker(tmp_path, options=BrokerOptions(store=SMALL_STORE))
    await broker.close()
    async with running(tmp_path) as started:
        await started.close()


async def test_a_second_broker_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(StartRefused) as refused:
            await Broker(tmp_path, options=BrokerOptions(store=SMALL_STORE)).start()
        assert refused.value.name == "DATA_DIRECTORY_IN_USE"


async def test_a_broker_that_cannot_read_its_topics_does_not_start_and_frees_its_directory(tmp_path: Path) -> None:
    topics = Snapshot(tmp_path / "config" / "topics.json")
    topics.save(b"{}")
    with pytest.raises(StoreError) as refused:
        await Broker(tmp_path, options=BrokerOptions(store=SMALL_STORE)).start()
    assert refused.value.name == "STORE_FORMAT"
    topics.save(b'{"version":1,"topics":[]}')
    async with running(tmp_path) as broker:
        assert broker.topics.all() == []


async def test_a_broker_whose_lite_topics_cannot_be_taken_up_does_not_start_and_frees_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: LiteExpiry) -> None:
        raise StoreError("DISK_FULL", "There is no room.")

    with monkeypatch.context() as patch:
        patch.setattr(LiteExpiry, "load", fail)
        with pytest.raises(StoreError) as refused:
            await Broker(tmp_path, options=BrokerOptions(store=SMALL_STORE)).start()
    assert refused.value.name == "DISK_FULL"
    async with running(tmp_path) as broker:
        assert broker.topics.all() == []


async def test_what_is_due_at_a_start_is_delivered_while_other_parts_still_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with open_bench(tmp_path, clock=clock) as bench:
        bench.broker.topics.create(TopicConfig("later", MessageType.DELAY))
        due_ms = clock.now_ms() + 60_000
        await bench.broker.delivery.send(
            [OutgoingMessage("later", b"x", {"TIMER_DELIVER_MS": str(due_ms)}, MessageType.DELAY, queue_id=0)]
        )
    clock.advance_ms(60_000)
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    take_up = Transactions.start

    async def take_up_late(transactions: Transactions, appender: Appender) -> None:
        while not broker._store.max_offset("later", 0):
            await settle()
        await settle()
        await take_up(transactions, appender)

    monkeypatch.setattr(Transactions, "start", take_up_late)
    broker = Broker(tmp_path, options=BrokerOptions(store=SMALL_STORE), clock=clock)
    await broker.start()
    await broker.close()
    assert errors == []


@pytest.mark.parametrize(("host", "stored"), [("10.1.2.3", "10.1.2.3"), ("broker.example", "127.0.0.1")])
async def test_records_carry_the_advertised_address_if_it_is_an_ip(tmp_path: Path, host: str, stored: str) -> None:
    broker = Broker(tmp_path, options=BrokerOptions(store=SMALL_STORE), advertised=Address(host, 10911))
    await broker.start()
    try:
        broker.topics.create(TopicConfig("t"))
        bench = Bench(broker, ManualClock())
        (receipt,) = await bench.send("a")
        (popped,) = await bench.pop()
        assert popped.message.store_host == Address(stored, 10911)
        assert receipt.offset_message_id.startswith("0A010203" if host == stored else "7F000001")
    finally:
        await broker.close()


async def test_under_sync_flush_what_was_answered_can_be_read(tmp_path: Path) -> None:
    store = type(SMALL_STORE)(segment_bytes=64 * 1024 * 1024, sync_flush=True)
    async with open_bench(tmp_path, store=store) as bench:
        waiting = bench.waiting_pop()
        await settle()
        await bench.send("a")
        assert bodies(await within_patience(waiting)) == ["a"]


async def test_a_new_group_reads_while_the_disk_is_full_and_is_kept_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(log: StateLog, changes: Sequence[StateChange], *, durable: bool = True) -> None:
        raise StoreError("DISK_FULL", "There is no room.")

    async with open_bench(tmp_path) as bench:
        await bench.send("a", "b")
        with monkeypatch.context() as patched:
            patched.setattr(StateLog, "append", full)
            popped = await bench.pop("popping")
            assert bodies(popped) == ["a", "b"]
            bench.ack(*popped, group="popping")
            assert (await bench.broker.queues.pull(PullRequest("pulling", "t", 0, 0))).status is PullStatus.FOUND
            bench.broker.queues.commit("pulling", "t", 0, 2)
            with pytest.raises(StoreError) as refused:
                bench.broker.groups.create(GroupConfig("created"))
            assert refused.value.name == "DISK_FULL"
            with pytest.raises(StoreError) as refused:
                bench.broker.groups.save_unsaved()
            assert refused.value.name == "DISK_FULL"
    async with open_bench(tmp_path) as bench:
        assert {"popping", "pulling"} <= {group.name for group in bench.broker.groups.all()}
        assert bench.broker.groups.find("created") is None
        assert bench.broker.queues.committed_offset("pulling", "t", 0) == 2
        assert await bench.pop("popping") == []


async def test_a_group_that_begins_at_the_end_reads_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(log: StateLog, changes: Sequence[StateChange], *, durable: bool = True) -> None:
        raise StoreError("DISK_FULL", "There is no room.")

    async with open_bench(tmp_path) as bench:
        bench.broker.groups.create(GroupConfig("late", first_position=FirstPosition.LAST))
        await bench.send("a")
        with monkeypatch.context() as patched:
            patched.setattr(StateLog, "append", full)
            assert await bench.pop("late") == []
            await bench.send("b")
            assert bodies(await bench.pop("late")) == ["b"]
