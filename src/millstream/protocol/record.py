"""Decodes the stored record in RocketMQ's layout, which pulls also return; `record_encoder` writes it."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from millstream.model.errors import StoreError
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, LightPlace, decode_light_places
from millstream.model.message import Address, OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.properties import decode_properties
from millstream.protocol.checksum import CHECKSUM_BYTES, CRC_MASK, checksum_property, crc32, ends_with_checksum
from millstream.protocol.record_encoder import (
    BORN_HOST_IPV6,
    CACHED_NAMES,
    HEAD,
    HOST_BYTES,
    HOST_FLAGS,
    HOST_IPV6_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    RecordEncoder,
    fixed_part,
    pack_host,
)

__all__ = [
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "MAX_PROPERTIES_BYTES",
    "MIN_RECORD_BYTES",
    "STORE_TIMESTAMP_POSITION",
    "RecordOutline",
    "RecordParts",
    "bodies_of",
    "body_bytes_of",
    "decode_record",
    "encode_record",
    "iterate_records",
    "log_offset_of",
    "offset_message_id",
    "outline_record",
    "outline_records",
    "passes_checksum",
    "place_of",
    "place_record",
    "possible_records",
    "split_record",
    "split_state",
    "store_timestamp_ms",
    "system_flag_of",
    "unpack_host",
    "verify_record",
]


MAGIC_BLANK = 0xCBD43194 - 0x1_0000_0000

_MAGICS = frozenset((MAGIC_V1, MAGIC_V2))
_MAGIC = re.compile(b"|".join(re.escape(struct.pack(">i", magic)) for magic in (MAGIC_V1, MAGIC_V2)))
_SIZE_BYTES = 4
_TAG = re.compile(rb"\x02TAGS\x01([^\x02]*)")
_INNER_NUMBER = re.compile(rb"\x02INNER_NUM\x01(\d{1,9})\x02")
_LIGHT_PLACES = re.compile(rb"\x02INNER_MULTI_DISPATCH\x01([^\x02]*)\x02INNER_MULTI_QUEUE_OFFSET\x01([^\x02]*)\x02")
_TAGS_NAME: Final = b"TAGS\x01"
_INNER_NAMES: Final = b"INNER_"
"""What the names of all properties begin with that say more of a record's places than its head does."""
_CHECKSUM = "__CRC32#"

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TAIL = struct.Struct(">iqi")
_ID_DIGITS = (32, 56)
"""Of an offset message id with an IPv4 and with an IPv6 address."""
_HOST_SIZES = (HOST_BYTES, HOST_IPV6_BYTES)
_SYSTEM_FLAG_POSITION = 36

STORE_TIMESTAMP_POSITION = HEAD.size + HOST_BYTES
"""Where the store timestamp stands in a record with an IPv4 born host."""

MIN_RECORD_BYTES = HEAD.size + HOST_BYTES + 8 + HOST_BYTES + _TAIL.size + 1 + 1 + 2
"""Bytes of a record with an empty body, a topic of one byte and no properties."""

# The flags as plain integers: arithmetic on an IntFlag costs more than all the rest of a small record.
_UNUSUAL = HOST_FLAGS | int(SystemFlag.COMPRESSED)
_BODY_HEAD = struct.Struct(">36xi44xi")
"""System flag and size of the body, where both hosts are IPv4; the body follows."""
_STATE_HEAD = struct.Struct(">4xi12xq8xi44xi")
"""The same, with the magic number and the queue offset before them."""

_IPV4: Final = fixed_part(HOST_BYTES, HOST_BYTES).layout

_LAYOUTS = {
    fixed.host_flags: fixed.layout
    for fixed in (fixed_part(born, store) for born in _HOST_SIZES for store in _HOST_SIZES)
}
"""How the part before the body is laid out, by the record's host flags."""


@lru_cache(maxsize=CACHED_NAMES)
def unpack_host(packed: bytes) -> Address:
    """The address that a record holds so."""
    family = socket.AF_INET6 if len(packed) > HOST_BYTES else socket.AF_INET
    return Address(socket.inet_ntop(family, packed[:-4]), _INT32.unpack_from(packed, len(packed) - 4)[0])


_flags = lru_cache(maxsize=CACHED_NAMES)(SystemFlag)


