"""After a crash: the log's whole records and nothing else, and consume queues that agree with it."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles, HastyFiles, RecordingFiles
from store_samples import SMALL, bodies, crashed_copy, pending, segments

from millstream.model.errors import StartRefused, StoreError
from millstream.store import recovery
from millstream.store.commit_log import CommitLog
from millstream.store.damage.log_scan import LogScan
from millstream.store.message_store import MessageStore
from millstream.store.store_state import accept_log_loss
from millstream.store.write_batch import AppendedRecord

SENT = [b"record %d " % number + b"x" * (number * 7 % 60) for number in range(30)]


def _open(directory: Path) -> MessageStore:
    return MessageStore.open(directory, SMALL, files=HastyFiles())


def _fill(store: MessageStore, sent: list[bytes]) -> list[AppendedRecord]:
    """Each body into queue 0, and one of another topic between every two, so that the log is not one queue's."""
    appended = []
    for number, body in enumerate(sent):
        appended += store.put([pending(body)])
        store.put([pending(b"between", topic="other", queue_id=number % 2)])
    return appended


@pytest.fixture
def crashed(scratch: Path) -> Iterator[tuple[Path, list[AppendedRecord]]]:
    """A directory as kill -9 left it, checkpoint after the first 20 records, and where its records stand."""
    store = _open(scratch / "store")
    appended = _fill(store, SENT[:20])
    store.write_checkpoint()
    appended += _fill(store, SENT[20:])
    yield crashed_copy(scratch / "store", scratch / "crashed"), appended
    store.close()


def _consume_queue_files(directory: Path) -> dict[str, bytes]:
    root = directory / "consumequeue"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_everything_written_is_there_after_kill_9(crashed: tuple[Path, list[AppendedRecord]]) -> None:
    store = _open(crashed[0])
    assert not store.was_clean_stop
    assert bodies(store) == SENT
    assert bodies(store, "other", 0) == [b"between"] * 15
    assert store.put([pending(b"next")])[0].queue_offset == 30
    store.close()


def test_a_start_scans_from_the_checkpoint_on_and_not_the_log(crashed: tuple[Path, list[AppendedRecord]]) -> None:
    store = _open(crashed[0])
    assert store.recovery.scanned_records == 20  # ten of each topic
    store.close()
    reopened = _open(crashed[0])
    assert reopened.recovery.scanned_records == 0
    assert bodies(reopened) == SENT
    reopened.close()


def test_consume_queues_recovered_are_those_of_a_store_that_never_crashed(
    crashed: tuple[Path, list[AppendedRecord]], scratch: Path
) -> None:
    _open(crashed[0]).close()
    untouched = _open(scratch / "untouched")
    _fill(untouched, SENT)
    untouched.close()
    assert _consume_queue_files(crashed[0]) == _consume_queue_files(scratch / "untouched")


def _zeros(rest: bytes, cut: int) -> bytes:
    return bytes(len(rest))


def _garbage(rest: bytes, cut: int) -> bytes:
    return random.Random(cut).randbytes(len(rest))


def _shortened(rest: bytes, cut: int) -> bytes:
    return b""


def _torn_by_one_bit(rest: bytes, cut: int) -> bytes:
    return bytes([rest[0] ^ 0x10]) + rest[1:]


