"""From the log of a store into objects and back: byte for byte, whatever the object store does meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.faulty_objects import FaultyObjects, ObjectFault
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import StoreError
from millstream.model.message import OutgoingMessage
from millstream.store.index.run import key_hash
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions
from millstream.tiered.cold_blocks import MAX_REFETCHES, ColdBlocks
from millstream.tiered.cold_map import ColdMap, ColdStretch, commit_stretch
from millstream.tiered.cold_work import WorkHere
from millstream.tiered.objects import ObjectExists, ObjectStoreAway, ObjectStoreDenied
from millstream.tiered.upload import MAX_ATTEMPTS, StretchUpload, gather_stretch

TOPICS = ("a", "b")


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return MessageStore.open(tmp_path / "store", StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=64))


def fill(store: MessageStore, count: int, *, body: bytes = b"body") -> None:
    for number in range(count):
        message = OutgoingMessage(TOPICS[number % 2], body + b"%d" % number, {"KEYS": f"k{number % 10}"})
        store.put([PendingRecord(message, number % 3)])
    store.flush()


def upload(store: MessageStore, objects: FaultyObjects, *, max_bytes: int = 1 << 30) -> tuple[ColdMap, StretchUpload]:
    """Put the whole log into objects, stretch by stretch."""
    cold, uploader = ColdMap(), StretchUpload(objects, "c", "b", sleep=lambda _s: None)
    while (begin := cold.uploaded_log_offset) < store.visible_log_offset:
        end = store.visible_log_offset
        stretch = gather_stretch(
            store.walk_log(begin, end),
            lambda topic: store.counted_from(topic) if topic in TOPICS else None,
            max_bytes,
        )
        row, name = ColdStretch(1, begin, stretch.log_end), f"s{begin}"
        cold.apply(name, row)
        cold.apply(name, commit_stretch(row, uploader.put(name, row, stretch)))
    return cold, uploader


def blocks_of(objects: FaultyObjects) -> ColdBlocks:
    return ColdBlocks(objects, WorkHere(objects))


def read_queue(blocks: ColdBlocks, cold: ColdMap, topic: str, queue_id: int) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while (where := cold.find(topic, queue_id, offset)) is not None:
        block = blocks.fetch(topic, queue_id, where, offset)
        assert block.first_queue_offset <= max(offset, where.first_queue_offset) < block.next_queue_offset
        found += map(bytes, block.records)
        offset = block.next_queue_offset
    return found


def log_queue(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    return [bytes(store.read(entry)) for entry in store.entries(topic, queue_id, 0, 10_000)]


@pytest.mark.parametrize("max_bytes", [1 << 30, 20_000, 1])
def test_every_queue_comes_back_byte_for_byte(store: MessageStore, max_bytes: int) -> None:
    fill(store, 600)
    objects = FaultyObjects()
    cold, _ = upload(store, objects, max_bytes=max_bytes)
    blocks = blocks_of(objects)
    for topic in TOPICS:
        for queue_id in range(3):
            expected = log_queue(store, topic, queue_id)
            assert len(expected) == 100
            assert cold.bounds(topic, queue_id) == (0, 100)
            assert read_queue(blocks, cold, topic, queue_id) == expected


def test_topics_that_stay_are_left_out_and_deleted_ones_are(store: MessageStore) -> None:
    fill(store, 30)
    store.put([PendingRecord(OutgoingMessage("stays", b"x", {}), 0)])
    store.delete_topic("a")
    cold, _ = upload(store, FaultyObjects())
    assert {topic for topic, _ in cold.queues()} == {"b"}


def test_records_are_found_by_key(store: MessageStore) -> None:
    fill(store, 300)
    objects = FaultyObjects()
    cold, _ = upload(store, objects, max_bytes=20_000)
    blocks = blocks_of(objects)
    wanted = key_hash(b"a", b"k4")
    found = [
        bytes(record)
        for queue_id in range(3)
        for where in cold.ranges("a", queue_id)
        for record in blocks.find_by_key("a", queue_id, where, wanted)
    ]
    assert sorted(found) == sorted(
        record for queue_id in range(3) for record in log_queue(store, "a", queue_id) if b"k4" in record
    )
    assert len(found) == 30


def test_a_block_is_fetched_once_for_all_who_want_it(store: MessageStore) -> None:
    fill(store, 60)
    objects = FaultyObjects()
    cold, _ = upload(store, objects)
    blocks = blocks_of(objects)
    where = cold.find("a", 0, 0)
    assert where is not None
    assert blocks.find_cached("a", 0, where, 0) is None
    first = blocks.fetch("a", 0, where, 0)
    before = len(objects.calls)
    assert blocks.fetch("a", 0, where, 3) is first
    assert blocks.find_cached("a", 0, where, 3) is first
    assert len(objects.calls) == before
    blocks.forget(where.key)
    assert blocks.find_cached("a", 0, where, 0) is None


def test_a_lost_answer_is_no_second_object(store: MessageStore) -> None:
    fill(store, 60)
    objects = FaultyObjects()
    objects.plan.extend([ObjectFault.AFTER, None])
    cold, _ = upload(store, objects)
    assert len(objects.objects) == len(list(cold.objects))
    assert read_queue(blocks_of(objects), cold, "a", 0) == log_queue(store, "a", 0)


def test_a_key_with_other_bytes_is_never_taken_for_ours(store: MessageStore) -> None:
    fill(store, 60)
    objects = FaultyObjects()
    objects.objects["s0/00000.msc"] = b"of somebody else"
    with pytest.raises(ObjectExists):
        upload(store, objects)
    assert objects.objects["s0/00000.msc"] == b"of somebody else"


def test_each_attempt_at_an_object_says_that_the_upload_comes_forward(store: MessageStore) -> None:
    fill(store, 60)
    stretch = gather_stretch(store.walk_log(0, store.visible_log_offset), lambda _topic: 0)
    row, pauses = ColdStretch(1, 0, stretch.log_end), list[int]()
    for failures in (0, MAX_ATTEMPTS - 1):
        said = list[None]()
        objects = FaultyObjects()
        objects.plan.extend([ObjectFault.BEFORE] * failures)
        uploader = StretchUpload(objects, "c", "b", sleep=lambda _s: None, pause=lambda said=said: said.append(None))  # type: ignore[misc]
        uploader.put("s", row, stretch)
        pauses.append(len(said))
    assert pauses[1] == pauses[0] + MAX_ATTEMPTS - 1


def test_an_upload_gives_up_after_its_attempts_and_at_once_where_trying_is_in_vain(store: MessageStore) -> None:
    fill(store, 60)
    objects = FaultyObjects()
    objects.plan.extend([ObjectFault.BEFORE] * MAX_ATTEMPTS)
    with pytest.raises(ObjectStoreAway):
        upload(store, objects)
    assert objects.calls == ["put"] * MAX_ATTEMPTS
    objects.calls.clear()
    objects.plan.extend([ObjectFault.DENIED])
    with pytest.raises(ObjectStoreDenied):
        upload(store, objects)
    assert objects.calls == ["put"]


@given(plan=st.lists(st.sampled_from([None, ObjectFault.BEFORE, ObjectFault.SHORT, ObjectFault.ALTERED]), max_size=8))
def test_a_read_gives_the_right_records_and_leaves_out_what_stays_damaged(
    plan: list[ObjectFault | None],
) -> None:
    objects, cold, expected = _uploaded()
    blocks = blocks_of(objects)
    objects.plan.clear()
    objects.plan.extend(plan)
    for _ in range(len(plan) + 1):
        try:
            found = read_queue(blocks, cold, "a", 0)
        except (StoreError, ObjectStoreAway):
            continue
        if blocks.losses.passed_over:
            assert found == [record for record in expected if record in found]
        else:
            assert found == expected
        break
    objects.plan.clear()
    assert read_queue(blocks_of(objects), cold, "a", 0) == expected


def test_an_object_that_is_gone_or_cut_is_passed_over_after_it_was_fetched_again(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 60)
    objects = FaultyObjects()
    cold, _ = upload(store, objects)
    where = cold.find("a", 0, 0)
    assert where is not None
    whole = objects.objects[where.key]
    del objects.objects[where.key]
    objects.put("s0/other", b"")
    objects.calls.clear()
    block = blocks_of(objects).fetch("a", 0, where, 0)
    assert (block.next_queue_offset, block.records) == (where.next_queue_offset, [])
    assert objects.calls == ["head"] * (1 + MAX_REFETCHES) + ["list"]
    for length in (0, 10, len(whole) - 1):
        objects.objects[where.key] = whole[:length]
        blocks, named = blocks_of(objects), len(caplog.messages)
        assert blocks.fetch("a", 0, where, 0).records == []
        assert blocks.counters.damaged == 1 + MAX_REFETCHES
        assert where.key in caplog.messages[named]


_made: list[tuple[FaultyObjects, ColdMap, list[bytes]]] = []


def _uploaded() -> tuple[FaultyObjects, ColdMap, list[bytes]]:
    """One upload for all examples."""
    if not _made:
        import tempfile

        with tempfile.TemporaryDirectory() as directory:
            store = MessageStore.open(Path(directory) / "store")
            fill(store, 60)
            objects = FaultyObjects()
            cold, _ = upload(store, objects)
            _made.append((objects, cold, log_queue(store, "a", 0)))
            store.close()
    return _made[0]


def test_objects_say_what_they_hold(store: MessageStore) -> None:
    fill(store, 60)
    cold, _ = upload(store, FaultyObjects())
    for _, one in cold.objects:
        assert all(part.first_queue_offset < part.next_queue_offset for part in one.parts)
        assert one.size_bytes > 0
        assert all(0 < part.first_stored_ms <= part.last_stored_ms for part in one.parts)
