"""S2, bit rot: each bit of a segment flipped, pages swapped, files emptied: all of it found, none of it served."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from io import FileIO
from itertools import combinations
from pathlib import Path

from crash.derived_files import kind_of
from crash.programme import ANY_ERROR, ProgrammeRun
from crash.torn_tail import OPTIONS, filled_store
from crash.traced_files import HASTY
from millstream.model.clock import ManualClock
from millstream.model.errors import StartRefused, StoreError
from millstream.store.message_store import IndexEntry, MessageStore
from millstream.store.store_state import accept_log_loss

__all__ = ["PAGE_BYTES", "find_every_flip"]

PAGE_BYTES = 512
"""The unit that is swapped; smaller than a disk's, so that every swap tears records."""

_QUEUES = (("orders", 0), ("orders", 1), ("bills", 0))
_READ_AT_ONCE = 10_000

Records = dict[tuple[str, int, int], bytes]
"""Topic, queue number and queue offset to the record's bytes."""


def find_every_flip(run: ProgrammeRun) -> None:
    """S2. 80,000 flips (CI), 1,000,000 (full) or 10,000,000 (soak) under an open store, and a share over a start."""
    store, ends = filled_store(run.scratch / "store")
    whole = _readable(store)
    if len(whole) != len(ends):
        run.fail(f"{len(whole)} of {len(ends)} records can be read before anything is damaged")
    crashed = Path(shutil.copytree(run.scratch / "store", run.scratch / "crashed"))
    with closing(store):
        _flip_under_an_open_store(run, store, run.by_size(80_000, 1_000_000, 10_000_000))
        _swap_under_an_open_store(run, store, whole)
    for name, source in (("stopped", run.scratch / "store"), ("crashed", crashed)):
        for path in sorted(path for path in source.rglob("*") if path.is_file() and path.stat().st_size):
            _start_over_damage(run, source, path.relative_to(source), whole, name)


def _entries(store: MessageStore) -> Iterator[tuple[tuple[str, int], IndexEntry]]:
    for topic, queue_id in _QUEUES:
        for entry in store.entries(topic, queue_id, store.min_offset(topic, queue_id), _READ_AT_ONCE):
            yield (topic, queue_id), entry


def _readable(store: MessageStore) -> Records:
    """What a reader is given, by the queue and offset it asks for. Raises what is not RECORD_DAMAGED."""
    readable = {}
    for (topic, queue_id), entry in _entries(store):
        try:
            readable[topic, queue_id, entry.queue_offset] = bytes(store.read(entry))
        except StoreError as error:
            if error.name != "RECORD_DAMAGED":
                raise
    return readable


def _segment_of(directory: Path, log_offset: int) -> tuple[Path, int]:
    segments = sorted((directory / "commitlog").iterdir())
    path = [path for path in segments if int(path.name) <= log_offset][-1]
    return path, log_offset - int(path.name)


def _flip_under_an_open_store(run: ProgrammeRun, store: MessageStore, wanted: int) -> None:
    """Flip each bit of each record in turn, in its file, and read it: what is served must be an error."""
    entries = [entry for _, entry in _entries(store)]
    run.random.shuffle(entries)
    done = 0
    while done < wanted:
        for entry in entries:
            path, position = _segment_of(run.scratch / "store", entry.log_offset)
            with path.open("r+b", buffering=0) as file:
                file.seek(position)
                content = file.read(entry.size_bytes)
                put = partial(_put, file, position)
                done += _flip_each_bit(run, store, entry, put, content)
            if done >= wanted:
                break
    run.count("flips", done)


def _put(file: FileIO, start: int, position: int, data: bytes) -> None:
    file.seek(start + position)
    file.write(data)


