"""The request that stores a proxy's messages in one queue, and the receipts of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.model import properties as names
from millstream.model.errors import MessageRefused
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.model.operations import SendReceipt
from millstream.model.properties import MAX_STORED_BYTES, encode_properties
from millstream.model.recall import RecallHandle
from millstream.model.topic import MessageType
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand
from millstream.protocol.remoting.fields import integer
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.protocol.remoting.messages.proxied import BORN_HOST, MESSAGE_TYPE, born_host_text, places_of_batch
from millstream.protocol.remoting.own_fields import TYPED
from millstream.proxy.backend import RouteQueue

__all__ = ["receipts_of", "send_request", "shared_requests"]

_PLAIN_JSON_BYTES: Final = 8 * 1024
"""Bytes of properties up to which the header is JSON, whose escapes may make them six times as long."""

_WORDS_OF_TYPES: Final = frozenset(
    (names.MESSAGE_GROUP, names.PRIORITY, names.LITE_TOPIC, names.DELIVERY_TIME_MS, names.TRANSACTION)
)
"""Properties that say themselves of which type a message is."""


def shared_requests(messages: Sequence[OutgoingMessage]) -> list[list[int]]:
    """Which of the messages for one queue may share a request, as their positions.

    A batch has one system flag and one type for all, and no transaction can be in one.
    """
    found: dict[object, list[int]] = {}
    for position, message in enumerate(messages):
        alone = position if message.properties.get(names.TRANSACTION) == "true" else None
        found.setdefault((int(message.system_flag), message.message_type, alone), []).append(position)
    return list(found.values())


def send_request(queue: RouteQueue, messages: Sequence[OutgoingMessage], group: str) -> RemotingCommand:
    """The request; several messages are a batch. ILLEGAL_PROPERTY, PROPERTIES_TOO_LARGE for what cannot travel."""
    first = messages[0]
    ext = {
        "a": first.properties.get(names.PRODUCER_GROUP) or group,
        "b": first.topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue.queue_id),
        "f": str(int(first.system_flag)),
        "g": str(first.born_timestamp_ms),
        "h": str(first.flag),
        "j": str(first.reconsume_times),
        "k": "false",
        "m": "true" if len(messages) > 1 else "false",
        "n": queue.broker_name,
        BORN_HOST: born_host_text(first.born_host),
        **TYPED,
    }
    if first.message_type is not MessageType.NORMAL and _WORDS_OF_TYPES.isdisjoint(first.properties):
        ext[MESSAGE_TYPE] = first.message_type.value
    if len(messages) > 1:
        items = [_item(message) for message in messages]
        return RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, ext, b"".join(items))
    if first.properties.get(names.TRANSACTION) == "true":
        ext["f"] = str(int(first.system_flag | SystemFlag.TRANSACTION_PREPARED))
    stored = _encode_stored_properties(first)
    ext["i"] = stored.decode()
    header_type = HeaderType.JSON if len(stored) <= _PLAIN_JSON_BYTES else HeaderType.BINARY
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, first.body, header_type=header_type)


def receipts_of(
    answer: RemotingCommand, queue: RouteQueue, messages: Sequence[OutgoingMessage], now_ms: int
) -> list[SendReceipt]:
    """The receipts, one per message. The store time is `now_ms`: answers do not tell it. MESSAGE_MALFORMED."""
    ext = answer.ext
    places = places_of_batch(ext, integer(ext, "queueId"), integer(ext, "queueOffset"), len(messages))
    ids = ext.get("msgId", "").split(",")
    if len(ids) != len(messages):
        ids = [""] * len(messages)
    handle = ext.get("recallHandle")
    due_ms = RecallHandle.decode(handle).due_ms if handle else None
    return [
        SendReceipt(
            message_id=message.properties.get(names.UNIQUE_KEY, ""),
            offset_message_id=offset_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
            log_offset=int(offset_id[-16:], 16) if offset_id else 0,
            store_timestamp_ms=now_ms,
            broker_name=queue.broker_name,
            due_ms=due_ms or due_of_batch_ms,
        )
        for message, offset_id, (queue_id, queue_offset, due_of_batch_ms) in zip(messages, ids, places, strict=True)
    ]


def _item(message: OutgoingMessage) -> bytes:
    _encode_stored_properties(message)
    return encode_batch_item(message.body, message.properties, flag=message.flag)


def _encode_stored_properties(message: OutgoingMessage) -> bytes:
    """The properties' text, if the broker will read the same properties from it."""
    held = message.properties
    try:
        stored = encode_properties(held)
    except UnicodeEncodeError:
        raise MessageRefused("ILLEGAL_PROPERTY", "A property has text that is not Unicode (half of a pair).") from None
    if stored.count(b"\x01") != len(held) or stored.count(b"\x02") != len(held):
        raise MessageRefused(
            "ILLEGAL_PROPERTY", "A property has one of the characters \\x01 and \\x02, which separate."
        )
    if len(stored) > MAX_STORED_BYTES:
        raise MessageRefused(
            "PROPERTIES_TOO_LARGE", f"The properties have {len(stored)} bytes; the limit is {MAX_STORED_BYTES}."
        )
    return stored
