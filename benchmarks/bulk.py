"""The bulk lane beside single messages, in one run: 100-byte bodies, one producer, one consumer, all on loopback.

Every variant starts with rows that lie in Arrow batches of 10,000 before the clock does; no message is made of Python
objects. `encoded_meanwhile` makes the bulk messages (Arrow's stream, compression, checksum) within the measured time;
`encoded_before` sends messages that were made before it, 20 different ones again and again, and so shows what the
broker and the connection can do. A put is counted when it is acknowledged, at the default ack level. Putting ends
before fetching begins, so records come from the page cache; a fetch is counted when its rows are in an Arrow table,
every checksum verified. Single messages are sent and awaited one by one, 64 at a time. Of each variant the fastest of
several rounds is told.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
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
from millstream.telemetry.processes import TreeRecorder

__all__ = ["measure_bulk"]

_BODY_BYTES = 100
_DISTINCT_BATCHES = 20
_BATCHES = 300
_SINGLES = 20_000
_IN_FLIGHT = 8
_SINGLES_IN_FLIGHT = 64
_QUEUES = 4
_ROUNDS = 3
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
    client: Client, topic: str, encoder: BulkEncoder, parts: Sequence[pa.RecordBatch | EncodedBatch]
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


async def _best(recorder: TreeRecorder, rounds: int, work: Callable[[int], Awaitable[None]]) -> dict[str, object]:
    """The fastest of several rounds: what other programs take of the machine only slows a round down."""
    count = _BATCHES * DEFAULT_ROWS
    results = [await _measured(recorder, count, lambda n=number: work(n)) for number in range(rounds)]  # type: ignore[misc]
    return max(results, key=lambda result: float(str(result["messages_per_s"])))


async def _measure_lane(client: Client, recorder: TreeRecorder, name: str, lane: _Lane) -> dict[str, object]:
    for number in range(_ROUNDS):
        await client.create_topic(
            TopicConfig(
                f"{name}_{number}", read_queues=_QUEUES, write_queues=_QUEUES, attributes={"queue.type": "BatchCQ"}
            )
        )
    put = await _best(recorder, _ROUNDS, lambda n: _put_all(client, f"{name}_{n}", lane.encoder, lane.parts))
    fetch = await _best(recorder, _ROUNDS, lambda n: _fetch_all(client, f"{name}_{n}"))
    return {"put": put, "fetch": fetch, "bytes_per_message": lane.bytes_per_message}


@dataclass(frozen=True, slots=True)
class _Lane:
    """What one variant sends: `parts` are rows, or bulk messages that were encoded before."""

    encoder: BulkEncoder
    parts: Sequence[pa.RecordBatch | EncodedBatch]
    bytes_per_message: float


def _lanes() -> dict[str, _Lane]:
    batches = [_filled(batch) for batch in _batches()]
    lanes = {}
    for codec in ("zstd", "none"):
        encoder = BulkEncoder(codec=codec)
        encoded = [part for batch in batches for part in encoder.encode(batch)]
        size = round(sum(len(part.stream) for part in encoded) / (len(batches) * DEFAULT_ROWS), 1)
        lanes[f"{codec}_encoded_meanwhile"] = _Lane(encoder, batches, size)
        lanes[f"{codec}_encoded_before"] = _Lane(encoder, encoded, size)
    return lanes


def _ratio(result: dict[str, object], single: dict[str, object]) -> float:
    return round(float(str(result["messages_per_s"])) / float(str(single["messages_per_s"])), 1)


async def _measure(nameserver: str, recorder: TreeRecorder) -> dict[str, object]:
    async with Client(nameserver, timeout_s=30.0) as client:
        await client.create_topic(TopicConfig("single"))
        sent = await _measured(recorder, _SINGLES, lambda: _send_singles(client, "single"))
        pulled = await _measured(recorder, _SINGLES, lambda: _pull_singles(client, "single"))
        results: dict[str, object] = {"single_send": sent, "single_pull": pulled}
        for name, lane in _lanes().items():
            measured = await _measure_lane(client, recorder, name, lane)
            put, fetch = measured["put"], measured["fetch"]
            assert isinstance(put, dict)
            assert isinstance(fetch, dict)
            results[name] = {**measured, "put_to_single": _ratio(put, sent), "fetch_to_single": _ratio(fetch, pulled)}
    return results


def measure_bulk() -> dict[str, object]:
    """Messages per second, processor microseconds of server and client per message, and ratios to single messages."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        return asyncio.run(_measure(server.addresses.nameserver, TreeRecorder([server.pid])))
