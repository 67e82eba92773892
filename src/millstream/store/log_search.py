"""Searches the log for records that contain given bytes, range by range.

Looking for bytes in a whole stretch costs a hundredth of looking at each record, so the checksums of records are looked
at only where the bytes are found.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.model.errors import StoreError
from millstream.protocol.record import iterate_records, verify_record
from millstream.store.commit_log import CommitLog
from millstream.store.damage.log_scan import LogScan
from millstream.store.log_chunk import read_chunk

__all__ = ["STRETCH_BYTES", "MarkedRecords", "search_stretch"]

STRETCH_BYTES: Final = 1024 * 1024
"""Bytes of the log that one call looks at by default: a millisecond or two, with the checksums ten."""


class MarkedRecords(NamedTuple):
    """Records that have certain bytes in them, and the log offset behind the stretch that was looked at."""

    records: list[memoryview]
    end: int


def search_stretch(log: CommitLog, start: int, end: int, mark: bytes, max_bytes: int) -> MarkedRecords:
    """The whole records with the mark from `start` on, at which one begins, or from the log's start; `end` at most.

    Damaged ones are passed over. Raises FileNotFoundError where retention removes them meanwhile.
    """
    start = max(start, log.start)
    try:
        chunk = read_chunk(log, start, max_bytes, end)
        if mark not in bytes(chunk.records):
            return MarkedRecords([], chunk.end)
        found = [record for record in iterate_records(chunk.records) if mark in bytes(record)]
        if all(map(verify_record, found)):
            return MarkedRecords(found, chunk.end)
    except StoreError:
        pass  # Damage: the records behind it have to be searched.
    scan = LogScan(log, start, durable_end=min(end, start + max_bytes))
    found = []
    for outline, size_bytes in scan:
        record = log.slice(outline.log_offset, size_bytes)
        if record is not None and mark in bytes(record):
            found.append(record)
    return MarkedRecords(found, scan.position)