def encode_record(
    message: OutgoingMessage,
    *,
    queue_id: int,
    queue_offset: int,
    log_offset: int,
    store_timestamp_ms: int,
    store_host: Address,
) -> bytes:
    """One record; see `RecordEncoder.encode`."""
    encoder = RecordEncoder(store_timestamp_ms, store_host)
    return encoder.encode(message, queue_id, queue_offset, log_offset)


def _damage_error(log_offset: int, why: str) -> StoreError:
    return StoreError("RECORD_DAMAGED", f"The record at log offset {log_offset} is damaged: {why}.")


def _unpack_fixed_part(record: bytes | memoryview) -> tuple[tuple[Any, ...], int]:
    system_flag = _INT32.unpack_from(record, _SYSTEM_FLAG_POSITION)[0]
    layout = _LAYOUTS[system_flag & HOST_FLAGS]
    return layout.unpack_from(record), layout.size


def _topic_at(record: bytes | memoryview, position: int, magic: int) -> tuple[str, int]:
    start = position + (2 if magic == MAGIC_V2 else 1)
    end = start + int.from_bytes(record[position:start], "big")
    return str(record[start:end], "utf-8"), end


def decode_record(record: bytes | memoryview, *, verify: bool = True) -> StoredMessage:
    """The message of one whole record. Raises RECORD_DAMAGED where lengths, magic or (if `verify`) CRC are wrong.

    A record without a checksum of the whole, as other writers make them, is judged by its body's CRC alone.
    """
    view = memoryview(record)
    try:
        (
            size, magic, crc, queue_id, flag, queue_offset, log_offset, system_flag, born_ms, born_host,
            store_ms, store_host, reconsume_times, prepared_offset, body_bytes,
        ), position = _unpack_fixed_part(view)  # fmt: skip
        if size != len(view) or magic not in _MAGICS:
            raise _damage_error(log_offset, f"size {size} of {len(view)} bytes, magic {magic:#x}")
        if body_bytes < 0 or position + body_bytes > size:
            raise _damage_error(log_offset, f"body of {body_bytes} bytes")
        body = bytes(view[position : position + body_bytes])
        end = bytes(view[position + body_bytes :])
        topic, position = _topic_at(end, 0, magic)
        properties_bytes = int.from_bytes(end[position : position + 2], "big")
        position += 2
        if position + properties_bytes != len(end):
            raise _damage_error(log_offset, f"properties of {properties_bytes} bytes end outside of the record")
    except (struct.error, ValueError) as error:
        raise StoreError("RECORD_DAMAGED", f"A record of {len(view)} bytes cannot be read: {error}.") from None
    properties = decode_properties(end[position:])
    if verify and crc32(body) & CRC_MASK != crc:
        raise _damage_error(log_offset, "the body fails its checksum")
    properties.pop(_CHECKSUM, None)
    if verify and ends_with_checksum(view) and not passes_checksum(view):
        raise _damage_error(log_offset, "the record fails its checksum")
    # By position: names cost as much as the values, and every delivery makes one.
    return StoredMessage(
        topic,
        queue_id,
        queue_offset,
        log_offset,
        body,
        properties,
        born_ms,
        unpack_host(born_host),
        store_ms,
        unpack_host(store_host),
        _flags(system_flag),
        flag,
        reconsume_times,
        prepared_offset,
    )


def passes_checksum(record: memoryview) -> bool:
    """Whether the record ends with the checksum of what stands before it, as we write it."""
    return record[-CHECKSUM_BYTES:] == checksum_property(crc32(record[:-CHECKSUM_BYTES]))


def verify_record(record: bytes | memoryview) -> bool:
    """Whether the record is whole, has its own size and ends with the checksum of the whole that we write."""
    view = memoryview(record)
    if len(view) < MIN_RECORD_BYTES or int.from_bytes(view[:4], "big") != len(view):
        return False
    return passes_checksum(view)


def possible_records(data: bytes | memoryview, start: int) -> Iterator[int]:
    """Where a record may begin, from `start` on: its magic is at its place. For going on behind damage."""
    for found in _MAGIC.finditer(data, start + _SIZE_BYTES):
        yield found.start() - _SIZE_BYTES


