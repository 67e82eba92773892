"""A pop that one broker asks of another (code 9121), for a physical queue that became part of its logic queue.

Fields: consumerGroup, topic, queueId, invisibleTime, maxMsgNums, expressionType, subscription, attemptId. The answer
has the records end to end, their receipt handles and attempts in the field `deliveries` (`attempt handle`, separated by
`;`), and `consumed` where the group has nothing more to take there.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.model.filter_expression import parse_filter
from millstream.model.operations import PoppedMessage, PopRequest
from millstream.model.receipt import ReceiptHandle
from millstream.protocol.batches import record_of
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, text

__all__ = ["parse_pop", "pop_answer", "pop_fields", "popped_messages"]


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
    told = [item.partition(" ") for item in answer.ext.get("deliveries", "").split(";") if item]
    found = [
        PoppedMessage(decode_record(record), ReceiptHandle.decode(handle), int(attempt))
        for record, (attempt, _, handle) in zip(iterate_records(answer.body), told, strict=True)
    ]
    return found, answer.ext.get("consumed") == "true"
