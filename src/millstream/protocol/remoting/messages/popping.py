"""Requests of pop consumers: codes 200050 to 200055 and the body of BATCH_ACK_MESSAGE (200151)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from millstream.model.errors import ConsumeRefused, MessageRefused
from millstream.model.handles import NO_LOG_OFFSET, ReceiptHandle
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PopRequest
from millstream.model.sql_filter import parse_filter
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.remoting.bodies import decode_body
from millstream.protocol.remoting.fields import integer, optional_integer, text

__all__ = [
    "ALL_QUEUES",
    "MAX_BATCH_ACKS",
    "MAX_SPAN",
    "Notification",
    "PeekCall",
    "PopCall",
    "decode_ack",
    "decode_batch_ack",
    "decode_change",
    "decode_change_answer",
    "decode_notification",
    "decode_notification_answer",
    "decode_peek",
    "decode_polling",
    "decode_polling_answer",
    "decode_pop",
    "encode_ack",
    "encode_batch_ack",
    "encode_change",
    "encode_change_answer",
    "encode_notification",
    "encode_notification_answer",
    "encode_peek",
    "encode_polling",
    "encode_polling_answer",
    "encode_pop",
    "topic_of_request",
    "wait_ms",
]


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


ALL_QUEUES: Final = -1
"""The queue id that stands for all queues of a topic."""

_RETRY_KINDS: Final = {1: "_", 2: "+"}
"""Between group and topic in the name of a retry topic, by the kind in the handle."""

_FROM_FIRST, _FROM_LAST = 0, 1


@dataclass(frozen=True, slots=True)
class PopCall:
    """A pop on its way. `born_ms` is when its client sent it, by the client's clock.

    `from_last` says that the client wants to begin at the end where the group has no position yet.
    """

    request: PopRequest
    born_ms: int = 0
    from_last: bool = True


@dataclass(frozen=True, slots=True)
class Notification:
    """A question whether a pop would find something; it waits as a pop does, and takes nothing."""

    group: str
    topic: str
    queue_id: int | None = None
    poll_ms: int = 0
    born_ms: int = 0
    in_order: bool = False
    attempt_id: str = ""


@dataclass(frozen=True, slots=True)
class PeekCall:
    """A look at the next messages of a group, which are not taken."""

    group: str
    topic: str
    queue_id: int | None = None
    max_messages: int = 32


def wait_ms(poll_ms: int, born_ms: int, now_ms: int) -> int:
    """How much is left of a polling time that began when the client sent its request.

    All of it where `born_ms` lies in the future or longer back than that: then the client's clock is not ours, and to
    answer at once would have it ask again at once.
    """
    passed_ms = now_ms - born_ms
    return poll_ms - passed_ms if 0 <= passed_ms < poll_ms else max(poll_ms, 0)


def topic_of_request(group: str, topic: str) -> str:
    """The topic that a group popped, of the name of a topic or of the group's retry topic for it."""
    for separator in _RETRY_KINDS.values():
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic[len(prefix) :]
    return topic


def encode_pop(call: PopCall, broker_name: str = "") -> dict[str, str]:
    """The fields of a request 200050."""
    request = call.request
    ext = {
        **_place(request.group, request.topic, request.queue_id, broker_name),
        "maxMsgNums": str(request.max_messages),
        "invisibleTime": str(request.invisible_ms),
        "pollTime": str(request.wait_ms),
        "bornTime": str(call.born_ms),
        "initMode": str(_FROM_LAST if call.from_last else _FROM_FIRST),
        "expType": request.filter.kind.value,
        "exp": request.filter.expression,
        "order": _word(request.in_order),
    }
    return ext | _drop_blank_fields(
        attemptId=request.attempt_id,
        clientId=request.client_id,
        takesExpired=_word(request.takes_expired, ""),
        releases=_word(request.releases, ""),
    )


def decode_pop(ext: Mapping[str, str]) -> PopCall:
    """The call of such fields. MESSAGE_MALFORMED, ILLEGAL_FILTER."""
    request = PopRequest(
        group=text(ext, "consumerGroup"),
        topic=text(ext, "topic"),
        invisible_ms=integer(ext, "invisibleTime"),
        queue_id=_queue(ext),
        max_messages=integer(ext, "maxMsgNums"),
        filter=parse_filter(ext.get("expType", ""), ext.get("exp", "")),
        wait_ms=integer(ext, "pollTime"),
        attempt_id=ext.get("attemptId", ""),
        client_id=ext.get("clientId", ""),
        in_order=_is_true(ext, "order"),
        takes_expired=_is_true(ext, "takesExpired"),
        releases=_is_true(ext, "releases"),
    )
    from_last = optional_integer(ext, "initMode", _FROM_LAST) != _FROM_FIRST
    return PopCall(request, integer(ext, "bornTime"), from_last)


def encode_ack(request: AckRequest) -> dict[str, str]:
    """The fields of a request 200051."""
    return _delivery(request.group, request.topic, request.handle) | _drop_blank_fields(
        inTime=_word(request.in_time, "")
    )


def decode_ack(ext: Mapping[str, str]) -> AckRequest:
    """The acknowledgement of such fields. MESSAGE_MALFORMED, INVALID_RECEIPT_HANDLE."""
    group = text(ext, "consumerGroup")
    return AckRequest(group, topic_of_request(group, text(ext, "topic")), _handle(ext), _is_true(ext, "inTime"))


