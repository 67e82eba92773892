"""Sends events by the bulk lane and reads them back as Arrow tables.

    pip install "millstream[bulk]"
    python examples/bulk/events.py [NAMESERVER] [EVENTS] [TOPIC]

It makes the topic if it is missing: millstream topic create bulk-events --batches
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa

from millstream.client.bulk.producer import BulkProducer
from millstream.client.bulk.puller import BulkPuller
from millstream.client.client import Client
from millstream.client.values import BrokerQueueRange
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicConfig

DEVICES = 50
ROWS = 10_000
UNDER_WAY = 4


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """The events as rows of a body and a key, 10,000 in a batch."""
    for start in range(0, count, ROWS):
        numbers = range(start, min(start + ROWS, count))
        keys = [f"device-{number % DEVICES}" for number in numbers]
        bodies = [
            json.dumps({"id": number, "device": key, "celsius": number % 40}).encode()
            for number, key in zip(numbers, keys, strict=True)
        ]
        yield pa.record_batch({"body": bodies, "key": keys})


async def send(client: Client, topic: str, made: list[pa.RecordBatch]) -> None:
    """Return when every event is acknowledged. A few batches are under way at a time."""
    waiting = iter(made)
    async with BulkProducer(client) as producer:

        async def send_some() -> None:
            for batch in waiting:
                await producer.send_batch(topic, batch)

        await asyncio.gather(*(send_some() for _ in range(UNDER_WAY)))


async def tables(client: Client, before: list[BrokerQueueRange]) -> AsyncIterator[pa.Table]:
    """What was added to the topic's queues since `before` was looked at."""
    puller = BulkPuller(client)
    starts = {held.queue: held.range.max_offset for held in before}
    for held in await client.queue_ranges(before[0].queue.topic):
        async for batch in puller.read(held.queue, starts[held.queue], held.range.max_offset):
            yield batch.table
    if puller.damaged_records:
        print(f"{puller.damaged_records} records failed their checksums and were left out", file=sys.stderr)


async def main(nameserver: str, count: int, topic: str) -> int:
    """Send, read back, compare; 0 if all is there."""
    async with Client(nameserver) as client:
        await client.create_topic(TopicConfig(topic, attributes={"queue.type": "BatchCQ"}))
        before = await client.queue_ranges(topic)

        made = list(batches(count))
        started_s = time.monotonic()
        await send(client, topic, made)
        print(f"sent {count:,} events, {count / (time.monotonic() - started_s):,.0f} a second")

        started_s = time.monotonic()
        read = pa.concat_tables([table async for table in tables(client, before)])
        print(f"read {read.num_rows:,} events, {read.num_rows / (time.monotonic() - started_s):,.0f} a second")

    devices = len(read.column("key").unique())
    print(f"{devices} devices, {read.nbytes / 1e6:.1f} MB as Arrow, columns: {', '.join(read.column_names)}")
    return 0 if read.num_rows == count and devices == min(DEVICES, count) else 1


if __name__ == "__main__":
    words = [*sys.argv[1:], *("127.0.0.1:9876", "100000", "bulk-events")[len(sys.argv) - 1 :]]
    try:
        raise SystemExit(asyncio.run(main(words[0], int(words[1]), words[2])))
    except MillstreamError as error:
        raise SystemExit(f"error: {error}") from None
