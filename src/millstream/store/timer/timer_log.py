"""The timer files: append-only, one or more for each hour with pending timers.

After the head (`file_head.py`) a file is a row of little-endian int64: a key (`Hour`) for each timer that was
scheduled, the key's complement for each that is done. The checkpoint says which files count, how much of each, and its
checksum; bytes behind that are the torn end of a write that was never noted, and are written over.

As an hour's timers are due together, its files go soon after the hour. If many of its timers are done earlier, those
that are left are copied to a new file.

What of the timer files counts, and what of the log they cover: the one file that makes all others valid.

After the head (`file_head.py`), little-endian: `int64 covered queue offset | int64 covered log offset | int64 number of
the next file | int64 count of rows`, a row of `int64 hour | int64 base offset | int64 file number | int64 size |
int64 CRC-32` for each file, then `uint32 CRC-32` of all bytes before it.
"""

from __future__ import annotations

import logging
import re
import struct
import sys
from array import array
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from millstream.store.file_head import HEAD_BYTES, file_head, is_whole_head
from millstream.store.files import FileLayer
from millstream.store.timer.wheel import HourChange

__all__ = [
    "CHECKPOINT_MAGIC",
    "FORMAT_VERSION",
    "MAX_DONE_SHARE",
    "MAX_FILE_BYTES",
    "MIN_COPIED_ENTRIES",
    "LoadedTimers",
    "TimerCheckpoint",
    "TimerFile",
    "TimerLog",
    "decode_checkpoint",
    "encode_checkpoint",
]

FORMAT_VERSION = 1
"""Of the checkpoint, and with it of the timer files."""

CHECKPOINT_MAGIC = b"MSTMRCHK"

_FIELDS = struct.Struct("<qqqq")
_ROW = struct.Struct("<qqqqq")
_SEAL = struct.Struct("<I")


class TimerFile(NamedTuple):
    """One file of an hour's timers, and how much of it counts. `base_offset` is that of its hour (see `Hour`)."""

    hour: int
    base_offset: int
    number: int
    size_bytes: int
    checksum: int


class TimerCheckpoint(NamedTuple):
    """The files hold all that was scheduled below the one offset and not done below the other."""

    covered_queue_offset: int
    covered_log_offset: int
    next_file_number: int
    files: tuple[TimerFile, ...]


def encode_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The content of the checkpoint's file."""
    *fields, rows = checkpoint
    content = b"".join(
        [
            file_head(CHECKPOINT_MAGIC, FORMAT_VERSION),
            _FIELDS.pack(*fields, len(rows)),
            *(_ROW.pack(*row) for row in rows),
        ]
    )
    return content + _SEAL.pack(crc32(content))


def decode_checkpoint(content: bytes, path: Path) -> TimerCheckpoint | None:
    """The checkpoint, or None if it is damaged. Raises STORE_FORMAT for one of another version."""
    if not is_whole_head(content, CHECKPOINT_MAGIC, FORMAT_VERSION, path):
        return None
    end = len(content) - _SEAL.size
    rows_start = HEAD_BYTES + _FIELDS.size
    if end < rows_start or _SEAL.unpack_from(content, end)[0] != crc32(content[:end]):
        return None
    covered_queue_offset, covered_log_offset, next_file_number, count = _FIELDS.unpack_from(content, HEAD_BYTES)
    if rows_start + count * _ROW.size != end:
        return None
    rows = tuple(TimerFile(*row) for row in _ROW.iter_unpack(content[rows_start:end]))
    return TimerCheckpoint(covered_queue_offset, covered_log_offset, next_file_number, rows)


MAX_FILE_BYTES = 16 * 1024 * 1024
"""No file grows beyond this; an hour's next entries go to another one."""

MAX_DONE_SHARE = 4
MIN_COPIED_ENTRIES = 64 * 1024
"""An hour's files hold at most `MIN_COPIED_ENTRIES` entries more than `MAX_DONE_SHARE` for each pending timer."""

_MAGIC = b"MSTIMERS"
_ENTRY_BYTES = 8
_NAME = re.compile(r"\d{10,}-\d{10,}")

_log = logging.getLogger(__name__)


class LoadedTimers(NamedTuple):
    """What a start found: the pending timers, and what of the timer topic and the log they cover."""

    covered_queue_offset: int
    covered_log_offset: int
    hours: list[HourChange]


