"""Searches a key in a log range that no run covers, by its bytes."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator

from millstream.store.commit_log import CommitLog
from millstream.store.index.record_keys import RecordWalk

__all__ = ["LogStretch"]

_WINDOW_BYTES = 256 * 1024
"""Bytes that are searched at a time, newest first; bounds how long one search holds the interpreter."""

_WINDOWS_BETWEEN_RESTS = 4
_WAYPOINT_BYTES = 64 * 1024
"""Log between two starts of records that are kept to walk from; bounds the walk to one record."""


class LogStretch:
    """The log from `begin`, where a record starts, to `end`; None for the stretch that grows with the log.

    Fit for several threads at once. `rest` is called now and then, to let other threads in.
    """

    def __init__(self, log: CommitLog, begin: int, end: int | None, rest: Callable[[], None]) -> None:
        self.begin = begin
        self.end = end
        self._log = log
        self._mutex = threading.Lock()
        self._waypoints = [begin]
        self._rest = rest

    def candidates(self, topic: bytes, key: bytes, end: int) -> Iterator[int]:
        """Where the records start that have the bytes of the key below the log offset `end`, newest first.

        Records of other topics, and bytes that mean something else, can be among them; a record can come twice.
        """
        end = end if self.end is None else min(end, self.end)
        for hits in self._hits(key, _bytes_behind_a_key(topic), end):
            yield from reversed(self._starts_of_records(hits, end))

    def _hits(self, key: bytes, behind: bytes, end: int) -> Iterator[list[int]]:
        """Log offsets of the byte before each occurrence of the key, ascending, window by window from the newest on."""
        needles = (b"\x01" + key, b" " + key)
        for start, view, low, high in reversed(self._parts(end)):
            for window in range((high - low - 1) // _WINDOW_BYTES, -1, -1):
                if not window % _WINDOWS_BETWEEN_RESTS:
                    self._rest()
                first = low + window * _WINDOW_BYTES
                # A key that starts in the window is looked at as a whole, with the byte behind it.
                data = bytes(view[first : min(first + _WINDOW_BYTES + len(key) + 1, high)])
                found = [position for needle in needles for position in _positions(data, needle, behind)]
                if found:
                    found.sort()
                    yield [start + first + position for position in found]

    def _parts(self, end: int) -> list[tuple[int, memoryview, int, int]]:
        """The segments of the stretch: where each starts in the log, its bytes, and from where to where to look."""
        parts = []
        for segment in self._log.segments:
            low, high = max(self.begin, segment.start), min(end, segment.end)
            if low < high:
                view = self._log.view(segment)
                parts.append((segment.start, view, low - segment.start, high - segment.start))
        return parts

    def _starts_of_records(self, hits: list[int], end: int) -> list[int]:
        """The starts of the records that have the bytes, ascending; none for a byte that is of no whole record."""
        starts: list[int] = []
        remaining = iter(hits)
        hit = next(remaining, None)
        for log_offset, size, *_ in RecordWalk(self._log, self._waypoint(hits[0]), end):
            while hit is not None and hit < log_offset + size:
                if log_offset <= hit and (not starts or starts[-1] != log_offset):
                    starts.append(log_offset)
                hit = next(remaining, None)
            if hit is None:
                break
        return starts

    def _waypoint(self, log_offset: int) -> int:
        """The start of a record not far before the offset."""
        with self._mutex:
            last = self._waypoints[-1]
            if log_offset - last >= 2 * _WAYPOINT_BYTES:
                for number, records in enumerate(RecordWalk(self._log, last, log_offset).pieces()):
                    if records[0][0] - self._waypoints[-1] >= _WAYPOINT_BYTES:
                        self._waypoints.append(records[0][0])
                    if not number % _WINDOWS_BETWEEN_RESTS:
                        self._rest()
            return self._waypoints[bisect_right(self._waypoints, log_offset) - 1]


def _bytes_behind_a_key(topic: bytes) -> bytes:
    """What can follow a key in a record of the topic.

    A space, the end of the property, or, where the last property of an inner batch's message has no such end, the next
    message's size or the record's topic length, which is below 16 MiB and of one or two bytes.
    """
    return b"\x02 \0" + bytes([len(topic) & 0xFF])


def _positions(data: bytes, needle: bytes, behind: bytes) -> Iterator[int]:
    position = data.find(needle)
    while position >= 0:
        following = data[position + len(needle) : position + len(needle) + 1]
        if following in behind:
            yield position
        position = data.find(needle, position + 1)
