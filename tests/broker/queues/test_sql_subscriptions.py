"""SQL92 filters over a real store: pull, pop, redelivery, waiting, and bounds on what one look reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from broker_bench import Bench, open_bench, settle
from broker_bench import bodies as popped_bodies
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.broker.pop import pop_scan
from millstream.broker.queues import puller as puller_module
from millstream.model import sql_filter as sql_filter_module
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.model.operations import PoppedMessage, PopRequest, PullRequest, PullResult, PullStatus
from millstream.model.sql_filter import parse_sql_filter
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.store.message_store import IndexEntry, MessageStore

COST = parse_sql_filter("price > 10").read_cost


async def pull(bench: Bench, offset: int, expression: str, *, topic: str = "t", **more: Any) -> PullResult:
    return await bench.broker.queues.pull(
        PullRequest("g", topic, 0, offset, filter=parse_sql_filter(expression), **more)
    )


async def pop(
    bench: Bench, expression: str, *, topic: str = "t", group: str = "g", invisible_ms: int = 60_000, **more: Any
) -> list[PoppedMessage]:
    return await bench.broker.delivery.pop(
        PopRequest(group, topic, invisible_ms, filter=parse_sql_filter(expression), **more)
    )


def bodies(result: PullResult) -> list[str]:
    return [decode_record(part).body.decode() for record in result.records for part in iterate_records(record)]


async def send_prices(bench: Bench) -> None:
    for price, area in (("5", "n"), ("15", "n"), ("25", "s"), ("cheap", "n")):
        await bench.send(price, price=price, area=area)
    await bench.send("unpriced", area="n")


async def test_a_pull_gives_the_messages_for_which_the_condition_is_true(bench: Bench) -> None:
    await send_prices(bench)
    result = await pull(bench, 0, "price > 10 AND area = 'n'")
    assert (bodies(result), result.next_offset) == (["15"], 5)
    assert bodies(await pull(bench, 0, "NOT price > 10")) == ["5"], "what is unknown does not pass either way"
    assert bodies(await pull(bench, 1, "price IS NULL OR price = 'cheap'")) == ["cheap", "unpriced"]


async def test_a_pop_gives_the_messages_for_which_the_condition_is_true_and_consumes_the_others(bench: Bench) -> None:
    await send_prices(bench)
    popped = await pop(bench, "price BETWEEN 10 AND 30")
    assert popped_bodies(popped) == ["15", "25"]
    bench.ack(*popped)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 5
    assert await bench.pop() == []


async def test_a_pull_that_finds_nothing_moves_the_offset_on(bench: Bench) -> None:
    await send_prices(bench)
    result = await pull(bench, 0, "price > 100")
    assert (result.status, result.next_offset, result.records) == (PullStatus.ALL_FILTERED, 5, ())


async def test_a_waiting_pull_and_a_waiting_pop_are_held_until_the_condition_is_true(bench: Bench) -> None:
    pulling = asyncio.create_task(pull(bench, 0, "price > 10", wait_ms=30_000))
    popping = asyncio.create_task(pop(bench, "price > 10", wait_ms=30_000))
    await settle()
    await bench.send("5", price="5")
    await settle()
    assert not pulling.done()
    assert not popping.done()
    await bench.send("15", price="15")
    assert bodies(await pulling) == ["15"]
    assert popped_bodies(await popping) == ["15"]


async def test_one_pull_reads_a_bounded_number_of_messages(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puller_module, "MAX_SCANNED_ENTRIES", 3 * COST)
    await bench.send(*"abcdef", price="5")
    await bench.send("here", price="15")
    result = await pull(bench, 0, "price > 10", wait_ms=30_000)
    assert (result.status, result.next_offset) == (PullStatus.ALL_FILTERED, 3)
    result = await pull(bench, 4, "price > 10")
    assert (bodies(result), result.next_offset) == (["here"], 7)


async def test_messages_with_other_tags_are_passed_over_without_reading_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tag in ("red", "blue", "green", "blue"):
        await bench.send(tag, TAGS=tag, price="15")
    await bench.send("untagged", price="15")
    reads: list[int] = []
    read = MessageStore.read

    def counted(store: MessageStore, entry: IndexEntry) -> memoryview:
        reads.append(entry.queue_offset)
        return read(store, entry)

    monkeypatch.setattr(MessageStore, "read", counted)
    assert bodies(await pull(bench, 0, "TAGS IN ('blue', 'pink') AND price > 10")) == ["blue", "blue"]
    assert popped_bodies(await pop(bench, "price > 10 AND TAGS = 'blue'", queue_id=0)) == ["blue", "blue"]
    assert reads == [1, 3, 1, 3]


async def test_a_pop_finds_its_message_behind_many_others_and_lets_others_run_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_filter_module, "READ_COST_ENTRIES", pop_scan.MAX_SCANNED_ENTRIES)
    await bench.send(*"abcdef", price="5")
    await bench.send("here", price="15")
    turns = 0
    popping = asyncio.create_task(pop(bench, "price > 10", wait_ms=30_000))
    while not popping.done():
        await asyncio.sleep(0)
        turns += 1
    assert popped_bodies(popping.result()) == ["here"]
    assert turns > 6, "each message that is read in vain ends the turn here"


async def test_redelivery_asks_the_filter_of_its_time(bench: Bench) -> None:
    await send_prices(bench)
    assert len(await pop(bench, "price > 0", invisible_ms=1_000)) == 3
    bench.clock.advance_ms(1_000)
    (again,) = await pop(bench, "price > 20")
    assert (again.message.body, again.delivery_attempt) == (b"25", 2)
    bench.ack(again)
    assert bench.broker.queues.committed_offset("g", "t", 0) == 5, "what the filter does not want any more is consumed"


async def test_a_message_without_attempts_left_is_buried_only_if_the_filter_wants_it(bench: Bench) -> None:
    bench.broker.groups.create(GroupConfig("once", max_attempts=1))
    await send_prices(bench)
    assert len(await pop(bench, "price > 0", group="once", invisible_ms=1_000)) == 3
    bench.clock.advance_ms(1_000)
    assert await pop(bench, "price > 10", group="once") == []
    result = await bench.broker.queues.pull(PullRequest("g", "%DLQ%once", 0, 0))
    assert bodies(result) == ["15", "25"]
    assert bench.broker.queues.committed_offset("once", "t", 0) == 5


async def send_batches(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("b", attributes={"queue.type": "BatchCQ"}))
    for prices in (range(5), range(5, 8)):
        body = b"".join(encode_batch_item(b"%d" % price, {"price": str(price)}) for price in prices)
        flag = SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP
        batch = OutgoingMessage("b", body, {}, queue_id=0, system_flag=flag, message_count=len(prices))
        await bench.broker.delivery.send([batch])


async def test_a_condition_picks_messages_out_of_batches(bench: Bench) -> None:
    await send_batches(bench)
    result = await pull(bench, 0, "price BETWEEN 3 AND 6", topic="b")
    assert (bodies(result), result.next_offset) == (["3", "4", "5", "6"], 8)
    assert popped_bodies(await pop(bench, "price BETWEEN 3 AND 6", topic="b", queue_id=0)) == ["3", "4", "5", "6"]


async def test_one_pull_reads_a_bounded_number_of_messages_of_batches(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puller_module, "MAX_SCANNED_ENTRIES", 3 * COST)
    await send_batches(bench)
    result = await pull(bench, 0, "price > 100", topic="b")
    assert (result.status, result.next_offset) == (PullStatus.ALL_FILTERED, 3)
    result = await pull(bench, 3, "price >= 4", topic="b")
    assert (bodies(result), result.next_offset) == (["4", "5"], 6)


EXPRESSIONS = st.sampled_from(["price > 2", "TAGS = 'x' OR price = 1", "TAGS IN ('y') AND price <= 3", "price IS NULL"])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {}, optional={"price": st.sampled_from(["1", "2", "3", "4", "x"]), "TAGS": st.sampled_from("xyz")}
    ),
    max_size=12,
)


@settings(max_examples=scaled(30), deadline=None)
@given(EXPRESSIONS, MESSAGES, st.data())
def test_pulls_and_pops_together_give_what_the_filter_passes(
    expression: str,
    messages: list[dict[str, str]],
    data: st.DataObject,
) -> None:
    limit = data.draw(st.integers(1, 4))
    wanted = [str(n) for n, held in enumerate(messages) if parse_sql_filter(expression).matches(held)]

    async def run() -> None:
        async with open_bench(Path(directory)) as bench:
            for number, held in enumerate(messages):
                await bench.send(str(number), **held)
            pulled: list[str] = []
            offset = 0
            while offset < len(messages):
                result = await pull(bench, offset, expression, max_messages=limit)
                pulled += bodies(result)
                offset = result.next_offset
            popped: list[PoppedMessage] = []
            while found := await pop(bench, expression, max_messages=limit):
                popped += found
            bench.ack(*popped)
            assert pulled == popped_bodies(popped) == wanted
            assert (bench.broker.queues.committed_offset("g", "t", 0) or 0) == len(messages)

    with TemporaryDirectory() as directory:
        asyncio.run(run())
