"""Handlers for consumers: receive, pull, offsets, and settlement of deliveries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Sequence
from functools import partial

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.model.group import GroupConfig
from millstream.model.message import StoredMessage
from millstream.model.operations import PoppedMessage, QueuePoint
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.call import GrpcCall
from millstream.proxy.grpc.late_frame import LateFrame
from millstream.proxy.grpc.message_conversion import duration_ms, message_filter, timestamp_ms
from millstream.proxy.grpc.message_encoder import MAX_UNPACKED_BYTES, MessageEncoder, end_frame, light_body, message_of
from millstream.proxy.grpc.status import OK, internal_error, ok, status_of
from millstream.proxy.processor import Processor, ReceiveRequest
from millstream.proxy.pulls import ClientQueue, Pull, PulledMessages, Pulls

__all__ = [
    "ANSWER_MARGIN_S",
    "MAX_POLLING_S",
    "MIN_PUSH_POLLING_S",
    "SOMETHING",
    "AckHandlers",
    "GrpcPullHandlers",
    "ReceiveHandlers",
    "polling_ms",
]


MAX_POLLING_S = 20.0
"""A receive waits for messages for so long at most."""

MIN_PUSH_POLLING_S = 5.0
"""A push consumer's receive waits for so long at least: it polls again at once after an empty answer."""

ANSWER_MARGIN_S = 0.5
"""Time kept for the answer before the call's deadline; a late one makes clients pause for a second."""

SOMETHING = m.ReceiveMessageResponse(status=OK)
_NOTHING = m.ReceiveMessageResponse(status=m.Status(code=m.MESSAGE_NOT_FOUND, message="No new message."))


def polling_ms(asked_ms: int | None, deadline_s: float | None, *, push: bool) -> int:
    """How long a receive may wait. Without a wish it is all that the deadline leaves.

    ILLEGAL_POLLING_TIME where the deadline leaves less than a push consumer needs, or nothing at all.
    """
    left_s = MAX_POLLING_S if deadline_s is None else deadline_s - ANSWER_MARGIN_S
    least_s = MIN_PUSH_POLLING_S if push else 0.0
    if left_s < least_s:
        raise ConsumeRefused("ILLEGAL_POLLING_TIME", f"The deadline in {deadline_s:.3f} s is too near to wait.")
    asked_s = left_s if asked_ms is None else asked_ms / 1000
    return int(min(max(asked_s, least_s), MAX_POLLING_S, left_s) * 1000)


class ReceiveHandlers:
    """Messages out of the log, hidden from other consumers of the group."""

    def __init__(self, processor: Processor, clock: Clock) -> None:
        self._processor = processor
        self._clock = clock

    async def receive_message(
        self, call: GrpcCall, request: m.ReceiveMessageRequest
    ) -> Generator[m.ReceiveMessageResponse | bytes | LateFrame, None, None]:
        """The status, the messages, and the time of delivery; only the status MESSAGE_NOT_FOUND where there are none.

        If the caller goes away before the last frame, what was taken for it goes back to the queue.
        """
        group = await self._processor.group(request.group.name)
        wish = _request_of(call, request, group)
        popped = await self._processor.receive(wish)
        return self._frames(wish, popped, MessageEncoder(request.message_queue.topic, call.space))

    def _frames(
        self, wish: ReceiveRequest, popped: Sequence[PoppedMessage], encoder: MessageEncoder
    ) -> Generator[m.ReceiveMessageResponse | bytes | LateFrame, None, None]:
        if not popped:
            yield _NOTHING
            return
        share, is_begun, handed_over = None, False, False
        try:
            bodies = [light_body(one.message) for one in popped]
            # One at a time is made and written.
            late_bytes = MAX_UNPACKED_BYTES if None in bodies else 0
            share = self._processor.answers.begin(wish.client_id, popped, late_bytes)
            is_begun = True
            yield SOMETHING
            for one, body in zip(popped, bodies, strict=True):
                if body is not None:
                    yield encoder.frame(one, body)
                else:
                    yield LateFrame(MAX_UNPACKED_BYTES, partial(encoder.frame, one))
            yield end_frame(self._clock.now_ms())
            handed_over = True
        finally:
            if share is not None:
                self._processor.answers.end(share)
            if not handed_over:
                self._processor.give_back(wish, popped, uncounted=not is_begun)


