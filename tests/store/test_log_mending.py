"""Damage in a log is found wherever it is, and gives way to the bytes that another store has of the same log."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import SMALL, bodies, message, pending

from millstream.model.errors import StoreError
from millstream.protocol.record import encode_record
from millstream.store.commit_log import BLANK_BYTES
from millstream.store.damage import log_mending
from millstream.store.damage.log_mending import LOOK_BYTES, LogLook, SoundRange
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore, StoreOptions

REPLICATED = replace(SMALL, replicated=True)
Pair = tuple[MessageStore, MessageStore]


@pytest.fixture
def pair(scratch: Path) -> Iterator[Pair]:
    """A store with several files, and one with the same log."""
    with closing(MessageStore.open(scratch / "sound", SMALL)) as sound:
        for number in range(14):
            sound.put([pending(b"%d" % number * (1 + number * 37 % 300), queue_id=number % 2, tag="a")])
        with closing(MessageStore.open(scratch / "hurt", REPLICATED)) as hurt:
            copy(sound, hurt)
            yield sound, hurt


def copy(sound: MessageStore, hurt: MessageStore) -> None:
    while (chunk := sound.read_chunk(hurt.written_log_offset, 1_000_000)).records:
        hurt.append_chunk(chunk.log_offset, bytes(chunk.records))
    hurt.confirm(hurt.written_log_offset)


def find_damage(store: MessageStore) -> list[LogLook]:
    found, position = [], store.log_start
    while position < store.written_log_offset:
        look = store.mending.look(position, store.written_log_offset)
        assert look.end > position
        found += [look] if look.is_damaged else []
        position = look.end
    return found


def mend(hurt: MessageStore, sound: MessageStore) -> list[LogLook]:
    """Mend all that is found; what was."""
    found = find_damage(hurt)
    for look in found:
        position = look.start
        while position < look.end:
            part = sound.mending.read_range(position, look.end)
            hurt.mending.mend(part)
            position = part.end
    return found


def log_of(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((directory / "commitlog").iterdir())]


def used_bytes(store: MessageStore) -> list[tuple[int, int]]:
    """The file and the place in it of each byte that means something."""
    places = []
    for number, segment in enumerate(store._log.segments):
        end = min(segment.end, store.written_log_offset)
        position = segment.start
        while position < end and (record := store.record_at(position)) is not None:
            position += len(record)
        stop = min(position + BLANK_BYTES, segment.end) if position < end else position
        places += [(number, at - segment.start) for at in range(segment.start, stop)]
    return places


def test_every_flipped_bit_is_found_and_mended(pair: Pair, scratch: Path) -> None:
    sound, hurt = pair
    right = log_of(scratch / "hurt")
    assert len(right) >= 3
    paths = sorted((scratch / "hurt" / "commitlog").iterdir())
    for turn, (number, at) in enumerate(used_bytes(sound)):
        with paths[number].open("r+b") as file:
            file.seek(at)
            file.write(bytes([right[number][at] ^ 1 << turn % 8]))
        assert len(mend(hurt, sound)) == 1, f"byte {at} of file {number}"
        assert log_of(scratch / "hurt") == right, f"byte {at} of file {number}"


def test_what_is_mended_is_read_again(pair: Pair, scratch: Path) -> None:
    sound, hurt = pair
    path = sorted((scratch / "hurt" / "commitlog").iterdir())[1]
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(StoreError, match="damaged"):
        bodies(hurt, queue_id=0)
    mend(hurt, sound)
    assert [bodies(hurt, queue_id=number) for number in (0, 1)] == [bodies(sound, queue_id=number) for number in (0, 1)]


def test_whole_files_of_zeros_come_in_parts(pair: Pair, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound, hurt = pair
    right = log_of(scratch / "hurt")
    monkeypatch.setattr(log_mending, "MAX_RANGE_BYTES", 1)
    monkeypatch.setattr(log_mending, "LOOK_BYTES", 1)
    for path in (scratch / "hurt" / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    mend(hurt, sound)
    assert log_of(scratch / "hurt") == right


def test_a_store_whose_own_bytes_are_damaged_gives_none(pair: Pair, scratch: Path) -> None:
    sound, hurt = pair
    for name in ("sound", "hurt"):
        with (scratch / name / "commitlog" / f"{0:020}").open("r+b") as file:
            file.seek(200)
            file.write(b"???")
    (look,) = find_damage(hurt)
    with pytest.raises(StoreError) as refused:
        sound.mending.read_range(look.start, look.end)
    assert refused.value.name == "RECORD_DAMAGED"
    # What is sound before and behind it is given all the same.
    assert sound.mending.read_range(look.end, look.end + 1).records


def test_no_record_is_given_that_was_not_asked_for(pair: Pair) -> None:
    sound, _ = pair
    first = sound.mending.read_range(0, 1)
    assert len(first.records) == first.end == sound.entries("orders", 0, 0, 1)[0].size_bytes
    two = sound.mending.read_range(0, first.end + 1)
    assert sound.mending.read_range(first.end, two.end) == SoundRange(first.end, two.end, two.records[first.end :])


def test_damaged_bytes_that_arrive_are_not_written(pair: Pair, scratch: Path) -> None:
    sound, hurt = pair
    before = log_of(scratch / "hurt")
    right = sound.mending.read_range(0, 1)
    with pytest.raises(StoreError) as refused:
        hurt.mending.mend(SoundRange(0, right.end, right.records[:-1] + b"!"))
    assert refused.value.name == "RECORD_DAMAGED"
    for wrong in (
        SoundRange(0, right.end + 1, right.records),
        SoundRange(0, 0, b""),
        SoundRange(hurt.written_log_offset, hurt.written_log_offset + right.end, right.records),
    ):
        with pytest.raises((ValueError, StoreError)):
            hurt.mending.mend(wrong)
    assert log_of(scratch / "hurt") == before


def test_a_write_that_a_crash_tore_is_found_again(pair: Pair, scratch: Path) -> None:
    sound, hurt = pair
    right = log_of(scratch / "hurt")
    path = scratch / "hurt" / "commitlog" / f"{0:020}"
    size = len(sound.mending.read_range(0, 1).records)
    damaged = bytes(size)
    for torn_at in range(0, size, 7):
        with path.open("r+b") as file:
            file.write(right[0][:torn_at] + damaged[torn_at:])
        mend(hurt, sound)
        assert log_of(scratch / "hurt") == right, torn_at


def test_blocks_that_the_disk_cannot_read_are_damage(
    pair: Pair, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, hurt = pair
    read = FileLayer.pread
    monkeypatch.setattr(log_mending, "_BLOCK_BYTES", 64)

    def fail_in_block(files: FileLayer, descriptor: int, length: int, position: int) -> bytes:
        if position < 704 and position + length > 640:
            raise OSError(errno.EIO, "planted")
        return read(files, descriptor, length, position)

    monkeypatch.setattr(FileLayer, "pread", fail_in_block)
    damage = [look for look in find_damage(hurt) if look.start < SMALL.segment_bytes]
    assert [look.start < 704 and look.end > 640 for look in damage] == [True]


def test_a_record_larger_than_a_look_is_one_record_whatever_its_body_holds(scratch: Path) -> None:
    options = StoreOptions(segment_bytes=4 * LOOK_BYTES, replicated=True)
    with closing(MessageStore.open(scratch / "large", options)) as store:
        place = {"queue_id": 0, "queue_offset": 0, "store_timestamp_ms": 0, "store_host": options.store_host}
        probe = encode_record(message(b""), log_offset=0, **place)  # type: ignore[arg-type]
        # Its own bytes begin where the body does: behind the head, before topic and properties.
        head = probe.index(b"\x06orders")
        inner = encode_record(message(b"inner"), log_offset=head, **place)  # type: ignore[arg-type]
        store.put([pending(inner + bytes(2 * LOOK_BYTES))])
        assert find_damage(store) == []
        assert store.mending.look(0, store.written_log_offset).end == store.written_log_offset


def test_a_look_at_small_records_is_short_so_that_it_holds_up_no_sender(scratch: Path) -> None:
    options = StoreOptions(segment_bytes=1024 * 1024, replicated=True)
    with closing(MessageStore.open(scratch / "small", options)) as store:
        store.put([pending(b"x" * 100)] * 2000)
        end, looks = store.written_log_offset, [store.mending.look(0, store.written_log_offset)]
        while looks[-1].end < end:
            looks.append(store.mending.look(looks[-1].end, end))
        assert end > 4 * 64 * 1024
        assert max(look.end - look.start for look in looks) <= 64 * 1024
