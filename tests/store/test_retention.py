"""What goes when its time is over or the disk runs full, and what stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles
from store_samples import SMALL, bodies, crashed_copy, pending, segments

from millstream.model.clock import ManualClock
from millstream.model.errors import StoreError
from millstream.store.message_store import MessageStore
from millstream.store.retention import DiskState, RetentionPolicy, SegmentAge, expired_segments

HOUR_MS = 3_600_000
GIB = 1024**3
AMPLE = DiskState(100 * GIB, 90 * GIB)


class DiskFiles(HastyFiles):
    """Says what the test wants of the disk."""

    state = AMPLE

    def disk(self, path: Path) -> tuple[int, int]:
        return self.state


@pytest.fixture
def files() -> DiskFiles:
    return DiskFiles()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, files: DiskFiles, clock: ManualClock) -> Iterator[MessageStore]:
    opened = MessageStore.open(tmp_path / "data", SMALL, clock=clock, files=files)
    yield opened
    opened.close()


def fill(store: MessageStore, clock: ManualClock, count: int = 40) -> None:
    """Records of about 200 bytes, one a minute, in segments of 2048."""
    for number in range(count):
        store.put([pending(b"%03d" % number + b"." * 60)])
        clock.advance_ms(60_000)


def numbers(store: MessageStore) -> list[int]:
    return [int(body[:3]) for body in bodies(store)]


def test_segments_go_when_their_last_record_is_older_than_the_time(
    store: MessageStore, clock: ManualClock, tmp_path: Path
) -> None:
    fill(store, clock)
    store.write_checkpoint()
    before = len(segments(tmp_path / "data"))
    assert store.retain().removed_segments == 0
    clock.advance_ms(72 * HOUR_MS - 20 * 60_000)
    retained = store.retain()
    assert 0 < retained.removed_segments == before - len(segments(tmp_path / "data"))
    left = numbers(store)
    assert left == list(range(left[0], 40))
    assert left[0] <= 20, "nothing younger than the time goes"
    assert store.min_offset("orders", 0) == left[0]
    assert retained.log_start == int(segments(tmp_path / "data")[0].name)


def test_what_no_checkpoint_covers_and_the_active_segment_stay(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock)
    clock.advance_ms(1000 * HOUR_MS)
    assert store.retain().removed_segments == 0
    store.write_checkpoint()
    assert store.retain().removed_segments > 0
    assert numbers(store)[-1] == 39


def test_what_is_pinned_stays_until_it_is_let_go(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock)
    store.write_checkpoint()
    clock.advance_ms(100 * HOUR_MS)
    pinned = [0]
    store.pins.append(lambda: pinned[0])
    assert store.retain().removed_segments == 0
    pinned[0] = 2048
    assert store.retain().removed_segments == 1


def test_a_scarce_disk_takes_the_oldest_whatever_their_age_until_it_is_enough() -> None:
    policy = RetentionPolicy()
    ages = [SegmentAge(GIB, 1000)] * 20
    assert expired_segments(ages, 1000, DiskState(100 * GIB, 14 * GIB), policy) == 1
    assert expired_segments(ages, 1000, DiskState(100 * GIB, 10 * GIB), policy) == 5
    assert expired_segments(ages, 1000, DiskState(100 * GIB, 2 * GIB), policy) == 10, "ten a round"
    assert expired_segments(ages, 1000, DiskState(1000 * GIB, 100 * GIB), policy) == 0, "much is free, however large"


def test_a_full_disk_refuses_messages_until_there_is_room_and_reads_go_on(
    store: MessageStore, clock: ManualClock, files: DiskFiles
) -> None:
    fill(store, clock, 3)
    files.state = DiskState(10 * GIB, GIB // 2)
    assert store.retain().is_disk_full
    with pytest.raises(StoreError, match="watermark") as refused:
        store.put([pending()])
    assert refused.value.name == "DISK_FULL"
    assert numbers(store) == [0, 1, 2]
    files.state = AMPLE
    assert not store.retain().is_disk_full
    store.put([pending(b"003")])
    assert numbers(store) == [0, 1, 2, 3]


def test_a_topic_with_a_time_of_its_own_loses_its_old_messages_and_no_other_does(
    store: MessageStore, clock: ManualClock
) -> None:
    for number in range(20):
        store.put([pending(b"%03d" % number), pending(b"%03d" % number, topic="kept")])
        clock.advance_ms(HOUR_MS)
    store.retain({"orders": 5 * HOUR_MS})
    assert numbers(store) == [15, 16, 17, 18, 19]
    assert len(bodies(store, "kept")) == 20
    store.retain({"orders": 1})
    assert numbers(store) == []
    assert store.min_offset("orders", 0) == store.max_offset("orders", 0) == 20
    assert store.put([pending(b"020")])[0].queue_offset == 20
    assert numbers(store) == [20]


@pytest.mark.parametrize("keeps_queues", [True, False])
def test_trimmed_queues_are_the_same_after_a_crash(
    store: MessageStore, clock: ManualClock, tmp_path: Path, files: DiskFiles, keeps_queues: bool
) -> None:
    fill(store, clock)
    store.write_checkpoint()
    clock.advance_ms(72 * HOUR_MS - 20 * 60_000)
    store.retain()
    expected = numbers(store)
    crashed = crashed_copy(tmp_path / "data", tmp_path / "crashed")
    if not keeps_queues:
        for path in (crashed / "consumequeue").rglob("0000*"):
            path.unlink()
    again = MessageStore.open(crashed, SMALL, clock=clock, files=files)
    assert numbers(again) == expected
    assert again.min_offset("orders", 0) == expected[0]
    assert again.put([pending(b"040")])[0].queue_offset == 40
    again.close()


def test_consume_queue_files_of_trimmed_entries_are_removed_once_a_checkpoint_does_not_need_them(
    store: MessageStore, clock: ManualClock, tmp_path: Path
) -> None:
    def first_file() -> int:
        return min(int(path.name) for path in (tmp_path / "data" / "consumequeue" / "orders" / "0").iterdir())

    fill(store, clock)
    store.write_checkpoint()
    clock.advance_ms(72 * HOUR_MS - 60_000)
    store.retain()
    store.retain()
    assert first_file() == 0
    store.write_checkpoint()
    store.retain()
    assert first_file() == numbers(store)[0] // 5 * 5 * 20 > 0


def test_a_start_behind_a_crash_finds_the_queue_of_a_topic_whose_own_time_let_its_messages_go(
    store: MessageStore, clock: ManualClock, tmp_path: Path, files: DiskFiles
) -> None:
    fill(store, clock, 200)
    store.write_checkpoint()
    clock.advance_ms(72 * HOUR_MS - 180 * 60_000)
    store.retain()
    store.write_checkpoint()
    assert store.log_start > 0
    for _ in range(2):
        store.retain({"orders": 72 * HOUR_MS - 160 * 60_000})
    expected = numbers(store)
    again = MessageStore.open(crashed_copy(tmp_path / "data", tmp_path / "crashed"), SMALL, clock=clock, files=files)
    assert {*expected} <= {*numbers(again)}
    assert again.put([pending(b"200")])[0].queue_offset == 200
    again.close()


def test_slices_that_were_handed_out_outlive_their_segment(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock)
    store.write_checkpoint()
    first = store.read(store.entries("orders", 0, 0, 1)[0])
    content = bytes(first)
    clock.advance_ms(100 * HOUR_MS)
    store.retain()
    assert bytes(first) == content


def test_tombstones_of_deleted_topics_go_with_the_records_they_cover(
    store: MessageStore, clock: ManualClock, tmp_path: Path
) -> None:
    fill(store, clock, 5)
    store.delete_topic("orders")
    for number in range(40):
        store.put([pending(b"%03d" % number + b"." * 60, topic="other")])
    store.write_checkpoint()
    clock.advance_ms(100 * HOUR_MS)
    assert b"orders" in (tmp_path / "data" / "deleted-topics").read_bytes()
    store.retain()
    assert b"orders" not in (tmp_path / "data" / "deleted-topics").read_bytes()


def test_policies_can_be_set(tmp_path: Path, clock: ManualClock, files: DiskFiles) -> None:
    options = replace(SMALL, retention=RetentionPolicy(keep_ms=HOUR_MS))
    opened = MessageStore.open(tmp_path / "data", options, clock=clock, files=files)
    fill(opened, clock)
    opened.write_checkpoint()
    clock.advance_ms(2 * HOUR_MS)
    assert opened.retain().removed_segments > 0
    opened.close()
