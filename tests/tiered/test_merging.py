"""Records go from several objects into new ones byte for byte, a part of the queues at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.faulty_objects import FaultyObjects
from test_upload import TOPICS, fill, log_queue, read_queue, upload

from millstream.store.index.run import key_hash
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.tiered.cold_blocks import ColdBlocks
from millstream.tiered.cold_map import ColdMap, ColdStretch, commit_stretch
from millstream.tiered.cold_work import WorkHere
from millstream.tiered.merging import ObjectUnreadable, merge_objects
from millstream.tiered.verification import verify_object
from millstream.tiered.work_progress import WorkProgress


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return MessageStore.open(tmp_path / "store", StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=64))


def merge(objects: FaultyObjects, cold: ColdMap, uploader: object, group_bytes: int) -> ColdStretch:
    rows = cold.stretches()
    row = ColdStretch(0, 0, cold.uploaded_log_offset, replaces=tuple(name for name, _ in rows))
    sources = [one for _, row in rows for one in row.objects or ()]
    merged = merge_objects(objects, uploader, "m", row, sources, WorkProgress(), group_bytes)  # type: ignore[arg-type]
    return commit_stretch(row, merged)


@pytest.mark.parametrize("group_bytes", [1, 20_000, 1 << 30])
def test_merged_queues_have_the_bytes_of_the_log(store: MessageStore, group_bytes: int) -> None:
    fill(store, 600)
    objects = FaultyObjects()
    cold, uploader = upload(store, objects, max_bytes=10_000)
    before = len(cold.stretches())
    assert before > 5
    row = merge(objects, cold, uploader, group_bytes)
    cold.apply("m", row)
    assert len(row.objects or ()) == (6 if group_bytes == 1 else len(row.objects or ()))
    for one in row.objects or ():
        assert verify_object(one, objects.objects[one.key]) == ""
    blocks = ColdBlocks(objects, WorkHere(objects))
    for topic in TOPICS:
        for queue_id in range(3):
            assert len(cold.ranges(topic, queue_id)) == 1
            assert read_queue(blocks, cold, topic, queue_id) == log_queue(store, topic, queue_id)
            where = cold.find(topic, queue_id, 0)
            assert where is not None
            found = blocks.find_by_key(topic, queue_id, where, key_hash(topic.encode(), b"k4"))
            wanted = [data for data in log_queue(store, topic, queue_id) if b"KEYS\x01k4" in data]
            assert [bytes(record) for record in found] == wanted


@pytest.mark.parametrize("place", ["block", "footer", "end", "missing", "short"])
def test_an_object_that_cannot_be_read_is_named(store: MessageStore, place: str) -> None:
    fill(store, 60)
    objects = FaultyObjects()
    cold, uploader = upload(store, objects, max_bytes=3_000)
    _, row = cold.stretches()[2]
    [one] = row.objects or ()
    data = bytearray(objects.objects[one.key])
    if place in ("block", "footer", "end"):
        data[{"block": 20, "footer": -40, "end": -1}[place]] ^= 1
    objects.objects[one.key] = bytes(data[:30] if place == "short" else data)
    if place == "missing":
        del objects.objects[one.key]
    with pytest.raises(ObjectUnreadable) as caught:
        merge(objects, cold, uploader, 1 << 30)
    assert caught.value.key == one.key
