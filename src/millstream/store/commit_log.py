"""The commit log: all records of all topics in order of arrival, in segments of a fixed size.

A segment is a file named by the 20 digits of the log offset it starts at. A record never spans segments: where it and
the 8 bytes of an end mark do not fit any more, `int32 remaining | int32 MAGIC_BLANK` closes the segment. Behind the
last record are zeros. Source of the layout: RocketMQ 5.3 (facts only).

Room on the disk is reserved ahead of writing, so a full disk is met before a byte is written and is not final. A file
system may refuse bytes within reserved room as well; what it took of them is cleared, and that is not final either.
Any other write or sync that fails is (the owner of the log stops using it).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.model.errors import StoreError
from millstream.protocol.record import MAGIC_BLANK
from millstream.store.files import FileLayer, FileNotOpened, is_disk_full
from millstream.store.log.mapped_log import LogSegment, MappedLog

__all__ = ["BLANK_BYTES", "MIN_SEGMENT_BYTES", "CommitLog", "LogSegment", "Run", "is_segment_name"]

BLANK_BYTES = 8
"""Bytes of the mark that closes a segment; every record leaves room for it. Fewer bytes at its end need no mark."""

MIN_SEGMENT_BYTES = 1024
"""A segment must hold at least a small record."""

ALLOCATION_BYTES = 64 * 1024 * 1024
"""Room reserved on the disk at a time; a segment's full size would be taken from an idle broker as well."""

_BLANK = struct.Struct(">ii")
_NAME_DIGITS = 20


@dataclass(slots=True)
class Run:
    """Records that follow one another without a gap, on their way to the log offset `start`."""

    start: int
    records: list[bytes]


