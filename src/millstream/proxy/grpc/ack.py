"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: what becomes of a delivery."""

from __future__ import annotations

import asyncio
import logging

from millstream.model.errors import MillstreamError
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.call import GrpcCall
from millstream.proxy.grpc.duration import duration_ms
from millstream.proxy.grpc.status import OK, internal_error, ok, status_of
from millstream.proxy.processor import Processor

__all__ = ["AckHandlers"]

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