@pytest.mark.parametrize("spoil", [_zeros, _garbage, _shortened, _torn_by_one_bit])
def test_a_log_torn_at_any_byte_of_its_last_two_records_keeps_the_whole_ones(
    scratch: Path, spoil: Callable[[bytes, int], bytes]
) -> None:
    store = _open(scratch / "store")
    sent = SENT[:4]
    appended = [store.put([pending(body)])[0] for body in sent[:2]]
    store.write_checkpoint()
    appended += store.put([pending(body) for body in sent[2:]])
    ends = [record.log_offset + record.size_bytes for record in appended]
    content = segments(scratch / "store")[0].read_bytes()
    for cut in range(ends[1], ends[3]):
        directory = crashed_copy(scratch / "store", scratch / "torn")
        segments(directory)[0].write_bytes(content[:cut] + spoil(content[cut:], cut))
        torn = _open(directory)
        whole = sum(end <= cut for end in ends)
        assert bodies(torn) == sent[:whole], f"cut at {cut}"
        assert torn.written_log_offset == ends[whole - 1]
        assert torn.put([pending(b"after")])[0].queue_offset == whole
        assert bodies(torn) == [*sent[:whole], b"after"]
        torn.close()
        assert len(_consume_queue_files(directory)["orders/0/" + "0" * 20]) == 20 * (whole + 1)
    store.close()


def test_what_a_torn_end_left_behind_never_comes_back_behind_new_records(scratch: Path) -> None:
    """The third record is whole but follows a torn one; a new record of the torn one's size must not revive it."""
    store = _open(scratch / "store")
    store.put([pending(b"first")])
    store.write_checkpoint()
    second, _ = store.put([pending(b"second"), pending(b"revive")])
    directory = crashed_copy(scratch / "store", scratch / "torn")
    store.close()
    with segments(directory)[0].open("r+b") as log:
        log.seek(second.log_offset + 100)
        log.write(b"?")
    torn = _open(directory)
    assert torn.put([pending(b"SECOND")])[0] == second._replace(
        store_timestamp_ms=torn.last_store_timestamp_ms("orders", 0)
    )
    again = _open(crashed_copy(directory, scratch / "again"))
    assert bodies(again) == [b"first", b"SECOND"]
    again.close()
    torn.close()


def test_segments_behind_a_torn_end_are_removed(crashed: tuple[Path, list[AppendedRecord]]) -> None:
    directory, appended = crashed
    torn = appended[22]
    segment = _segment_of(directory, torn.log_offset)
    assert segment != segments(directory)[-1]
    with segment.open("r+b") as log:
        log.seek(torn.log_offset - int(segment.name) + 95)
        log.write(b"?")
    store = _open(directory)
    assert bodies(store) == SENT[:22]
    assert segments(directory)[-1] == segment
    store.close()


@pytest.mark.parametrize("spoil", ["cut", "garbage", "zeros"])
def test_a_consume_queue_damaged_at_any_byte_of_its_last_two_entries_is_made_again(
    crashed: tuple[Path, list[AppendedRecord]], scratch: Path, spoil: str
) -> None:
    path = "consumequeue/orders/0/" + f"{15 * 20:020}"
    content = (crashed[0] / path).read_bytes()
    assert len(content) == 5 * 20
    for position in range(60, 100):
        directory = crashed_copy(crashed[0], scratch / "damaged")
        filler = {"cut": b"", "garbage": b"\xa5" * (100 - position), "zeros": bytes(100 - position)}[spoil]
        (directory / path).write_bytes(content[:position] + filler)
        store = _open(directory)
        assert bodies(store) == SENT, f"byte {position}"
        assert store.recovery.rebuilt_queues == (1 if content[position:] != filler else 0)
        store.close()
        assert (directory / path).read_bytes() == content


@pytest.mark.parametrize("missing", ["consumequeue", "consumequeue/orders", "consumequeue/orders/0"])
def test_a_missing_consume_queue_directory_is_made_again_from_the_log(
    crashed: tuple[Path, list[AppendedRecord]], missing: str
) -> None:
    _open(crashed[0]).close()
    before = _consume_queue_files(crashed[0])
    shutil.rmtree(crashed[0] / missing)
    store = _open(crashed[0])
    assert bodies(store) == SENT
    assert store.recovery.rebuilt_queues
    store.close()
    assert _consume_queue_files(crashed[0]) == before
    reopened = _open(crashed[0])
    assert reopened.recovery.rebuilt_queues == 0
    reopened.close()


