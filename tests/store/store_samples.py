"""What the store's tests put into stores and read out of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from millstream.model.light_queue import is_light_queue
from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import decode_record, outline_record
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.store.write_batch import PendingRecord

__all__ = ["SMALL", "bodies", "crashed_copy", "log_records", "message", "pending", "queue_content", "segments"]

SMALL = StoreOptions(segment_bytes=2048, consume_queue_entries=5)
"""Files so small that a handful of records fills several."""


def message(
    body: bytes = b"body", *, topic: str = "orders", tag: str | None = None, key: str | None = None
) -> OutgoingMessage:
    properties = {name: value for name, value in (("TAGS", tag), ("KEYS", key)) if value}
    return OutgoingMessage(topic, body, properties, born_host=Address("10.0.0.9", 4))


def pending(
    body: bytes = b"body",
    *,
    topic: str = "orders",
    queue_id: int = 0,
    tag: str | None = None,
    key: str | None = None,
    light_queues: tuple[str, ...] = (),
) -> PendingRecord:
    return PendingRecord(message(body, topic=topic, tag=tag, key=key), queue_id, None, light_queues)


def bodies(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """The bodies of a whole queue, each read by its entry and checked to be the record that the entry names."""
    return [body for body, _ in queue_content(store, topic, queue_id)]


def log_records(store: MessageStore) -> list[bytes]:
    """All whole records that readers may see, in the order of the log."""
    found: list[bytes] = []
    position = 0
    while position < store.visible_log_offset:
        records, position = store.search(position, b"")
        found += map(bytes, records)
    return found


def queue_content(store: MessageStore, topic: str, queue_id: int) -> list[tuple[bytes, int]]:
    """Body and tags code of each record of a whole queue."""
    content = []
    start, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    entries = store.entries(topic, queue_id, start, 1_000_000)
    assert [entry.queue_offset for entry in entries] == list(range(start, end))
    for entry in entries:
        read = decode_record(store.read(entry))
        if is_light_queue(topic):
            assert (topic, entry.queue_offset) in outline_record(store.read(entry)).light_places
        else:
            assert (read.topic, read.queue_id, read.queue_offset) == (topic, queue_id, entry.queue_offset)
        content.append((read.body, entry.tags_code))
    return content


def crashed_copy(directory: Path, target: Path) -> Path:
    """A copy of an open store's directory: what the next process finds after kill -9."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(directory, target)
    return target


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "commitlog").iterdir())