def encode_change(request: ChangeInvisibleRequest) -> dict[str, str]:
    """The fields of a request 200053."""
    ext = _delivery(request.group, request.topic, request.handle)
    ext["invisibleTime"] = str(request.invisible_ms)
    flags = {"suspend": request.suspend, "renewal": request.renewal, "inTime": request.in_time}
    return ext | {name: _word(True) for name, is_set in flags.items() if is_set}


def decode_change(ext: Mapping[str, str]) -> ChangeInvisibleRequest:
    """The change of such fields. MESSAGE_MALFORMED, INVALID_RECEIPT_HANDLE."""
    ack = decode_ack(ext)
    return ChangeInvisibleRequest(
        ack.group,
        ack.topic,
        ack.handle,
        integer(ext, "invisibleTime"),
        suspend=_is_true(ext, "suspend"),
        renewal=_is_true(ext, "renewal"),
        in_time=ack.in_time,
    )


def encode_change_answer(handle: ReceiptHandle) -> dict[str, str]:
    """The fields that answer 200053: what of the new handle differs from the old one."""
    return {
        "popTime": str(handle.pop_time_ms),
        "invisibleTime": str(handle.invisible_ms),
        "reviveQid": str(handle.revive_queue),
    }


def decode_change_answer(ext: Mapping[str, str], replaced: ReceiptHandle) -> ReceiptHandle:
    """The new handle in place of the one that was sent."""
    return replace(
        replaced,
        start_offset=replaced.queue_offset,
        pop_time_ms=integer(ext, "popTime"),
        invisible_ms=integer(ext, "invisibleTime"),
        revive_queue=integer(ext, "reviveQid"),
    )


def encode_notification(question: Notification, broker_name: str = "") -> dict[str, str]:
    """The fields of a request 200054."""
    ext = _place(question.group, question.topic, question.queue_id, broker_name)
    ext |= {"pollTime": str(question.poll_ms), "bornTime": str(question.born_ms), "order": _word(question.in_order)}
    return ext | _drop_blank_fields(attemptId=question.attempt_id)


def decode_notification(ext: Mapping[str, str]) -> Notification:
    """The question of such fields. MESSAGE_MALFORMED."""
    return Notification(
        text(ext, "consumerGroup"),
        text(ext, "topic"),
        _queue(ext),
        integer(ext, "pollTime"),
        integer(ext, "bornTime"),
        _is_true(ext, "order"),
        ext.get("attemptId", ""),
    )


def encode_notification_answer(has_messages: bool, polling_full: bool = False) -> dict[str, str]:
    """The fields that answer 200054; `polling_full`: too many wait already."""
    return {"hasMsg": _word(has_messages), "pollingFull": _word(polling_full)}


def decode_notification_answer(ext: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether there are messages, and whether too many wait."""
    return _is_true(ext, "hasMsg"), _is_true(ext, "pollingFull")


def encode_peek(call: PeekCall, broker_name: str = "") -> dict[str, str]:
    """The fields of a request 200052."""
    return {**_place(call.group, call.topic, call.queue_id, broker_name), "maxMsgNums": str(call.max_messages)}


def decode_peek(ext: Mapping[str, str]) -> PeekCall:
    """The look of such fields. MESSAGE_MALFORMED."""
    return PeekCall(text(ext, "consumerGroup"), text(ext, "topic"), _queue(ext), integer(ext, "maxMsgNums"))


def encode_polling(group: str, topic: str, queue_id: int | None, broker_name: str = "") -> dict[str, str]:
    """The fields of a request 200055."""
    return _place(group, topic, queue_id, broker_name)


def decode_polling(ext: Mapping[str, str]) -> tuple[str, str, int | None]:
    """Group, topic and queue (None: those that wait for all) of such fields. MESSAGE_MALFORMED."""
    return text(ext, "consumerGroup"), text(ext, "topic"), _queue(ext)


def encode_polling_answer(waiting: int) -> dict[str, str]:
    """The field that answers 200055."""
    return {"pollingNum": str(waiting)}


def decode_polling_answer(ext: Mapping[str, str]) -> int:
    """How many pops wait."""
    return integer(ext, "pollingNum")


def _place(group: str, topic: str, queue_id: int | None, broker_name: str) -> dict[str, str]:
    queue = ALL_QUEUES if queue_id is None else queue_id
    return {"consumerGroup": group, "topic": topic, "queueId": str(queue)} | _drop_blank_fields(bname=broker_name)


def _queue(ext: Mapping[str, str]) -> int | None:
    queue_id = integer(ext, "queueId")
    return None if queue_id == ALL_QUEUES else queue_id


def _delivery(group: str, topic: str, handle: ReceiptHandle) -> dict[str, str]:
    separator = _RETRY_KINDS.get(handle.topic_kind)
    real_topic = topic if separator is None else f"{RETRY_PREFIX}{group}{separator}{topic}"
    return {
        **_place(group, real_topic, handle.queue_id, handle.broker_name),
        "extraInfo": handle.encode(),
        "offset": str(handle.queue_offset),
    } | _drop_blank_fields(liteTopic=handle.lite_topic)


def _handle(ext: Mapping[str, str]) -> ReceiptHandle:
    """The handle of the extra info; of place and extra info the place counts, as in RocketMQ."""
    handle = ReceiptHandle.decode(text(ext, "extraInfo"))
    return replace(handle, queue_id=integer(ext, "queueId"), queue_offset=integer(ext, "offset"))


def _drop_blank_fields(**fields: str) -> dict[str, str]:
    """The fields that are not blank."""
    return {name: value for name, value in fields.items() if value}


def _word(value: bool, no: str = "false") -> str:
    return "true" if value else no


def _is_true(ext: Mapping[str, str], name: str) -> bool:
    return ext.get(name, "").lower() == "true"
