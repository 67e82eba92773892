"""Pull: what is answered for every position in the queue, with filters and with waiting."""

from __future__ import annotations

import asyncio
import logging

import pytest
from broker_bench import Bench, settle

from millstream.broker.queues import puller as puller_module
from millstream.model.errors import NameRefused
from millstream.model.operations import PullRequest, PullResult, PullStatus
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.store.consume_queue import IndexEntry


def bodies(result: PullResult) -> list[str]:
    return [decode_record(record).body.decode() for record in result.records]


async def test_records_come_in_order_with_the_next_offset(bench: Bench) -> None:
    await bench.send("a", "b", "c")
    result = await bench.pull(1)
    assert (result.status, bodies(result)) == (PullStatus.FOUND, ["b", "c"])
    assert (result.next_offset, result.min_offset, result.max_offset) == (3, 0, 3)


async def test_a_pull_has_at_most_the_messages_and_bytes_it_asks_for_and_at_least_one(bench: Bench) -> None:
    await bench.send("a" * 1000, "b" * 1000, "c" * 1000)
    two = await bench.pull(0, max_messages=2)
    assert (len(two.records), two.next_offset) == (2, 2)
    by_bytes = await bench.pull(0, max_bytes=2500)
    assert (len(by_bytes.records), by_bytes.next_offset) == (2, 2)
    one = await bench.pull(1, max_bytes=10)
    assert (len(one.records), one.next_offset) == (1, 2)


async def test_no_pull_is_larger_than_the_broker_allows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.send(*"abcdef")
    monkeypatch.setattr(puller_module, "MAX_PULL_MESSAGES", 4)
    assert len((await bench.pull(0, max_messages=1_000_000)).records) == 4
    monkeypatch.setattr(puller_module, "MAX_PULL_BYTES", 300)
    assert len((await bench.pull(0, max_bytes=1_000_000_000)).records) == 2


async def test_the_end_of_a_queue_has_nothing_new(bench: Bench) -> None:
    await bench.send("a")
    result = await bench.pull(1)
    assert (result.status, result.next_offset) == (PullStatus.NOTHING_NEW, 1)
    empty = await bench.pull(0, queue_id=2)
    assert (empty.status, empty.next_offset, empty.max_offset) == (PullStatus.NOTHING_NEW, 0, 0)


@pytest.mark.parametrize(("queue_offset", "nearest"), [(-1, 0), (3, 2), (1_000, 2)])
async def test_an_offset_outside_of_the_queue_is_illegal_and_the_nearest_one_is_named(
    bench: Bench, queue_offset: int, nearest: int
) -> None:
    await bench.send("a", "b")
    result = await bench.pull(queue_offset, wait_ms=30_000)
    assert (result.status, result.next_offset) == (PullStatus.OFFSET_ILLEGAL, nearest)


async def test_a_filter_gives_its_tags_only(bench: Bench) -> None:
    for tag in ("red", "green", "blue", "red"):
        await bench.send(tag, TAGS=tag)
    await bench.send("untagged")
    result = await bench.pull(0, expression="red || blue")
    assert bodies(result) == ["red", "blue", "red"]
    assert result.next_offset == 5


async def test_tags_with_equal_hash_codes_are_told_apart(bench: Bench) -> None:
    await bench.send("wrong", TAGS="BB")
    await bench.send("right", TAGS="Aa")
    result = await bench.pull(0, expression="Aa")
    assert bodies(result) == ["right"]


async def test_messages_that_are_all_filtered_move_the_offset_on(bench: Bench) -> None:
    await bench.send("a", "b", TAGS="red")
    result = await bench.pull(0, expression="blue")
    assert (result.status, result.next_offset, result.records) == (PullStatus.ALL_FILTERED, 2, ())


async def test_one_pull_looks_at_a_bounded_number_of_entries(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puller_module, "MAX_SCANNED_ENTRIES", 3)
    await bench.send(*"abcdef", TAGS="red")
    result = await bench.pull(0, expression="blue", wait_ms=30_000)
    assert (result.status, result.next_offset) == (PullStatus.ALL_FILTERED, 3)


