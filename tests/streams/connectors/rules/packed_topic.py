"""A topic in memory, as the sink and the reader of packed hits know it, and hits of a job that judges."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.model.errors import ConnectionFailed
from millstream.model.message import Address, Message, OutgoingMessage
from millstream.protocol.record import encode_record
from millstream.streams.plan.hits import HIT_COLUMNS
from millstream.streams.rules.packed.packer import OFFSET, QUEUE
from millstream.streams.spark.source.position import QueueSpan, Slice

HOST = Address("127.0.0.1", 10911)
COLUMNS = ("rule", "group_key", "measured", "event_time")
SCHEMA = pa.schema(
    [
        ("rule", pa.string()),
        ("group_key", pa.string()),
        ("measured", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
        (QUEUE, pa.string()),
        (OFFSET, pa.int64()),
    ]
)
assert set(COLUMNS) <= set(HIT_COLUMNS)


@dataclass
class PackedTopic:
    """Queues of a topic. After `sends_left` messages a send fails once; `keeps_properties` is False for a bad copy."""

    queues: dict[str, list[Message]]
    sends_left: int | None = None
    keeps_properties: bool = True
    reads: list[Slice] = field(default_factory=list)

    def spans(self, topic: str) -> dict[str, QueueSpan]:
        return {queue: QueueSpan(0, len(messages), 5) for queue, messages in self.queues.items()}

    def takes_bulk(self, topic: str) -> bool:
        return False

    def send(self, messages: Sequence[Message], *, by_key: bool = False, queue: str = "") -> None:
        for message in messages:
            if self.sends_left == 0:
                self.sends_left = None
                raise ConnectionFailed("UNREACHABLE", "the broker is away")
            if self.sends_left is not None:
                self.sends_left -= 1
            self.queues[queue].append(message)

    def read(self, topic: str, part: Slice, tag: str = "*") -> Iterator[list[memoryview]]:
        self.reads.append(part)
        for offset in range(part.start, part.end):
            message = self.queues[part.queue][offset]
            properties = message.user_properties if self.keeps_properties else {}
            stored = encode_record(
                OutgoingMessage(topic, message.body, dict(properties)),
                queue_id=0, queue_offset=offset, log_offset=0, store_timestamp_ms=5, store_host=HOST,
            )  # fmt: skip
            yield [memoryview(stored)]

    def close(self) -> None:
        return None


def hits(*rows: tuple[str, int, str]) -> pa.RecordBatch:
    """Hits of (source queue, offset, key); the rule is `r`, the offset is the second of the event and measured."""
    told = [
        {"rule": "r", "group_key": key, "measured": str(offset), QUEUE: queue, OFFSET: offset,
         "event_time": datetime.datetime.fromtimestamp(offset, datetime.UTC)}
        for queue, offset, key in rows
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(told, SCHEMA)


def told(batches: Sequence[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Source queue and offset of each hit among rows that a reader gave, sorted."""
    rows = [row for batch in batches for row in batch.to_pylist() if row["__tick"] is None]
    return sorted((row["__queue"], int(row["measured"])) for row in rows)
