"""The segments of a log as readers see them: looked up by log offset, and mapped."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.store.files import FileLayer

__all__ = ["LogSegment", "MappedLog"]


@dataclass(slots=True)
class LogSegment:
    """One file of the log: the offsets from `start` up to but without `end`."""

    path: Path
    start: int
    end: int
    allocated_end: int
    is_named_on_disk: bool = False
    descriptor: int | None = None
    view: memoryview | None = None


class MappedLog:
    """Segments, oldest first. Fit for any thread."""

    def __init__(self, files: FileLayer, segments: Sequence[LogSegment] = ()) -> None:
        self._files = files
        # One value, replaced as a whole, because other threads look segments up while retention removes some.
        self._table: tuple[list[int], list[LogSegment]] = ([], [])
        self._replace_table(list(segments))

    @property
    def start(self) -> int:
        """The log offset of the first segment; 0 for an empty log."""
        starts, _ = self._table
        return starts[0] if starts else 0

    @property
    def segments(self) -> Sequence[LogSegment]:
        """All segments, oldest first."""
        return self._table[1]

    def segment_at(self, log_offset: int) -> LogSegment | None:
        """The segment that holds the offset, or None where the log has none."""
        starts, segments = self._table
        number = bisect_right(starts, log_offset) - 1
        if number < 0:
            return None
        segment = segments[number]
        return segment if log_offset < segment.end else None

    def next_start(self, log_offset: int) -> int | None:
        """The start of the first segment that begins behind the offset."""
        starts, _ = self._table
        number = bisect_right(starts, log_offset)
        return starts[number] if number < len(starts) else None

    def view(self, segment: LogSegment) -> memoryview:
        """The whole segment, mapped read-only. FileNotFoundError where retention has just removed it."""
        view = segment.view
        if view is None:
            with self._files.open_descriptor(segment.path) as descriptor:
                view = segment.view = self._files.map(descriptor)[: segment.end - segment.start]
        return view

    def slice(self, log_offset: int, size_bytes: int) -> memoryview | None:
        """The bytes at an offset without a copy, or None where the log does not have them all."""
        segment = self.segment_at(log_offset)
        if segment is None or log_offset + size_bytes > segment.end:
            return None
        position = log_offset - segment.start
        try:
            return self.view(segment)[position : position + size_bytes]
        except FileNotFoundError:
            return None

    def _replace_table(self, segments: list[LogSegment]) -> None:
        self._table = ([segment.start for segment in segments], segments)
