"""A walk over the log hands out all of it, whatever its segments, its long records and its damage are."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.model.message import OutgoingMessage
from millstream.protocol.record import verify_record
from millstream.store.log.log_walk import PIECE_BYTES, walk_files
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions

SEGMENT_BYTES = 256 * 1024


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    """Records of 40 to 150,000 bytes over several segments."""
    store = MessageStore.open(tmp_path / "store", StoreOptions(segment_bytes=SEGMENT_BYTES, consume_queue_entries=64))
    for number in range(300):
        body = b"%d" % number + b"x" * (150_000 if number % 100 == 50 else number % 7 * 300)
        store.put([PendingRecord(OutgoingMessage("t", body, {}), 0)])
    store.flush()
    return store


def walked(store: MessageStore, max_bytes: int, *, elsewhere: bool = False) -> tuple[list[bytes], int]:
    """The records that a walk hands out, `max_bytes` of the log at a time, and how many damaged places it met.

    `elsewhere`: each time by the files alone, as in another process.
    """
    found: list[bytes] = []

    def take(data: bytes, _log_offset: int) -> int:
        at = 0
        while at + 4 <= len(data):
            record = data[at : at + int.from_bytes(data[at : at + 4], "big")]
            if not verify_record(record):
                break
            found.append(record)
            at += len(record)
        return at

    walk, damaged_places = store.walk_log(0, store.visible_log_offset), 0
    while walk.position < store.visible_log_offset:
        before = walk.position
        if elsewhere:
            damaged_places += walk.damaged_places
            walk = walk_files(store.walk_log(before, store.visible_log_offset).files(max_bytes))
        walk.hand_out(take, max_bytes)
        assert walk.position > before
    return found, damaged_places + walk.damaged_places


def expected(store: MessageStore) -> list[bytes]:
    return [bytes(store.read(entry)) for entry in store.entries("t", 0, 0, 1000)]


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 1000, PIECE_BYTES, 1 << 40])
def test_each_record_is_handed_out_once_and_in_order(store: MessageStore, max_bytes: int, elsewhere: bool) -> None:
    assert walked(store, max_bytes, elsewhere=elsewhere) == (expected(store), 0)


def test_another_process_is_told_of_the_files_that_it_needs_alone(store: MessageStore) -> None:
    files = store.walk_log(0, store.visible_log_offset).files(1000).files
    assert len(files) == 1
    assert len(store.walk_log(0, store.visible_log_offset).files(1 << 40).files) > 2


def test_files_that_are_gone_end_a_walk_and_are_not_taken_for_damage(store: MessageStore) -> None:
    walk = store.walk_log(0, store.visible_log_offset)
    there, gone = walk.files(1 << 40), walk.files(1000)
    Path(gone.files[0][0]).unlink()
    for files in (there, there._replace(files=there.files[1:]), there._replace(files=(), end=0)):
        late = walk_files(files)
        late.hand_out(lambda _data, _log_offset: 0, 1 << 40)
        assert (late.position, late.damaged_places) == (0, 0)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("max_bytes", [1000, 1 << 40])
def test_a_damaged_record_is_passed_over_and_counted(store: MessageStore, max_bytes: int, elsewhere: bool) -> None:
    records = expected(store)
    for number in (3, 50, 299):
        entry = store.entries("t", 0, number, 1)[0]
        segment = store._log.segment_at(entry.log_offset)
        assert segment is not None
        with segment.path.open("r+b") as file:
            file.seek(entry.log_offset - segment.start + 95)
            file.write(b"\xff\xff")
    left = [record for number, record in enumerate(records) if number not in (3, 50, 299)]
    assert walked(store, max_bytes, elsewhere=elsewhere) == (left, 3)
