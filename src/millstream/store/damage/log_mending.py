"""Finds damage in a store's log and overwrites it with the correct bytes from another store.

What is read here is read from the files and not from their maps: a block that the disk cannot give any more ends no
process, it counts as damaged. Whoever gives bytes for another store looks at their checksums first, and whoever takes
them does so again, so damage never spreads. A crash between leaves old bytes, new ones or a mixture, and the checksums
say which.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from millstream.model.errors import StoreError
from millstream.protocol.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    outline_records,
    possible_records,
    verify_record,
)
from millstream.store.commit_log import BLANK_BYTES, CommitLog, LogSegment
from millstream.store.files import FileLayer
from millstream.store.log_chunk import check_chunk

__all__ = ["LOOK_BYTES", "MAX_RANGE_BYTES", "LogLook", "LogMending", "SoundRange"]

LOOK_BYTES: Final = 64 * 1024
"""Bytes of the log that one look reads at least, where there are so many. Few, because who looks at them holds up every
other thread: half a millisecond with the smallest records."""

MAX_RANGE_BYTES: Final = 1024 * 1024
"""Bytes of records that one store gives another at a time, but for a larger single record."""

_BLOCK_BYTES: Final = 4096
_GROWTH: Final = 4

_SIZE_AND_MAGIC: Final = struct.Struct(">ii")
_PLACE: Final = struct.Struct(">ii20xq")
"""Size, magic and log offset at the head of a record."""


class LogLook(NamedTuple):
    """What the log has from `start` up to but without `end`: whole records of their place, or damage."""

    start: int
    end: int
    is_damaged: bool


class SoundRange(NamedTuple):
    """Whole records from `start` on. `end` is behind the last of them, or at the end of the file where nothing follows
    there but the mark that says so."""

    start: int
    end: int
    records: bytes


class LogMending:
    """Of one store's log. Positions are log offsets at which a record begins. Fit for any thread, below the log's end.

    Errors of the disk are OSError, but for blocks that cannot be read, which are damage.
    """

    def __init__(self, log: CommitLog, files: FileLayer) -> None:
        self._log = log
        self._files = files

    def look(self, start: int, end: int) -> LogLook:
        """What the log has from `start` on: about `LOOK_BYTES` and not beyond `end`, but always a whole record.

        Damage reaches to the next whole record of the file, or to the file's end.
        """
        segment = self._log.segment_at(start)
        if segment is None:
            following = self._log.next_start(start)
            return LogLook(start, end if following is None else min(following, end), is_damaged=True)
        stop, size = min(segment.end, self._log.end), LOOK_BYTES
        while True:
            size = min(size, stop - start)
            data = self._read(segment, start, size)
            whole = _whole_bytes(data, start)
            if whole:
                return LogLook(start, start + whole, is_damaged=False)
            if _is_blank(data, segment.end - start):
                return LogLook(start, segment.end, is_damaged=False)
            wanted = _size_of_head(data, start)
            if size < wanted <= stop - start:
                size = wanted
                continue
            following = _next_whole(data, start)
            if following is not None:
                return LogLook(start, start + following, is_damaged=True)
            if size == stop - start:
                return LogLook(start, stop, is_damaged=True)
            size *= _GROWTH

    def start_of_file(self, log_offset: int) -> int:
        """Where the log's file begins that holds the offset, and a record does; the log's start without one."""
        segment = self._log.segment_at(log_offset)
        return self._log.start if segment is None else segment.start

    def read_range(self, start: int, end: int) -> SoundRange:
        """The records from `start` on that hold the bytes up to `end`, or `MAX_RANGE_BYTES` of them, and no others:
        behind them another log may have gone on otherwise.

        Raises RECORD_DAMAGED where a record does not begin at `start` or is not whole.
        """
        records, position = [], start
        segment = self._log.segment_at(start)
        while segment is not None and position < min(end, segment.end) and position - start < MAX_RANGE_BYTES:
            look = self.look(position, self._log.end)
            if look.is_damaged:
                raise StoreError("RECORD_DAMAGED", f"The log from {position} to {look.end} is damaged here as well.")
            data = self._read(segment, position, look.end - position)
            whole = _whole_bytes(data, position, min(end, start + MAX_RANGE_BYTES))
            records.append(data[:whole])
            position += whole
            if not whole:
                position = look.end
        if segment is None or position == start:
            raise StoreError("RECORD_DAMAGED", f"The log has nothing from {start} to {end}.")
        return SoundRange(start, position, b"".join(records))

    def mend(self, sound: SoundRange) -> set[str]:
        """Write what another store gave over what is there; it is on the disk when this returns. The records' topics.

        Raises RECORD_DAMAGED, with nothing written, for records that are not whole or of another place, and ValueError
        for a range that does not lie in one file below the log's end.
        """
        found = check_chunk(sound.records, sound.start)
        segment, end_of_records = self._log.segment_at(sound.start), sound.start + len(sound.records)
        is_whole = sound.end == end_of_records and found
        if segment is None or not (is_whole or sound.end == segment.end) or sound.end > min(segment.end, self._log.end):
            raise ValueError(f"The range {sound.start} to {sound.end} with {len(sound.records)} bytes does not fit.")
        data = sound.records
        if segment.end - end_of_records >= BLANK_BYTES and sound.end == segment.end:
            data += _SIZE_AND_MAGIC.pack(segment.end - end_of_records, MAGIC_BLANK)
        with self._files.open_descriptor(segment.path) as descriptor:
            self._files.pwrite(descriptor, data, sound.start - segment.start)
            self._files.fdatasync(descriptor)
        return {outline.topic for outline, _ in found}

    def _read(self, segment: LogSegment, start: int, size: int) -> bytes:
        position = start - segment.start
        with self._files.open_descriptor(segment.path) as descriptor:

            def read(length: int, at: int) -> bytes:
                return self._files.pread(descriptor, length, at)

            try:
                return _read_all(read, size, position)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
            return b"".join(
                _read_or_zeros(read, min(_BLOCK_BYTES, position + size - at), at)
                for at in range(position, position + size, _BLOCK_BYTES)
            )


def _read_all(read: Callable[[int, int], bytes], size: int, position: int) -> bytes:
    data = read(size, position)
    while len(data) < size and (more := read(size - len(data), position + len(data))):
        data += more
    return data


def _read_or_zeros(read: Callable[[int, int], bytes], size: int, position: int) -> bytes:
    try:
        return _read_all(read, size, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return bytes(size)


def _whole_bytes(data: bytes, log_offset: int, until: int | None = None) -> int:
    """The bytes of the whole records that `data` begins with, but for those that begin at `until` or behind it."""
    end = 0
    for outline, size_bytes in outline_records(data, log_offset):
        if until is not None and outline.log_offset >= until:
            break
        end = outline.log_offset + size_bytes - log_offset
    return end


def _next_whole(data: bytes, log_offset: int) -> int | None:
    """Where in `data`, behind its beginning, the first whole record of its place begins."""
    view = memoryview(data)
    for position in possible_records(data, 1):
        size = _size_of_head(data[position : position + MIN_RECORD_BYTES], log_offset + position)
        if size and verify_record(view[position : position + size]):
            return position
    return None


def _size_of_head(data: bytes, log_offset: int) -> int:
    """The size that the record says which seems to begin there; 0 where none does."""
    if len(data) < _PLACE.size:
        return 0
    size, magic, own_log_offset = _PLACE.unpack_from(data)
    is_head = magic in (MAGIC_V1, MAGIC_V2) and size >= MIN_RECORD_BYTES and own_log_offset == log_offset
    return int(size) if is_head else 0


def _is_blank(data: bytes, left: int) -> bool:
    """Whether nothing follows in a file that has so many bytes left."""
    if left < BLANK_BYTES:
        return True
    return data[:BLANK_BYTES] == _SIZE_AND_MAGIC.pack(left, MAGIC_BLANK)
