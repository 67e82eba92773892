"""The blocking side of the bulk lane against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from bulk_servers import BULK, PLAIN, bulk_topic

from millstream.client.blocking import BlockingClient
from millstream.client.bulk.blocking_producer import BlockingBulkProducer
from millstream.client.bulk.encoding import GatherLimits
from millstream.client.bulk.puller import BlockingBulkPuller
from millstream.model.errors import MillstreamError, NameRefused, Refused
from millstream.model.operations import PullStatus
from millstream.model.topic import TopicConfig
from servers import Servers

_PATIENT = GatherLimits(hold_s=60.0)


@pytest.fixture
def client(servers_in_thread: Servers) -> Iterator[BlockingClient]:
    with BlockingClient(servers_in_thread.nameserver) as opened:
        opened.create_topic(bulk_topic())
        opened.create_topic(TopicConfig(PLAIN, read_queues=1, write_queues=1))
        yield opened


def fetched(client: BlockingClient, topic: str = BULK) -> list[bytes]:
    [held] = client.queue_ranges(topic)
    bodies: list[bytes] = []
    while len(bodies) < held.range.max_offset:
        batch = BlockingBulkPuller(client).fetch(held.queue, len(bodies))
        assert batch.status is PullStatus.FOUND
        bodies += batch.table.column("body").to_pylist()
        assert batch.next_offset == len(bodies)
    return bodies


def test_arrow_rows_arrive_without_a_thread(client: BlockingClient) -> None:
    before = threading.active_count()
    batch = pa.record_batch({"body": [b"%d" % number for number in range(12_000)]})
    with BlockingBulkProducer(client) as producer:
        receipts = producer.send_batch(BULK, batch)
        assert threading.active_count() == before
    assert [(receipt.queue_offset, receipt.rows) for receipt in receipts] == [(0, 10_000), (10_000, 2000)]
    assert fetched(client) == batch.column("body").to_pylist()


def test_single_messages_share_bulk_messages_in_order(client: BlockingClient) -> None:
    with BlockingBulkProducer(client, limits=GatherLimits(rows=100, hold_s=60.0)) as producer:
        pending = [producer.send(BULK, b"%d" % number, key=f"k{number}") for number in range(950)]
    assert [item.result().queue_offset for item in pending] == list(range(950))
    assert fetched(client) == [b"%d" % number for number in range(950)]


def test_a_message_is_sent_after_its_time_without_others(client: BlockingClient) -> None:
    with BlockingBulkProducer(client) as producer:
        assert producer.send(BULK, b"alone").result(20).queue_offset == 0
        assert producer.send(BULK, b"again").result(20).queue_offset == 1


def test_many_threads_share_a_producer(client: BlockingClient) -> None:
    with BlockingBulkProducer(client, limits=GatherLimits(rows=64, hold_s=60.0)) as producer:

        def send(worker: int) -> None:
            for number in range(200):
                producer.send(BULK, b"%d-%d" % (worker, number))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send, range(4)))
    found = [tuple(map(int, body.split(b"-"))) for body in fetched(client)]
    for worker in range(4):
        assert [number for sender, number in found if sender == worker] == list(range(200))


def test_a_send_blocks_while_too_many_bytes_wait(client: BlockingClient) -> None:
    with BlockingBulkProducer(client, limits=GatherLimits(rows=1, hold_s=60.0, waiting_bytes=3000)) as producer:
        pending = [producer.send(BULK, bytes(1000)) for _ in range(50)]
        assert producer.waiting_bytes <= 3000
        assert pending[-1].result(20).queue_offset == 49


def test_gathered_rows_that_fill_the_room_are_sent_for_those_that_wait(client: BlockingClient) -> None:
    with BlockingBulkProducer(client, limits=GatherLimits(hold_s=60.0, waiting_bytes=1000)) as producer:
        pending = [producer.send(BULK, bytes(600)) for _ in range(5)]
        assert pending[-2].result(20).queue_offset == 3


def test_an_error_reaches_each_message_and_the_flush_once(client: BlockingClient) -> None:
    with BlockingBulkProducer(client, limits=_PATIENT) as producer:
        pending = [producer.send("missing", b"x"), producer.send("missing", b"y")]
        fine = producer.send(BULK, b"z")
        with pytest.raises(NameRefused, match="missing"):
            producer.flush()
        for item in pending:
            with pytest.raises(NameRefused, match="missing"):
                item.result()
        assert fine.result().queue_offset == 0
        producer.flush()


def test_close_tells_of_a_failure_and_ends_the_thread(client: BlockingClient) -> None:
    before = threading.active_count()
    producer = BlockingBulkProducer(client, limits=_PATIENT)
    producer.send("missing", b"x")
    with pytest.raises(MillstreamError):
        producer.close()
    assert threading.active_count() == before


def test_rows_go_as_ordinary_messages_only_if_asked(client: BlockingClient) -> None:
    batch = pa.record_batch({"body": [b"a", b"b"]})
    with pytest.raises(Refused):
        BlockingBulkProducer(client).send_batch(PLAIN, batch)
    [receipt] = BlockingBulkProducer(client, fallback=True).send_batch(PLAIN, batch)
    assert (receipt.queue_offset, receipt.rows, receipt.store_timestamp_ms) == (0, 2, None)
    assert fetched(client, PLAIN) == [b"a", b"b"]


def test_a_closed_producer_takes_nothing_more(client: BlockingClient) -> None:
    producer = BlockingBulkProducer(client, limits=_PATIENT)
    pending = producer.send(BULK, b"before")
    producer.close()
    assert pending.result(0).queue_offset == 0
    with pytest.raises(ValueError, match="closed"):
        producer.send(BULK, b"after")
    producer.flush()
    producer.close()
    assert fetched(client) == [b"before"]


def test_what_is_sent_while_another_thread_closes_is_sent_or_refused(client: BlockingClient) -> None:
    producer = BlockingBulkProducer(client, limits=_PATIENT)
    flush, late = producer.flush, []

    def flush_and_send() -> None:
        flush()
        late.append(producer.send(BULK, b"late"))

    producer.flush = flush_and_send  # type: ignore[method-assign]
    producer.close()
    assert late[0].result(20).queue_offset == 0
