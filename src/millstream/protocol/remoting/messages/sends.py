"""Sends on the wire: codes 10, 310, 320, 324 and 325, the fields a proxy adds, and the responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from millstream.model.errors import ConnectionFailed, MessageRefused
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.operations import SendReceipt
from millstream.model.properties import TAGS, decode_properties
from millstream.model.topic import RETRY_PREFIX, MessageType
from millstream.protocol.batches import BATCH_FLAGS
from millstream.protocol.remoting.command import FLAG_RESPONSE, RemotingCommand, encode_header
from millstream.protocol.remoting.fields import TYPED, is_typed, optional_integer
from millstream.protocol.remoting.frame import FRAME_HEAD
from millstream.protocol.remoting.send_shape import SentRecord

__all__ = [
    "BORN_HOST",
    "CLIENT_USER",
    "LOST",
    "MESSAGE_TYPE",
    "PROXIED",
    "REGION",
    "SendAnswers",
    "SendCall",
    "batch_places",
    "born_host",
    "born_host_text",
    "decode_send",
    "encode_send",
    "is_lost",
    "is_ordered",
    "is_proxied",
    "ordered_field",
    "places_of_batch",
    "sent_fields",
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


_INT32_LIMIT: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class _Names:
    topic: str
    queue_id: str
    system_flag: str
    born_timestamp: str
    flag: str
    properties: str
    reconsume_times: str
    batch: str
    max_reconsume_times: str
    producer_group: str


_LONG: Final = _Names(
    "topic", "queueId", "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "batch",
    "maxReconsumeTimes", "producerGroup",
)  # fmt: skip
_SHORT: Final = _Names("b", "e", "f", "g", "h", "i", "j", "m", "l", "a")


class SendCall(NamedTuple):
    """A send: its message, and what it says beside it."""

    message: OutgoingMessage
    is_batch: bool = False
    """Whether the body holds several messages."""
    producer_group: str = ""
    max_reconsume_times: int | None = None
    """Of what a consumer sends to its retry topic: its own limit of deliveries; None leaves it to the group."""
    is_typed: bool = False
    """Whether a message of another type than its topic's is to be refused."""


def encode_send(
    topic: str, queue_id: int, broker_name: str, properties: str, *, group: str, born_ms: int, is_batch: bool
) -> dict[str, str]:
    """The fields of a send of our own client, by the short names; `properties` in their stored form."""
    return {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(born_ms),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "l": "0",
        "m": "true" if is_batch else "false",
        "n": broker_name,
        **TYPED,
    }


def decode_send(ext: Mapping[str, str], body: bytes, peer: Address, *, is_short: bool) -> SendCall:
    """The send of a request; `peer` is where it came from, unless it says otherwise. MESSAGE_MALFORMED."""
    names = _SHORT if is_short else _LONG
    topic = ext.get(names.topic)
    try:
        queue_id = int(ext[names.queue_id])
        system_flag = int(ext.get(names.system_flag) or 0)
        flag = int(ext.get(names.flag) or 0)
        born_timestamp_ms = int(ext.get(names.born_timestamp) or 0)
        reconsume_times = int(ext.get(names.reconsume_times) or 0)
    except (KeyError, ValueError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A field of the send is missing or no number: {error}.") from None
    if not topic or not 0 <= system_flag < _INT32_LIMIT:
        raise MessageRefused("MESSAGE_MALFORMED", f"The send has topic {topic!r} and system flag {system_flag}.")
    if system_flag & BATCH_FLAGS:
        raise MessageRefused(
            "MESSAGE_MALFORMED", f"The system flag {system_flag} calls the message a batch, which is not its to say."
        )
    stored = ext.get(names.properties)
    properties = decode_properties(stored.encode()) if stored else {}
    if properties.get(TAGS) == "":
        # What a client that knows no absent tag calls one.
        del properties[TAGS]
    message = OutgoingMessage(
        topic,
        body,
        properties,
        sent_type(ext),
        queue_id if queue_id >= 0 else None,
        SystemFlag(system_flag) if system_flag else SystemFlag.NONE,
        flag,
        born_timestamp_ms,
        born_host(ext, peer),
        reconsume_times,
    )
    limit = optional_integer(ext, names.max_reconsume_times, -1) if topic.startswith(RETRY_PREFIX) else -1
    return SendCall(
        message,
        ext.get(names.batch) == "true",
        ext.get(names.producer_group, ""),
        limit if limit >= 0 else None,
        is_typed(ext),
    )


REGION: Final = "DefaultRegion"
"""The region that answers name; Java clients need the field, nobody needs its value."""

_OPAQUE: Final = 1_234_567_890
_LENGTH_WORD_BYTES: Final = 4
_PLACE: Final = "@"
"""Stands in the template where answers differ."""

_MAX_KEPT_HEADS: Final = 1024
_encoded = msgspec.json.Encoder().encode


def sent_fields(ids: str, queue_id: int | str, queue_offset: int | str) -> dict[str, str]:
    """Never empty: the Java client reads MSG_REGION and TRACE_ON without looking whether there are fields at all."""
    return {
        "msgId": ids,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "MSG_REGION": REGION,
        "TRACE_ON": "true",
    }


class SendAnswers:
    """Makes the frames of one broker's answers, with JSON headers. `id_prefix` begins its offset message ids."""

    def __init__(self, id_prefix: str) -> None:
        fields = sent_fields(id_prefix + _PLACE, _PLACE, _PLACE)
        answer = RemotingCommand(0, fields, opaque=_OPAQUE, flag=FLAG_RESPONSE)
        *self._before, end = _pieces(answer)
        fields["transactionId"] = _PLACE
        # The id is put in with its quotation marks, because some characters of it have to be escaped.
        *_, before_id, behind_id = _pieces(answer)
        self._end, self._before_id = end.encode(), before_id.removesuffix('"').encode()
        self._end_with_id = behind_id.removeprefix('"').encode()
        self._heads: dict[int, bytes] = {}

    def frames(self, sent: Sequence[SentRecord]) -> bytes:
        """The frames of the answers to sends, one behind the other, whose messages were stored."""
        parts: list[bytes] = []
        before_opaque, before_place, before_queue, before_offset = self._before
        heads, end, before_id, end_with_id = self._heads, self._end, self._before_id, self._end_with_id
        for record in sent:
            front = (
                f"{before_opaque}{record.opaque}{before_place}{record.log_offset:016X}{before_queue}{record.queue_id}"
                f"{before_offset}{record.queue_offset}"
            ).encode()
            size = len(front)
            if not record.message_id:
                size += len(end)
                parts += (heads.get(size) or self._head(size), front, end)
                continue
            quoted = _encoded(record.message_id)
            size += len(before_id) + len(quoted) + len(end_with_id)
            parts += (heads.get(size) or self._head(size), front, before_id, quoted, end_with_id)
        return b"".join(parts)

    def _head(self, size: int) -> bytes:
        head = FRAME_HEAD.pack(_LENGTH_WORD_BYTES + size, 0, size >> 16, size & 0xFFFF)
        if size < _MAX_KEPT_HEADS:
            self._heads[size] = head
        return head


def _pieces(answer: RemotingCommand) -> list[str]:
    """What stands around the places in the header that the general way gives."""
    return encode_header(answer).decode().replace(str(_OPAQUE), _PLACE).split(_PLACE)
