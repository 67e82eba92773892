"""Pulls on the wire: the fields of codes 11 and 361, and of a bulk fetch (9102), which is our own.

`lo` names the broker's own queue of a static topic, `uncapped` is our own. Source of the other names: RocketMQ 5.3
(facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from millstream.model.filter import MessageFilter
from millstream.model.sql_filter import parse_filter
from millstream.protocol.remoting.administration.static_topics import is_physical
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand, encode_header
from millstream.protocol.remoting.fields import integer, is_uncapped, optional_integer, text
from millstream.protocol.remoting.frame import FRAME_HEAD

__all__ = [
    "FetchCall",
    "PullCall",
    "decode_fetch",
    "decode_pull",
    "encode_fetch",
    "encode_pull",
    "pull_fields",
    "pull_head",
]

_COMMIT_OFFSET, _SUSPEND, _SUBSCRIPTION = 1, 2, 4


class PullCall(NamedTuple):
    """A request for the messages of one queue from `queue_offset` on."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    max_bytes: int | None = None
    """Bytes of its answer at most; None where the request names no limit."""
    filter: MessageFilter | None = None
    """Which messages are wanted; None: those that the group's subscription at the broker names."""
    sub_version: int = 0
    """The version of the subscription that the client has, as milliseconds since 1970."""
    wait_ms: int = 0
    """How long the answer may wait for messages; 0: it does not."""
    commit_offset: int | None = None
    """The offset that the group has consumed up to, to be kept with the pull; None: nothing is kept."""
    is_uncapped: bool = False
    """Whether it may be answered by as many messages as it asks for."""
    is_physical: bool = False
    """Whether it means the broker's own queue, also of a static topic."""


class FetchCall(NamedTuple):
    """A request for raw records of one queue from `queue_offset` on."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_bytes: int | None = None
    """Bytes of its answer at most; None where the request names no limit."""
    wait_ms: int = 0
    """How long the answer may wait for messages; 0: it does not."""


def encode_pull(call: PullCall) -> dict[str, str]:
    """The fields of a pull but `lo` and `uncapped`, which who sends it adds."""
    flags = (_SUBSCRIPTION if call.filter is not None else 0) | (_SUSPEND if call.wait_ms > 0 else 0)
    ext = {
        "consumerGroup": call.group,
        "topic": call.topic,
        "queueId": str(call.queue_id),
        "queueOffset": str(call.queue_offset),
        "maxMsgNums": str(call.max_messages),
    }
    if call.max_bytes is not None:
        ext["maxMsgBytes"] = str(call.max_bytes)
    ext |= {
        "sysFlag": str(flags | (0 if call.commit_offset is None else _COMMIT_OFFSET)),
        "commitOffset": str(call.commit_offset or 0),
        "suspendTimeoutMillis": str(call.wait_ms),
    }
    if call.filter is None:
        return {**ext, "subVersion": str(call.sub_version)}
    return {
        **ext,
        "subscription": call.filter.expression,
        "subVersion": str(call.sub_version),
        "expressionType": call.filter.kind.value,
    }


def decode_pull(ext: Mapping[str, str]) -> PullCall:
    """The pull of a request. MESSAGE_MALFORMED, ILLEGAL_FILTER_EXPRESSION."""
    flags = integer(ext, "sysFlag")
    has_filter = bool(flags & _SUBSCRIPTION)
    return PullCall(
        text(ext, "consumerGroup"),
        text(ext, "topic"),
        integer(ext, "queueId"),
        integer(ext, "queueOffset"),
        integer(ext, "maxMsgNums"),
        integer(ext, "maxMsgBytes") if ext.get("maxMsgBytes") else None,
        parse_filter(ext.get("expressionType", ""), ext.get("subscription", "")) if has_filter else None,
        optional_integer(ext, "subVersion", 0),
        optional_integer(ext, "suspendTimeoutMillis", 0) if flags & _SUSPEND else 0,
        optional_integer(ext, "commitOffset", -1) if flags & _COMMIT_OFFSET else None,
        is_uncapped(ext),
        is_physical(ext),
    )


def encode_fetch(call: FetchCall) -> dict[str, str]:
    """The fields of a bulk fetch."""
    ext = {"topic": call.topic, "queueId": str(call.queue_id), "queueOffset": str(call.queue_offset)}
    if call.max_bytes is not None:
        ext["maxBytes"] = str(call.max_bytes)
    ext["consumerGroup"] = call.group
    if call.wait_ms > 0:
        ext["suspendTimeoutMillis"] = str(call.wait_ms)
    return ext


def decode_fetch(ext: Mapping[str, str]) -> FetchCall:
    """The bulk fetch of a request. MESSAGE_MALFORMED."""
    return FetchCall(
        text(ext, "consumerGroup"),
        text(ext, "topic"),
        integer(ext, "queueId"),
        integer(ext, "queueOffset"),
        integer(ext, "maxBytes") if ext.get("maxBytes") else None,
        optional_integer(ext, "suspendTimeoutMillis", 0),
    )


def pull_fields(suggested_id: int, next_offset: int, min_offset: int, max_offset: int) -> dict[str, str]:
    """The fields of the answer to a pull; `suggested_id` is where RocketMQ's clients send their next one."""
    return {
        "suggestWhichBrokerId": str(suggested_id),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
    }


_LENGTH_WORD_BYTES: Final = 4
_PLACES: Final = (7_000_000_000, 7_000_000_001, 7_000_000_002, 7_000_000_003, 7_000_000_004)


def _answer_format() -> bytes:
    """The JSON header that the general way makes, with places for opaque and the fields, in this order."""
    opaque, *fields = _PLACES
    answer = RemotingCommand(0, opaque=opaque).response(ResponseCode.SUCCESS, ext=pull_fields(*fields))
    header = encode_header(answer)
    assert [*sorted(_PLACES, key=lambda place: header.index(b"%d" % place))] == [*_PLACES]
    for place in _PLACES:
        header = header.replace(b"%d" % place, b"%d")
    return header


_ANSWER: Final = _answer_format()


def pull_head(
    opaque: int, suggested_id: int, next_offset: int, min_offset: int, max_offset: int, body_bytes: int
) -> bytes:
    """What stands before the records in the frame of an answer that has some, with a JSON header."""
    header = _ANSWER % (opaque, suggested_id, next_offset, min_offset, max_offset)
    size = len(header)
    return FRAME_HEAD.pack(_LENGTH_WORD_BYTES + size + body_bytes, 0, size >> 16, size & 0xFFFF) + header