class CommitLog(MappedLog):
    """The segments of one directory. `end` is the log offset that the next record gets, unless it has to roll.

    One thread writes; what `take_unsynced` gave may be synced by another one meanwhile. Errors of the disk are
    `OSError`, but for a full one, which is DISK_FULL, and want of a descriptor, which is FILE_NOT_OPENED.
    """

    def __init__(self, directory: Path, segment_bytes: int, files: FileLayer) -> None:
        if segment_bytes < MIN_SEGMENT_BYTES:
            raise ValueError(f"a segment has at least {MIN_SEGMENT_BYTES} bytes, not {segment_bytes}")
        super().__init__(files)
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._unsynced: list[LogSegment] = []
        files.make_directory(directory)
        self._load()
        self.end = self.start

    @property
    def end_of_segments(self) -> int:
        """The log offset behind the last segment, whether it is filled or not."""
        _, segments = self._table
        return segments[-1].end if segments else 0

    @property
    def segment_bytes(self) -> int:
        """The size of the segments to come."""
        return self._segment_bytes

    def _load(self) -> None:
        paths = [path for path in self._files.entries(self._directory) if is_segment_name(path.name)]
        for number, path in enumerate(paths):
            start = int(path.name)
            with self._files.open_descriptor(path) as descriptor:
                size = self._files.size(descriptor)
                following = int(paths[number + 1].name) if number + 1 < len(paths) else None
                full = max(size, self._segment_bytes) if following is None else following - start
                if size < full:
                    # Cut short by a crash or by somebody: reading a map beyond the file's end would end the process.
                    self._files.truncate(descriptor, full)
            self._add(LogSegment(path, start, start + full, allocated_end=start, is_named_on_disk=True))

    def _add(self, segment: LogSegment) -> None:
        self._replace_table([*self._table[1], segment])

    def limit(self, log_offset: int) -> int:
        """The end of the segment that has or will have the offset."""
        segment = self.segment_at(log_offset)
        return segment.end if segment is not None else log_offset + self._segment_bytes

    def write(self, runs: Sequence[Run]) -> None:
        """Append the runs, the first at `end` and each other one at the start of a segment; one write for each.

        Raises DISK_FULL and FILE_NOT_OPENED with nothing of it in the log and nothing changed, OSError with the log in
        an unknown state.
        """
        prepared = []
        for number, run in enumerate(runs):
            data = b"".join(run.records)
            end = run.start + len(data)
            try:
                segment = self.segment_at(run.start) or self._create(run.start)
                if number + 1 < len(runs) and segment.end - end >= BLANK_BYTES:
                    data += _BLANK.pack(segment.end - end, MAGIC_BLANK)
                self._reserve(segment, run.start + len(data))
                self._writable(segment)  # Opened here: from the first byte on nothing may fail that passes.
            except FileNotOpened:
                raise
            except OSError as error:
                if not is_disk_full(error):
                    raise
                raise StoreError("DISK_FULL", f"The disk of {self._directory} has no room for the log.") from error
            prepared.append((segment, run.start, data))
        try:
            for segment, start, data in prepared:
                if data:
                    self._files.pwrite(self._writable(segment), data, start - segment.start)
                    if segment not in self._unsynced:
                        self._unsynced.append(segment)
        except OSError as error:
            if not is_disk_full(error):
                raise
            self._take_back([(segment, start) for segment, start, _ in prepared])
            raise StoreError("DISK_FULL", f"The disk of {self._directory} has no room for the log.") from error
        self.end = end

    def _take_back(self, starts: Sequence[tuple[LogSegment, int]]) -> None:
        """Have zeros on the disk again where a write began that met a full disk within its reserved room.

        Nobody sees what lies behind the end, but a start would find whole records there that were refused. Where this
        fails, what the disk has is unknown: OSError.
        """
        for segment, start in starts:
            self._clear_from(segment, start)

    def _clear_from(self, segment: LogSegment, log_offset: int) -> None:
        descriptor = self._writable(segment)
        self._files.truncate(descriptor, log_offset - segment.start)
        self._files.truncate(descriptor, segment.end - segment.start)
        self._files.fsync(descriptor)
        segment.allocated_end = log_offset

    def begin_at(self, log_offset: int) -> None:
        """Let an empty log begin at an offset above 0, where another one's does."""
        self._create(log_offset)
        self._files.sync_directory(self._directory)
        self.end = log_offset

    def _create(self, start: int) -> LogSegment:
        path = self._directory / f"{start:0{_NAME_DIGITS}}"
        descriptor = self._files.open(path, create=True)
        try:
            self._files.truncate(descriptor, self._segment_bytes)
            if not self.segments:
                # Later segments are found missing by those before them; the log's start is what its first one says.
                self._files.sync_directory(self._directory)
        except OSError:
            self._files.close(descriptor)
            raise
        segment = LogSegment(path, start, start + self._segment_bytes, allocated_end=start, descriptor=descriptor)
        self._add(segment)
        return segment

    def _writable(self, segment: LogSegment) -> int:
        if segment.descriptor is None:
            segment.descriptor = self._files.open(segment.path)
        return segment.descriptor

    def _reserve(self, segment: LogSegment, end: int) -> None:
        if end <= segment.allocated_end:
            return
        start, descriptor = segment.allocated_end, self._writable(segment)
        ample_end = min(max(end, start + ALLOCATION_BYTES), segment.end)
        try:
            self._files.preallocate(descriptor, start - segment.start, ample_end - start)
            segment.allocated_end = ample_end
        except OSError as error:
            if not is_disk_full(error):
                raise
            self._files.preallocate(descriptor, start - segment.start, end - start)
            segment.allocated_end = end

    def take_unsynced(self) -> list[LogSegment]:
        """The segments written since the last call, for `sync`; the caller answers for them from here on."""
        taken, self._unsynced = self._unsynced, []
        return taken

    def give_back(self, segments: Sequence[LogSegment]) -> None:
        """Let segments that were taken and not synced be taken again."""
        self._unsynced = [*segments, *(segment for segment in self._unsynced if segment not in segments)]

    def sync(self, segments: Sequence[LogSegment]) -> None:
        """Return when what was written to the segments before is on the disk. FILE_NOT_OPENED can be tried again."""
        for segment in segments:
            if segment.is_named_on_disk:
                self._files.fdatasync(self._writable(segment))
            else:
                self._files.fsync(self._writable(segment))
                self._files.sync_directory(self._directory)
                segment.is_named_on_disk = True
            if segment.end <= self.end:
                self._close_descriptor(segment)

    def sync_from(self, log_offset: int) -> None:
        """Return when every segment that reaches beyond the offset is on the disk, whoever wrote it."""
        for segment in self.segments:
            if segment.end > log_offset:
                self._files.fdatasync(self._writable(segment))
        self._files.sync_directory(self._directory)

    def cut(self, log_offset: int) -> None:
        """Make `log_offset` the end: zeros behind it, and no segment that starts behind it. It is on the disk then."""
        kept = list(self.segments)
        while kept and kept[-1].start > log_offset:
            segment = kept.pop()
            self._replace_table(list(kept))
            self._close_segment(segment)
            self._files.remove(segment.path)
        segment_at_end = self.segment_at(log_offset)
        if segment_at_end is not None:
            self._clear_from(segment_at_end, log_offset)
        self.end = log_offset

    def drop_oldest(self) -> LogSegment:
        """Let the first segment not count any more; `remove` takes its file away."""
        dropped, *kept = self.segments
        self._replace_table(kept)
        return dropped

    def remove(self, segment: LogSegment) -> None:
        """Remove a dropped segment's file. Slices that were handed out stay readable."""
        self._close_segment(segment)
        self._files.remove(segment.path)

    def _close_segment(self, segment: LogSegment) -> None:
        segment.view = None
        self._close_descriptor(segment)

    def _close_descriptor(self, segment: LogSegment) -> None:
        if segment.descriptor is not None:
            self._files.close(segment.descriptor)
            segment.descriptor = None

    def close(self) -> None:
        """Close the files. Slices that were handed out stay readable."""
        for segment in self.segments:
            self._close_segment(segment)


def is_segment_name(name: str) -> bool:
    """Whether a file of that name is a segment."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
