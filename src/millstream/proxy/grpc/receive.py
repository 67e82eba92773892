"""ReceiveMessage: long polling, and frames in the order that clients need."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused
from millstream.model.group import GroupConfig
from millstream.model.operations import PoppedMessage
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.body import MAX_UNPACKED_BYTES, light_body
from millstream.proxy.grpc.call import GrpcCall
from millstream.proxy.grpc.duration import duration_ms
from millstream.proxy.grpc.filter import message_filter
from millstream.proxy.grpc.late_frame import LateFrame
from millstream.proxy.grpc.message_encoder import MessageEncoder, end_frame
from millstream.proxy.grpc.status import OK
from millstream.proxy.processor import Processor, ReceiveRequest

__all__ = ["ANSWER_MARGIN_S", "MAX_POLLING_S", "MIN_PUSH_POLLING_S", "ReceiveHandlers", "polling_ms"]

MAX_POLLING_S = 20.0
"""A receive waits for messages for so long at most."""

MIN_PUSH_POLLING_S = 5.0
"""A push consumer's receive waits for so long at least: it polls again at once after an empty answer."""

ANSWER_MARGIN_S = 0.5
"""Time kept for the answer before the call's deadline; a late one makes clients pause for a second."""

_SOMETHING = m.ReceiveMessageResponse(status=OK)
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
        share, handed_over = None, False
        try:
            bodies = [light_body(one.message) for one in popped]
            # One at a time is made and written.
            late_bytes = MAX_UNPACKED_BYTES if None in bodies else 0
            share = self._processor.answers.begin(wish.client_id, popped, late_bytes)
            yield _SOMETHING
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
                self._processor.give_back(wish, popped)


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
