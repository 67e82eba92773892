"""Walking over the log for the keys of its records: the words of the property KEYS and the property UNIQ_KEY.

The walk takes the fields it needs from each record without its checksum, because whoever answers from an index looks
at the record itself first. It does see that the record's lengths add up, so a damaged length leads nobody astray. A
segment that retention has just taken away is FileNotFoundError; after that the log does not name it any more.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from millstream.model.message import SystemFlag
from millstream.protocol.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from millstream.protocol.remoting.batch import MIN_ITEM_BYTES
from millstream.store.commit_log import CommitLog
from millstream.store.log_scan import LogScan, record_at

__all__ = ["MAX_KEYS_PER_RECORD", "RecordWalk", "WalkedRecord", "keys_of", "whole_record"]

MAX_KEYS_PER_RECORD = 262_144
"""Keys of one record (of all messages of an inner batch) that are found; bounds the memory that one record takes."""

_BORN_HOST_IPV6 = int(SystemFlag.BORN_HOST_IPV6)
_STORE_HOST_IPV6 = int(SystemFlag.STORE_HOST_IPV6)
_HOSTS_IPV6 = _BORN_HOST_IPV6 | _STORE_HOST_IPV6
_INNER_BATCH = int(SystemFlag.INNER_BATCH)
_NO_ITEMS = int(SystemFlag.ARROW_BATCH | SystemFlag.COMPRESSED)
_ROLLBACK = int(SystemFlag.TRANSACTION_ROLLBACK)
_UNUSUAL = _INNER_BATCH | _ROLLBACK

_VALUES = re.compile(rb"\x02(?:KEYS|UNIQ_KEY)\x01([^\x02]+)")
_NAMED_VALUES = re.compile(rb"\x02(KEYS|UNIQ_KEY)\x01([^\x02]+)")
_ITEM = struct.Struct(">i12xi")
_ITEM_HEAD_BYTES = MIN_ITEM_BYTES - 2
_MIN_TAIL_BYTES = 4
"""Bytes behind the body at least: two lengths and a topic of one byte."""


def _layout(flags: int) -> struct.Struct:
    """Size, magic, log offset, system flag, store timestamp and body length of a record with hosts of these kinds."""
    born = 20 if flags & _BORN_HOST_IPV6 else 8
    store = 20 if flags & _STORE_HOST_IPV6 else 8
    return struct.Struct(f">ii20xqi{8 + born}xq{store + 12}xi")


_LAYOUTS = {flags: _layout(flags) for flags in (0, _BORN_HOST_IPV6, _STORE_HOST_IPV6, _HOSTS_IPV6)}

WalkedRecord = tuple[int, int, int, bytes, bytes]
"""Log offset, size, store timestamp in ms, topic, and the properties' text with \\x02 before each property.

The text of an inner batch holds the properties of its messages as well, that of a rolled back message is empty. A plain
tuple, because one is made for every record of the log.
"""


def keys_of(text: bytes) -> list[bytes]:
    """The keys in the properties of a walked record: each word of KEYS, and UNIQ_KEY as a whole. None is empty."""
    if b" " not in text:
        keys = _VALUES.findall(text)
    else:
        named = _NAMED_VALUES.findall(text)
        words = [value.split(b" ") if name == b"KEYS" else [value] for name, value in named]
        keys = [key for each in words for key in each if key]
    return keys if len(keys) <= MAX_KEYS_PER_RECORD else keys[:MAX_KEYS_PER_RECORD]


def whole_record(log: CommitLog, log_offset: int) -> WalkedRecord | None:
    """The record that starts at the offset, its checksum verified; None where there is no such record."""
    segment = log.segment_at(log_offset)
    if segment is None or record_at(log.view(segment), log_offset - segment.start, log_offset) is None:
        return None
    return next(iter(RecordWalk(log, log_offset, log_offset + 1)), None)


class RecordWalk:
    """The records from `begin`, where one starts, up to `end`, in order; over damaged places to the next record.

    `position` is the log offset of the record that is looked at, and behind the last one after the loop.
    """

    def __init__(self, log: CommitLog, begin: int, end: int) -> None:
        self._log = log
        self._end = end
        self.position = begin

    def __iter__(self) -> Iterator[WalkedRecord]:
        while self.position < self._end:
            segment = self._log.segment_at(self.position)
            if segment is not None:
                yield from self._records(self._log.view(segment), segment.start)
            if self.position < self._end:
                self._pass_over()

    def _records(self, view: memoryview, start: int) -> Iterator[WalkedRecord]:
        """The records of a segment up to the first bytes that are none."""
        usual, segment_bytes = _LAYOUTS[0], len(view)
        position = self.position - start
        end = min(self._end - start, segment_bytes - MIN_RECORD_BYTES + 1)
        while position < end:
            size, magic, log_offset, flags, stored_ms, body_bytes = usual.unpack_from(view, position)
            body = position + usual.size
            if flags & _HOSTS_IPV6:
                layout = _LAYOUTS[flags & _HOSTS_IPV6]
                body = position + layout.size
                if body > segment_bytes:
                    return
                stored_ms, body_bytes = layout.unpack_from(view, position)[4:]
            end_of_body, following = body + body_bytes, position + size
            if log_offset != start + position or (magic != MAGIC_V1 and magic != MAGIC_V2):
                return
            if not body <= end_of_body <= following - _MIN_TAIL_BYTES <= segment_bytes - _MIN_TAIL_BYTES:
                return
            tail = bytes(view[end_of_body:following])
            if magic == MAGIC_V1:
                topic, end_of_topic = 1, 1 + tail[0]
            else:
                topic, end_of_topic = 2, 2 + tail[0] * 256 + tail[1]
            properties = end_of_topic + 2
            if properties + int.from_bytes(tail[end_of_topic:properties], "big") != len(tail):
                return
            text = b"\x02" + tail[properties:]
            if flags & _UNUSUAL:
                text = _unusual_text(flags, text, view[body:end_of_body])
            yield log_offset, size, stored_ms, tail[topic:end_of_topic], text
            position = following
            self.position = start + position

    def _pass_over(self) -> None:
        """Go on behind a segment's end or a damaged place."""
        scan = LogScan(self._log, self.position, durable_end=self._end)
        next(iter(scan), None)
        self.position = min(max(scan.position, self.position + 1), self._end)


def _unusual_text(flags: int, text: bytes, body: memoryview) -> bytes:
    if flags & _ROLLBACK == _ROLLBACK:
        return b""
    if not flags & _INNER_BATCH or flags & _NO_ITEMS:
        return text
    return text + b"".join([b"\x02%b" % item for item in _items_properties(bytes(body))])


def _items_properties(batch: bytes) -> Iterator[bytes]:
    """The properties' text of each message of an inner batch, up to the first one whose lengths do not fit."""
    position, end = 0, len(batch)
    while position + MIN_ITEM_BYTES <= end:
        size, body_bytes = _ITEM.unpack_from(batch, position)
        properties = position + _ITEM_HEAD_BYTES + body_bytes + 2
        following = position + size
        if body_bytes < 0 or not properties <= following <= end:
            return
        if properties + int.from_bytes(batch[properties - 2 : properties], "big") != following:
            return
        yield batch[properties:following]
        position = following
