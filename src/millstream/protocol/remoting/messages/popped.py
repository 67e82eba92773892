"""Responses to pops (200050), and to a pop that one broker requests from another (9121)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.model.errors import MessageRefused
from millstream.model.handles import FIFO_REVIVE_QUEUE, ReceiptHandle
from millstream.model.message import StoredMessage
from millstream.model.operations import PoppedMessage, PopRequest
from millstream.model.properties import POP_CHECK
from millstream.model.sql_filter import parse_filter
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.batches import record_of
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, text

__all__ = [
    "PoppedAnswer",
    "decode_popped",
    "encode_empty_answer",
    "encode_offsets",
    "encode_peek_answer",
    "encode_popped",
    "parse_offsets",
    "parse_pop",
    "pop_answer",
    "pop_fields",
    "popped_messages",
]


_NORMAL, _RETRY, _RETRY_V2 = 0, 1, 2
_Place = tuple[int, int]
"""Kind of the topic, and queue."""

_Record = bytes | memoryview
_Shared = tuple[int, int, int]
"""Pop time, invisible time and revive queue: what all handles of an answer share but for those that say their own."""


@dataclass(frozen=True, slots=True)
class PoppedAnswer:
    """The fields and the records of an answer."""

    ext: dict[str, str]
    records: tuple[_Record, ...]


def encode_empty_answer(now_ms: int, invisible_ms: int) -> dict[str, str]:
    """The fields of an answer without messages: clients want the numbers all the same."""
    return {**_numbers((now_ms, invisible_ms, 0), 0), "startOffsetInfo": "", "msgOffsetInfo": ""}


def encode_peek_answer(rest_count: int) -> dict[str, str]:
    """The fields of an answer with messages that were not taken, of which the group has `rest_count` before it."""
    return _numbers((0, 0, 0), rest_count)


def encode_popped(
    popped: Sequence[PoppedMessage], records: Sequence[_Record | None], broker_name: str, rest_count: int
) -> PoppedAnswer:
    """The answer with these messages, at least one, of the broker of that name.

    `records` are their records as stored, None where one has to be made; a record is sent as it is stored unless
    something has to be said in it. `rest_count` messages are left.
    """
    shared = _shared_by_most([message.handle for message in popped])
    offsets: dict[_Place, list[int]] = {}
    attempts: dict[tuple[_Place, int], int] = {}
    sent: list[_Record] = []
    for message, record in zip(popped, records, strict=True):
        handle, before = message.handle, message.delivery_attempt - 1
        kind = _kind_of(message.message.topic)
        place = handle.topic_kind or kind, handle.queue_id
        if not handle.lite_topic:
            offsets.setdefault(place, []).append(handle.queue_offset)
        if before and handle.revive_queue == FIFO_REVIVE_QUEUE:
            attempts[place, handle.queue_offset] = before
        is_derived = (
            _shared_of(handle) == shared
            and handle.broker_name == broker_name
            and handle.topic_kind in (_NORMAL, kind)
            and not handle.lite_topic
        )
        sent.append(_record_sent(message, record, is_derived))
    ext = {
        **_numbers(shared, rest_count),
        "startOffsetInfo": ";".join([f"{kind} {queue} {min(found)}" for (kind, queue), found in offsets.items()]),
        "msgOffsetInfo": encode_offsets(offsets),
    }
    if attempts:
        ext["orderCountInfo"] = ";".join(
            [f"{kind} qo{queue}%{offset} {count}" for ((kind, queue), offset), count in attempts.items()]
        )
    return PoppedAnswer(ext, tuple(sent))


def decode_popped(ext: Mapping[str, str], body: bytes | memoryview, broker_name: str) -> list[PoppedMessage]:
    """The messages of an answer as a broker of that name gave them. MESSAGE_MALFORMED, RECORD_DAMAGED.

    Start offsets are those of the queue's first message, which no acknowledgement depends on.
    """
    starts = parse_offsets(ext.get("startOffsetInfo", ""))
    offsets = parse_offsets(ext.get("msgOffsetInfo", ""))
    shared = (integer(ext, "popTime"), integer(ext, "invisibleTime"), integer(ext, "reviveQid"))
    found = [_read(record) for record in iterate_records(body)]
    held: dict[_Place, list[int]] = {}
    for message, handle, place in found:
        if handle is None or not handle.lite_topic:
            held.setdefault(place, []).append(message.queue_offset)
    ranks = {place: {offset: rank for rank, offset in enumerate(sorted(own))} for place, own in held.items()}
    popped = []
    for message, handle, place in found:
        if handle is None:
            try:
                start, offset = starts[place][0], offsets[place][ranks[place][message.queue_offset]]
            except (KeyError, IndexError):
                raise _malformed_error(f"nothing about queue {place[1]}, offset {message.queue_offset}") from None
            handle = ReceiptHandle(start, *shared, place[0], broker_name, place[1], offset, message.log_offset)
        popped.append(PoppedMessage(message, handle, message.reconsume_times + 1))
    return popped


def encode_offsets(offsets: Mapping[_Place, Iterable[int]]) -> str:
    """The text of `msgOffsetInfo`."""
    return ";".join([f"{kind} {queue} {','.join(map(str, sorted(found)))}" for (kind, queue), found in offsets.items()])


def parse_offsets(info: str) -> dict[_Place, list[int]]:
    """The offsets by kind and queue in `msgOffsetInfo` or `startOffsetInfo`. MESSAGE_MALFORMED."""
    found: dict[_Place, list[int]] = {}
    for item in filter(None, info.split(";")):
        try:
            kind, queue, offsets = item.split(" ")
            found[int(kind), int(queue)] = [int(offset) for offset in offsets.split(",")]
        except ValueError:
            raise _malformed_error(f"{item[:80]!r} among its offsets") from None
    return found


def _record_sent(popped: PoppedMessage, record: _Record | None, is_derived: bool) -> _Record:
    """The record of a message; its handle stands in it unless clients derive that from the answer's fields."""
    message, before = popped.message, popped.delivery_attempt - 1
    # What a sender wrote into that property would be taken for the handle.
    is_as_stored = message.reconsume_times == before and POP_CHECK not in message.properties
    if record is not None and is_derived and is_as_stored:
        return record
    properties = {name: value for name, value in message.properties.items() if name != POP_CHECK}
    sent = replace(message, properties=properties, reconsume_times=before)
    if is_derived:
        return record_of(sent)
    try:
        return record_of(replace(sent, properties={**properties, POP_CHECK: popped.handle.encode()}))
    except ValueError:
        # No room among the properties. The client's acknowledgement will miss, and the message comes again.
        return record_of(sent)


