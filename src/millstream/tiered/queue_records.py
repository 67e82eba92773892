"""Records of a stretch of the log, shared out to their queues: checked, cut into blocks, their keys hashed.

All of it happens in one pass, since it is done for each record that goes up. No object is made for a record: those that
follow one another in the log are copied as one piece.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final

from millstream.model.message import SystemFlag
from millstream.protocol.checksum import CHECKSUM_BYTES, crc32, has_checksum
from millstream.protocol.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, outline_record
from millstream.protocol.record_encoder import HOST_FLAGS
from millstream.store.consume_queue import tags_code
from millstream.store.index.record_keys import keys_of, walked_records
from millstream.store.index.run import topic_seed

__all__ = [
    "BLOCK_BYTES", "CHUNK_BYTES", "KEY_BUCKETS", "GatheredRecords", "PartRecords", "QueueRecords", "RawBlock",
    "places_of", "share_out_keys", "split_records",
]  # fmt: skip

BLOCK_BYTES: Final = 256 * 1024
"""Bytes of records after which a block ends; it has one record at least."""

CHUNK_BYTES: Final = 32 * 1024 * 1024
"""Bytes of records after which an object ends; it has one block at least."""

KEY_BUCKETS: Final = 256
"""Lists that the keys of a part are shared out to: many small ones are sorted faster than one."""

_HEAD: Final = struct.Struct(">ii4xi4xqqi16xq20xi")
"""Size, magic, queue, queue offset, log offset, system flag, store timestamp and bytes of the body, where both hosts
are IPv4; the body follows."""

_INNER_NUMBER: Final = re.compile(rb"\x02INNER_NUM\x01(\d{1,9})\x02")

# At hand as numbers of C in the compiled form.
_BLOCK_BYTES: Final = BLOCK_BYTES
_CHUNK_BYTES: Final = CHUNK_BYTES
_CHECKSUM_BYTES: Final = CHECKSUM_BYTES
_LEAST_BYTES: Final = MIN_RECORD_BYTES
_LEAST_TAIL_BYTES: Final = 4
_MAGIC_V1: Final = MAGIC_V1
_MAGIC_V2: Final = MAGIC_V2
_HEAD_BYTES: Final = _HEAD.size
_UNUSUAL: Final = HOST_FLAGS | int(SystemFlag.INNER_BATCH)
_ROLLBACK: Final = int(SystemFlag.TRANSACTION_ROLLBACK)
_BUCKET_SHIFT: Final = 56
_NEVER: Final = 1 << 62
"""Behind every log offset."""

_unpack = _HEAD.unpack_from


class RawBlock:
    """Whole records of one queue, one behind the other. `next_queue_offset` is behind the last message."""

    __slots__ = (
        "first_log_offset", "first_queue_offset", "first_stored_ms", "last_log_offset", "last_stored_ms",
        "next_queue_offset", "raw", "records",
    )  # fmt: skip

    def __init__(self, queue_offset: int, log_offset: int, stored_ms: int) -> None:
        self.raw = b""
        self.records = 0
        self.first_queue_offset = self.next_queue_offset = queue_offset
        self.first_log_offset = self.last_log_offset = log_offset
        self.first_stored_ms = self.last_stored_ms = stored_ms


class PartRecords:
    """What an object gets of one queue: blocks in the order of their queue offsets, which may leave some out.

    A key is its hash, the number of its block and that of its record in the block, as one number of 32, 16 and 16 bits.
    """

    __slots__ = ("blocks", "keys", "queue_id", "size_bytes", "topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.blocks: list[RawBlock] = []
        self.keys: list[int] = []
        self.size_bytes = 0


class QueueRecords:
    """The records of one queue, added in the order of the log. `parts` are whole once `finish` was called."""

    __slots__ = (
        "_block", "_block_bytes", "_data", "_end", "_part", "_pieces", "_start", "keys", "parts", "queue_id",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.parts: list[PartRecords] = []
        self.keys: list[int] = []
        self._part: PartRecords | None = None
        self._block: RawBlock | None = None
        self._block_bytes = 0
        self._pieces: list[bytes] = []
        self._data = b""
        self._start = self._end = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all records so far."""
        return sum([part.size_bytes for part in self.parts])

    def add(self, data: bytes, start: int, end: int, queue_offset: int, log_offset: int, stored_ms: int) -> int:
        """Add the record that is `data` from `start` to `end`, of one message; its block and its number there, as keys
        have them. ValueError where it does not follow in its queue."""
        size = end - start
        block = self._block
        if block is not None:
            if queue_offset < block.next_queue_offset:
                last = block.next_queue_offset - 1
                raise ValueError(f"{self.topic}/{self.queue_id}: {queue_offset} comes behind {last}")
            if self._block_bytes + size > _BLOCK_BYTES:
                self._end_block(block)
                block = None
        part = self._part
        if part is None or (block is None and part.size_bytes + size > _CHUNK_BYTES):
            part = self._part = PartRecords(self.topic, self.queue_id)
            self.keys = part.keys
            self.parts.append(part)
        if block is None:
            if part.blocks and queue_offset < part.blocks[-1].next_queue_offset:
                last = part.blocks[-1].next_queue_offset - 1
                raise ValueError(f"{self.topic}/{self.queue_id}: {queue_offset} comes behind {last}")
            block = self._block = RawBlock(queue_offset, log_offset, stored_ms)
        elif stored_ms < block.first_stored_ms:
            block.first_stored_ms = stored_ms
        elif stored_ms > block.last_stored_ms:
            block.last_stored_ms = stored_ms
        place = len(part.blocks) << 16 | block.records
        block.records += 1
        block.next_queue_offset = queue_offset + 1
        block.last_log_offset = log_offset
        self._block_bytes += size
        part.size_bytes += size
        if self._end == start and self._data is data:
            self._end = end
            return place
        if self._end > self._start:
            self._pieces.append(self._data[self._start : self._end])
        self._data, self._start, self._end = data, start, end
        return place

    def widen(self, message_count: int) -> None:
        """The record that was added last has as many messages."""
        if self._block is not None:
            self._block.next_queue_offset += message_count - 1

    def finish(self) -> None:
        """End the last block."""
        if self._block is not None:
            self._end_block(self._block)
        self._part = None
        self._data = b""

    def _end_block(self, block: RawBlock) -> None:
        piece = self._data[self._start : self._end]
        self._start = self._end
        if self._pieces:
            self._pieces.append(piece)
            piece = b"".join(self._pieces)
            self._pieces.clear()
        block.raw = piece
        assert self._part is not None
        self._part.blocks.append(block)
        self._block = None
        self._block_bytes = 0


