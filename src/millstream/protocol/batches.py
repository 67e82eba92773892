"""Splits a batch record into the ordinary messages that it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from millstream.model import properties as names
from millstream.model.errors import MessageRefused, StoreError
from millstream.model.message import OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.properties import decode_properties
from millstream.protocol.arrow import batch as arrow
from millstream.protocol.checksum import CHECKSUM_BYTES, CHECKSUM_START
from millstream.protocol.message_run import decode_run
from millstream.protocol.record import decode_record, encode_record, system_flag_of
from millstream.protocol.remoting.messages.batch import decode_batch

__all__ = [
    "BATCH_FLAGS",
    "BatchCache",
    "UnpackedBatch",
    "is_arrow_batch",
    "messages_of",
    "messages_of_run",
    "record_of",
    "unpack",
]

BATCH_FLAGS: Final = int(SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP | SystemFlag.ARROW_BATCH)
"""What the system flag of a batch has and that of an ordinary message has not."""

MAX_CACHED_BATCHES: Final = 8
"""Batches that are kept unpacked, because a batch is read in many small steps; each has at most 32 MiB of bodies."""

_Item = tuple[bytes, dict[str, str], int]


class UnpackedBatch:
    """The messages of one record, by their position in it."""

    def __init__(self, head: StoredMessage, items: Sequence[_Item] | Sequence[arrow.Row]) -> None:
        self._head = head
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def tag(self, queue_offset: int) -> str | None:
        """The tag of the message of a queue offset that the batch has, without making the message."""
        item = self._items[queue_offset - self._head.queue_offset]
        if len(item) == 3:
            return item[1].get(names.TAGS)
        _, _, tag, text = item
        return tag or (_properties_of(item).get(names.TAGS) if text else None)

    def messages(self, queue_offset: int) -> list[StoredMessage]:
        """The messages from the queue offset on."""
        first = self._head.queue_offset
        return [self.message(offset) for offset in range(max(queue_offset, first), first + len(self._items))]

    def message(self, queue_offset: int) -> StoredMessage:
        """The message of a queue offset that the batch has."""
        head = self._head
        item = self._items[queue_offset - head.queue_offset]
        if len(item) == 3:
            body, properties, flag = item
        else:
            body, properties, flag = item[0], _properties_of(item), head.flag
        return replace(
            head,
            queue_offset=queue_offset,
            body=body,
            properties=properties,
            flag=flag,
            system_flag=SystemFlag(int(head.system_flag) & ~BATCH_FLAGS),
        )


def _properties_of(row: arrow.Row) -> dict[str, str]:
    _, key, tag, text = row
    properties = decode_properties(text.encode()) if text else {}
    if key:
        properties[names.KEYS] = key
    if tag:
        properties[names.TAGS] = tag
    return properties


def unpack(record: bytes | memoryview) -> UnpackedBatch:
    """The messages of a record that its checksum has passed. Raises RECORD_DAMAGED where the batch cannot be read.

    A record that is no batch is one of a single message.
    """
    head = decode_record(record, verify=False)
    flags = int(head.system_flag) & BATCH_FLAGS
    number = head.properties.pop(names.INNER_NUMBER, "1")
    head.properties.pop(names.INNER_BASE, None)
    items: Sequence[_Item] | Sequence[arrow.Row]
    if flags & SystemFlag.ARROW_BATCH:
        items = list(arrow.rows(head.body))
    elif flags:
        try:
            items = decode_batch(head.body)
        except MessageRefused as error:
            raise StoreError("RECORD_DAMAGED", f"The batch at log offset {head.log_offset}: {error.message}") from None
    else:
        items = [(head.body, head.properties, head.flag)]
    if str(len(items)) != number:
        raise StoreError(
            "RECORD_DAMAGED", f"The batch at log offset {head.log_offset} has {len(items)} messages, not {number}."
        )
    return UnpackedBatch(head, items)


def messages_of(record: bytes | memoryview, queue_offset: int) -> list[StoredMessage]:
    """The messages of a record, of a batch those from the queue offset on; unverified. Raises RECORD_DAMAGED."""
    if system_flag_of(record) & BATCH_FLAGS:
        return unpack(record).messages(queue_offset)
    return [decode_record(record, verify=False)]


def messages_of_run(records: Sequence[bytes | memoryview]) -> list[StoredMessage] | None:
    """The messages of records that are each of one, taken apart together, which costs half as much; unverified.

    None where `messages_of` has to be asked for each: one is a batch, of another writer, damaged, or unusual.
    """
    data = b"".join(records)
    at = 0
    places = []
    for record in records:
        size = len(record)
        at += size
        if size <= CHECKSUM_BYTES or not data.startswith(CHECKSUM_START, at - CHECKSUM_BYTES):
            return None
        places.append((0, size, 0))
    try:
        messages = decode_run(data, places)
    except UnicodeDecodeError:
        return None
    if messages is None or any(int.__and__(message.system_flag, BATCH_FLAGS) for message in messages):
        return None
    return messages


def is_arrow_batch(record: bytes | memoryview) -> bool:
    """Whether the record's body is an Arrow batch."""
    return bool(system_flag_of(record) & SystemFlag.ARROW_BATCH)


class BatchCache:
    """The batches that were unpacked last, by their log offset."""

    def __init__(self) -> None:
        self._batches: OrderedDict[int, UnpackedBatch | None] = OrderedDict()

    def has(self, log_offset: int) -> bool:
        """Whether the record there is known, be it as a damaged one."""
        return log_offset in self._batches

    def find(self, log_offset: int) -> UnpackedBatch | None:
        """The batch of the record there, if it is kept and whole."""
        if log_offset in self._batches:
            self._batches.move_to_end(log_offset)
        return self._batches.get(log_offset)

    def keep(self, log_offset: int, batch: UnpackedBatch | None) -> None:
        """Keep the batch, None for one that cannot be read, until others push it out."""
        self._batches[log_offset] = batch
        if len(self._batches) > MAX_CACHED_BATCHES:
            self._batches.popitem(last=False)


def record_of(message: StoredMessage) -> bytes:
    """The message as a record of its own, as clients get it that know no batches or are told more than is stored."""
    outgoing = OutgoingMessage(
        topic=message.topic,
        body=message.body,
        properties=message.properties,
        system_flag=message.system_flag,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    return encode_record(
        outgoing,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        log_offset=message.log_offset,
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=message.store_host,
    )