def _read(record: memoryview) -> tuple[StoredMessage, ReceiptHandle | None, _Place]:
    """A message, the handle that it carries, and its place among the offsets of the answer."""
    message = decode_record(record)
    own = message.properties.pop(POP_CHECK, None)
    if own is None:
        return message, None, (_kind_of(message.topic), message.queue_id)
    handle = replace(ReceiptHandle.decode(own), log_offset=message.log_offset)
    return message, handle, (handle.topic_kind or _kind_of(message.topic), message.queue_id)


def _shared_by_most(handles: Sequence[ReceiptHandle]) -> _Shared:
    shared = [_shared_of(handle) for handle in handles]
    if shared.count(shared[0]) == len(shared):
        return shared[0]
    return Counter(shared).most_common(1)[0][0]


def _numbers(shared: _Shared, rest_count: int) -> dict[str, str]:
    popped_ms, invisible_ms, revive_queue = map(str, shared)
    return {"popTime": popped_ms, "invisibleTime": invisible_ms, "reviveQid": revive_queue, "restNum": str(rest_count)}


def _shared_of(handle: ReceiptHandle) -> _Shared:
    return handle.pop_time_ms, handle.invisible_ms, handle.revive_queue


def _kind_of(topic: str) -> int:
    """The kind of a topic as clients see it by the name in the record."""
    if not topic.startswith(RETRY_PREFIX):
        return _NORMAL
    return _RETRY_V2 if "+" in topic else _RETRY


def _malformed_error(what: str) -> MessageRefused:
    return MessageRefused("MESSAGE_MALFORMED", f"The answer to a pop cannot be read: it has {what}.")


def pop_fields(request: PopRequest) -> dict[str, str]:
    """The fields of the request, but for those of its place."""
    return {
        "consumerGroup": request.group,
        "invisibleTime": str(request.invisible_ms),
        "maxMsgNums": str(request.max_messages),
        "expressionType": request.filter.kind.value,
        "subscription": request.filter.expression,
        "attemptId": request.attempt_id,
        "order": "true" if request.in_order else "false",
    }


def parse_pop(command: RemotingCommand) -> PopRequest:
    """The pop of such a request; MESSAGE_MALFORMED where a field is missing, ILLEGAL_FILTER."""
    ext = command.ext
    return PopRequest(
        group=text(ext, "consumerGroup"),
        topic=text(ext, "topic"),
        invisible_ms=integer(ext, "invisibleTime"),
        queue_id=integer(ext, "queueId"),
        max_messages=integer(ext, "maxMsgNums"),
        filter=parse_filter(ext.get("expressionType", ""), ext.get("subscription", "")),
        attempt_id=ext.get("attemptId", ""),
        in_order=ext.get("order") == "true",
    )


def pop_answer(command: RemotingCommand, taken: Sequence[PoppedMessage], is_consumed: bool) -> RemotingCommand:
    """The answer to it."""
    ext = {
        "deliveries": ";".join(f"{one.delivery_attempt} {one.handle.encode()}" for one in taken),
        "consumed": "true" if is_consumed else "false",
    }
    return command.response(ext=ext, body_parts=tuple(record_of(one.message) for one in taken))


def popped_messages(answer: RemotingCommand) -> tuple[list[PoppedMessage], bool]:
    """The deliveries of such an answer, and whether the group has consumed the queue."""
    deliveries = [item.partition(" ") for item in answer.ext.get("deliveries", "").split(";") if item]
    found = [
        PoppedMessage(decode_record(record), ReceiptHandle.decode(handle), int(attempt))
        for record, (attempt, _, handle) in zip(iterate_records(answer.body), deliveries, strict=True)
    ]
    return found, answer.ext.get("consumed") == "true"
