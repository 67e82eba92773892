"""The asyncio side of the bulk lane against a real broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
import pytest_asyncio
from bulk_servers import BULK, PLAIN, bulk_client, bulk_topic

from millstream.client.bulk.encoding import BulkEncoder, GatherLimits
from millstream.client.bulk.producer import BulkProducer
from millstream.client.bulk.puller import BulkPuller
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.client.puller import Puller
from millstream.model.errors import ConsumeRefused, MessageRefused, NameRefused, Refused, Unreachable
from millstream.model.message import Message
from millstream.model.operations import PullStatus
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from patience import within_patience
from servers import Servers

_PATIENT = GatherLimits(hold_s=60.0)
"""Single messages wait until they are flushed."""


@pytest_asyncio.fixture
async def lane(tmp_path: Path) -> AsyncIterator[tuple[Client, Servers]]:
    async with bulk_client(tmp_path / "data") as both:
        yield both


async def fetched(client: Client, topic: str = BULK) -> pa.Table:
    """All messages of a topic."""
    tables = []
    for item in await client.queue_ranges(topic):
        offset = item.range.min_offset
        while offset < item.range.max_offset:
            batch = await BulkPuller(client).fetch(item.queue, offset, max_bytes=100_000)
            assert batch.status is PullStatus.FOUND
            assert batch.damaged == ()
            tables.append(batch.table)
            offset = batch.next_offset
    return pa.concat_tables(tables)


def rows(start: int, stop: int) -> pa.RecordBatch:
    numbers = range(start, stop)
    return pa.record_batch({"body": [b"%d" % number for number in numbers], "key": [f"k{n}" for n in numbers]})


async def test_arrow_rows_arrive_as_arrow_rows(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    async with BulkProducer(client) as producer:
        receipts = await producer.send_batch(BULK, rows(0, 25_000))
    assert [(receipt.queue_offset, receipt.rows) for receipt in receipts] == [
        (0, 10_000),
        (10_000, 10_000),
        (20_000, 5000),
    ]
    table = await fetched(client)
    assert table.column("body").to_pylist() == [b"%d" % number for number in range(25_000)]
    assert table.column("key").to_pylist() == [f"k{number}" for number in range(25_000)]
    assert table.column("queue_offset").to_pylist() == list(range(25_000))
    assert set(table.column("store_timestamp_ms").to_pylist()) == {receipt.store_timestamp_ms for receipt in receipts}


async def test_ordinary_consumers_get_ordinary_messages(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    async with BulkProducer(client) as producer:
        pending = await producer.send(BULK, b"body", key="k", tag="t", properties={"colour": "blau ü"})
    receipt = await pending
    batch = await Puller(client).pull(receipt.queue, receipt.queue_offset)
    [message] = batch.messages(verify=True)
    assert (message.body, message.keys, message.tag, message.user_properties) == (
        b"body",
        ("k",),
        "t",
        {"colour": "blau ü"},
    )


async def test_ordinary_messages_and_bulk_messages_are_fetched_from_one_queue(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    producer = BulkProducer(client)
    await producer.send_batch(BULK, rows(0, 3))
    await Producer(client).send(Message(BULK, b"3", "t", ("k3",), user_properties={"a": "b"}))
    await producer.send_batch(BULK, rows(4, 6))
    table = await fetched(client)
    assert table.column("body").to_pylist() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert table.column("key").to_pylist() == ["k0", "k1", "k2", "k3", "k4", "k5"]
    assert table.column("queue_offset").to_pylist() == list(range(6))


async def test_a_fetch_may_begin_within_a_bulk_message(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    [receipt] = await BulkProducer(client).send_batch(BULK, rows(0, 100))
    batch = await BulkPuller(client).fetch(receipt.queue, 97)
    assert batch.table.column("body").to_pylist() == [b"97", b"98", b"99"]
    assert batch.next_offset == 100


async def test_a_range_is_read_while_the_next_answer_is_on_its_way(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    [first, *_] = await BulkProducer(client, encoder=BulkEncoder(max_rows=500)).send_batch(BULK, rows(0, 10_000))
    batches = [batch async for batch in BulkPuller(client).read(first.queue, 700, 9200, max_bytes=5000)]
    assert len(batches) > 5
    found = [at for batch in batches for at in batch.table.column("queue_offset").to_pylist()]
    assert found == list(range(700, 9500))
    with pytest.raises(ConsumeRefused, match="holds 0 to 10000"):
        _ = [batch async for batch in BulkPuller(client).read(first.queue, 9000, 10_001)]


async def test_a_range_of_tables_that_are_cut_short_is_read_whole(
    lane: tuple[Client, Servers], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = lane
    [first, *_] = await BulkProducer(client, encoder=BulkEncoder(max_rows=500)).send_batch(BULK, rows(0, 5000))
    monkeypatch.setattr("millstream.client.bulk.fetched.MAX_TABLE_BYTES", 20_000)
    batches = [batch async for batch in BulkPuller(client).read(first.queue, 0, 5000)]
    assert len(batches) >= 5
    assert [at for batch in batches for at in batch.table.column("queue_offset").to_pylist()] == list(range(5000))


async def test_a_fetch_waits_for_what_comes(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    [queue] = await client.queues(BULK)
    puller = BulkPuller(client)
    waiting = asyncio.ensure_future(puller.fetch(queue, 0, wait_ms=20_000))
    assert (await puller.fetch(queue, 0)).status is PullStatus.NOTHING_NEW
    await BulkProducer(client).send_batch(BULK, rows(0, 2))
    assert (await waiting).table.num_rows == 2


async def test_an_offset_outside_is_a_status(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    [queue] = await client.queues(BULK)
    batch = await BulkPuller(client).fetch(queue, 5)
    assert (batch.status, batch.next_offset, batch.table.num_rows) == (PullStatus.OFFSET_ILLEGAL, 0, 0)


async def test_single_messages_share_a_bulk_message_and_each_learns_its_offset(lane: tuple[Client, Servers]) -> None:
    client, servers = lane
    async with BulkProducer(client, limits=GatherLimits(rows=1000, hold_s=60.0)) as producer:
        pending = [await producer.send(BULK, b"%d" % number, tag="t") for number in range(2500)]
    receipts = [await item for item in pending]
    assert [receipt.queue_offset for receipt in receipts] == list(range(2500))
    assert (await fetched(client)).column("body").to_pylist() == [b"%d" % number for number in range(2500)]
    assert [entry.message_count for entry in servers.broker.maintenance.store.entries(BULK, 0, 0, 10)] == [
        1000,
        1000,
        500,
    ]


async def test_a_message_is_sent_after_its_time_without_others(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    producer = BulkProducer(client)
    receipt = await within_patience(await producer.send(BULK, b"alone"))
    assert receipt.queue_offset == 0


async def test_bytes_close_a_bulk_message(lane: tuple[Client, Servers]) -> None:
    client, servers = lane
    async with BulkProducer(client, limits=GatherLimits(batch_bytes=10_000, hold_s=60.0)) as producer:
        for _ in range(6):
            await producer.send(BULK, bytes(5000))
    assert [entry.message_count for entry in servers.broker.maintenance.store.entries(BULK, 0, 0, 10)] == [2, 2, 2]


async def test_each_queue_keeps_the_order_of_the_calls(tmp_path: Path) -> None:
    async with bulk_client(tmp_path / "data", queues=3) as (client, _):
        async with BulkProducer(client, limits=GatherLimits(rows=7, hold_s=60.0)) as producer:
            pending = [await producer.send(BULK, b"%d" % number) for number in range(700)]
            places = [await item for item in pending]
        for queue in await client.queues(BULK):
            mine = [number for number, place in enumerate(places) if place.queue == queue]
            assert len(mine) > 200
            assert [places[number].queue_offset for number in mine] == list(range(len(mine)))
            batch = await BulkPuller(client).fetch(queue, 0)
            assert batch.table.column("body").to_pylist() == [b"%d" % number for number in mine]


async def test_batches_to_one_queue_keep_their_order_though_they_are_encoded_meanwhile(
    lane: tuple[Client, Servers],
) -> None:
    client, _ = lane
    producer = BulkProducer(client)
    sizes = [20_000, 1, 5000, 2, 9000]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    pairs = zip(starts, sizes, strict=True)
    await asyncio.gather(*(producer.send_batch(BULK, rows(start, start + size)) for start, size in pairs))
    assert (await fetched(client)).column("body").to_pylist() == [b"%d" % number for number in range(sum(sizes))]


async def test_a_send_waits_while_too_many_bytes_wait(lane: tuple[Client, Servers]) -> None:
    client, servers = lane
    release = asyncio.Event()
    original = servers.broker_server.handlers[RequestCode.BULK_PUT]

    async def slow(command: RemotingCommand, connection: object) -> RemotingCommand:
        await release.wait()
        return await original(command, connection)  # type: ignore[misc,arg-type]

    servers.broker_server.handlers[RequestCode.BULK_PUT] = slow  # type: ignore[index]
    producer = BulkProducer(client, limits=GatherLimits(rows=1, hold_s=60.0, waiting_bytes=1000))
    first = await producer.send(BULK, bytes(800))
    blocked = asyncio.ensure_future(producer.send(BULK, bytes(800)))
    batch = asyncio.ensure_future(producer.send_batch(BULK, pa.record_batch({"body": [bytes(900)]})))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not blocked.done()
    assert producer.waiting_bytes <= 1000
    release.set()
    assert (await first).queue_offset == 0
    assert (await (await blocked)).queue_offset == 1
    assert [receipt.queue_offset for receipt in await batch] == [2]
    await producer.close()
    assert producer.waiting_bytes == 0


async def test_gathered_rows_that_fill_the_room_are_sent_for_those_that_wait(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    async with BulkProducer(client, limits=GatherLimits(hold_s=60.0, waiting_bytes=1000)) as producer:
        pending = [await within_patience(producer.send(BULK, bytes(600))) for _ in range(5)]
        assert (await pending[-2]).queue_offset == 3


async def test_an_error_reaches_each_message_and_the_flush_once(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    producer = BulkProducer(client, limits=_PATIENT)
    pending = [await producer.send("missing", b"x"), await producer.send("missing", b"y")]
    fine = await producer.send(BULK, b"z")
    with pytest.raises(NameRefused, match="missing"):
        await producer.flush()
    for item in pending:
        with pytest.raises(NameRefused, match="missing"):
            await item
    assert (await fine).queue_offset == 0
    await producer.flush()


async def test_what_cannot_be_stored_is_refused_at_once_and_disturbs_no_other(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    async with BulkProducer(client, limits=_PATIENT) as producer:
        await producer.send(BULK, b"a")
        with pytest.raises(MessageRefused):
            await producer.send(BULK, b"b", properties={"KEYS": "x"})
    assert (await fetched(client)).num_rows == 1


async def test_a_caller_that_gives_up_takes_no_other_with_it(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    producer = BulkProducer(client, limits=_PATIENT)
    first, second = await producer.send(BULK, b"a"), await producer.send(BULK, b"b")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(first, 0)
    await producer.flush()
    assert (await second).queue_offset == 1


async def test_a_topic_without_the_attribute_is_refused(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    with pytest.raises(Refused, match="batches"):
        await BulkProducer(client).send_batch(PLAIN, rows(0, 3))
    assert [item.range.max_offset for item in await client.queue_ranges(PLAIN)] == [0]


@pytest.mark.parametrize("reason", ["old broker", "other topic"])
async def test_rows_go_as_ordinary_messages_where_they_must_and_that_is_said_once(
    lane: tuple[Client, Servers], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, servers = lane
    topic = PLAIN
    if reason == "old broker":
        topic = BULK
        del servers.broker_server.handlers[RequestCode.BULK_PUT]  # type: ignore[attr-defined]
    batch = pa.record_batch(
        {"body": [b"%d" % number for number in range(1500)], "tag": ["t"] * 1500, "properties": ["a\x01b\x02"] * 1500}
    )
    with caplog.at_level(logging.WARNING):
        async with BulkProducer(client, fallback=True) as producer:
            receipts = await producer.send_batch(topic, batch)
            pending = await producer.send(topic, b"1500", key="k")
    assert [(receipt.queue_offset, receipt.rows) for receipt in receipts] == [(0, 1000), (1000, 500)]
    assert (await pending).queue_offset == 1500
    assert len([record for record in caplog.records if "ordinary" in record.getMessage()]) == 1
    [queue] = await client.queues(topic)
    [message] = (await Puller(client).pull(queue, 1499, max_messages=1)).messages()
    assert (message.body, message.tag, message.user_properties) == (b"1499", "t", {"a": "b"})


async def test_an_old_broker_is_refused_without_fallback(lane: tuple[Client, Servers]) -> None:
    client, servers = lane
    del servers.broker_server.handlers[RequestCode.BULK_PUT]  # type: ignore[attr-defined]
    with pytest.raises(Refused) as refusal:
        await BulkProducer(client).send_batch(BULK, rows(0, 1))
    assert refusal.value.name == "REQUEST_NOT_SUPPORTED"


async def test_a_busy_broker_is_asked_again(lane: tuple[Client, Servers]) -> None:
    client, servers = lane
    original = servers.broker_server.handlers[RequestCode.BULK_PUT]
    calls: list[int] = []

    def busy_first(command: RemotingCommand, connection: object) -> object:
        calls.append(command.code)
        return command.response(2, remark="busy") if len(calls) == 1 else original(command, connection)  # type: ignore[arg-type]

    servers.broker_server.handlers[RequestCode.BULK_PUT] = busy_first  # type: ignore[index]
    await BulkProducer(client).send_batch(BULK, rows(0, 3))
    assert len(calls) == 2
    assert (await fetched(client)).num_rows == 3


async def test_a_broker_that_is_gone_is_an_error_of_the_batch(lane: tuple[Client, Servers]) -> None:
    _, servers = lane
    async with Client(servers.nameserver, timeout_s=0.2) as impatient:
        await impatient.queues(BULK)
        await servers.broker_server.close()
        with pytest.raises(Unreachable):
            await BulkProducer(impatient, retries=0).send_batch(BULK, rows(0, 1))


async def test_a_batch_that_is_encoded_already_goes_to_the_queue_that_is_named(lane: tuple[Client, Servers]) -> None:
    client, _ = lane
    await client.create_topic(bulk_topic("two", queues=2))
    queue = (await client.queues("two"))[1]
    [encoded] = BulkEncoder(codec="none").encode(rows(0, 4))
    producer = BulkProducer(client)
    for offset in (0, 4, 8):
        [receipt] = await producer.send_batch("two", encoded, queue=queue)
        assert (receipt.queue, receipt.queue_offset) == (queue, offset)