@pytest.mark.parametrize("spoil", ["missing", "damaged", "one damaged"])
def test_without_a_checkpoint_the_whole_log_is_scanned(crashed: tuple[Path, list[AppendedRecord]], spoil: str) -> None:
    directory = crashed[0]
    for path in (directory / "checkpoint", directory / "checkpoint.bak"):
        if spoil == "missing":
            path.unlink()
        elif spoil == "damaged" or path.suffix != ".bak":
            path.write_bytes(path.read_bytes()[:-1])
    store = _open(directory)
    assert bodies(store) == SENT
    assert bodies(store, "other", 1) == [b"between"] * 15
    assert store.recovery.scanned_records == (20 if spoil == "one damaged" else 60)
    assert store.put([pending(b"next")])[0].queue_offset == 30
    store.close()


def test_damage_before_the_checkpoint_costs_no_record_but_the_damaged_one(
    crashed: tuple[Path, list[AppendedRecord]], scratch: Path
) -> None:
    """However the consume queues are made again, the damaged record's place stays and the others keep their offsets."""
    directory, appended = crashed
    for lost, spoiled in ((7, 100), (7, 2), (19, 30), (0, 5)):
        for missing in ("consumequeue", "checkpoint"):
            damaged = crashed_copy(directory, scratch / "damaged")
            place = appended[lost].log_offset
            segment = _segment_of(damaged, place)
            with segment.open("r+b") as log:
                log.seek(place - int(segment.name) + spoiled)
                log.write(b"\xee")
            if missing == "checkpoint":
                (damaged / "checkpoint").unlink()
                (damaged / "checkpoint.bak").unlink()
            else:
                shutil.rmtree(damaged / missing)
            store = _open(damaged)
            assert store.recovery.damaged_places >= 1
            assert store.max_offset("orders", 0) == 30
            entries = store.entries("orders", 0, 0, 100)
            first = 1 if lost == 0 else 0
            assert [entry.queue_offset for entry in entries] == list(range(first, 30))
            assert [entry.queue_offset for entry in entries if not entry.size_bytes] == ([lost] if lost else [])
            for entry in entries:
                if entry.size_bytes:
                    assert SENT[entry.queue_offset] in bytes(store.read(entry))
            store.close()


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_segment_emptied_or_removed_is_named_and_costs_no_other_once_that_is_accepted(
    crashed: tuple[Path, list[AppendedRecord]], number: int
) -> None:
    directory, appended = crashed
    # Stopped, so that all of it is known to be on the disk: without that the last segment is a torn tail.
    _open(directory).close()
    lost = segments(directory)[number]
    os.truncate(lost, 0)
    _refuse_and_accept(directory)
    store = _open(directory)
    readable = [entry for entry in store.entries("orders", 0, 0, 100) if _can_read(store, entry.queue_offset)]
    kept = [
        record.queue_offset
        for record in appended
        if not int(lost.name) <= record.log_offset < int(lost.name) + SMALL.segment_bytes
    ]
    assert [entry.queue_offset for entry in readable] == kept
    store.put([pending(b"next")])
    store.close()
    segments(directory)[number].unlink()
    if number == -1:
        # It holds what came since.
        _refuse_and_accept(directory)
    # What somebody has accepted once is not asked for again, and no leave for anything else.
    _open(directory).close()
    segments(directory)[number - 1].unlink()
    _refuse_and_accept(directory)
    _open(directory).close()
    _open(directory).close()