async def test_a_waiting_pull_is_answered_by_the_next_message(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.pull(0, wait_ms=30_000))
    await settle()
    await bench.send("elsewhere", queue_id=1)
    await settle()
    assert not waiting.done()
    await bench.send("a")
    result = await waiting
    assert (result.status, bodies(result), result.max_offset) == (PullStatus.FOUND, ["a"], 1)


async def test_a_waiting_pull_is_held_until_its_filter_matches(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.pull(0, expression="blue", wait_ms=30_000))
    await settle()
    await bench.send("a", TAGS="red")
    await settle()
    assert not waiting.done()
    await bench.send("b", TAGS="blue")
    result = await waiting
    assert (bodies(result), result.next_offset) == (["b"], 2)


async def test_a_wait_for_nothing_ends_in_time(bench: Bench) -> None:
    result = await bench.pull(0, wait_ms=20)
    assert (result.status, result.next_offset) == (PullStatus.NOTHING_NEW, 0)
    waiting = asyncio.create_task(bench.pull(0, expression="blue", wait_ms=50))
    await settle()
    await bench.send("a", TAGS="red")
    result = await waiting
    assert (result.status, result.next_offset, result.max_offset) == (PullStatus.ALL_FILTERED, 1, 1)


async def test_a_damaged_record_is_passed_over_and_named_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    await bench.send("a", "b", "c")
    damage(1)  # type: ignore[operator]
    with caplog.at_level(logging.ERROR):
        result = await bench.pull(0)
    assert (bodies(result), result.next_offset) == (["a", "c"], 3)
    assert "topic t, queue 0, queue offset 1" in caplog.text


async def test_what_cannot_be_read_is_refused(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("sealed", permission=Permission.WRITE))
    for request, error in (
        (PullRequest("g", "nowhere", 0, 0), "TOPIC_NOT_FOUND"),
        (PullRequest("g", "t", 4, 0), "QUEUE_NOT_FOUND"),
        (PullRequest("g", "t", -1, 0), "QUEUE_NOT_FOUND"),
        (PullRequest("g", "sealed", 0, 0), "FORBIDDEN"),
        (PullRequest("no good", "t", 0, 0), "ILLEGAL_GROUP"),
    ):
        with pytest.raises(NameRefused) as refused:
            await bench.broker.queues.pull(request)
        assert refused.value.name == error


async def test_a_pull_that_waits_on_a_deleted_topic_is_refused(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.pull(0, wait_ms=30_000))
    await settle()
    bench.broker.topics.delete("t")
    with pytest.raises(NameRefused) as refused:
        await waiting
    assert refused.value.name == "TOPIC_NOT_FOUND"


async def test_raw_records_are_all_that_fit_in_order_however_many_looks_that_takes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [f"m{number}" for number in range(300)]
    await bench.send(*sent)

    def raw_bodies(result: PullResult) -> list[str]:
        buffer = b"".join(result.records)
        return [decode_record(record).body.decode() for record in iterate_records(buffer)]

    everything = await bench.pull(0, raw=True, max_bytes=1_000_000)
    assert (raw_bodies(everything), everything.next_offset) == (sent, 300)
    assert len(everything.records) == 1
    size = len(everything.records[0]) // 300
    for count in (1, 31, 32, 33, 250):
        some = await bench.pull(7, raw=True, max_bytes=(size + 1) * count)
        assert len(raw_bodies(some)) >= count
        assert raw_bodies(some) == sent[7 : some.next_offset]
        assert sum(map(len, some.records)) <= (size + 1) * count
    monkeypatch.setattr(puller_module, "MAX_RAW_RECORDS", 40)
    limited = await bench.pull(0, raw=True, max_bytes=1_000_000)
    assert (len(raw_bodies(limited)), limited.next_offset) == (40, 40)


async def test_a_raw_pull_of_few_large_records_looks_up_few_entries(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.send(*("x" * 1000 for _ in range(200)))
    store, looked_up = bench.broker.maintenance.store, []
    entries = store.entries

    def counted(topic: str, queue_id: int, queue_offset: int, max_count: int) -> list[IndexEntry]:
        looked_up.append(max_count)
        return entries(topic, queue_id, queue_offset, max_count)

    monkeypatch.setattr(store, "entries", counted)
    assert (await bench.pull(0, raw=True, max_bytes=5000)).next_offset == 4
    assert sum(looked_up) < 100
