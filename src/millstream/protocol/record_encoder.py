"""Encodes messages as log records in RocketMQ's layout; `record` decodes them."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.properties import (
    MAX_STORED_BYTES,
    TAGS,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
)
from millstream.protocol.checksum import (
    CHECKSUM_BYTES,
    CRC_MASK,
    body_crc32,
    checksum_property,
    combine_crc32,
    crc32,
    write_number,
)

__all__ = [
    "BORN_HOST_IPV6",
    "CACHED_NAMES",
    "HEAD",
    "HOST_BYTES",
    "HOST_FLAGS",
    "HOST_IPV6_BYTES",
    "MAGIC_V1",
    "MAGIC_V2",
    "MAX_PROPERTIES_BYTES",
    "FixedPart",
    "PlainRecord",
    "RecordEncoder",
    "fixed_part",
    "pack_host",
]

MAGIC_V1: Final = 0xDAA320A7 - 0x1_0000_0000
MAGIC_V2: Final = 0xDAA320AB - 0x1_0000_0000

MAX_PROPERTIES_BYTES: Final = MAX_STORED_BYTES
"""Bytes of the properties' text at most, without the record's own checksum."""

HEAD: Final = struct.Struct(">iiiiiqqiq")
"""Size, magic, CRC of the body, queue, flag, queue offset, log offset, system flag and born time."""

HOST_BYTES: Final = 8
HOST_IPV6_BYTES: Final = 20

CACHED_NAMES: Final = 4096
"""Hosts and topics whose encoded form is kept, each."""

_LARGE_BODY_BYTES: Final = 128 * 1024
"""Bytes of a body from which on to read or copy it twice costs more than to join checksums."""

# At hand as numbers of C in the compiled form, which cannot give them to other modules.
_CHECKSUM_BYTES: Final = CHECKSUM_BYTES
_CRC_BITS: Final = CRC_MASK
_MAX_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_NO_NUMBERS: Final = bytes(12)
"""No deliveries before, and no prepared transaction."""

_IS_COMPILED: Final = not __file__.endswith(".py")
_pack_head: Final = HEAD.pack
_HEAD_BYTES: Final = HEAD.size
_SIZE_AT: Final = 0
_MAGIC_AT: Final = 4
_BODY_CRC_AT: Final = 8
_QUEUE_AT: Final = 12
_QUEUE_OFFSET_AT: Final = 20
_LOG_OFFSET_AT: Final = 28
_SYSTEM_FLAG_AT: Final = 36
_BORN_AT: Final = 40
_MAX_V1_TOPIC_BYTES: Final = 127

# The flags as plain integers: arithmetic on an IntFlag costs more than all the rest of a small record.
BORN_HOST_IPV6: Final = int(SystemFlag.BORN_HOST_IPV6)
_STORE_HOST_IPV6: Final = int(SystemFlag.STORE_HOST_IPV6)
HOST_FLAGS: Final = BORN_HOST_IPV6 | _STORE_HOST_IPV6


class PlainRecord:
    """An ordinary message on its way into the log, as it is to be stored.

    `properties` are read from their text, `stored_properties`, where nobody gave them. `message_id` and `tag` are what
    they say of them; blank and None where they say nothing. `system_flag` says nothing of hosts. `light_queues` are the
    stored names of the light queues that get an entry of the record as well, each once; the appender's dispatcher sets
    them.

    Once it is stored it says where: `queue_offset`, `log_offset`, `size_bytes` and `store_timestamp_ms`, as an
    `AppendedRecord` does of others. Before that they mean nothing.
    """

    __slots__ = (
        "_held", "body", "born_host", "born_timestamp_ms", "light_queues", "log_offset", "message_id", "queue_id",
        "queue_offset", "size_bytes", "store_timestamp_ms", "stored_properties", "system_flag", "tag", "topic",
    )  # fmt: skip

    queue_offset: int
    log_offset: int
    size_bytes: int
    store_timestamp_ms: int

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str],
        stored_properties: bytes,
        system_flag: int,
        born_timestamp_ms: int,
        born_host: Address,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.stored_properties = stored_properties
        self.message_id = properties.get(UNIQUE_KEY) or ""
        self.tag = properties.get(TAGS)
        self.system_flag = system_flag
        self.born_timestamp_ms = born_timestamp_ms
        self.born_host = born_host
        self.light_queues: tuple[str, ...] = ()
        self._held: dict[str, str] | None = properties

    @property
    def properties(self) -> dict[str, str]:
        """The properties by their names."""
        if self._held is None:
            self._held = decode_properties(self.stored_properties)
        return self._held

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in _PLAIN_FIELDS)
        return f"{type(self).__name__}({values})"


_PLAIN_FIELDS: Final = (
    "topic", "queue_id", "body", "properties", "stored_properties", "system_flag", "born_timestamp_ms", "born_host",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FixedPart:
    """Everything up to the body, for one pair of host lengths."""

    layout: struct.Struct
    host_flags: int


@lru_cache(maxsize=4)
def fixed_part(born_bytes: int, store_bytes: int) -> FixedPart:
    """The layout for hosts of so many bytes."""
    born_flag = BORN_HOST_IPV6 if born_bytes > HOST_BYTES else 0
    store_flag = _STORE_HOST_IPV6 if store_bytes > HOST_BYTES else 0
    return FixedPart(struct.Struct(f">iiiiiqqiq{born_bytes}sq{store_bytes}siqi"), born_flag | store_flag)


@lru_cache(maxsize=CACHED_NAMES)
def pack_host(host: str, port: int) -> bytes:
    """An address as records hold it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(family, host) + _INT32.pack(port)


