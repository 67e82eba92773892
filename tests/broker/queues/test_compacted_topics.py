"""Compacted topics as clients see them: keys are needed, an empty body deletes, gaps are passed over."""

from __future__ import annotations

import asyncio

import pytest
from broker_bench import Bench, bodies

from millstream.model.errors import MessageRefused
from millstream.model.filter import parse_tag_filter
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullResult, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record


@pytest.fixture
async def bench(bench: Bench) -> Bench:
    bench.broker.topics.create(TopicConfig("c", attributes={"cleanup.policy": "COMPACTION"}))
    messages = [
        OutgoingMessage("c", b"%d" % number, {"KEYS": f"k{number % 2}", "TAGS": "t"}, queue_id=0)
        for number in range(1000)
    ]
    await bench.broker.delivery.send(messages)
    return bench


async def compact(bench: Bench) -> None:
    assert await asyncio.to_thread(bench.broker.maintenance.store.compact, {"c"}) == 1


async def pull(bench: Bench, offset: int, **more: bool) -> PullResult:
    return await bench.broker.queues.pull(PullRequest("g", "c", 0, offset, filter=parse_tag_filter("*"), **more))


async def test_a_message_without_a_key_is_refused_and_an_empty_one_deletes_its_key(bench: Bench) -> None:
    with pytest.raises(MessageRefused, match="without a key"):
        await bench.send("x", topic="c")
    with pytest.raises(MessageRefused, match="empty body"):
        await bench.send("", KEYS="k1")
    await bench.send("", topic="c", KEYS="k1")
    await compact(bench)
    result = await pull(bench, 0)
    assert [(decode_record(record).queue_offset, decode_record(record).body) for record in result.records] == [
        (998, b"998"),
        (1000, b""),
    ]


async def test_pops_pass_over_what_compaction_took(bench: Bench) -> None:
    first = await bench.pop(topic="c", queue_id=0, max_messages=3)
    await compact(bench)
    rest = await bench.pop(topic="c", queue_id=0)
    assert bodies(rest) == ["998", "999"]
    bench.ack(*first, *rest, topic="c")
    assert bench.broker.queues.committed_offset("g", "c", 0) == 1000


async def test_a_delivery_of_a_record_that_is_gone_is_not_repeated(bench: Bench) -> None:
    await bench.pop(topic="c", queue_id=0, max_messages=3, invisible_ms=10_000)
    await compact(bench)
    bench.clock.advance_ms(10_001)
    assert bodies(await bench.pop(topic="c", queue_id=0)) == ["998", "999"]


@pytest.mark.parametrize("raw", [True, False])
async def test_pulls_pass_over_what_compaction_took(bench: Bench, raw: bool) -> None:
    await compact(bench)
    result = await pull(bench, 5, raw=raw)
    assert [decode_record(record).body for record in result.records] == [b"998", b"999"]
    assert (result.min_offset, result.next_offset, result.max_offset) == (0, 1000, 1000)


async def test_a_pull_takes_what_was_not_compacted_together_and_gives_what_each_read_gives(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await compact(bench)
    store = bench.broker._store
    await bench.broker.delivery.send(
        [OutgoingMessage("c", b"n%d" % number, {"KEYS": "new"}, queue_id=0) for number in range(3)]
    )
    expected = [store.read(entry) for entry in store.entries("c", 0, 0, 100)]
    assert [*(await pull(bench, 0)).records] == expected
    monkeypatch.setattr(store, "read", None)
    assert [*(await pull(bench, 1000)).records] == expected[2:]


async def test_a_reader_at_a_tail_of_which_nothing_is_left_reaches_the_end(bench: Bench) -> None:
    for key in ("k0", "k1"):
        await bench.send("", topic="c", KEYS=key)
    await compact(bench)
    bench.clock.advance_ms(25 * 3_600_000)
    await compact(bench)
    result = await pull(bench, 0)
    assert (result.status, result.next_offset) == (PullStatus.ALL_FILTERED, 1002)
    assert await bench.pop(topic="c", queue_id=0) == []
    assert bench.broker.queues.committed_offset("g", "c", 0) == 1002


async def test_compaction_keeps_every_property_of_a_message(bench: Bench) -> None:
    held = {
        "KEYS": "k9",
        "TAGS": "t",
        "mqtt_topic": "a/b|01",
        "CE_id": "A1",
        "amqp_properties": "AAA=",
        "__EXPIRES_MS": "1",
    }
    await bench.broker.delivery.send([OutgoingMessage("c", b"x", dict(held), queue_id=0)])
    before = decode_record((await pull(bench, 1000)).records[0])
    await compact(bench)
    assert decode_record((await pull(bench, 1000)).records[0]) == before
    assert {name: before.properties.get(name) for name in held} == held
