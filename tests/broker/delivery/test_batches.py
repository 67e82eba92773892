"""Batches in one record: consumers of every kind get the messages they hold."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from broker_bench import Bench, bodies

from millstream.broker.queues import reader
from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.filter import parse_tag_filter
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.operations import PullRequest, PullResult, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.batches import UnpackedBatch, unpack
from millstream.protocol.record import decode_record, encode_record, iterate_records
from millstream.protocol.remoting.messages.batch import encode_batch_item

PLAIN = SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP
ARROW = SystemFlag.INNER_BATCH | SystemFlag.ARROW_BATCH
HOST = Address("127.0.0.1", 10911)


def plain(texts: Sequence[str], tags: Sequence[str] = ()) -> OutgoingMessage:
    items = [
        encode_batch_item(text.encode(), {"TAGS": tags[number]} if tags else {}) for number, text in enumerate(texts)
    ]
    return OutgoingMessage("b", b"".join(items), {}, queue_id=0, system_flag=PLAIN, message_count=len(texts))


def arrow(texts: Sequence[str], tags: Sequence[str] | None = None) -> OutgoingMessage:
    columns = {"body": pa.array([text.encode() for text in texts], pa.binary())}
    if tags is not None:
        columns["tag"] = pa.array(tags, pa.utf8())
        columns["key"] = pa.array([f"k-{text}" for text in texts], pa.utf8())
        columns["properties"] = pa.array([f"mine\x01{text}\x02" for text in texts], pa.utf8())
    table = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(table)
    body = sink.getvalue().to_pybytes()
    return OutgoingMessage("b", body, {}, queue_id=0, system_flag=ARROW, message_count=len(texts))


BOTH = pytest.mark.parametrize("make", [plain, arrow])
Make = Callable[..., OutgoingMessage]


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.broker.topics.create(TopicConfig("b", attributes={"queue.type": "BatchCQ"}))
    return bench


async def pull(bench: Bench, offset: int, *, expression: str = "*", **more: int | bool) -> PullResult:
    request = PullRequest("g", "b", 0, offset, filter=parse_tag_filter(expression), **more)  # type: ignore[arg-type]
    return await bench.broker.queues.pull(request)


@BOTH
async def test_a_pop_gives_the_messages_of_a_batch_one_by_one(bench: Bench, make: Make) -> None:
    [receipt] = await bench.broker.delivery.send([make(["a", "b", "c"])])
    assert receipt.queue_offset == 0
    await bench.send("d", topic="b")
    [receipt] = await bench.broker.delivery.send([make(["e", "f"])])
    assert receipt.queue_offset == 4
    popped = await bench.pop(topic="b", queue_id=0, max_messages=4)
    assert bodies(popped) == ["a", "b", "c", "d"]
    assert [message.message.queue_offset for message in popped] == [0, 1, 2, 3]
    assert not any(int(message.message.system_flag) & int(PLAIN | ARROW) for message in popped)
    rest = await bench.pop(topic="b", queue_id=0)
    assert bodies(rest) == ["e", "f"]
    bench.ack(*popped, *rest, topic="b")
    assert bench.broker.queues.committed_offset("g", "b", 0) == 6


@BOTH
async def test_a_message_of_a_batch_comes_again_alone(bench: Bench, make: Make) -> None:
    await bench.broker.delivery.send([make(["a", "b", "c"])])
    first, second, third = await bench.pop(topic="b", queue_id=0, invisible_ms=10_000)
    bench.ack(first, third, topic="b")
    bench.clock.advance_ms(10_001)
    again = await bench.pop(topic="b", queue_id=0)
    assert bodies(again) == [second.message.body.decode()]
    assert again[0].delivery_attempt == 2


@BOTH
async def test_a_filter_picks_messages_out_of_batches(bench: Bench, make: Make) -> None:
    await bench.broker.delivery.send([make(["a", "b", "c", "d"], ["x", "y", "x", "z"])])
    assert bodies(await bench.pop(topic="b", queue_id=0, expression="x||z")) == ["a", "c", "d"]
    result = await pull(bench, 0, expression="y")
    assert [decode_record(record).body for record in result.records] == [b"b"]
    assert result.next_offset == 4


async def test_a_pull_gives_a_plain_batch_as_it_is_stored(bench: Bench) -> None:
    await bench.broker.delivery.send([plain(["a", "b", "c"])])
    await bench.broker.delivery.send([plain(["d"])])
    result = await pull(bench, 1)
    records = [decode_record(record) for record in result.records]
    assert [(record.queue_offset, record.properties["INNER_NUM"]) for record in records] == [(0, "3"), (3, "1")]
    assert all(record.system_flag & SystemFlag.NEED_UNWRAP for record in records)
    assert result.next_offset == 4


async def test_a_pull_gives_the_rows_of_an_arrow_batch_as_ordinary_records(bench: Bench) -> None:
    texts = [f"m{number}" for number in range(100)]
    await bench.broker.delivery.send([arrow(texts, ["t"] * 100)])
    seen, offset = [], 7
    while True:
        result = await pull(bench, offset, max_messages=32)
        if result.status is not PullStatus.FOUND:
            break
        for record in result.records:
            message = decode_record(record)
            assert (message.tag, message.keys) == ("t", (f"k-{message.body.decode()}",))
            assert message.user_properties == {"mine": message.body.decode()}
            seen.append((message.queue_offset, message.body.decode()))
        offset = result.next_offset
    assert seen == [(number, f"m{number}") for number in range(7, 100)]


async def test_a_raw_pull_gives_whole_batches_in_slices_of_the_log(bench: Bench) -> None:
    for start in range(0, 30, 10):
        await bench.broker.delivery.send([arrow([f"m{start + number}" for number in range(10)])])
    result = await pull(bench, 12, raw=True, max_bytes=1 << 20)
    assert len(result.records) == 1, "records that follow one another are one slice"
    records = [decode_record(record) for record in iterate_records(result.records[0])]
    assert [record.queue_offset for record in records] == [10, 20]
    assert result.next_offset == 30
    assert (await pull(bench, 30, raw=True)).status is PullStatus.NOTHING_NEW
    limited = await pull(bench, 0, raw=True, max_bytes=1)
    assert limited.next_offset == 10, "one record is given however small the limit"


async def test_a_damaged_batch_is_passed_over_by_everybody(bench: Bench, damage: Callable[[int], None]) -> None:
    await bench.broker.delivery.send([arrow(["a", "b"])])
    await bench.broker.delivery.send([arrow(["c", "d"])])
    damage(0)
    assert bodies(await bench.pop(topic="b", queue_id=0)) == ["c", "d"]
    result = await pull(bench, 0)
    assert [decode_record(record).body for record in result.records] == [b"c", b"d"]


async def test_a_batch_that_its_rows_do_not_fit_is_passed_over(bench: Bench) -> None:
    await bench.broker.delivery.send([replace(plain(["a", "b"]), message_count=3)])
    await bench.broker.delivery.send([plain(["d"])])
    assert bodies(await bench.pop(topic="b", queue_id=0)) == ["d"]


async def test_batches_go_to_topics_that_take_them_alone(bench: Bench) -> None:
    with pytest.raises(MessageRefused, match=r"queue.type=BatchCQ"):
        await bench.broker.delivery.send([replace(plain(["a"]), topic="t")])
    with pytest.raises(MessageRefused, match="0 messages"):
        await bench.broker.delivery.send([replace(plain(["a"]), message_count=0)])
    with pytest.raises(MessageRefused, match="32768 messages"):
        await bench.broker.delivery.send([replace(plain(["a"]), message_count=32_768)])
    with pytest.raises(MessageRefused, match="set by the broker"):
        await bench.broker.delivery.send([replace(plain(["a"]), properties={"INNER_NUM": "4"})])


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"queue.type": "Batch"}, "SimpleCQ, BatchCQ"),
        ({"cleanup.policy": "compact"}, "DELETE, COMPACTION"),
        ({"reserve.time": "0"}, "in hours"),
        ({"queue.type": "BatchCQ", "cleanup.policy": "COMPACTION"}, "one of the two"),
    ],
)
async def test_attributes_that_mean_nothing_are_refused_with_what_is_meant(
    bench: Bench, attributes: dict[str, str], said: str
) -> None:
    with pytest.raises(NameRefused) as refused:
        bench.broker.topics.create(TopicConfig("new", attributes=attributes))
    assert said in str(refused.value)
    assert bench.broker.topics.find("new") is None


@BOTH
@pytest.mark.parametrize("tags", [["red", "", "blue"], None])
def test_the_tag_of_a_row_is_that_of_its_message(make: Make, tags: list[str] | None) -> None:
    batch = unpack(record_of_batch(make(["a", "b", "c"], tags) if tags else make(["a", "b", "c"])))
    found = [batch.tag(offset) or None for offset in range(7, 10)]
    assert found == [message.tag or None for message in batch.messages(0)]
    assert found == ([tag or None for tag in tags] if tags else [None] * 3)


def test_a_tag_among_the_properties_of_a_row_is_its_tag() -> None:
    rows = pa.record_batch({"body": pa.array([b"a"], pa.binary()), "properties": pa.array(["TAGS\x01red\x02"])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    body = sink.getvalue().to_pybytes()
    batch = unpack(record_of_batch(OutgoingMessage("b", body, {}, system_flag=ARROW, message_count=1)))
    assert (batch.tag(7), batch.message(7).tag) == ("red", "red")


def record_of_batch(message: OutgoingMessage) -> bytes:
    """The record of a batch at queue offset 7."""
    numbered = replace(message, properties={"INNER_NUM": str(message.message_count)}, born_host=HOST)
    return encode_record(numbered, queue_id=0, queue_offset=7, log_offset=0, store_timestamp_ms=1, store_host=HOST)


async def test_an_arrow_batch_is_unpacked_once_and_in_a_thread_for_pops_and_pulls(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def noted(record: bytes | memoryview) -> UnpackedBatch:
        threads.append(threading.current_thread().name)
        return unpack(record)

    monkeypatch.setattr(reader, "unpack", noted)
    texts = [f"m{number}" for number in range(40)]
    await bench.broker.delivery.send([arrow(texts)])
    popped = await asyncio.gather(*(bench.pop(topic="b", queue_id=0, group=f"g{number}") for number in range(3)))
    assert [bodies(one) for one in popped] == [texts[:32]] * 3
    assert [decode_record(record).body.decode() for record in (await pull(bench, 30)).records] == texts[30:]
    assert len(threads) == 1
    assert threads[0].startswith("millstream-heavy")
    waiting = asyncio.create_task(bench.pop(topic="b", queue_id=0, group="late", wait_ms=5_000))
    await bench.broker.delivery.send([arrow(["a"])])
    assert bodies(await waiting) == texts[:32]
    assert bodies(await bench.pop(topic="b", queue_id=0, group="late")) == [*texts[32:], "a"]
    assert len(threads) == 2
    assert all(name.startswith("millstream-heavy") for name in threads)