class RecordOutline(NamedTuple):
    """What of a record the files derived from the log need. `tag` is None for a message without one.

    `batch_count` is the number of messages in a record of a batch queue, None for a record of any other queue.
    `light_places` are the light queues that have the record as well, and its offsets there.
    """

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    store_timestamp_ms: int
    tag: str | None
    batch_count: int | None
    light_places: tuple[LightPlace, ...] = ()

    def in_each_queue(self) -> list[RecordOutline]:
        """The outline as each queue has it: that of the record's topic first, then the light queues."""
        _, _, _, log_offset, stored_ms, tag, _, places = self
        return [
            self._replace(light_places=()),
            *[RecordOutline(name, LIGHT_QUEUE_NUMBER, at, log_offset, stored_ms, tag, None) for name, at in places],
        ]


_outline = partial(tuple.__new__, RecordOutline)


def outline_record(record: bytes | memoryview) -> RecordOutline:
    """The outline of a record that `verify_record` has passed."""
    fields, position = _unpack_fixed_part(record)
    _, magic, _, queue_id, _, queue_offset, log_offset, _, _, _, stored_ms, _, _, _, body_bytes = fields
    end = bytes(record[position + body_bytes :])
    topic, position = _topic_at(end, 0, magic)
    properties = b"\x02" + end[position + 2 :]
    tag = _TAG.search(properties)
    number = _INNER_NUMBER.search(properties)
    light = _LIGHT_PLACES.search(properties)
    return RecordOutline(
        topic,
        queue_id,
        queue_offset,
        log_offset,
        stored_ms,
        tag[1].decode("utf-8", "replace") if tag else None,
        int(number[1]) if number else None,
        decode_light_places(light[1].decode(), light[2].decode()) if light else (),
    )


def outline_records(data: bytes, log_offset: int) -> Iterator[tuple[RecordOutline, int]]:
    """The outline and the size of each record of `data`, which stands at a log offset, while they are whole and of
    their place.

    Ends early at the first that is damaged or of another place. Several times cheaper than one by one.
    """
    view, end, position = memoryview(data), len(data), 0
    topics: dict[bytes, str] = {}
    while position + MIN_RECORD_BYTES <= end:
        (
            size, magic, _, queue_id, _, queue_offset, own_offset, system_flag, _, _, stored_ms, _, _, _, body_bytes,
        ) = _IPV4.unpack_from(data, position)  # fmt: skip
        following = position + size
        if (
            magic not in _MAGICS
            or not MIN_RECORD_BYTES <= size <= end - position
            or own_offset != log_offset + position
        ):
            return
        ending = following - CHECKSUM_BYTES
        if data[ending:following] != checksum_property(crc32(view[position:ending])):
            return
        behind_body = position + _IPV4.size + body_bytes
        if system_flag & HOST_FLAGS or magic != MAGIC_V1 or not position < behind_body < ending:
            yield outline_record(view[position:following]), size
        else:
            properties = behind_body + 1 + data[behind_body]
            if data.find(_TAGS_NAME, properties, following) >= 0 or data.find(_INNER_NAMES, properties, following) >= 0:
                yield outline_record(view[position:following]), size
            else:
                name = data[behind_body + 1 : properties]
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = str(name, "utf-8")
                yield _outline((topic, queue_id, queue_offset, own_offset, stored_ms, None, None, ())), size
        position = following


class RecordParts(NamedTuple):
    """What a bulk reader takes of a record; `body` and `properties` (stored text) are slices of it, not decoded."""

    queue_id: int
    queue_offset: int
    system_flag: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    body: memoryview
    properties: memoryview


def split_record(record: memoryview) -> RecordParts:
    """The parts of a whole record that a server has verified; several times cheaper than `decode_record`."""
    fields, position = _unpack_fixed_part(record)
    _, magic, _, queue_id, _, queue_offset, _, system_flag, born_ms, _, stored_ms, _, _, _, body_bytes = fields
    end = position + body_bytes
    topic = end + (2 if magic == MAGIC_V2 else 1)
    properties = topic + int.from_bytes(record[end:topic], "big") + 2
    return RecordParts(
        queue_id, queue_offset, system_flag, born_ms, stored_ms, record[position:end], record[properties:]
    )


