"""A broker whose wall clock is put forward and back by an hour while it runs, and while it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_bench import Bench, bodies, open_bench

from millstream.broker.broker import Broker
from millstream.broker.delivery import timers, transactions
from millstream.broker.maintenance import RETENTION_INTERVAL_S
from millstream.model.clock import ManualClock
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.topic import MessageType, TopicConfig

HOUR_MS = 3_600_000
STEPS = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "POLL_S", 0.002)
    monkeypatch.setattr(transactions, "POLL_S", 0.002)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "data") as opened:
        opened.broker.topics.create(TopicConfig("later", MessageType.DELAY))
        opened.broker.topics.create(TopicConfig("tx", MessageType.TRANSACTION))
        yield opened


async def rounds() -> None:
    """Let the broker's rounds look a few times."""
    await asyncio.sleep(0.05)


@STEPS
@pytest.mark.parametrize("fifo", [False, True])
async def test_what_is_popped_stays_out_of_sight_for_its_time_whatever_the_clock_does(
    bench: Bench, step_ms: int, fifo: bool
) -> None:
    bench.broker.groups.create(GroupConfig("held", fifo=fifo))
    await bench.send("a")
    (popped,) = await bench.pop("held", invisible_ms=30_000)
    bench.clock.set_wall(step_ms)
    assert await bench.pop("held") == []
    bench.clock.advance_ms(29_999)
    assert await bench.pop("held") == []
    bench.clock.advance_ms(1)
    (again,) = await bench.pop("held", invisible_ms=30_000)
    assert again.delivery_attempt == 2
    assert again.handle.pop_time_ms > popped.handle.pop_time_ms
    bench.ack(again, group="held")
    bench.clock.advance_ms(2 * HOUR_MS)
    assert await bench.pop("held") == []


@STEPS
async def test_a_handle_of_before_a_step_acknowledges_after_it(bench: Bench, step_ms: int) -> None:
    await bench.send("a")
    popped = await bench.pop(invisible_ms=30_000)
    bench.clock.set_wall(step_ms)
    bench.ack(*popped)
    bench.clock.advance_ms(2 * HOUR_MS)
    assert await bench.pop() == []


@STEPS
async def test_a_step_is_named_once_with_its_size(bench: Bench, step_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    bench.clock.set_wall(step_ms)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await bench.pop()
    assert [record.getMessage() for record in caplog.records if "MS-1065" in record.getMessage()] != []
    assert caplog.text.count("MS-1065") == 1
    assert ("forward" if step_ms > 0 else "back") in caplog.text
    assert "3600.0 s" in caplog.text


@STEPS
async def test_a_transaction_is_asked_about_after_its_time_whatever_the_clock_does(bench: Bench, step_ms: int) -> None:
    asked: list[RecoverOrphanedTransaction] = []
    bench.broker.delivery.watch_transactions(lambda question: not asked.append(question))
    message = OutgoingMessage("tx", b"a", {"UNIQ_KEY": "ID-a", "TRAN_MSG": "true"}, queue_id=0)
    await bench.broker.delivery.send([message])
    await rounds()
    bench.clock.set_wall(step_ms)
    await rounds()
    assert asked == []
    bench.clock.advance_ms(6_000)
    await rounds()
    assert len(asked) == 1
    await bench.broker.delivery.send(
        [OutgoingMessage("tx", b"b", {"UNIQ_KEY": "ID-b", "TRAN_MSG": "true"}, queue_id=0)]
    )
    await rounds()
    bench.clock.advance_ms(6_000)
    await rounds()
    assert len(asked) == 2


async def test_a_delayed_message_that_came_does_not_come_again_when_the_clock_goes_back(bench: Bench) -> None:
    due_ms = bench.clock.now_ms() + 60_000
    await bench.broker.delivery.send(
        [OutgoingMessage("later", b"a", {"UNIQ_KEY": "ID-a", "TIMER_DELIVER_MS": str(due_ms)}, queue_id=0)]
    )
    await rounds()
    bench.clock.set_wall(HOUR_MS)
    await rounds()
    (popped,) = await bench.pop(topic="later")
    bench.ack(popped, topic="later")
    bench.clock.set_wall(-HOUR_MS)
    await rounds()
    bench.clock.advance_ms(2 * HOUR_MS)
    await rounds()
    assert await bench.pop(topic="later") == []


async def test_a_clock_put_back_hides_a_due_message_until_it_is_due_again_and_no_longer(bench: Bench) -> None:
    due_ms = bench.clock.now_ms() + 60_000
    await bench.broker.delivery.send(
        [OutgoingMessage("later", b"a", {"UNIQ_KEY": "ID-a", "TIMER_DELIVER_MS": str(due_ms)}, queue_id=0)]
    )
    await rounds()
    bench.clock.set_wall(-HOUR_MS)
    bench.clock.advance_ms(60_000)
    await rounds()
    assert await bench.pop(topic="later") == []
    bench.clock.advance_ms(HOUR_MS)
    await rounds()
    assert bodies(await bench.pop(topic="later")) == ["a"]


async def test_a_popped_message_is_hidden_no_longer_than_its_time_after_a_restart_with_the_clock_put_back(
    tmp_path: Path,
) -> None:
    async with open_bench(tmp_path) as first:
        await first.send("a")
        await first.pop(invisible_ms=30_000)
        started_ms = first.clock.now_ms()
    async with open_bench(tmp_path, clock=ManualClock(started_ms - HOUR_MS)) as second:
        assert await second.pop() == []
        second.clock.advance_ms(30_000)
        assert bodies(await second.pop()) == ["a"]


async def test_a_clock_put_far_forward_expires_nothing_before_its_time(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("brief", attributes={"reserve.time": "1"}))
    await bench.send("a", topic="brief")
    bench.clock.set_wall(1000 * HOUR_MS)
    assert bench.broker.maintenance is not None
    await bench.broker.maintenance.retain()
    assert bench.broker.maintenance.store.min_offset("brief", 0) == 0
    bench.clock.advance_ms(HOUR_MS + int(RETENTION_INTERVAL_S * 1000))
    await bench.broker.maintenance.retain()
    assert bench.broker.maintenance.store.min_offset("brief", 0) == 1


class SteppingClock(ManualClock):
    """Is put forward by an hour at each look."""

    def now_ms(self) -> int:
        self.set_wall(HOUR_MS)
        return super().now_ms()


async def test_a_clock_that_is_put_forward_while_a_broker_is_made_stops_no_start(tmp_path: Path) -> None:
    broker = Broker(tmp_path, clock=SteppingClock())
    await broker.start()
    await broker.close()
