"""Reading a range: answers are asked for and unpacked ahead, and given in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
import pytest_asyncio
from bulk_servers import BULK, bulk_client

from millstream.client.bulk import puller as puller_module
from millstream.client.bulk.encoding import BulkEncoder
from millstream.client.bulk.fetched import FetchedBatch, decode_fetch
from millstream.client.bulk.producer import BulkProducer
from millstream.client.bulk.puller import ANSWERS_AHEAD, BulkPuller
from millstream.client.client import Client
from millstream.client.operations import RequestStep
from millstream.client.values import PullBatch, QueueAddress
from millstream.model.errors import StoreError
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

PATIENCE_S = 20


class Unpacking:
    """Unpacks in an order of its own: what begins at `held` waits until something else was unpacked."""

    def __init__(self, held: int) -> None:
        self.begun: list[int] = []
        self._held = held
        self._other = threading.Event()

    def __call__(self, answer: PullBatch, queue: QueueAddress, offset: int) -> FetchedBatch:
        self.begun.append(offset)
        if offset == self._held:
            assert self._other.wait(PATIENCE_S), "nothing was unpacked meanwhile"
        else:
            self._other.set()
        return decode_fetch(answer, queue, offset)


@pytest_asyncio.fixture
async def lane(tmp_path: Path) -> AsyncIterator[tuple[Client, QueueAddress]]:
    """A queue of ten bulk messages with 100 rows each."""
    async with bulk_client(tmp_path / "data") as (client, _):
        rows = pa.record_batch({"body": pa.array([b"%d" % number for number in range(1000)], pa.binary())})
        [first, *_] = await BulkProducer(client, encoder=BulkEncoder(max_rows=100)).send_batch(BULK, rows)
        yield client, first.queue


def offsets(batches: list[FetchedBatch]) -> list[int]:
    return [at for batch in batches for at in batch.table.column("queue_offset").to_pylist()]


async def test_what_is_unpacked_first_is_not_given_first(
    lane: tuple[Client, QueueAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, queue = lane
    monkeypatch.setattr(puller_module, "decode_fetch", Unpacking(held=0))
    batches = [batch async for batch in BulkPuller(client).read(queue, 0, 1000, max_bytes=1)]
    assert len(batches) == 10
    assert offsets(batches) == list(range(1000))


async def test_nothing_is_asked_for_at_or_behind_the_end(
    lane: tuple[Client, QueueAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, queue = lane
    asked: list[int] = []
    ask = client.ask

    async def counted(request: RequestStep) -> RemotingCommand:
        if request.command.code == RequestCode.BULK_FETCH:
            asked.append(int(request.command.ext["queueOffset"]))
        return await ask(request)

    monkeypatch.setattr(client, "ask", counted)
    batches = [batch async for batch in BulkPuller(client).read(queue, 0, 450, max_bytes=1)]
    assert offsets(batches) == list(range(500))
    assert asked == [0, 100, 200, 300, 400]


async def test_a_reader_that_waits_has_a_bounded_number_of_answers_ahead(
    lane: tuple[Client, QueueAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, queue = lane
    unpacking = Unpacking(held=-1)
    monkeypatch.setattr(puller_module, "decode_fetch", unpacking)
    reading = BulkPuller(client).read(queue, 0, 1000, max_bytes=1)
    await anext(reading)
    # As many answers as a reader without a bound would long have had.
    for _ in range(10):
        await BulkPuller(client).fetch(queue, 0)
    assert len(set(unpacking.begun)) <= ANSWERS_AHEAD
    await reading.aclose()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and "_step" in repr(task)] == []


async def test_an_answer_that_cannot_be_unpacked_fails_in_its_turn(
    lane: tuple[Client, QueueAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, queue = lane

    def failing(answer: PullBatch, queue: QueueAddress, offset: int) -> FetchedBatch:
        if offset == 200:
            raise StoreError("RECORD_DAMAGED", "planted")
        return decode_fetch(answer, queue, offset)

    monkeypatch.setattr(puller_module, "decode_fetch", failing)
    reading = BulkPuller(client).read(queue, 0, 1000, max_bytes=1)
    assert offsets([await anext(reading), await anext(reading)]) == list(range(200))
    with pytest.raises(StoreError, match="planted"):
        await anext(reading)
