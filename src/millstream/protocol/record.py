"""The stored record, which is also what a pull answers: RocketMQ's layout, read and written here alone.

    int32 totalSize | int32 magic | int32 bodyCRC | int32 queueId | int32 flag | int64 queueOffset |
    int64 physicalOffset | int32 sysFlag | int64 bornTimestamp | bornHost: 4 or 16 bytes + int32 port |
    int64 storeTimestamp | storeHost: 4 or 16 bytes + int32 port | int32 reconsumeTimes |
    int64 preparedTransactionOffset | int32 bodyLen + body | topic: int8 (V1) or int16 (V2) length + UTF-8 |
    int16 propertiesLen + properties

Integers are big-endian. Source: RocketMQ 5.3's `MessageDecoder` (facts only). The body CRC is CRC-32 masked to 31 bits.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from zlib import crc32

from millstream.model.errors import StoreError
from millstream.model.message import Address, OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.properties import decode_properties, encode_properties

__all__ = [
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "MAX_PROPERTIES_BYTES",
    "MIN_RECORD_BYTES",
    "STORE_TIMESTAMP_POSITION",
    "decode_record",
    "encode_record",
    "iterate_records",
    "offset_message_id",
    "verify_record",
]

MAGIC_V1 = 0xDAA320A7 - 0x1_0000_0000
MAGIC_V2 = 0xDAA320AB - 0x1_0000_0000
MAGIC_BLANK = 0xCBD43194 - 0x1_0000_0000
MAX_PROPERTIES_BYTES = 32767

_HEAD = struct.Struct(">iiiiiqqiq")
_INT32 = struct.Struct(">i")
_TAIL = struct.Struct(">iqi")
_MAX_V1_TOPIC_BYTES = 127

STORE_TIMESTAMP_POSITION = 56
"""Where the store timestamp stands in a record with an IPv4 born host."""

MIN_RECORD_BYTES = _HEAD.size + 8 + 8 + 8 + _TAIL.size + 1 + 1 + 2
"""Bytes of a record with an empty body, a topic of one byte and no properties."""


def _packed_host(address: Address) -> bytes:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.inet_pton(family, address.host) + _INT32.pack(address.port)


def encode_record(
    message: OutgoingMessage,
    *,
    queue_id: int,
    queue_offset: int,
    log_offset: int,
    store_timestamp_ms: int,
    store_host: Address,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """The record of `message` at its place. Hosts are IP addresses; properties at most 32,767 bytes as text."""
    topic = message.topic.encode()
    properties = encode_properties(message.properties)
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"properties of {len(properties)} bytes do not fit a record")
    born, store = _packed_host(message.born_host), _packed_host(store_host)
    system_flag = int(message.system_flag) & ~(SystemFlag.BORN_HOST_IPV6 | SystemFlag.STORE_HOST_IPV6)
    if len(born) > 8:
        system_flag |= SystemFlag.BORN_HOST_IPV6
    if len(store) > 8:
        system_flag |= SystemFlag.STORE_HOST_IPV6
    wide = len(topic) > _MAX_V1_TOPIC_BYTES
    topic_length = struct.pack(">h" if wide else ">b", len(topic))
    body = message.body
    size = (
        _HEAD.size + len(born) + 8 + len(store) + _TAIL.size + len(body)
        + len(topic_length) + len(topic) + 2 + len(properties)
    )  # fmt: skip
    return b"".join(
        (
            _HEAD.pack(
                size,
                MAGIC_V2 if wide else MAGIC_V1,
                crc32(body) & 0x7FFFFFFF,
                queue_id,
                message.flag,
                queue_offset,
                log_offset,
                system_flag,
                message.born_timestamp_ms,
            ),
            born,
            store_timestamp_ms.to_bytes(8, "big", signed=True),
            store,
            _TAIL.pack(message.reconsume_times, prepared_transaction_offset, len(body)),
            body,
            topic_length,
            topic,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    )


def _damaged(log_offset: int, why: str) -> StoreError:
    return StoreError("RECORD_DAMAGED", f"The record at log offset {log_offset} is damaged: {why}.")


def _host_at(record: memoryview, position: int, wide: bool) -> tuple[Address, int]:
    length = 16 if wide else 4
    family = socket.AF_INET6 if wide else socket.AF_INET
    host = socket.inet_ntop(family, record[position : position + length])
    port = _INT32.unpack_from(record, position + length)[0]
    return Address(host, port), position + length + 4


def decode_record(record: bytes | memoryview, *, verify: bool = True) -> StoredMessage:
    """The message of one whole record. Raises RECORD_DAMAGED where lengths, magic or (if `verify`) CRC are wrong."""
    view = memoryview(record)
    try:
        size, magic, crc, queue_id, flag, queue_offset, log_offset, system_flag, born_ms = _HEAD.unpack_from(view)
        if size != len(view) or magic not in (MAGIC_V1, MAGIC_V2):
            raise _damaged(log_offset, f"size {size} of {len(view)} bytes, magic {magic:#x}")
        born_host, position = _host_at(view, _HEAD.size, bool(system_flag & SystemFlag.BORN_HOST_IPV6))
        store_ms = int.from_bytes(view[position : position + 8], "big", signed=True)
        store_host, position = _host_at(view, position + 8, bool(system_flag & SystemFlag.STORE_HOST_IPV6))
        reconsume_times, prepared_offset, body_bytes = _TAIL.unpack_from(view, position)
        position += _TAIL.size
        if body_bytes < 0 or position + body_bytes > size:
            raise _damaged(log_offset, f"body of {body_bytes} bytes")
        body = bytes(view[position : position + body_bytes])
        position += body_bytes
        width = 2 if magic == MAGIC_V2 else 1
        topic_bytes = int.from_bytes(view[position : position + width], "big")
        position += width
        topic = str(view[position : position + topic_bytes], "utf-8")
        position += topic_bytes
        properties_bytes = int.from_bytes(view[position : position + 2], "big")
        position += 2
        if position + properties_bytes != size:
            raise _damaged(log_offset, f"properties of {properties_bytes} bytes end outside of the record")
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise StoreError("RECORD_DAMAGED", f"A record of {len(view)} bytes cannot be read: {error}.") from None
    if verify and crc32(body) & 0x7FFFFFFF != crc:
        raise _damaged(log_offset, "the body fails its checksum")
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        log_offset=log_offset,
        body=body,
        properties=decode_properties(view[position : position + properties_bytes]),
        born_timestamp_ms=born_ms,
        born_host=born_host,
        store_timestamp_ms=store_ms,
        store_host=store_host,
        system_flag=SystemFlag(system_flag),
        flag=flag,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
    )


def verify_record(record: bytes | memoryview) -> bool:
    """Whether the record is whole and its body passes the checksum."""
    try:
        decode_record(record)
    except StoreError:
        return False
    return True


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
    return (_packed_host(store_host) + log_offset.to_bytes(8, "big")).hex().upper()