@lru_cache(maxsize=CACHED_NAMES)
def _topic_field(topic: str) -> tuple[int, bytes]:
    text = topic.encode()
    if len(text) > _MAX_V1_TOPIC_BYTES:
        return MAGIC_V2, struct.pack(">h", len(text)) + text
    return MAGIC_V1, struct.pack(">b", len(text)) + text


class RecordEncoder:
    """Encodes the records of one store host. The store time may change between any two of them.

    What neighbours share (topic, born host, length of properties) is kept from one record to the next: every send comes
    this way.
    """

    __slots__ = (
        "_born", "_born_host", "_end", "_fixed_bytes", "_front", "_front_bytes", "_front_magic", "_front_ms",
        "_host_flags", "_length", "_length_field", "_magic", "_pack", "_store", "_topic", "_topic_field",
        "store_timestamp_ms",
    )  # fmt: skip

    def __init__(self, store_timestamp_ms: int, store_host: Address) -> None:
        self.store_timestamp_ms = store_timestamp_ms
        self._store = pack_host(store_host.host, store_host.port)
        self._topic: str | None = None
        self._magic, self._topic_field = 0, b""
        self._born_host: Address | None = None
        self._length, self._length_field = -1, b""
        self._end = b""
        self._front_bytes, self._front_magic, self._front_ms = -1, 0, -1
        # All up to the body. What the last record had is still there.
        self._front = bytearray()

    def encode(self, message: OutgoingMessage, queue_id: int, queue_offset: int, log_offset: int) -> bytes:
        """The record of `message` at its place. Hosts are IP addresses.

        ValueError for properties over `MAX_PROPERTIES_BYTES`.
        """
        held, body, flag = message.properties, message.body, message.system_flag
        return self._write(
            message.topic,
            body,
            body_crc32(message) if len(body) >= _LARGE_BODY_BYTES else crc32(body),
            encode_properties(held) if held else b"",
            queue_id,
            message.flag,
            queue_offset,
            log_offset,
            int.__and__(flag, ~HOST_FLAGS) if flag else 0,
            message.born_timestamp_ms,
            message.born_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
        )

    def encode_plain(self, record: PlainRecord, queue_offset: int, log_offset: int, more: bytes = b"") -> bytes:
        """The same of an ordinary message; `more` is the text of properties behind its own."""
        body, properties = record.body, record.stored_properties
        if more:
            properties = properties + more
        body_bytes, properties_bytes = len(body), len(properties) + _CHECKSUM_BYTES
        if body_bytes >= _LARGE_BODY_BYTES or properties_bytes > _MAX_PROPERTIES_BYTES + _CHECKSUM_BYTES:
            return self._write(
                record.topic, body, crc32(body), properties, record.queue_id, 0, queue_offset, log_offset,
                record.system_flag, record.born_timestamp_ms, record.born_host, 0, 0,
            )  # fmt: skip
        self._take_neighbours(record.topic, record.born_host, properties_bytes)
        if (
            self.store_timestamp_ms != self._front_ms
            or body_bytes != self._front_bytes
            or self._magic != self._front_magic
        ):
            self._renew_front(body_bytes)
        size = self._fixed_bytes + body_bytes + len(self._topic_field) + properties_bytes
        front, system_flag = self._front, record.system_flag | self._host_flags
        if _IS_COMPILED:
            # Byte by byte, which in C costs less than the objects to pack.
            write_number(front, _SIZE_AT, 4, size)
            write_number(front, _BODY_CRC_AT, 4, crc32(body) & _CRC_BITS)
            write_number(front, _QUEUE_AT, 4, record.queue_id)
            write_number(front, _QUEUE_OFFSET_AT, 8, queue_offset)
            write_number(front, _LOG_OFFSET_AT, 8, log_offset)
            write_number(front, _SYSTEM_FLAG_AT, 4, system_flag)
            write_number(front, _BORN_AT, 8, record.born_timestamp_ms)
        else:
            front[:_HEAD_BYTES] = _pack_head(
                size, self._magic, crc32(body) & _CRC_BITS, record.queue_id, 0, queue_offset, log_offset, system_flag,
                record.born_timestamp_ms,
            )  # fmt: skip
        written = b"".join((front, body, self._end, properties))
        return written + checksum_property(crc32(written))

    def _renew_front(self, body_bytes: int) -> None:
        """Write what all records have in common that one peer sends in a turn, if their bodies are of one length."""
        self._front_ms, self._front_bytes, self._front_magic = self.store_timestamp_ms, body_bytes, self._magic
        self._front = bytearray().join((
            bytes(_HEAD_BYTES), self._born, _INT64.pack(self._front_ms), self._store, _NO_NUMBERS,
            _INT32.pack(body_bytes),
        ))  # fmt: skip
        write_number(self._front, _MAGIC_AT, 4, self._magic)

    def _write(
        self,
        topic: str,
        body: bytes,
        body_crc: int,
        properties: bytes,
        queue_id: int,
        flag: int,
        queue_offset: int,
        log_offset: int,
        system_flag: int,
        born_timestamp_ms: int,
        born_host: Address,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> bytes:
        properties_bytes = len(properties) + _CHECKSUM_BYTES
        if properties_bytes > _MAX_PROPERTIES_BYTES + _CHECKSUM_BYTES:
            raise ValueError(f"properties of {len(properties)} bytes do not fit a record")
        self._take_neighbours(topic, born_host, properties_bytes)
        field, body_bytes = self._topic_field, len(body)
        head = self._pack(
            self._fixed_bytes + body_bytes + len(field) + properties_bytes,
            self._magic,
            body_crc & _CRC_BITS,
            queue_id,
            flag,
            queue_offset,
            log_offset,
            system_flag | self._host_flags,
            born_timestamp_ms,
            self._born,
            self.store_timestamp_ms,
            self._store,
            reconsume_times,
            prepared_transaction_offset,
            body_bytes,
        )
        if body_bytes >= _LARGE_BODY_BYTES:
            end = b"".join((field, properties_bytes.to_bytes(2, "big"), properties))
            crc = crc32(end, combine_crc32(crc32(head), body_crc, body_bytes))
            return b"".join((head, body, end, checksum_property(crc)))
        # Joined once and checked once: a checksum of each part would cost more than a copy of a small body.
        record = b"".join((head, body, field, self._length_field, properties))
        return record + checksum_property(crc32(record))

    def _take_neighbours(self, topic: str, born_host: Address, properties_bytes: int) -> None:
        if born_host is not self._born_host:
            self._take_born_host(born_host)
        if topic is self._topic and properties_bytes == self._length:
            return
        if topic is not self._topic:
            self._topic = topic
            self._magic, self._topic_field = _topic_field(topic)
        if properties_bytes != self._length:
            self._length, self._length_field = properties_bytes, properties_bytes.to_bytes(2, "big")
        self._end = self._topic_field + self._length_field

    def _take_born_host(self, born_host: Address) -> None:
        self._born_host = born_host
        self._front_ms = -1
        self._born = pack_host(born_host.host, born_host.port)
        fixed = fixed_part(len(self._born), len(self._store))
        self._pack, self._host_flags = fixed.layout.pack, fixed.host_flags
        self._fixed_bytes = fixed.layout.size + 2