def split_state(record: memoryview) -> tuple[int, memoryview, memoryview]:
    """Queue offset, body and properties of a whole record that a server has verified, at half the cost of all parts:
    whoever follows the state of many others reads nothing else."""
    magic, queue_offset, system_flag, body_bytes = _STATE_HEAD.unpack_from(record)
    if magic != MAGIC_V1 or system_flag & HOST_FLAGS:
        parts = split_record(record)
        return parts.queue_offset, parts.body, parts.properties
    end = _STATE_HEAD.size + body_bytes
    return queue_offset, record[_STATE_HEAD.size : end], record[end + record[end] + 3 :]


def bodies_of(records: Iterable[memoryview]) -> list[memoryview | None]:
    """The body of each whole record; None where it is compressed or a host is IPv6, which `split_record` knows.

    Several times cheaper than taking each record apart.
    """
    bodies: list[memoryview | None] = []
    for record in records:
        system_flag, size_bytes = _BODY_HEAD.unpack_from(record)
        end = _BODY_HEAD.size + size_bytes
        bodies.append(None if system_flag & _UNUSUAL else record[_BODY_HEAD.size : end])
    return bodies


def system_flag_of(record: bytes | memoryview) -> int:
    """The bits of the record's system flag."""
    flag: int = _INT32.unpack_from(record, _SYSTEM_FLAG_POSITION)[0]
    return flag


def body_bytes_of(record: memoryview) -> int:
    """The bytes of the record's body as it is stored; RECORD_DAMAGED for a record that cannot have so many."""
    fields, position = _unpack_fixed_part(record)
    size_bytes: int = fields[-1]
    if not 0 <= size_bytes <= len(record) - position:
        raise _damage_error(fields[6], f"its body has {size_bytes} bytes")
    return size_bytes


def store_timestamp_ms(record: bytes | memoryview) -> int:
    """When the record was stored. Of the record its first 76 bytes are enough."""
    wide = _INT32.unpack_from(record, _SYSTEM_FLAG_POSITION)[0] & BORN_HOST_IPV6
    position = HEAD.size + (HOST_IPV6_BYTES if wide else HOST_BYTES)
    stored_ms: int = _INT64.unpack_from(record, position)[0]
    return stored_ms


def iterate_records(buffer: bytes | memoryview) -> Iterator[memoryview]:
    """Each record of a buffer of records laid end to end; RECORD_DAMAGED where a size leads outside."""
    view, position = memoryview(buffer), 0
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        if size < MIN_RECORD_BYTES or position + size > len(view):
            raise StoreError(
                "RECORD_DAMAGED", f"A record of {size} bytes at position {position} leads outside of {len(view)} bytes."
            )
        yield view[position : position + size]
        position += size


def offset_message_id(store_host: Address, log_offset: int) -> str:
    """RocketMQ's offset message id: address, port and log offset as upper-case hex (32 characters for IPv4)."""
    return (pack_host(store_host.host, store_host.port) + log_offset.to_bytes(8, "big")).hex().upper()


def log_offset_of(offset_message_id: str) -> int | None:
    """The log offset that an offset message id ends with; None for text that is none."""
    if len(offset_message_id) not in _ID_DIGITS:
        return None
    try:
        return int.from_bytes(bytes.fromhex(offset_message_id)[-8:], "big", signed=True)
    except ValueError:
        return None


_QUEUE_ID = struct.Struct(">i")
_QUEUE_ID_POSITION: Final = 12
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_POSITION: Final = 20


def place_of(record: bytes | memoryview) -> tuple[int, int]:
    """The queue and the queue offset that a record names."""
    queue_id: int = _QUEUE_ID.unpack_from(record, _QUEUE_ID_POSITION)[0]
    queue_offset: int = _QUEUE_OFFSET.unpack_from(record, _QUEUE_OFFSET_POSITION)[0]
    return queue_id, queue_offset


def place_record(record: bytes | memoryview, queue_id: int, queue_offset: int) -> bytes | memoryview:
    """The record with that queue and queue offset, and with the checksum of the whole that goes with them."""
    if place_of(record) == (queue_id, queue_offset):
        return record
    changed = bytearray(record)
    _QUEUE_ID.pack_into(changed, _QUEUE_ID_POSITION, queue_id)
    _QUEUE_OFFSET.pack_into(changed, _QUEUE_OFFSET_POSITION, queue_offset)
    with memoryview(changed) as view:
        if ends_with_checksum(view):
            start = len(view) - CHECKSUM_BYTES
            view[start:] = checksum_property(crc32(view[:start]))
    return bytes(changed)
