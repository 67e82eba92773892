"""Chunks of raw log bytes for replication: whole records of one segment.

A chunk that begins where a segment does follows a log that ends within the segment before: the end mark between both
is not sent, whoever writes the chunk writes it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.model.errors import StoreError
from millstream.protocol.record import RecordOutline, outline_records
from millstream.store.commit_log import CommitLog, Run
from millstream.store.damage.log_scan import is_blank, walk_records

__all__ = ["LogChunk", "check_chunk", "cut_runs", "read_chunk"]


class LogChunk(NamedTuple):
    """Records that stand one behind the other from `log_offset` on; none at the end of the log."""

    log_offset: int
    records: memoryview

    @property
    def end(self) -> int:
        """The log offset behind the last record."""
        return self.log_offset + len(self.records)


_NOTHING: Final = memoryview(b"")


def read_chunk(log: CommitLog, log_offset: int, max_bytes: int, end: int) -> LogChunk:
    """The records from `log_offset` on, at which one begins, up to the log offset `end`.

    At most `max_bytes`, but always a whole record. Checksums are not looked at. Raises RECORD_DAMAGED where the bytes
    are no record, FileNotFoundError where retention removes them meanwhile.
    """
    while log_offset < end:
        segment = log.segment_at(log_offset)
        if segment is None:
            raise _damage(log_offset, "the log lacks the segment")
        start, view = log_offset - segment.start, log.view(segment)
        stop = min(end, segment.end) - segment.start
        # Where the end is that of the segment, its last bytes may be an end mark, which is no record.
        if end < segment.end and stop - start <= max_bytes:
            return LogChunk(log_offset, view[start:stop])
        position = walk_records(view, segment.start, start, stop, max_bytes)
        if position > start:
            return LogChunk(log_offset, view[start:position])
        if end < segment.end or not is_blank(view, position):
            raise _damage(log_offset, "no record begins there")
        log_offset = segment.end
    return LogChunk(log_offset, _NOTHING)


def check_chunk(data: bytes, log_offset: int) -> list[tuple[RecordOutline, int]]:
    """The outlines and sizes of the records of a chunk that arrived for a log offset, each whole and of its place.

    Raises RECORD_DAMAGED: nothing of a damaged chunk is to be written.
    """
    found = list(outline_records(data, log_offset))
    position = found[-1][0].log_offset + found[-1][1] - log_offset if found else 0
    if position < len(data):
        raise _damage(log_offset + position, f"byte {position} of {len(data)} begins no whole record of that place")
    return found


def cut_runs(log: CommitLog, log_offset: int, data: bytes | memoryview) -> list[Run]:
    """How the chunk goes behind the end of the log. Raises ValueError where it does not follow."""
    if log_offset == log.end:
        return [Run(log_offset, [bytes(data)])]
    if log_offset == log.limit(log.end) and log.end < log_offset:
        return [Run(log.end, []), Run(log_offset, [bytes(data)])]
    raise ValueError(f"a chunk at {log_offset} does not follow a log that ends at {log.end}")


def _damage(log_offset: int, words: str) -> StoreError:
    return StoreError("RECORD_DAMAGED", f"The log at {log_offset} cannot be copied: {words}.")
