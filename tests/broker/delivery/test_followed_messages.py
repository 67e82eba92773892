"""What a replica knows of delayed messages and transactions before it becomes the master."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest
from broker_bench import SMALL_STORE, open_bench

from millstream.broker.broker import Broker, BrokerOptions
from millstream.model.clock import ManualClock
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.message_store import MessageStore
from patience import eventually

DELAY_MS = 10_000
STORE = replace(SMALL_STORE, replicated=True)


async def fill(directory: Path, clock: ManualClock) -> None:
    """Three delayed messages, one of them delivered, and a transaction that has not ended."""
    async with open_bench(directory, clock=clock) as bench:
        topics = bench.broker.topics
        topics.create(TopicConfig("later", MessageType.DELAY))
        topics.create(TopicConfig("paid", MessageType.TRANSACTION))
        for number, delay_ms in enumerate((DELAY_MS, 9 * DELAY_MS, 9 * DELAY_MS)):
            due_ms = str(clock.now_ms() + delay_ms)
            await bench.send("delayed", topic="later", UNIQ_KEY=f"id-{number}", TIMER_DELIVER_MS=due_ms)
        await bench.send("half", topic="paid", UNIQ_KEY="id-half", TRAN_MSG="true")
        clock.advance_ms(DELAY_MS)
        await eventually(lambda: bench.broker.maintenance.delayed_messages == 2)
        assert bench.broker.maintenance.open_transactions == 1


def forget_what_was_saved(directory: Path) -> None:
    """What a replica has not got: it copies the log alone."""
    for path in (directory / "store" / "timers").iterdir():
        path.unlink()
    (directory / "config" / "transactions.json").unlink()


async def test_a_replica_that_followed_has_nothing_of_the_log_to_read_when_it_becomes_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    await fill(tmp_path, clock)
    forget_what_was_saved(tmp_path)
    store = MessageStore.open(tmp_path / "store", STORE, clock=clock)
    store.confirm(store.written_log_offset)
    broker = Broker(tmp_path, options=BrokerOptions(store=STORE), clock=clock)
    broker.attach(store)
    await broker.follow_staged()

    def refuse(*_: object) -> Never:
        raise AssertionError("the log is read again")

    monkeypatch.setattr(store, "search", refuse)
    await broker.start()
    assert (broker.maintenance.delayed_messages, broker.maintenance.open_transactions) == (2, 1)
    monkeypatch.undo()
    await broker.close()


async def test_what_a_replica_followed_is_known_after_its_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    await fill(tmp_path, clock)
    forget_what_was_saved(tmp_path)
    for is_second in (False, True):
        store = MessageStore.open(tmp_path / "store", STORE, clock=clock)
        store.confirm(store.written_log_offset)
        broker = Broker(tmp_path, options=BrokerOptions(store=STORE), clock=clock)
        broker.attach(store)
        if not is_second:
            await broker.follow_staged()
            await broker.keep_followed()
            await broker.detach()
            store.close()
    looked_at: list[int] = []
    search = store.search

    def note(log_offset: int, mark: bytes) -> object:
        looked_at.append(log_offset)
        return search(log_offset, mark)

    monkeypatch.setattr(store, "search", note)
    await broker.start()
    assert (broker.maintenance.delayed_messages, broker.maintenance.open_transactions) == (2, 1)
    assert not looked_at
    monkeypatch.undo()
    await broker.close()
