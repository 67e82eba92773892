"""Queues and offsets on the wire: codes 14, 15, 29 to 32, 41, 42, 208, 222, and administration of offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from millstream.model.operations import QueuePoint, ResetRequest
from millstream.protocol.remoting.administration.static_topics import PHYSICAL, is_physical
from millstream.protocol.remoting.bodies import CamelBody
from millstream.protocol.remoting.fields import integer, optional_integer, text

__all__ = [
    "CloneCall",
    "GroupOffset",
    "LockBody",
    "LockedBody",
    "OffsetQuery",
    "ProgressQuery",
    "QueueCall",
    "QueueName",
    "ResetCall",
    "TimeCall",
    "decode_clone",
    "decode_group_offset",
    "decode_offset_query",
    "decode_progress_query",
    "decode_queue",
    "decode_reset",
    "decode_time",
    "encode_clone",
    "encode_group_offset",
    "encode_offset_query",
    "encode_progress_query",
    "encode_queue",
    "encode_reset",
    "encode_time",
]


class QueueName(CamelBody):
    """A queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class LockBody(CamelBody):
    """The queues that a client of a group wants for itself, or gives up."""

    consumer_group: str
    client_id: str
    mq_set: list[QueueName] = msgspec.field(default_factory=list)


class LockedBody(CamelBody):
    """The queues that it has for itself now."""

    locked: list[QueueName] = msgspec.field(name="lockOKMQSet", default_factory=list)


_ALL_QUEUES: Final = -1
_TO_THE_END: Final = -1
_WITH_BYTES: Final = "withBytes"
"""RocketMQ's time for skipping everything that waits."""


class QueueCall(NamedTuple):
    """A question about one queue."""

    topic: str
    queue_id: int
    is_physical: bool = False
    """Whether it means the broker's own queue, also of a static topic; so in all classes here."""


class TimeCall(NamedTuple):
    """A question for the offset of a time in one queue."""

    topic: str
    queue_id: int
    timestamp_ms: int
    upper: bool = False
    """The last offset stored at or before the time, in place of the first one at or after it."""
    is_physical: bool = False


class OffsetQuery(NamedTuple):
    """A question for the offset of a group in one queue."""

    group: str
    topic: str
    queue_id: int
    or_first: bool = True
    """Whether a group without an offset is to get the one that it begins at."""
    is_physical: bool = False


