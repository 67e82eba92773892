"""Messages as sent, stored and received; independent of the protocol.

They are values all the same, though not frozen: making a frozen one costs three times as much, and every send and every
delivery makes some. Nobody changes one; `dataclasses.replace` gives another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from millstream.model import properties
from millstream.model.topic import MessageType

__all__ = ["MAX_BODY_BYTES", "Address", "Encoding", "Message", "OutgoingMessage", "StoredMessage", "SystemFlag"]

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Bytes of a body at most; RocketMQ's default `maxMessageSize`."""


class SystemFlag(IntFlag):
    """Bits of the record's sysFlag; the values are RocketMQ's."""

    NONE = 0
    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_IPV6 = 0x10
    STORE_HOST_IPV6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300
    ARROW_BATCH = 0x1000
    """Not RocketMQ's: the body is an Arrow batch of messages. It never leaves the broker but for those who asked."""


class Encoding(IntEnum):
    """How a body is encoded on the way."""

    IDENTITY = 1
    GZIP = 2


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address (text) and a port."""

    host: str
    port: int


@dataclass(slots=True)
class Message:
    """What an application says: topic, body and its own properties."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    message_group: str | None = None
    user_properties: dict[str, str] = field(default_factory=dict)
    priority: int | None = None
    lite_topic: str | None = None
    delivery_timestamp_ms: int | None = None
    """When it is to be delivered, since 1970; None for at once."""


@dataclass(slots=True)
class OutgoingMessage:
    """A message on its way into a broker. `queue_id` None lets the broker choose; the properties are complete.

    `properties` holds user and reserved names alike, as they will be stored.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    message_type: MessageType = MessageType.NORMAL
    queue_id: int | None = None
    system_flag: SystemFlag = SystemFlag.NONE
    flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Address = Address("127.0.0.1", 0)
    reconsume_times: int = 0
    message_count: int = 1
    """Messages that the body holds; more than one only where the system flag says what kind of batch it is."""
    prepared_transaction_offset: int = 0
    """Of a committed message: the log offset of the record that waited for the end of its transaction."""

    def with_properties(self, held: dict[str, str]) -> OutgoingMessage:
        """The same message with other properties; by position, which takes a quarter of `dataclasses.replace`."""
        return OutgoingMessage(
            self.topic,
            self.body,
            held,
            self.message_type,
            self.queue_id,
            self.system_flag,
            self.flag,
            self.born_timestamp_ms,
            self.born_host,
            self.reconsume_times,
            self.message_count,
            self.prepared_transaction_offset,
        )


@dataclass(slots=True)
class StoredMessage:
    """One record of the log, decoded. `queue_offset` counts messages of the queue, `log_offset` bytes of the log."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    body: bytes
    properties: dict[str, str]
    born_timestamp_ms: int
    born_host: Address
    store_timestamp_ms: int
    store_host: Address
    system_flag: SystemFlag = SystemFlag.NONE
    flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def tag(self) -> str | None:
        """The message's tag, or None."""
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The message's keys, in order."""
        return tuple(self.properties.get(properties.KEYS, "").split())

    @property
    def message_id(self) -> str:
        """The id that the producer's library gave it; blank if it gave none."""
        return self.properties.get(properties.UNIQUE_KEY, "")

    @property
    def priority(self) -> int | None:
        """The priority that its sender gave it, or None."""
        return properties.decode_priority(self.properties.get(properties.PRIORITY, ""))

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that are the application's own."""
        return {name: value for name, value in self.properties.items() if name not in properties.RESERVED}