def _flip_each_bit(
    run: ProgrammeRun, store: MessageStore, entry: IndexEntry, put: Callable[[int, bytes], None], content: bytes
) -> int:
    for bit in range(len(content) * 8):
        byte = content[bit // 8]
        put(bit // 8, bytes([byte ^ 1 << bit % 8]))
        try:
            store.read(entry)
        except StoreError as error:
            if error.name != "RECORD_DAMAGED":
                run.fail(f"bit {bit} of the record at {entry.log_offset}: {error.name}")
        else:
            run.fail(f"bit {bit} of the record at {entry.log_offset} was served")
        put(bit // 8, bytes([byte]))
    return len(content) * 8


def _swap_under_an_open_store(run: ProgrammeRun, store: MessageStore, whole: Records) -> None:
    """Swap two pages of a segment and read everything: nothing altered, and every record of both pages is found."""
    path = min((run.scratch / "store" / "commitlog").iterdir())
    content = path.read_bytes()
    pages = len(content) // PAGE_BYTES
    for first, second in run.sample(list(combinations(range(pages), 2))):
        changed = _swapped(content, first, second)
        with path.open("r+b", buffering=0) as file:
            file.write(changed)
        _compare(run, _readable(store), whole, f"pages {first} and {second} swapped", run.scratch / "store")
        with path.open("r+b", buffering=0) as file:
            file.write(content)
        run.count("swaps")


def _swapped(content: bytes, first: int, second: int) -> bytes:
    changed = bytearray(content)
    here, there = (slice(page * PAGE_BYTES, (page + 1) * PAGE_BYTES) for page in (first, second))
    changed[here], changed[there] = content[there], content[here]
    return bytes(changed)


def _compare(run: ProgrammeRun, readable: Records, whole: Records, what: str, directory: Path) -> None:
    altered = [key for key, record in readable.items() if whole.get(key) != record]
    if altered:
        run.fail(f"{what}: {len(altered)} records are served that were never stored so, first {altered[0]}", directory)


def _damages(run: ProgrammeRun, content: bytes) -> Iterator[tuple[str, bytes]]:
    yield "truncated to 0", b""
    bits = len(content.rstrip(b"\0")) * 8
    for bit in run.random.sample(range(bits), min(bits, run.by_size(40, 400, 4_000))):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit} flipped", bytes(changed)
    pages = len(content) // PAGE_BYTES
    for _ in range(min(pages, 4) if pages > 1 else 0):
        first, second = run.random.sample(range(pages), 2)
        yield f"pages {first} and {second} swapped", _swapped(content, first, second)


def _open(run: ProgrammeRun, directory: Path, *, is_log: bool) -> MessageStore:
    """The store; where the log ends before what was on the disk, once somebody has accepted that."""
    try:
        return MessageStore.open(directory, OPTIONS, clock=ManualClock(step_ms=1), files=HASTY)
    except StartRefused as refused:
        if not is_log or refused.name != "LOG_INCOMPLETE":
            raise
    run.count("refused_starts")
    accept_log_loss(directory, HASTY)
    return MessageStore.open(directory, OPTIONS, clock=ManualClock(step_ms=1), files=HASTY)


def _start_over_damage(run: ProgrammeRun, source: Path, name: Path, whole: Records, state: str) -> None:
    is_log = kind_of(name) is None and name.parts[0] == "commitlog"
    if is_log and state == "crashed":
        # What was not flushed yet cannot be told from a torn tail: the stopped copy is the one with a promise.
        return
    for what, damaged in _damages(run, (source / name).read_bytes()):
        directory = run.scratch / "damaged"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(source, directory)
        (directory / name).write_bytes(damaged)
        run.count("starts")
        label = f"{state}: {name} {what}"
        try:
            store = _open(run, directory, is_log=is_log)
        except ANY_ERROR as error:
            run.fail(f"{label}: the start fails: {type(error).__name__}: {error}", directory)
            continue
        try:
            readable = _readable(store)
            _compare(run, readable, whole, label, directory)
            lost = whole.keys() - readable.keys()
            if is_log or name.parts[0] == "consumequeue":
                # An entry has no checksum: a start looks at the last ones, a reader finds the others by the record.
                is_bearable = len(lost) <= ("bit" in what) or (is_log and "bit" not in what)
                run.count("refused_records", len(lost))
            else:
                is_bearable = not lost
            if not is_bearable:
                run.fail(f"{label}: {len(lost)} records are gone", directory)
        except ANY_ERROR as error:
            run.fail(f"{label}: reading fails: {type(error).__name__}: {error}", directory)
        finally:
            store.close()
