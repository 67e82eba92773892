"""What the broker does by itself."""

from __future__ import annotations

from broker_bench import Bench, bodies

from millstream.model.operations import PullStatus
from millstream.model.topic import TopicConfig

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
