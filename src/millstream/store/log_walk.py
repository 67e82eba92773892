"""Walks over a log range: returns whole records together with their derived index data.

Each record's checksum is verified. Several times cheaper than a scan record by record: it takes fields out of copies of
the log, some hundred records at a time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from millstream.model.errors import StoreError
from millstream.protocol.checksum import CHECKSUM_BYTES, checksum_property
from millstream.store.commit_log import CommitLog
from millstream.store.damage.log_scan import LogScan
from millstream.store.index.record_keys import walked_records
from millstream.store.log_chunk import read_chunk

__all__ = ["LogRecord", "LogWalk"]

PIECE_BYTES: Final = 256 * 1024
"""Bytes of the log that are copied at a time, or one record if it is longer."""

_MAX_TOPICS: Final = 4096
_PLACE = struct.Struct(">12xi4xq")
_INNER_NUMBER: Final = re.compile(rb"\x02INNER_NUM\x01(\d{1,9})\x02")
_INNER_NAME: Final = b"\x02INNER_NUM\x01"


class LogRecord(NamedTuple):
    """A whole record. `text` is its properties with \\x02 before each, those of an inner batch's messages included.

    `message_count` is 1 for a record of a queue that holds no batches.
    """

    topic: str
    queue_id: int
    queue_offset: int
    message_count: int
    log_offset: int
    stored_ms: int
    data: memoryview
    text: bytes


class LogWalk:
    """The records from `begin`, where one starts, up to `end`, in order; over damaged places to the next record.

    After the loop `damaged_places` counts these, and `position` is where it ended: sooner than at `end` only where the
    log was taken away meanwhile.
    """

    def __init__(self, log: CommitLog, begin: int, end: int) -> None:
        self._log = log
        self._end = end
        self._topics: dict[bytes, str] = {}
        self.position = begin
        self.damaged_places = 0

    def __iter__(self) -> Iterator[LogRecord]:
        while self.position < self._end:
            try:
                chunk = read_chunk(self._log, self.position, PIECE_BYTES, self._end)
            except FileNotFoundError:
                return
            except StoreError:
                # No record begins there, or the log starts later by now.
                if self._log.segment_at(self.position) is None and self._log.start > self.position:
                    return
                self._pass_over()
                continue
            if not len(chunk.records):
                self.position = self._end
                return
            # Behind a segment's end the chunk begins at the next one.
            self.position = chunk.log_offset
            yield from self._records(bytes(chunk.records))

    def _records(self, data: bytes) -> Iterator[LogRecord]:
        begin, view = self.position, memoryview(data)
        for log_offset, size, stored_ms, topic, text in walked_records(data, begin)[0]:
            at = log_offset - begin
            following = at + size
            if data[following - CHECKSUM_BYTES : following] != checksum_property(
                crc32(view[at : following - CHECKSUM_BYTES])
            ):
                break
            queue_id, queue_offset = _PLACE.unpack_from(data, at)
            self.position = log_offset + size
            count = 1
            if _INNER_NAME in text:
                number = _INNER_NUMBER.search(text)
                count = int(number[1]) if number else 1
            yield LogRecord(
                self._topic(topic), queue_id, queue_offset, count, log_offset, stored_ms, view[at:following], text
            )
        if self.position < begin + len(data):
            self._pass_over()

    def _topic(self, topic: bytes) -> str:
        found = self._topics.get(topic)
        if found is None:
            if len(self._topics) >= _MAX_TOPICS:
                self._topics.clear()
            found = self._topics[topic] = topic.decode()
        return found

    def _pass_over(self) -> None:
        """Go on behind a damaged place, or at a record that only the slow scan reads."""
        scan = LogScan(self._log, self.position, durable_end=self._end)
        next(iter(scan), None)
        self.damaged_places += scan.damaged
        self.position = max(scan.position, self.position + 1)
