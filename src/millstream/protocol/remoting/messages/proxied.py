"""What a proxy adds to the sends of its clients, and hears of a batch, in fields that RocketMQ does not have.

A request says by `messageType` what the sender called its messages, where their properties do not, and by `bornHost`
(`ip:port`) where they come from. The answer to a batch says by lists of numbers, joined by commas, where its messages
are (`queueIds`, `queueOffsets`), where that does not follow from the first one, and when the delayed ones are due
(`dueTimes`, 0 for the others).

Heartbeats of a proxy in the name of its clients say so (`proxied`) and whose these are (`clientUser`), and the farewell
of one that it has lost says that as well (`lost`): such a client may live on. A list of a group's members (code 38)
says whether the group keeps order (`ordered`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from millstream.model.errors import ConnectionFailed, MessageRefused
from millstream.model.message import Address
from millstream.model.operations import SendReceipt
from millstream.model.topic import MessageType

__all__ = [
    "BORN_HOST",
    "CLIENT_USER",
    "LOST",
    "MESSAGE_TYPE",
    "PROXIED",
    "batch_places",
    "born_host",
    "born_host_text",
    "is_lost",
    "is_ordered",
    "is_proxied",
    "ordered_field",
    "places_of_batch",
    "sent_type",
]

MESSAGE_TYPE: Final = "messageType"
BORN_HOST: Final = "bornHost"
PROXIED: Final = {"proxied": "true"}
CLIENT_USER: Final = "clientUser"
LOST: Final = {"lost": "true"}
_QUEUE_IDS, _QUEUE_OFFSETS, _DUE_TIMES = "queueIds", "queueOffsets", "dueTimes"


def sent_type(ext: Mapping[str, str]) -> MessageType:
    """What the sender called its message; MESSAGE_MALFORMED for a word that is no type."""
    told = ext.get(MESSAGE_TYPE)
    if told is None:
        return MessageType.NORMAL
    try:
        return MessageType(told)
    except ValueError:
        raise MessageRefused("MESSAGE_MALFORMED", f"{told[:40]!r} is no type of a message.") from None


def born_host(ext: Mapping[str, str], peer: Address) -> Address:
    """Where the message comes from: what the request says, else `peer`; MESSAGE_MALFORMED for what has no port."""
    told = ext.get(BORN_HOST)
    if told is None:
        return peer
    host, _, port = told.rpartition(":")
    try:
        return Address(host, int(port))
    except ValueError:
        raise MessageRefused("MESSAGE_MALFORMED", f"{told[:80]!r} is no address of the form ip:port.") from None


def born_host_text(address: Address) -> str:
    """The field for an address."""
    return f"{address.host}:{address.port}"


def is_proxied(ext: Mapping[str, str]) -> bool:
    """Whether a proxy speaks for one of its clients."""
    return ext.get("proxied") == "true"


def is_lost(ext: Mapping[str, str]) -> bool:
    """Whether a proxy has lost the client of which it speaks."""
    return ext.get("lost") == "true"


def ordered_field(is_ordered: bool) -> dict[str, str]:
    """The field that says whether a group keeps order."""
    return {"ordered": "true"} if is_ordered else {}


def is_ordered(ext: Mapping[str, str]) -> bool:
    """What the field says."""
    return ext.get("ordered") == "true"


def batch_places(receipts: Sequence[SendReceipt]) -> dict[str, str]:
    """The fields of an answer that tell the places of a batch's messages."""
    first = receipts[0]
    places: dict[str, str] = {}
    if any(
        (one.queue_id, one.queue_offset) != (first.queue_id, first.queue_offset + number)
        for number, one in enumerate(receipts)
    ):
        places[_QUEUE_IDS] = _join_numbers(one.queue_id for one in receipts)
        places[_QUEUE_OFFSETS] = _join_numbers(one.queue_offset for one in receipts)
    if any(one.due_ms is not None for one in receipts):
        places[_DUE_TIMES] = _join_numbers(one.due_ms or 0 for one in receipts)
    return places


def places_of_batch(
    ext: Mapping[str, str], queue_id: int, queue_offset: int, count: int
) -> list[tuple[int, int, int | None]]:
    """Queue, offset and due time of each of `count` messages, the first of which is at that place."""
    try:
        queues = _numbers(ext.get(_QUEUE_IDS)) or [queue_id] * count
        offsets = _numbers(ext.get(_QUEUE_OFFSETS)) or [queue_offset + number for number in range(count)]
        due = [number or None for number in _numbers(ext.get(_DUE_TIMES)) or [0] * count]
        return list(zip(queues, offsets, due, strict=True))
    except ValueError as error:
        raise ConnectionFailed("PROTOCOL_VIOLATION", f"The answer to a batch cannot be read: {error}.") from None


def _join_numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _numbers(text: str | None) -> list[int]:
    return [int(number) for number in text.split(",")] if text else []