class TimerLog:
    """The files in `directory`. Errors of the disk are raised as `OSError`. Used by one thread at a time."""

    def __init__(self, directory: Path, files: FileLayer, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._directory = directory
        self._checkpoint_path = directory / "checkpoint"
        self._files = files
        self._max_file_bytes = max_file_bytes
        self._next_number = 0
        self._rows: dict[tuple[int, int], list[TimerFile]] = {}  # by number and base offset of the hour

    def load(self, *, queue_end: int, log_end: int) -> LoadedTimers | None:
        """What the last checkpoint covers, or None if it is missing, damaged, or covers more than there is of the log.

        In that case all files are removed. Raises STORE_FORMAT for a file of another version, and changes nothing.
        """
        self._check_versions()
        loaded = self._load_checkpoint(queue_end, log_end)
        if loaded is None:
            self._rows, self._next_number = {}, 0
            self._files.remove(self._checkpoint_path)
        self._remove_unlisted()
        return loaded

    def _check_versions(self) -> None:
        for path in self._files.entries(self._directory):
            is_checkpoint = path == self._checkpoint_path
            if is_checkpoint or _NAME.fullmatch(path.name):
                with self._files.open_descriptor(path) as descriptor:
                    head = self._files.pread(descriptor, HEAD_BYTES, 0)
                is_whole_head(head, CHECKPOINT_MAGIC if is_checkpoint else _MAGIC, FORMAT_VERSION, path)

    def _load_checkpoint(self, queue_end: int, log_end: int) -> LoadedTimers | None:
        self._files.make_directory(self._directory)
        if not self._files.exists(self._checkpoint_path):
            return None
        checkpoint = decode_checkpoint(self._files.read_all(self._checkpoint_path), self._checkpoint_path)
        if checkpoint is None:
            _log.warning("All timers will be scheduled again, because %s is damaged.", self._checkpoint_path)
            return None
        if checkpoint.covered_queue_offset > queue_end or checkpoint.covered_log_offset > log_end:
            _log.warning("All timers will be scheduled again, because the log is shorter than %s.", checkpoint[:2])
            return None
        for row in checkpoint.files:
            self._rows.setdefault((row.hour, row.base_offset), []).append(row)
        self._next_number = checkpoint.next_file_number
        hours = []
        for (number, base_offset), rows in self._rows.items():
            entries = self._read(rows)
            if entries is None:
                return None
            keys = _pending_keys(entries)
            hours.append(HourChange(number, base_offset, len(keys), keys))
        return LoadedTimers(checkpoint.covered_queue_offset, checkpoint.covered_log_offset, hours)

    def _read(self, rows: list[TimerFile]) -> array[int] | None:
        """The entries of an hour's files, or None if one is damaged."""
        entries = array("q")
        for row in rows:
            path = self._path(row)
            content = b""
            if self._files.exists(path):
                with self._files.open_descriptor(path) as descriptor:
                    content = self._files.pread(descriptor, row.size_bytes, 0)
            if crc32(content) != row.checksum or not is_whole_head(content, _MAGIC, FORMAT_VERSION, path):
                _log.warning("The timer file %s is damaged or missing.", path)
                return None
            entries.frombytes(content[HEAD_BYTES:])
        if sys.byteorder == "big":
            entries.byteswap()
        return entries

    def save(self, changes: list[HourChange], *, covered_queue_offset: int, covered_log_offset: int) -> None:
        """Bring the changes to the disk and let the files cover those offsets. Hours that are not named are over.

        If it fails nothing has changed, and the same changes can be saved again.
        """
        rows: dict[tuple[int, int], list[TimerFile]] = {}
        number = self._next_number
        for change in changes:
            hour = (change.number, change.base_offset)
            rows[hour] = self._save_hour(change, self._rows.get(hour, []), number)
            number = max(number, rows[hour][-1].number + 1)
        if number != self._next_number:
            self._files.sync_directory(self._directory)
        files = tuple(row for hour_rows in rows.values() for row in hour_rows)
        checkpoint = TimerCheckpoint(covered_queue_offset, covered_log_offset, number, files)
        self._files.replace(self._checkpoint_path, encode_checkpoint(checkpoint))
        self._rows, self._next_number = rows, number
        try:
            self._remove_unlisted()
        except OSError as error:
            _log.warning("Timer files that are over stay until the next checkpoint: %s", error)

    def _save_hour(self, change: HourChange, rows: list[TimerFile], next_number: int) -> list[TimerFile]:
        entries = change.keys
        saved = sum(row.size_bytes - HEAD_BYTES for row in rows) // _ENTRY_BYTES
        if saved + len(entries) > MAX_DONE_SHARE * change.pending + MIN_COPIED_ENTRIES:
            earlier = self._read(rows)
            if earlier is not None:
                rows, entries = [], _pending_keys(earlier + entries)
        rows = rows.copy()
        data = _little_endian(entries)
        while data:
            if not rows or rows[-1].size_bytes + _ENTRY_BYTES > self._max_file_bytes:
                number = max(next_number, rows[-1].number + 1 if rows else 0)
                rows.append(TimerFile(change.number, change.base_offset, number, 0, 0))
            room = self._max_file_bytes - max(rows[-1].size_bytes, HEAD_BYTES)
            piece = data[: room - room % _ENTRY_BYTES]
            rows[-1] = self._append(rows[-1], piece)
            data = data[len(piece) :]
        return rows

    def _append(self, row: TimerFile, data: bytes) -> TimerFile:
        is_new = not row.size_bytes
        if is_new:
            data = file_head(_MAGIC, FORMAT_VERSION) + data
        with self._files.open_descriptor(self._path(row), create=is_new) as descriptor:
            self._files.pwrite(descriptor, data, row.size_bytes)
            self._files.fdatasync(descriptor)
        return row._replace(size_bytes=row.size_bytes + len(data), checksum=crc32(data, row.checksum))

    def _path(self, row: TimerFile) -> Path:
        return self._directory / f"{row.hour:010}-{row.number:010}"

    def _remove_unlisted(self) -> None:
        listed = {self._path(row) for rows in self._rows.values() for row in rows}
        for path in self._files.entries(self._directory):
            if _NAME.fullmatch(path.name) and path not in listed:
                self._files.remove(path)


def _pending_keys(entries: array[int]) -> array[int]:
    done = {~entry for entry in entries if entry < 0}
    return array("q", [entry for entry in entries if entry >= 0 and entry not in done])


def _little_endian(entries: array[int]) -> bytes:
    if sys.byteorder == "big":
        entries = array("q", entries)
        entries.byteswap()
    return entries.tobytes()