class _Topic:
    """A topic of a stretch. Its records go up from `first_log_offset` on."""

    __slots__ = ("first_log_offset", "name", "queues", "seed")

    def __init__(self, name: str, first_log_offset: int, seed: int) -> None:
        self.name = name
        self.first_log_offset = first_log_offset
        self.seed = seed
        self.queues: dict[int, QueueRecords] = {}

    def queue(self, queue_id: int) -> QueueRecords:
        found = self.queues[queue_id] = QueueRecords(self.name, queue_id)
        return found


class GatheredRecords:
    """Takes pieces of the log in order. `first_of` says of a topic from which log offset on it goes up; None: never."""

    __slots__ = ("_first_of", "_topics")

    def __init__(self, first_of: Callable[[str], int | None]) -> None:
        self._first_of = first_of
        self._topics: dict[bytes, _Topic] = {}

    def take(self, data: bytes, log_offset: int) -> int:
        """Take the whole records at the start of the piece, each with a good checksum; how many bytes they are.

        What follows them is cut off, damaged, or no record. ValueError where a record does not follow in its queue.
        """
        position, size_bytes = 0, len(data)
        last = size_bytes - _LEAST_BYTES
        while position <= last:
            size, magic, queue_id, queue_offset, own_log_offset, flags, stored_ms, body_bytes = _unpack(data, position)
            following = position + size
            if size < _LEAST_BYTES or following > size_bytes or own_log_offset != log_offset + position:
                break
            checked = following - _CHECKSUM_BYTES
            if not has_checksum(data, checked, crc32(data[position:checked])):
                break
            if flags & _UNUSUAL or flags & _ROLLBACK == _ROLLBACK:
                if not self._take_unusual(data, position, following, own_log_offset):
                    break
                position = following
                continue
            name = position + _HEAD_BYTES + body_bytes
            end_of_name = _end_of_name(data, name, following, magic) if body_bytes >= 0 else 0
            if not end_of_name:
                break
            name += 1 if magic == _MAGIC_V1 else 2
            topic = self._topics.get(data[name:end_of_name])
            if topic is None:
                topic = self._topic(data[name:end_of_name])
            if own_log_offset >= topic.first_log_offset:
                queue = topic.queues.get(queue_id)
                if queue is None:
                    queue = topic.queue(queue_id)
                place = queue.add(data, position, following, queue_offset, own_log_offset, stored_ms)
                _add_keys(queue, data[end_of_name + 2 : checked], topic.seed, place)
            position = following
        return position

    def finish(self) -> list[QueueRecords]:
        """The queues with something that goes up, by topic and number."""
        queues = [queue for topic in self._topics.values() for queue in topic.queues.values()]
        queues.sort(key=_place_of)
        for queue in queues:
            queue.finish()
        return queues

    def _topic(self, name: bytes) -> _Topic:
        first = self._first_of(name.decode())
        found = _Topic(name.decode(), _NEVER if first is None else first, topic_seed(name))
        self._topics[name] = found
        return found

    def _take_unusual(self, data: bytes, position: int, following: int, log_offset: int) -> bool:
        """Take a record with hosts or a body of another kind; whether it is one."""
        queue_id, queue_offset = _unpack(data, position)[2:4]
        for _, size, stored_ms, name, text in walked_records(data[position:following], log_offset)[0]:
            if position + size != following:
                return False
            topic = self._topics.get(name) or self._topic(name)
            if log_offset >= topic.first_log_offset:
                queue = topic.queues.get(queue_id) or topic.queue(queue_id)
                place = queue.add(data, position, following, queue_offset, log_offset, stored_ms)
                queue.keys += [crc32(key, topic.seed) << 32 | place for key in keys_of(text)]
                queue.widen(outline_record(data[position:following]).batch_count or 1)
            return True
        return False


