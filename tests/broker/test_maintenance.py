"""What the broker does by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest
from broker_bench import Bench, bodies, running

from millstream.broker import maintenance
from millstream.broker.broker import Broker
from millstream.model.operations import PullStatus
from millstream.model.topic import TopicConfig
from millstream.store.compaction.pace import MAX_PAUSES_S, CompactionPace
from millstream.store.message_store import MessageStore
from patience import eventually, within_patience

HOUR_MS = 3_600_000


async def test_a_topic_keeps_its_messages_for_its_own_time_and_consumers_go_on_behind_them(bench: Bench) -> None:
    broker = bench.broker
    broker.topics.create(TopicConfig("short", attributes={"reserve.time": "2"}))
    for number in range(4):
        await bench.send(f"m{number}", topic="short")
        await bench.send(f"m{number}")
        bench.clock.advance_ms(HOUR_MS)
    first = await bench.pop(topic="short", queue_id=0, max_messages=1)
    assert bodies(first) == ["m0"]
    await broker.maintenance.retain()
    assert broker.maintenance.store.min_offset("short", 0) == 2
    assert broker.maintenance.store.min_offset("t", 0) == 0
    assert bodies(await bench.pop(topic="short", queue_id=0)) == ["m2", "m3"]
    assert (await bench.pull(0)).status is PullStatus.FOUND


class LongCompactions:
    """In the place of those of every store: each rests once after much work."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.paced: list[bool] = []
        self.done = 0
        patch.setattr(MessageStore, "compact", self._compact)
        patch.setattr(maintenance, "RETENTION_INTERVAL_S", 0.01)

    def _compact(self, _topics: Collection[str], pace: CompactionPace | None = None) -> int:
        self.paced.append(pace is not None)
        if pace is not None:
            pace.rest()
            pace._spent_s = -MAX_PAUSES_S
            pace.rest()
        self.done += 1
        return 0


@pytest.fixture
def compactions(monkeypatch: pytest.MonkeyPatch) -> LongCompactions:
    return LongCompactions(monkeypatch)


@pytest.fixture
async def broker(tmp_path: Path, compactions: LongCompactions) -> AsyncIterator[Broker]:
    async with running(tmp_path / "broker") as broker:
        broker.topics.create(TopicConfig("c", attributes={"cleanup.policy": "COMPACTION"}))
        yield broker


async def test_compactions_of_its_own_rest_and_a_stop_waits_for_none_of_the_pauses(
    broker: Broker, compactions: LongCompactions
) -> None:
    await eventually(lambda: bool(compactions.paced))
    assert (compactions.paced, compactions.done) == ([True], 0)
    await within_patience(broker.close())
    assert (compactions.paced, compactions.done) == ([True], 1)


async def test_a_tool_that_asks_for_it_waits_for_none_of_the_pauses(
    broker: Broker, compactions: LongCompactions
) -> None:
    await eventually(lambda: bool(compactions.paced))
    await within_patience(broker.maintenance.retain())
    assert compactions.paced[:2] == [True, False]


async def test_on_a_full_disk_compactions_do_not_pause(
    broker: Broker, compactions: LongCompactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MessageStore, "is_disk_full", True)
    await eventually(lambda: compactions.done > 1)
    assert False in compactions.paced