class GroupOffset(NamedTuple):
    """The offset of a group in one queue, to be kept."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    is_physical: bool = False


class ProgressQuery(NamedTuple):
    """A question how far a group is: in one topic, in those of a list, or (both empty) in all that it reads."""

    group: str
    topic: str | None = None
    topics: tuple[str, ...] = ()
    is_physical: bool = False
    with_bytes: bool = False
    """Whether the bytes that are ready are asked for; a field of our own."""


class ResetCall(NamedTuple):
    """A reset of a group's offsets. `timestamp_ms` is the request's field, for the members that hear of it."""

    request: ResetRequest
    timestamp_ms: int = 0
    is_physical: bool = False


class CloneCall(NamedTuple):
    """The offsets of a group for another one, in one topic or in all."""

    source: str
    target: str
    topic: str | None = None


def _place(topic: str, queue_id: int) -> dict[str, str]:
    return {"topic": topic, "queueId": str(queue_id)}


def _lo(physical: bool) -> dict[str, str]:
    return PHYSICAL if physical else {}


def encode_queue(call: QueueCall) -> dict[str, str]:
    """The fields of codes 30, 31 and 32."""
    return {**_place(call.topic, call.queue_id), **_lo(call.is_physical)}


def decode_queue(ext: Mapping[str, str]) -> QueueCall:
    """The queue that a request is about. MESSAGE_MALFORMED, as all that decodes here."""
    return QueueCall(text(ext, "topic"), integer(ext, "queueId"), is_physical(ext))


def encode_time(call: TimeCall) -> dict[str, str]:
    """The fields of code 29."""
    bound = {"timestamp": str(call.timestamp_ms), "boundaryType": "UPPER" if call.upper else "LOWER"}
    return {**_place(call.topic, call.queue_id), **bound, **_lo(call.is_physical)}


def decode_time(ext: Mapping[str, str]) -> TimeCall:
    """The time and the queue of a request."""
    upper = ext.get("boundaryType", "LOWER").upper() == "UPPER"
    return TimeCall(text(ext, "topic"), integer(ext, "queueId"), integer(ext, "timestamp"), upper, is_physical(ext))


def encode_offset_query(call: OffsetQuery) -> dict[str, str]:
    """The fields of code 14."""
    own = {} if call.or_first else {"setZeroIfNotFound": "false"}
    return {"consumerGroup": call.group, **_place(call.topic, call.queue_id), **own, **_lo(call.is_physical)}


def decode_offset_query(ext: Mapping[str, str]) -> OffsetQuery:
    """The group and the queue of a request."""
    or_first = ext.get("setZeroIfNotFound") != "false"
    group, topic = text(ext, "consumerGroup"), text(ext, "topic")
    return OffsetQuery(group, topic, integer(ext, "queueId"), or_first, is_physical(ext))


def encode_group_offset(call: GroupOffset) -> dict[str, str]:
    """The fields of code 15."""
    place = {"consumerGroup": call.group, **_place(call.topic, call.queue_id)}
    return {**place, "commitOffset": str(call.queue_offset), **_lo(call.is_physical)}


def decode_group_offset(ext: Mapping[str, str]) -> GroupOffset:
    """The offset that a request commits."""
    group, topic = text(ext, "consumerGroup"), text(ext, "topic")
    return GroupOffset(group, topic, integer(ext, "queueId"), integer(ext, "commitOffset"), is_physical(ext))


def encode_progress_query(call: ProgressQuery) -> dict[str, str]:
    """The fields of code 208."""
    topic = {} if call.topic is None else {"topic": call.topic}
    topics = {"topicList": ";".join(call.topics)} if call.topics else {}
    own = {_WITH_BYTES: "true"} if call.with_bytes else {}
    return {"consumerGroup": call.group, **topic, **topics, **_lo(call.is_physical), **own}


def decode_progress_query(ext: Mapping[str, str]) -> ProgressQuery:
    """The group and the topics of a request."""
    topics = ext.get("topicList", "")
    listed = tuple(topics.split(";")) if topics else ()
    with_bytes = ext.get(_WITH_BYTES) == "true"
    return ProgressQuery(text(ext, "consumerGroup"), ext.get("topic") or None, listed, is_physical(ext), with_bytes)


def encode_reset(call: ResetCall) -> dict[str, str]:
    """The fields of code 222, without those by which tools say that they know what they do."""
    request = call.request
    ext = {"group": request.group, "topic": request.topic, "timestamp": str(call.timestamp_ms)}
    if request.point is QueuePoint.OFFSET:
        ext["offset"] = str(request.value)
    if request.queue_id is not None:
        ext["queueId"] = str(request.queue_id)
    return {**ext, **_lo(call.is_physical)}


def decode_reset(ext: Mapping[str, str]) -> ResetCall:
    """The reset of a request: to an offset where one is named, else to a time; -1 as the time is the end.

    `isForce` is passed over, as RocketMQ does where the broker keeps the reset.
    """
    queue_id = optional_integer(ext, "queueId", _ALL_QUEUES)
    offset, timestamp_ms = optional_integer(ext, "offset", -1), integer(ext, "timestamp")
    if offset >= 0:
        point, value = QueuePoint.OFFSET, offset
    elif timestamp_ms == _TO_THE_END:
        point, value = QueuePoint.LAST, 0
    else:
        point, value = QueuePoint.TIME, timestamp_ms
    queue = None if queue_id == _ALL_QUEUES else queue_id
    request = ResetRequest(text(ext, "group"), text(ext, "topic"), point, value, queue)
    return ResetCall(request, timestamp_ms, is_physical(ext))


def encode_clone(call: CloneCall) -> dict[str, str]:
    """The fields of code 314."""
    topic = {} if call.topic is None else {"topic": call.topic}
    return {"srcGroup": call.source, "destGroup": call.target, **topic}


def decode_clone(ext: Mapping[str, str]) -> CloneCall:
    """The groups of a request, and its topic if it names one."""
    return CloneCall(text(ext, "srcGroup"), text(ext, "destGroup"), ext.get("topic") or None)
