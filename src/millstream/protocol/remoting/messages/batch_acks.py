"""The body of BATCH_ACK_MESSAGE (200151): many acknowledgements of one broker's deliveries.

`{"brokerName", "acks":[{"c": group, "t": topic, "r": kind of the topic, "so": start offset, "q": queue, "rq": revive
queue, "pt": pop time, "it": invisible time, "b": bits}]}`; the bits are Base64, lowest first, and bit n stands for the
offset n behind the start. Long names are read as well. Source: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable
from typing import Final

import msgspec

from millstream.model.errors import ConsumeRefused, MessageRefused
from millstream.model.operations import AckRequest
from millstream.model.receipt import NO_LOG_OFFSET, ReceiptHandle
from millstream.protocol.remoting.bodies import decode_body
from millstream.protocol.remoting.messages.popping import topic_of_request

__all__ = ["MAX_BATCH_ACKS", "MAX_SPAN", "decode_batch_ack", "encode_batch_ack"]

MAX_BATCH_ACKS: Final = 4096
"""Acknowledgements of one request at most: they are done while everybody else waits."""

MAX_SPAN: Final = 65_536
"""How far behind its start offset an entry's bits reach at most."""

_LONG_NAMES: Final = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class _Entry(msgspec.Struct):
    c: str
    t: str
    so: int
    q: int
    pt: int
    it: int
    r: str = "0"
    rq: int = 0
    b: str = ""


class _Body(msgspec.Struct):
    acks: list[dict[str, str | int]]
    broker_name: str = msgspec.field(name="brokerName", default="")


class _Sent(msgspec.Struct):
    acks: list[_Entry]
    broker_name: str = msgspec.field(name="brokerName")


def encode_batch_ack(broker_name: str, requests: Iterable[AckRequest]) -> bytes:
    """The body with these acknowledgements. Handles of lite topics have no place in it: ValueError."""
    entries: dict[tuple[str | int, ...], _Entry] = {}
    bits: dict[tuple[str | int, ...], int] = {}
    for request in sorted(requests, key=lambda each: each.handle.queue_offset):
        handle = request.handle
        if handle.lite_topic:
            raise ValueError(f"the lite topic {handle.lite_topic!r} cannot be named in a batch")
        fields = (request.group, request.topic, handle.queue_id, handle.pop_time_ms, handle.invisible_ms)
        key: tuple[str | int, ...] = (*fields, handle.topic_kind, handle.revive_queue, handle.queue_offset // MAX_SPAN)
        entry = entries.get(key)
        if entry is None:
            kind, revive = str(handle.topic_kind), handle.revive_queue
            group, topic, queue, popped_ms, invisible_ms = fields
            entry = _Entry(group, topic, handle.queue_offset, queue, popped_ms, invisible_ms, kind, revive)
            entries[key] = entry
        bits[key] = bits.get(key, 0) | 1 << (handle.queue_offset - entry.so)
    for key, entry in entries.items():
        size_bytes = (bits[key].bit_length() + 7) // 8
        entry.b = b64encode(bits[key].to_bytes(size_bytes, "little")).decode()
    return msgspec.json.encode(_Sent(list(entries.values()), broker_name))


def decode_batch_ack(body: bytes) -> list[AckRequest]:
    """The acknowledgements of a body. MESSAGE_MALFORMED; TOO_MANY_REQUESTS over `MAX_BATCH_ACKS`."""
    read = decode_body(_Body, body)
    requests: list[AckRequest] = []
    for fields in read.acks:
        try:
            named = {_LONG_NAMES.get(name, name): value for name, value in fields.items()}
            entry = msgspec.convert(named, _Entry, strict=False)
            kind, offsets = int(entry.r), _offsets(entry)
        except (ValueError, BadBase64) as error:
            raise MessageRefused(
                "MESSAGE_MALFORMED", f"An acknowledgement of a batch cannot be read: {error}."
            ) from None
        if len(requests) + len(offsets) > MAX_BATCH_ACKS:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS", f"The request has more than {MAX_BATCH_ACKS} acknowledgements, which is the limit."
            )
        topic = topic_of_request(entry.c, entry.t)
        for offset in offsets:
            handle = ReceiptHandle(
                entry.so, entry.pt, entry.it, entry.rq, kind, read.broker_name, entry.q, offset, NO_LOG_OFFSET
            )
            requests.append(AckRequest(entry.c, topic, handle))
    return requests


def _offsets(entry: _Entry) -> list[int]:
    packed = b64decode(entry.b, validate=True)
    if len(packed) * 8 > MAX_SPAN:
        raise ValueError(f"{len(packed)} bytes of bits; {MAX_SPAN // 8} are allowed")
    return [
        entry.so + 8 * place + bit for place, byte in enumerate(packed) if byte for bit in range(8) if byte >> bit & 1
    ]