def _request_of(call: GrpcCall, request: m.ReceiveMessageRequest, group: GroupConfig) -> ReceiveRequest:
    queue, renews = request.message_queue, request.auto_renew
    asked_ms = duration_ms(request.long_polling_timeout) if request.HasField("long_polling_timeout") else None
    queue_id = queue.id if renews and group.fifo else -1
    return ReceiveRequest(
        call.client_id,
        group.name,
        queue.topic.name,
        queue.broker.name,
        None if renews else duration_ms(request.invisible_duration),
        # Other groups take from all queues, whichever one a client names: balance is by message.
        queue_id if queue_id >= 0 else None,
        request.batch_size,
        message_filter(request.filter_expression),
        polling_ms(asked_ms, call.deadline_s, push=renews),
        request.attempt_id,
    )


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


_ENTRIES_PER_TURN = 64
"""Acknowledgements of one request in one turn of the event loop: a long list must not make others wait."""

_MULTIPLE = m.Status(code=m.MULTIPLE_RESULTS, message="See the status of each entry.")
_NO_HANDLE = m.Status(code=m.BAD_REQUEST, message="The request holds no receipt handle.")

_log = logging.getLogger(__name__)


class AckHandlers:
    """Handles are the clients' texts. A dead one answers INVALID_RECEIPT_HANDLE: clients give up on no other code."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def ack_message(self, call: GrpcCall, request: m.AckMessageRequest) -> m.AckMessageResponse:
        """One entry per handle; the status above is theirs if they agree, else MULTIPLE_RESULTS."""
        response = m.AckMessageResponse()
        add = response.entries.add
        group, topic = request.group.name, request.topic.name
        common: m.Status | None = None
        for number, entry in enumerate(request.entries[:], 1):
            handle = entry.receipt_handle
            status = await self._ack(group, topic, handle)
            # Field by field: keywords cost as much as the values.
            result = add()
            result.status.CopyFrom(status)
            result.receipt_handle = handle
            if message_id := entry.message_id:
                result.message_id = message_id
            if common is None:
                common = status
            elif common is not status and common.code != status.code:
                common = _MULTIPLE
            if not number % _ENTRIES_PER_TURN:
                await asyncio.sleep(0)
        response.status.CopyFrom(_NO_HANDLE if common is None else common)
        return response

    async def change_invisible_duration(
        self, call: GrpcCall, request: m.ChangeInvisibleDurationRequest
    ) -> m.ChangeInvisibleDurationResponse:
        """The new handle. A failure carries the old one: the Python client overwrites its handle in any case."""
        try:
            handle = await self._processor.change_invisible(
                request.group.name,
                request.topic.name,
                request.receipt_handle,
                duration_ms(request.invisible_duration),
                suspend=request.suspend,
                in_time=True,
            )
        except MillstreamError as error:
            status = status_of(error, request.topic.name)
            return m.ChangeInvisibleDurationResponse(status=status, receipt_handle=request.receipt_handle)
        return m.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=handle)

    async def forward_message_to_dead_letter_queue(
        self, call: GrpcCall, request: m.ForwardMessageToDeadLetterQueueRequest
    ) -> m.ForwardMessageToDeadLetterQueueResponse:
        """The message is in the group's dead-letter topic, and acknowledged."""
        await self._processor.dead_letter(request.group.name, request.topic.name, request.receipt_handle)
        return m.ForwardMessageToDeadLetterQueueResponse(status=ok())

    async def _ack(self, group: str, topic: str, handle: str) -> m.Status:
        try:
            await self._processor.ack(group, topic, handle, in_time=True)
        except MillstreamError as error:
            return status_of(error, topic)
        except Exception:  # noqa: BLE001 - one entry's failure must not hide what became of the others
            _log.exception("an acknowledgement for group %s failed", group)
            return internal_error()
        return OK
