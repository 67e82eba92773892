"""Light queues that were declared with a length, under senders of all kinds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from broker_bench import Bench, bodies, open_bench, running

from millstream.model.errors import NameRefused
from millstream.model.message import OutgoingMessage
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.model.topic import MessageType
from patience import eventually

QUEUE = "%LMQ%q"


async def declare(bench: Bench, name: str = "q", **more: object) -> None:
    queue = json.dumps({"kind": "amqp", "group": name, **more}).encode()
    binding = json.dumps({"topic": "t", "mqtt": "#"}).encode()
    records = ((f"queue/{name}", queue), (f"bind/{name}/1", binding))
    await bench.broker.delivery.store_state(
        [OutgoingMessage(ROUTES_TOPIC, body, {"KEYS": key}) for key, body in records]
    )


async def pop(bench: Bench, count: int = 32) -> list[str]:
    return bodies(await bench.pop("q", topic=QUEUE, max_messages=count))


async def test_a_queue_that_drops_has_its_newest_messages_whoever_sent_them(bench: Bench) -> None:
    await declare(bench, max_length=3, overflow="drop")
    await declare(bench, "other")
    await bench.send(*"abcde")
    await bench.send("f")
    assert await pop(bench) == ["d", "e", "f"]
    assert bodies(await bench.pop("other", topic="%LMQ%other")) == [*"abcdef"]
    assert bodies(await bench.pop()) == [*"abcdef"]


async def test_what_a_consumer_holds_does_not_count_and_what_came_back_goes_first(bench: Bench) -> None:
    await declare(bench, max_length=2, overflow="drop")
    await bench.send(*"ab")
    held = await bench.pop("q", topic=QUEUE, invisible_ms=10_000)
    assert bodies(held) == ["a", "b"]
    await bench.send(*"cd")
    assert bodies(await bench.pop("q", topic=QUEUE, max_messages=1)) == ["c"]
    bench.clock.advance_ms(10_001)
    await bench.send("e")
    assert await pop(bench) == ["d", "e"]


async def test_a_full_queue_that_rejects_takes_no_new_message_and_its_topic_has_it(bench: Bench) -> None:
    await declare(bench, max_length=2, overflow="reject")
    await declare(bench, "other")
    # Together in one write, and in several.
    await bench.send(*"abc")
    await bench.send("d")
    first = await bench.pop("q", topic=QUEUE, max_messages=1)
    assert bodies(first) == ["a"]
    await bench.send(*"ef")
    assert await pop(bench) == ["b", "e"]
    assert bodies(await bench.pop("other", topic="%LMQ%other")) == [*"abcdef"]
    assert bodies(await bench.pop()) == [*"abcdef"]


async def test_sends_that_come_together_do_not_fill_a_queue_over_its_length(bench: Bench) -> None:
    await declare(bench, max_length=3, overflow="reject")
    await asyncio.gather(*(bench.send(f"{number}") for number in range(10)))
    assert len(await pop(bench)) == 3
    await bench.send("later")
    assert await pop(bench) == ["later"]


async def test_who_sends_by_amqp_was_asked_before(bench: Bench) -> None:
    await declare(bench, max_length=1, overflow="reject")
    await bench.send("a")
    await bench.send("b", amqp_exchange="t", amqp_rk="x")
    assert await pop(bench) == ["a", "b"]


async def test_a_length_of_zero_keeps_nothing(bench: Bench) -> None:
    for overflow in ("drop", "reject"):
        await declare(bench, max_length=0, overflow=overflow)
        await bench.send("a")
        assert await pop(bench) == []


async def test_a_limit_that_is_taken_back_holds_no_more(bench: Bench) -> None:
    await declare(bench, max_length=1, overflow="drop")
    await bench.send(*"ab")
    await declare(bench)
    await bench.send(*"cd")
    assert await pop(bench) == ["b", "c", "d"]


async def test_what_was_dropped_stays_so_over_a_restart_and_the_limit_holds_on(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await declare(bench, max_length=2, overflow="drop")
        await bench.send(*"abc")
        assert bench.broker.maintenance.light_queues.lengths.dropped == 1
    async with running(tmp_path) as broker:
        again = Bench(broker, bench.clock)
        await again.send("d")
        assert await pop(again) == ["c", "d"]


async def test_a_delayed_message_counts_when_it_is_due(tmp_path: Path) -> None:
    async with open_bench(tmp_path, takes=MessageType.MIXED) as bench:
        await declare(bench, max_length=1, overflow="reject")
        due_ms = bench.clock.now_ms() + 5_000
        await bench.send("later", TIMER_DELIVER_MS=str(due_ms))
        await bench.send("now")
        bench.clock.advance_ms(6_000)
        assert len(await bench.pop(wait_ms=30_000)) == 1
        await eventually(lambda: bench.broker.maintenance.light_queues.lengths.rejected == 1)
        assert await pop(bench) == ["now"]


@pytest.mark.parametrize("more", [{"overflow": "drop"}, {"overflow": "other", "max_length": 1}])
async def test_an_overflow_that_means_nothing_is_refused(bench: Bench, more: dict[str, object]) -> None:
    with pytest.raises(NameRefused) as refused:
        await declare(bench, **more)
    assert refused.value.name == "ILLEGAL_ROUTE"
