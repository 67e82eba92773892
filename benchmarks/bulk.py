"""The bulk lane beside single messages, in one run: 100-byte bodies, one producer, one consumer, all on loopback."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow as pa

from millstream.client.bulk.encoding import DEFAULT_ROWS, BulkEncoder, EncodedBatch
from millstream.client.bulk.producer import BulkProducer
from millstream.client.bulk.puller import BulkPuller
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.client.puller import Puller
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.telemetry.process_tree import TreeRecorder

__all__ = ["measure_bulk"]

_BODY_BYTES = 100
_DISTINCT_BATCHES = 20
_BATCHES = 300
_SINGLES = 20_000
_IN_FLIGHT = 8
_SINGLES_IN_FLIGHT = 64
_QUEUES = 4
_SEED = 20_261_121


def _batches() -> list[pa.RecordBatch]:
    """Bodies as events are: JSON with numbers and names that differ, filled to one length."""
    choose = random.Random(_SEED)
    return [
        pa.record_batch(
            {
                "body": pa.array(
                    [
                        b'{"id":%d,"user":"u%d","price":%d,"note":"%s"}'
                        % (row, choose.randrange(5000), choose.randrange(10**6), choose.randbytes(10).hex().encode())
                        for row in range(DEFAULT_ROWS)
                    ],
                    pa.binary(),
                )
            }
        )
        for _ in range(_DISTINCT_BATCHES)
    ]


def _filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch(
        {"body": pa.array([body.ljust(_BODY_BYTES) for body in batch["body"].to_pylist()], pa.binary())}
    )


async def _measured(recorder: TreeRecorder, count: int, work: Callable[[], Awaitable[None]]) -> dict[str, object]:
    recorder.take()
    server_s, client_s, started_s = recorder.cpu_s(), time.process_time(), time.monotonic()
    await work()
    seconds = time.monotonic() - started_s
    recorder.take()
    return {
        "messages": count,
        "messages_per_s": round(count / seconds),
        "server_cpu_us_per_message": round((recorder.cpu_s() - server_s) / count * 1e6, 4),
        "client_cpu_us_per_message": round((time.process_time() - client_s) / count * 1e6, 4),
    }


async def _put_all(
    client: Client, topic: str, encoder: BulkEncoder, parts: list[pa.RecordBatch | EncodedBatch]
) -> None:
    producer = BulkProducer(client, encoder=encoder)
    waiting = iter([parts[number % len(parts)] for number in range(_BATCHES)])

    async def send() -> None:
        for part in waiting:
            await producer.send_batch(topic, part)

    await asyncio.gather(*(send() for _ in range(_IN_FLIGHT)))


async def _fetch_all(client: Client, topic: str) -> None:
    puller = BulkPuller(client)
    rows = 0
    for held in await client.queue_ranges(topic):
        async for batch in puller.read(held.queue, held.range.min_offset, held.range.max_offset):
            rows += batch.table.num_rows
    if rows != _BATCHES * DEFAULT_ROWS or puller.damaged_records:
        raise AssertionError(f"{rows} rows arrived, {puller.damaged_records} records were damaged")


async def _send_singles(client: Client, topic: str) -> None:
    producer = Producer(client)
    waiting = iter(range(_SINGLES))

    async def send() -> None:
        for _ in waiting:
            await producer.send(Message(topic, b"x" * _BODY_BYTES))

    await asyncio.gather(*(send() for _ in range(_SINGLES_IN_FLIGHT)))


async def _pull_singles(client: Client, topic: str) -> None:
    puller = Puller(client)
    for held in await client.queue_ranges(topic):
        async for batch in puller.read(held.queue, held.range.min_offset, held.range.max_offset):
            batch.messages()


async def _measure(nameserver: str, recorder: TreeRecorder) -> dict[str, object]:
    batches: list[pa.RecordBatch | EncodedBatch] = [_filled(batch) for batch in _batches()]
    results: dict[str, object] = {}
    count = _BATCHES * DEFAULT_ROWS
    async with Client(nameserver, timeout_s=30.0) as client:
        await client.create_topic(TopicConfig("single"))
        sent = await _measured(recorder, _SINGLES, lambda: _send_singles(client, "single"))
        pulled = await _measured(recorder, _SINGLES, lambda: _pull_singles(client, "single"))
        results["single_send"], results["single_pull"] = sent, pulled
        for codec in ("zstd", "none"):
            encoder = BulkEncoder(codec=codec)
            encoded = [part for batch in batches for part in encoder.encode(batch)]
            for name, parts in (("encoded_meanwhile", batches), ("encoded_before", list(encoded))):
                topic = f"{codec}_{name}"
                await client.create_topic(
                    TopicConfig(topic, read_queues=_QUEUES, write_queues=_QUEUES, attributes={"queue.type": "BatchCQ"})
                )
                put = await _measured(recorder, count, lambda t=topic, e=encoder, p=parts: _put_all(client, t, e, p))  # type: ignore[misc]
                results[f"put_{topic}"] = put
            fetched = await _measured(recorder, count, lambda t=topic: _fetch_all(client, t))  # type: ignore[misc]
            results[f"fetch_{codec}"] = fetched
            results[f"{codec}_bytes_per_message"] = round(len(encoded[0].stream) / DEFAULT_ROWS, 1)
            results[f"{codec}_put_to_single"] = round(put["messages_per_s"] / sent["messages_per_s"], 1)  # type: ignore[operator]
            results[f"{codec}_fetch_to_single"] = round(fetched["messages_per_s"] / pulled["messages_per_s"], 1)  # type: ignore[operator]
    return results


def measure_bulk() -> dict[str, object]:
    """Messages per second and processor microseconds of server and client, per message; both codecs, and the ratios."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        return asyncio.run(_measure(server.addresses.nameserver, TreeRecorder([server.pid])))