def _refuse_and_accept(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with pytest.raises(StartRefused, match=f"{directory / 'commitlog'} lacks") as refused:
        _open(directory)
    assert refused.value.name == "LOG_INCOMPLETE"
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    accept_log_loss(directory, HastyFiles())


def _can_read(store: MessageStore, queue_offset: int) -> bool:
    entry = store.entries("orders", 0, queue_offset, 1)[0]
    with contextlib.suppress(StoreError):
        return bool(store.read(entry))
    return False


def test_a_rebuild_larger_than_its_memory_bound_is_the_same(
    crashed: tuple[Path, list[AppendedRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "MAX_ENTRIES_IN_MEMORY", 7)
    _open(crashed[0]).close()
    before = _consume_queue_files(crashed[0])
    shutil.rmtree(crashed[0] / "consumequeue")
    store = _open(crashed[0])
    assert bodies(store) == SENT
    store.close()
    assert _consume_queue_files(crashed[0]) == before


def test_another_number_of_entries_a_file_makes_the_consume_queues_again(
    crashed: tuple[Path, list[AppendedRecord]],
) -> None:
    options = replace(SMALL, consume_queue_entries=8)
    store = MessageStore.open(crashed[0], options, files=HastyFiles())
    assert store.recovery.rebuilt_queues == 3
    assert bodies(store) == SENT
    store.close()
    reopened = MessageStore.open(crashed[0], options, files=HastyFiles())
    assert reopened.recovery.rebuilt_queues == 0
    assert bodies(reopened) == SENT
    reopened.close()


def test_segments_of_another_size_are_read_on(crashed: tuple[Path, list[AppendedRecord]]) -> None:
    sent = list(SENT)
    for size in (8192, 1024):
        store = MessageStore.open(crashed[0], replace(SMALL, segment_bytes=size), files=HastyFiles())
        assert bodies(store) == sent
        more = [b"more %d " % number + b"y" * 400 for number in range(30)]
        for body in more:
            store.put([pending(body)])
        sent += more
        assert bodies(store) == sent
        store.close()


def test_a_scan_over_damage_finds_every_other_record(crashed: tuple[Path, list[AppendedRecord]]) -> None:
    directory, _ = crashed
    log = CommitLog(directory / "commitlog", SMALL.segment_bytes, HastyFiles())
    whole = [outline.log_offset for outline, _ in LogScan(log, 0, durable_end=log.end_of_segments)]
    assert len(whole) == 60
    start = whole[30]
    with _segment_of(directory, start).open("r+b") as file:
        file.seek(start % SMALL.segment_bytes)
        file.write(bytes(4))
    scan = LogScan(log, 0, durable_end=log.end_of_segments)
    assert [outline.log_offset for outline, _ in scan] == whole[:30] + whole[31:]
    log.close()


def _segment_of(directory: Path, log_offset: int) -> Path:
    return max(path for path in segments(directory) if int(path.name) <= log_offset)


def test_what_a_start_recovers_is_on_the_disk_before_it_is_shown(crashed: tuple[Path, list[AppendedRecord]]) -> None:
    directory, appended = crashed
    files = RecordingFiles()
    store = MessageStore.open(directory, replace(SMALL, sync_flush=True), files=files)
    tail = {_segment_of(directory, record.log_offset) for record in appended[20:]}
    assert len(tail) > 1
    assert tail <= {operation.path for operation in files.operations if operation.name == "sync"}
    assert bodies(store) == SENT
    store.close()


def test_a_checkpoint_is_replaced_after_all_that_it_speaks_of_is_on_the_disk(scratch: Path) -> None:
    files = RecordingFiles()
    store = MessageStore.open(scratch, SMALL, files=files)
    store.put([pending(queue_id=0), pending(queue_id=1)])
    files.operations.clear()
    store.write_checkpoint()
    names = [
        (operation.name, operation.path.relative_to(scratch).parts[0])
        for operation in files.operations
        if operation.name in ("sync", "rename")
    ]
    assert [name for name in names if name[1] != "index" and not name[1].startswith("manifest")] == [
        ("sync", "commitlog"),
        ("sync", "consumequeue"),
        ("sync", "consumequeue"),
        ("sync", "checkpoint.bak.tmp"),
        ("rename", "checkpoint.bak"),
        ("sync", "checkpoint.tmp"),
        ("rename", "checkpoint"),
    ]
    store.close()


def test_offsets_do_not_go_backward_when_the_last_record_of_a_queue_is_damaged(scratch: Path) -> None:
    store = _open(scratch)
    last = [store.put([pending(body)])[0] for body in SENT[:4]][-1]
    store.put([pending(topic="other")])
    store.close()
    with segments(scratch)[0].open("r+b") as log:
        log.seek(last.log_offset + 95)
        log.write(b"?")
    shutil.rmtree(scratch / "consumequeue")
    store = _open(scratch)
    assert store.max_offset("orders", 0) == 4
    assert not _can_read(store, 3)
    assert store.put([pending(b"next")])[0].queue_offset == 4
    store.close()


def test_files_that_an_interrupted_deletion_left_are_removed(scratch: Path) -> None:
    store = _open(scratch / "store")
    store.put([pending(b"old"), pending(topic="other")])
    store.write_checkpoint()
    left = crashed_copy(scratch / "store" / "consumequeue" / "orders", scratch / "left")
    store.delete_topic("orders")
    directory = crashed_copy(scratch / "store", scratch / "crashed")
    store.close()
    shutil.copytree(left, directory / "consumequeue" / "orders")
    store = _open(directory)
    assert not (directory / "consumequeue" / "orders").exists()
    assert store.max_offset("orders", 0) == 0
    assert bodies(store, "other") == [b"body"]
    store.close()


def test_a_whole_record_of_another_place_does_not_count(scratch: Path) -> None:
    store = _open(scratch / "store")
    first, second = store.put([pending(b"first"), pending(b"second")])
    directory = crashed_copy(scratch / "store", scratch / "crashed")
    store.close()
    with segments(directory)[0].open("r+b") as log:
        record = log.read(first.size_bytes)
        log.seek(second.log_offset + second.size_bytes)
        log.write(record)
    scan = LogScan(CommitLog(directory / "commitlog", SMALL.segment_bytes, HastyFiles()), 0)
    assert [outline.log_offset for outline, _ in scan] == [first.log_offset, second.log_offset]
    assert scan.position == second.log_offset + second.size_bytes


def test_an_end_mark_that_miscounts_the_rest_of_its_segment_ends_the_log(scratch: Path) -> None:
    store = _open(scratch / "store")
    first = store.put([pending(b"x" * 1200)])[0]
    store.put([pending(b"x" * 1200)])
    directory = crashed_copy(scratch / "store", scratch / "crashed")
    store.close()
    with segments(directory)[0].open("r+b") as log:
        log.seek(first.size_bytes + 3)
        log.write(b"?")
    store = _open(directory)
    assert store.written_log_offset == first.size_bytes
    assert bodies(store) == [b"x" * 1200]
    store.close()


def test_the_first_segment_has_its_name_on_the_disk_before_any_record_stands_in_it(scratch: Path) -> None:
    """A power failure could leave a later segment alone otherwise, which a start would take for the log's beginning."""
    files = RecordingFiles()
    store = MessageStore.open(scratch, SMALL, files=files)
    files.operations.clear()
    store.put([pending(bytes(700)) for _ in range(4)])
    log = scratch / "commitlog"
    before = [operation.name for operation in files.operations if operation.path in (log, log / f"{0:020}")]
    assert before[:2] == ["sync directory", "pwrite"]
    store.close()


@pytest.mark.parametrize(("number", "name"), [(errno.ENOSPC, "DISK_FULL"), (errno.EIO, "DATA_DIRECTORY_NOT_WRITABLE")])
def test_a_lock_that_cannot_be_written_is_a_refusal_and_leaves_the_directory_free(
    scratch: Path, number: int, name: str
) -> None:
    files = FailingFiles()
    files.errors["pwrite"] = number
    with pytest.raises(StartRefused) as refused:
        MessageStore.open(scratch, SMALL, files=files)
    assert refused.value.name == name
    _open(scratch).close()
