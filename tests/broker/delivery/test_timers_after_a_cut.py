"""Delayed messages of a log that is cut: those behind the cut never come, the others come once (#10668)."""

from __future__ import annotations

from pathlib import Path

from broker_bench import SMALL_STORE, bodies, open_bench

from millstream.model.clock import ManualClock
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.cut.truncation import cut_store
from patience import eventually

DELAY_MS = 10_000


async def deliver_after_cut(directory: Path) -> list[bytes | str]:
    """Two delayed messages, a cut between them, a new one behind it, and what is delivered in which order."""
    clock = ManualClock()
    async with open_bench(directory, clock=clock) as bench:
        bench.broker.topics.create(TopicConfig("later", MessageType.DELAY))
        due = {"TIMER_DELIVER_MS": str(clock.now_ms() + DELAY_MS)}
        await bench.send("kept", topic="later", UNIQ_KEY="id-kept", **due)
        cut_at = bench.broker.maintenance.store.written_log_offset
        await bench.send("cut off", topic="later", UNIQ_KEY="id-cut", **due)
        await eventually(lambda: bench.broker.maintenance.delayed_messages == 2)
    cut_store(directory / "store", cut_at, SMALL_STORE.segment_bytes)
    async with open_bench(directory, clock=clock) as bench:
        # It takes the place of the one that was cut off, and is due much later.
        due = {"TIMER_DELIVER_MS": str(clock.now_ms() + 6 * DELAY_MS)}
        await bench.send("new", topic="later", UNIQ_KEY="id-new", **due)
        clock.advance_ms(DELAY_MS)
        store = bench.broker.maintenance.store
        await eventually(lambda: store.max_offset("later", 0) > 0)
        await eventually(lambda: bench.broker.maintenance.delayed_messages == 1)
        popped = await bench.pop(topic="later")
        early = bodies(popped)
        bench.ack(*popped, topic="later")
        clock.advance_ms(6 * DELAY_MS)
        await eventually(lambda: store.max_offset("later", 0) == 2)
        return [*early, *bodies(await bench.pop(topic="later"))]


async def test_10668_a_delayed_message_behind_a_cut_never_comes(tmp_path: Path) -> None:
    assert await deliver_after_cut(tmp_path) == ["kept", "new"]
