"""PullMessage, UpdateOffset, GetOffset and QueryOffset: reading queues by offset."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from millstream.model.errors import ConsumeRefused
from millstream.model.message import StoredMessage
from millstream.model.operations import QueuePoint
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.body import MAX_UNPACKED_BYTES, light_body
from millstream.proxy.grpc.call import GrpcCall
from millstream.proxy.grpc.duration import duration_ms, timestamp_ms
from millstream.proxy.grpc.filter import message_filter
from millstream.proxy.grpc.late_frame import LateFrame
from millstream.proxy.grpc.message_encoder import message_of
from millstream.proxy.grpc.receive import polling_ms
from millstream.proxy.grpc.status import ok, status_of
from millstream.proxy.pulls import ClientQueue, Pull, PulledMessages, Pulls

__all__ = ["GrpcPullHandlers"]

_POINTS = {m.BEGINNING: QueuePoint.FIRST, m.END: QueuePoint.LAST, m.TIMESTAMP: QueuePoint.TIME}


class GrpcPullHandlers:
    """The reference proxy does not offer these; their meaning follows the service's definition."""

    def __init__(self, pulls: Pulls) -> None:
        self._pulls = pulls

    async def pull_message(
        self, call: GrpcCall, request: m.PullMessageRequest
    ) -> Generator[m.PullMessageResponse | LateFrame, None, None]:
        """The status, the messages, and the offset to go on at, which is there in every answer but a refusal.

        MESSAGE_NOT_FOUND where nothing came in time, ILLEGAL_OFFSET where the queue has no such offset: then the next
        one is the nearest that it has.
        """
        asked_ms = duration_ms(request.long_polling_timeout) if request.HasField("long_polling_timeout") else None
        wish = Pull(
            group=request.group.name,
            queue=_queue(request.message_queue),
            offset=request.offset,
            max_messages=request.batch_size,
            filter=message_filter(request.filter_expression),
            wait_ms=polling_ms(asked_ms, call.deadline_s, push=False),
        )
        return _frames(wish, await self._pulls.pull(wish), request.message_queue.topic)

    async def update_offset(self, call: GrpcCall, request: m.UpdateOffsetRequest) -> m.UpdateOffsetResponse:
        """The group's offset is kept: on the disk within seconds."""
        await self._pulls.update_offset(request.group.name, _queue(request.message_queue), request.offset)
        return m.UpdateOffsetResponse(status=ok())

    async def get_offset(self, call: GrpcCall, request: m.GetOffsetRequest) -> m.GetOffsetResponse:
        """The group's offset; OFFSET_NOT_FOUND where it has none."""
        offset = await self._pulls.get_offset(request.group.name, _queue(request.message_queue))
        return m.GetOffsetResponse(status=ok(), offset=offset)

    async def query_offset(self, call: GrpcCall, request: m.QueryOffsetRequest) -> m.QueryOffsetResponse:
        """The first offset, the one behind the last, or the first that was stored at a time or later."""
        point = _POINTS.get(request.query_offset_policy)
        if point is None or (point is QueuePoint.TIME and not request.HasField("timestamp")):
            words = f"The policy {request.query_offset_policy} is unknown, or lacks its timestamp."
            raise ConsumeRefused("ILLEGAL_OFFSET", words, remedy="Ask for the beginning, the end, or a timestamp.")
        time_ms = timestamp_ms(request.timestamp)
        offset = await self._pulls.query_offset(_queue(request.message_queue), point, time_ms)
        return m.QueryOffsetResponse(status=ok(), offset=offset)


def _queue(named: m.MessageQueue) -> ClientQueue:
    return ClientQueue(named.broker.name, named.topic.name, named.id)


def _frames(
    wish: Pull, pulled: PulledMessages, topic: m.Resource
) -> Generator[m.PullMessageResponse | LateFrame, None, None]:
    if not pulled.offset_is_legal:
        words = f"Queue {wish.queue.queue_id} of {wish.queue.topic!r} does not have the offset {wish.offset}."
        status = status_of(ConsumeRefused("ILLEGAL_OFFSET", words))
    elif pulled.messages:
        status = ok()
    else:
        status = m.Status(code=m.MESSAGE_NOT_FOUND, message="No new message.")
    yield m.PullMessageResponse(status=status)
    for message in pulled.messages:
        body = light_body(message)
        if body is not None:
            yield _frame(message, topic, body)
        else:
            yield LateFrame(MAX_UNPACKED_BYTES, partial(_frame, message, topic))
    yield m.PullMessageResponse(next_offset=pulled.next_offset)


def _frame(message: StoredMessage, topic: m.Resource, body: bytes | None = None) -> m.PullMessageResponse:
    return m.PullMessageResponse(message=message_of(message, topic, body))
