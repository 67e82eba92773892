"""Sends on the wire: the fields of codes 10, 310, 320, 324 and 325. Code 310 and 325 shorten their names to one letter.

`n` (the broker's name), `typed`, `messageType` and `bornHost` are not RocketMQ's own: see `own_fields` and `proxied`.
Source of the other names: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.model.errors import MessageRefused
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.properties import TAGS, decode_properties
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.batches import BATCH_FLAGS
from millstream.protocol.remoting.fields import optional_integer
from millstream.protocol.remoting.messages.proxied import born_host, sent_type
from millstream.protocol.remoting.own_fields import TYPED, is_typed

__all__ = ["SendCall", "decode_send", "encode_send"]

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
