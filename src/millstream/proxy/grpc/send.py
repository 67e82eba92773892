"""SendMessage."""

from __future__ import annotations

from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.call import Call
from millstream.proxy.grpc.convert import submission
from millstream.proxy.grpc.status import ok
from millstream.proxy.processor import Processor

__all__ = ["SendHandlers"]


class SendHandlers:
    """Messages of producers into the log."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def send_message(self, call: Call, request: m.SendMessageRequest) -> m.SendMessageResponse:
        """One entry per message, with the id that the producer gave it (also as its transaction id)."""
        receipts = await self._processor.send([submission(message, call) for message in request.messages])
        entries = [
            m.SendResultEntry(
                status=ok(),
                message_id=message.system_properties.message_id,
                transaction_id=message.system_properties.message_id,
                offset=receipt.queue_offset,
            )
            for message, receipt in zip(request.messages, receipts, strict=True)
        ]
        return m.SendMessageResponse(status=ok(), entries=entries)