def _end_of_name(data: bytes, name: int, following: int, magic: int) -> int:
    """Where the topic's name ends that begins with its length; 0 where the properties behind it do not end a record."""
    if name > following - _LEAST_TAIL_BYTES:
        return 0
    if magic == _MAGIC_V1:
        end = name + 1 + data[name]
    elif magic == _MAGIC_V2:
        end = name + 2 + data[name] * 256 + data[name + 1]
    else:
        return 0
    text = end + 2
    return end if text <= following and data[end] * 256 + data[end + 1] == following - text else 0


def _add_keys(queue: QueueRecords, text: bytes, seed: int, place: int) -> None:
    """Note the keys that the properties of the last record have, and how many messages it has."""
    for word in text.split(b"\x02"):
        if word.startswith(b"UNIQ_KEY\x01"):
            if len(word) > 9:
                key_hash = crc32(word[9:], seed)
                queue.keys.append(key_hash << 32 | place)
        elif word.startswith(b"KEYS\x01"):
            for key in word[5:].split(b" "):
                if key:
                    key_hash = crc32(key, seed)
                    queue.keys.append(key_hash << 32 | place)
        elif word.startswith(b"INNER_NUM\x01"):
            queue.widen(_message_count(b"\x02" + text))


def share_out_keys(keys: list[int], start: int, end: int, buckets: list[list[int]]) -> None:
    """Put the keys from `start` to before `end` into KEY_BUCKETS lists, of which each has larger ones than the last."""
    for number in range(start, end):
        key = keys[number]
        buckets[key >> _BUCKET_SHIFT].append(key)


def split_records(data: bytes) -> list[memoryview] | None:
    """The records that `data` holds one behind the other, each with a good checksum; None where it holds others."""
    view, position, size_bytes = memoryview(data), 0, len(data)
    records: list[memoryview] = []
    while position < size_bytes:
        if position + _LEAST_BYTES > size_bytes:
            return None
        size = data[position] << 24 | data[position + 1] << 16 | data[position + 2] << 8 | data[position + 3]
        following = position + size
        if size < _LEAST_BYTES or following > size_bytes:
            return None
        checked = following - _CHECKSUM_BYTES
        if not has_checksum(data, checked, crc32(data[position:checked])):
            return None
        records.append(view[position:following])
        position = following
    return records


def places_of(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """Queue offset, log offset, size, tags code and messages of each record that `split_records` finds in `data`."""
    position, size_bytes = 0, len(data)
    places: list[tuple[int, int, int, int, int]] = []
    while position < size_bytes:
        size, _, _, queue_offset, log_offset, flags, _, body_bytes = _unpack(data, position)
        following = position + size
        behind_body = position + _HEAD_BYTES + body_bytes
        is_plain = not flags & HOST_FLAGS and position < behind_body < following
        if (
            is_plain
            and data.find(b"TAGS\x01", behind_body, following) < 0
            and (data.find(b"INNER_", behind_body, following) < 0)
        ):
            places.append((queue_offset, log_offset, size, 0, 1))
        else:
            outline = outline_record(data[position:following])
            places.append((queue_offset, log_offset, size, tags_code(outline.tag), outline.batch_count or 1))
        position = following
    return places


def _message_count(text: bytes) -> int:
    found = _INNER_NUMBER.search(text)
    return int(found[1]) or 1 if found else 1


def _place_of(queue: QueueRecords) -> tuple[str, int]:
    return queue.topic, queue.queue_id
