"""Extracts keys from log records: the words of KEYS, and UNIQ_KEY.

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
from millstream.protocol.remoting.messages.batch import MIN_ITEM_BYTES
from millstream.store.commit_log import CommitLog
from millstream.store.damage.log_scan import LogScan, record_at
from millstream.store.record_run import number_at

__all__ = ["MAX_KEYS_PER_RECORD", "RecordWalk", "WalkedRecord", "keys_of", "walked_records", "whole_record"]

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
_SPACE = ord(" ")
_KEY = b"KEY"
"""What both names have."""

_PIECE_BYTES = 64 * 1024

# Where a record has what the usual layout, which is that below for hosts of IPv4, reads of it.
_MAGIC_AT = 4
_LOG_OFFSET_AT = 28
_FLAGS_AT = 36
_STORED_MS_AT = 56
_BODY_BYTES_AT = 84
_V1, _V2 = MAGIC_V1, MAGIC_V2
_NEGATIVE = 1 << 32
_IS_COMPILED = not __file__.endswith(".py")
_MAX_BYTES_BESIDES_BODY = 64 * 1024
"""More than a record has besides its body; what claims to have more is not copied to be looked at."""

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
    if _KEY not in text:
        # Most often there are none, and this look costs less than the others.
        return []
    if _SPACE not in text:
        keys = _VALUES.findall(text)
    else:
        named = _NAMED_VALUES.findall(text)
        words = [value.split(b" ") if name == b"KEYS" else [value] for name, value in named]
        keys = [key for each in words for key in each if key]
    return keys if len(keys) <= MAX_KEYS_PER_RECORD else keys[:MAX_KEYS_PER_RECORD]


def whole_record(log: CommitLog, log_offset: int) -> WalkedRecord | None:
    """The record that starts at the offset, its checksum verified; None where there is no such record."""
    segment = log.segment_at(log_offset)
    record = record_at(log.view(segment), log_offset - segment.start, log_offset) if segment is not None else None
    return None if record is None else next(iter(RecordWalk(log, log_offset, log_offset + len(record))), None)


class RecordWalk:
    """The records from `begin`, where one starts, up to `end`, in order; over damaged places to the next record.

    `position` is the log offset behind the records that were handed out, and where the walk ended after the loop.
    """

    def __init__(self, log: CommitLog, begin: int, end: int) -> None:
        self._log = log
        self._end = end
        self.position = begin

    def __iter__(self) -> Iterator[WalkedRecord]:
        for records in self.pieces():
            yield from records

    def pieces(self) -> Iterator[list[WalkedRecord]]:
        """The same records, some at a time, which costs less."""
        while self.position < self._end:
            segment = self._log.segment_at(self.position)
            records = [] if segment is None else self._piece(self._log.view(segment), segment.start)
            if records:
                yield records
            else:
                self._pass_over()

    def _piece(self, view: memoryview, start: int) -> list[WalkedRecord]:
        """The next records of a segment; none at its end or at bytes that are no record."""
        position = self.position - start
        # Taking fields out of a copy costs half of what it costs to take them out of the mapped file.
        data = bytes(view[position : position + min(_PIECE_BYTES, self._end - self.position)])
        records, used = walked_records(data, self.position)
        if not records and len(view) - position >= MIN_RECORD_BYTES:
            size, _, _, _, _, body_bytes = _LAYOUTS[0].unpack_from(view, position)
            if len(data) < size <= len(view) - position and size - body_bytes <= _MAX_BYTES_BESIDES_BODY:
                records, used = walked_records(bytes(view[position : position + size]), self.position)
        self.position += used
        return records

    def _pass_over(self) -> None:
        """Go on behind a segment's end or a damaged place."""
        scan = LogScan(self._log, self.position, durable_end=self._end)
        next(iter(scan), None)
        self.position = min(max(scan.position, self.position + 1), self._end)


def walked_records(data: bytes, log_offset: int) -> tuple[list[WalkedRecord], int]:
    """The whole records at the start of bytes of the log, and how many bytes they are. No checksum is looked at."""
    records: list[WalkedRecord] = []
    usual, data_bytes = _LAYOUTS[0], len(data)
    usual_bytes = usual.size
    position, last = 0, data_bytes - MIN_RECORD_BYTES
    while position <= last:
        if _IS_COMPILED:
            # Byte by byte, which in C costs less than the objects that are unpacked.
            size, magic = _read_signed(data, position), _read_signed(data, position + _MAGIC_AT)
            own_log_offset = number_at(data, position + _LOG_OFFSET_AT, 8)
            flags, body_bytes = _read_signed(data, position + _FLAGS_AT), _read_signed(data, position + _BODY_BYTES_AT)
            stored_ms = number_at(data, position + _STORED_MS_AT, 8)
        else:
            size, magic, own_log_offset, flags, stored_ms, body_bytes = usual.unpack_from(data, position)
        following, body = position + size, position + usual_bytes
        if following > data_bytes or own_log_offset != log_offset + position:
            break
        if flags & _HOSTS_IPV6:
            layout = _LAYOUTS[flags & _HOSTS_IPV6]
            if size < layout.size:
                break
            stored_ms, body_bytes = layout.unpack_from(data, position)[4:]
            body = position + layout.size
        topic = body + body_bytes
        if not body <= topic <= following - _MIN_TAIL_BYTES:
            break
        if magic == _V1:
            end_of_topic = topic + 1 + data[topic]
            topic += 1
        elif magic == _V2:
            end_of_topic = topic + 2 + data[topic] * 256 + data[topic + 1]
            topic += 2
        else:
            break
        properties = end_of_topic + 2
        if properties > following:
            break
        if properties + (data[end_of_topic] << 8 | data[end_of_topic + 1]) != following:
            break
        text = b"\x02" + data[properties:following]
        if flags & _UNUSUAL:
            text = _unusual_text(flags, text, data[body : body + body_bytes])
        records.append((own_log_offset, size, stored_ms, data[topic:end_of_topic], text))
        position = following
    return records, position


def _read_signed(data: bytes, at: int) -> int:
    """The number of four bytes that stands there."""
    number = number_at(data, at, 4)
    return number - _NEGATIVE if number >= _NEGATIVE >> 1 else number


def _unusual_text(flags: int, text: bytes, body: bytes) -> bytes:
    if flags & _ROLLBACK == _ROLLBACK:
        return b""
    if not flags & _INNER_BATCH or flags & _NO_ITEMS:
        return text
    return text + b"".join([b"\x02%b" % item for item in _items_properties(body)])


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
