"""Where groups are: told truly, and moved by a reset that no old delivery can undo. Against a plain model."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from broker_bench import MEMORY, Bench, bodies, open_bench, settle
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from state_bench import load_table

from example_counts import scaled
from millstream.broker.queues.ledger import Delivery
from millstream.broker.queues.offsets import OffsetTable
from millstream.model.errors import ConsumeRefused, Refused
from millstream.model.operations import (
    AckRequest,
    PullRequest,
    PullStatus,
    QueuePoint,
    QueueProgress,
    QueueReset,
    ResetRequest,
)
from millstream.model.topic import TopicConfig
from millstream.store.snapshot import Snapshot
from patience import within_patience

T = 1_700_000_000_000


def reset(bench: Bench, point: QueuePoint, value: int = 0, **more: Any) -> list[QueueReset]:
    return bench.broker.queues.reset(ResetRequest("g", "t", point, value, **more))


def progress(bench: Bench) -> QueueProgress:
    """Of queue 0."""
    return bench.broker.queues.own_progress("g", "t")[0]


class OffsetsMachine(RuleBasedStateMachine):
    """One group in one queue, reset while it receives: the table against sets of offsets, over restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(dir=MEMORY)
        self.end = 0
        self.table = self.load()
        self.table.open_ledger("g", "t", 0, fifo=False, first_offset=0)
        self.now_ms = T
        self.next = 0
        self.live: dict[int, int] = {}
        self.dead: list[tuple[int, int]] = []

    def teardown(self) -> None:
        self.directory.cleanup()

    def load(self) -> OffsetTable:
        directory = Path(self.directory.name)
        table = OffsetTable(Snapshot(directory / "offsets.json"))
        load_table(table.table, directory)
        table.limit(lambda topic, queue_id: self.end)
        return table

    @property
    def ledger(self) -> Any:
        found = self.table.ledger("g", "t", 0)
        assert found is not None
        return found

    @rule(count=st.integers(1, 5), by_ms=st.sampled_from([0, 0, 1, 100]))
    def messages_arrive(self, count: int, by_ms: int) -> None:
        self.end += count
        self.now_ms += by_ms

    @precondition(lambda self: self.next < self.end)
    @rule()
    def one_is_delivered(self) -> None:
        delivery: Delivery = self.ledger.deliver(self.ledger.cursor, self.now_ms, 1000)
        assert delivery.queue_offset == self.next
        assert (delivery.queue_offset, delivery.pop_time_ms) not in self.dead
        self.live[self.next] = delivery.pop_time_ms
        self.next += 1

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def one_is_acknowledged(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.live)))
        assert self.ledger.acknowledge(offset, self.live.pop(offset))

    @precondition(lambda self: self.dead)
    @rule(data=st.data())
    def a_handle_from_before_a_reset_is_refused(self, data: st.DataObject) -> None:
        offset, handle = data.draw(st.sampled_from(self.dead))
        with pytest.raises(ConsumeRefused):
            self.ledger.acknowledge(offset, handle)
        with pytest.raises(ConsumeRefused):
            self.ledger.change_invisible(offset, handle, self.now_ms, 5)

    @rule(data=st.data())
    def the_group_is_reset(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(0, self.end))
        self.table.reset("g", "t", 0, target, self.now_ms)
        self.dead += self.live.items()
        self.live = {}
        self.next = target

    @rule(data=st.data())
    def a_reader_commits(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        self.table.commit("g", "t", 0, offset)
        self.live = {held: handle for held, handle in self.live.items() if held >= offset}
        self.next = max(self.next, offset)

    @rule(data=st.data())
    def the_broker_restarts(self, data: st.DataObject) -> None:
        self.table.write_changes()
        if data.draw(st.booleans()):
            self.table.table.save()
        self.table = self.load()

    @invariant()
    def the_committed_offset_is_the_lowest_that_is_not_consumed(self) -> None:
        expected = min(self.live, default=self.next)
        assert self.table.committed_offset("g", "t", 0) == expected
        assert [held.queue_offset for held in self.ledger.in_flight] == sorted(self.live)


OffsetsMachine.TestCase.settings = settings(max_examples=scaled(60), stateful_step_count=40, deadline=None)
TestOffsetsMachine = OffsetsMachine.TestCase


async def test_progress_tells_what_is_ready_what_is_in_flight_and_how_old_the_oldest_is(bench: Bench) -> None:
    sent_ms = bench.clock.now_ms()
    for number in range(5):
        await bench.send(str(number))
        bench.clock.advance_ms(1000)
    popped = await bench.pop(max_messages=3)
    bench.ack(popped[0])
    assert progress(bench) == QueueProgress(
        "t", 0, 0, 5, committed=1, next_offset=3, ready=2, in_flight=2, oldest_ms=sent_ms + 1000, consumed_ms=sent_ms
    )
    assert progress(bench).lag == 4
    bench.clock.advance_ms(60_000)
    assert (progress(bench).ready, progress(bench).in_flight) == (4, 0)


async def test_a_group_has_progress_in_every_topic_it_has_received_from(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("u", read_queues=1, write_queues=1))
    await bench.pop()
    await bench.pop(topic="u")
    found = {(one.topic, one.queue_id) for one in bench.broker.queues.own_progress("g")}
    assert found == {("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0)}


async def test_a_reset_goes_to_an_offset_a_time_the_first_or_the_last(bench: Bench) -> None:
    await bench.send("a", "b")
    bench.clock.advance_ms(1000)
    later_ms = bench.clock.now_ms()
    await bench.send("c")
    bench.ack(*await bench.pop())
    assert reset(bench, QueuePoint.OFFSET, 1, queue_id=0) == [QueueReset(0, before=3, after=1, discarded=0)]
    assert bodies(await bench.pop()) == ["b", "c"]
    (first, *_) = reset(bench, QueuePoint.TIME, later_ms)
    assert first == QueueReset(0, before=1, after=2, discarded=2)
    assert bodies(await bench.pop()) == ["c"]
    reset(bench, QueuePoint.FIRST)
    assert bodies(await bench.pop()) == ["a", "b", "c"]
    reset(bench, QueuePoint.LAST)
    assert await bench.pop() == []
    assert progress(bench).lag == 0


async def test_handles_from_before_a_reset_are_invalid_even_within_the_same_millisecond(bench: Bench) -> None:
    await bench.send("a", "b")
    before = await bench.pop()
    bench.ack(before[1])
    reset(bench, QueuePoint.FIRST)
    after = await bench.pop()
    assert bodies(after) == ["a", "b"]
    for old in before:
        for use in (bench.ack, lambda popped: bench.change(popped, 0)):
            with pytest.raises(ConsumeRefused) as refused:
                use(old)
            assert refused.value.name == "INVALID_RECEIPT_HANDLE"
        with pytest.raises(ConsumeRefused):
            await bench.broker.delivery.move_to_dead_letter(AckRequest("g", "t", old.handle))
    bench.ack(*after)
    assert progress(bench).committed == 2


async def test_a_handle_of_a_deleted_group_means_nothing_to_one_of_the_same_name(bench: Bench) -> None:
    await bench.send("a")
    (old,) = await bench.pop()
    bench.broker.groups.delete("g")
    with pytest.raises(ConsumeRefused):
        bench.ack(old)
    bench.clock.advance_ms(1)
    (new,) = await bench.pop()
    with pytest.raises(ConsumeRefused):
        bench.ack(old)
    bench.ack(new)


async def test_a_reset_survives_a_crash(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "a") as bench:
        await bench.send("a", "b")
        popped = await bench.pop()
        bench.ack(*popped)
        reset(bench, QueuePoint.FIRST)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    async with open_bench(tmp_path / "b") as bench:
        with pytest.raises(ConsumeRefused):
            bench.ack(popped[0])
        assert bodies(await bench.pop()) == ["a", "b"]


async def test_who_waits_is_woken_by_a_reset(bench: Bench) -> None:
    await bench.send("a")
    bench.ack(*await bench.pop())
    waiting = bench.waiting_pop()
    await settle()
    reset(bench, QueuePoint.FIRST)
    assert bodies(await within_patience(waiting)) == ["a"]


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (ResetRequest("nobody", "t", QueuePoint.FIRST), "GROUP_NOT_FOUND"),
        (ResetRequest("g", "nowhere", QueuePoint.FIRST), "TOPIC_NOT_FOUND"),
        (ResetRequest("g", "t", QueuePoint.FIRST, queue_id=4), "QUEUE_NOT_FOUND"),
        (ResetRequest("g", "t", QueuePoint.OFFSET, 2), "ILLEGAL_OFFSET"),
        (ResetRequest("g", "t", QueuePoint.OFFSET, -1), "ILLEGAL_OFFSET"),
    ],
)
async def test_a_reset_to_nowhere_changes_nothing(bench: Bench, request_: ResetRequest, name: str) -> None:
    await bench.send("a")
    bench.ack(*await bench.pop())
    with pytest.raises(Refused) as refused:
        bench.broker.queues.reset(request_)
    assert refused.value.name == name
    assert progress(bench).committed == 1


async def test_a_reader_that_pulls_is_told_once_where_to_go_on_and_cannot_undo_it(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send("a", "b", "c")
        await bench.pull(0)
        bench.broker.queues.commit("g", "t", 0, 3)
        reset(bench, QueuePoint.OFFSET, 1, queue_id=0)
        bench.broker.queues.commit("g", "t", 0, 3)
        assert bench.broker.queues.committed_offset("g", "t", 0) == 1
    async with open_bench(tmp_path) as bench:
        bench.broker.queues.commit("g", "t", 0, 3)
        moved = await bench.pull(3)
        assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, 1)
        assert (await bench.pull(3)).status is PullStatus.NOTHING_NEW
        bench.broker.queues.commit("g", "t", 0, 2)
        assert bench.broker.queues.committed_offset("g", "t", 0) == 2


async def test_a_reader_that_begins_where_it_was_reset_to_reads_on_at_once(bench: Bench) -> None:
    await bench.send("a", "b")
    bench.broker.queues.commit("g", "t", 0, 2)
    reset(bench, QueuePoint.FIRST, queue_id=0)
    assert (await bench.pull(0)).status is PullStatus.FOUND
    bench.broker.queues.commit("g", "t", 0, 1)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 1


async def test_a_deleted_group_leaves_nothing_in_memory_or_on_the_disk(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "a") as bench:
        bench.broker.topics.create(TopicConfig("%RETRY%g", read_queues=1, write_queues=1))
        await bench.send("a")
        await bench.pop()
        bench.broker.queues.commit("g", "t", 3, 0)
        bench.broker.groups.delete("g")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        async with open_bench(tmp_path / "b") as other:
            assert other.broker.queues.committed_offset("g", "t", 3) is None
            assert other.broker.groups.find("g") is None
        assert b'"g"' not in (tmp_path / "b" / "config" / "offsets.json").read_bytes()
        assert bench.broker.topics.find("%RETRY%g") is None
        assert bodies(await bench.pop()) == ["a"]


async def test_a_pull_that_waits_hears_of_a_reset_at_once_and_others_ask_again(bench: Bench) -> None:
    await bench.send("1", "2", "3")
    bench.broker.queues.commit("g", "t", 0, 3)
    waiting = asyncio.create_task(bench.pull(3, wait_ms=30_000))
    other = asyncio.create_task(bench.broker.queues.pull(PullRequest("other", "t", 0, 3, wait_ms=30_000)))
    await settle()
    reset(bench, QueuePoint.OFFSET, 1, queue_id=0)
    told = await within_patience(waiting)
    assert (told.status, told.next_offset) == (PullStatus.OFFSET_ILLEGAL, 1)
    assert (await within_patience(other)).status is PullStatus.NOTHING_NEW
    assert len((await bench.pull(1)).records) == 2
