"""How much went through a broker lately."""

from __future__ import annotations

from broker_bench import Bench

from millstream.broker.traffic import DAY_MS, MINUTE_MS, Day, Flow
from millstream.model.topic import MessageType, TopicConfig


async def test_what_was_stored_and_delivered_is_summed_by_topic_and_by_group(bench: Bench) -> None:
    traffic = bench.broker.maintenance.traffic
    await bench.send("a", "b", "c")
    assert traffic.growth(Flow.PUT, "t", "", MINUTE_MS).messages == 3
    bench.clock.advance_ms(10_000)
    assert traffic.rate(Flow.PUT, "t") == 0.0
    await traffic.look()
    assert traffic.rate(Flow.PUT, "t") == 0.3
    await bench.send("d")
    await bench.pop(max_messages=2)
    bench.clock.advance_ms(10_000)
    put, got = traffic.growth(Flow.PUT, "t", "", MINUTE_MS), traffic.growth(Flow.GET, "t", "g", MINUTE_MS)
    assert (put.messages, put.elapsed_ms, got.messages, got.elapsed_ms) == (4, 20_000, 2, 10_000)
    assert traffic.growth(Flow.PUT, "t", "", 10_000).messages == 1
    assert traffic.growth(Flow.ALL_GET, "", "", MINUTE_MS).messages == 2


async def test_a_minute_later_the_minutes_sum_is_gone_and_the_days_is_not(bench: Bench) -> None:
    traffic = bench.broker.maintenance.traffic
    await bench.send("a")
    for _ in range(8):
        bench.clock.advance_ms(10_000)
        await traffic.look()
    assert traffic.growth(Flow.PUT, "t", "", MINUTE_MS).messages == 0
    assert traffic.growth(Flow.PUT, "t", "", DAY_MS).messages == 1


async def test_types_of_one_topic_are_summed_and_a_deleted_topic_is_forgotten(bench: Bench) -> None:
    traffic = bench.broker.maintenance.traffic
    bench.broker.topics.create(TopicConfig("mixed", MessageType.MIXED))
    await bench.send("a", topic="mixed")
    await bench.send("b", topic="mixed", __SHARDINGKEY="k")
    await traffic.look()
    assert traffic.growth(Flow.PUT, "mixed", "", MINUTE_MS).messages == 2
    bench.broker.topics.delete("mixed")
    bench.clock.advance_ms(10_000)
    await traffic.look()
    assert traffic.growth(Flow.PUT, "mixed", "", MINUTE_MS).messages == 0
    assert (Flow.PUT, "mixed", "") not in traffic._histories


async def test_dead_letters_are_summed_for_their_group(bench: Bench) -> None:
    bench.broker.maintenance.statistics.note_dead_letter("g", "t")
    assert bench.broker.maintenance.traffic.growth(Flow.DEAD, "t", "g", MINUTE_MS).messages == 1


async def test_a_new_day_moves_the_mornings(bench: Bench) -> None:
    traffic = bench.broker.maintenance.traffic
    await bench.send("a", "b")
    assert traffic.day(Flow.ALL_PUT) == Day(0, 0, 2)
    bench.clock.advance_ms(DAY_MS)
    await traffic.look()
    await bench.send("c")
    assert traffic.day(Flow.ALL_PUT) == Day(0, 2, 3)
    bench.clock.advance_ms(DAY_MS)
    await traffic.look()
    assert traffic.day(Flow.ALL_PUT) == Day(2, 3, 3)
