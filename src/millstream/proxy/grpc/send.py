"""SendMessage."""

from __future__ import annotations

from millstream.model.operations import SendReceipt
from millstream.model.recall import RecallHandle
from millstream.model.transaction import Resolution
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.call import Call
from millstream.proxy.grpc.convert import submission
from millstream.proxy.grpc.status import OK, ok
from millstream.proxy.processor import Processor

__all__ = ["SendHandlers"]

_RESOLUTIONS = {m.COMMIT: Resolution.COMMIT, m.ROLLBACK: Resolution.ROLLBACK}


class SendHandlers:
    """Messages of producers into the log."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def send_message(self, call: Call, request: m.SendMessageRequest) -> m.SendMessageResponse:
        """One entry per message, with the id that the producer gave it (also as its transaction id)."""
        receipts = await self._processor.send([submission(message, call) for message in request.messages])
        response = m.SendMessageResponse(status=OK)
        for message, receipt in zip(request.messages, receipts, strict=True):
            message_id = message.system_properties.message_id
            response.entries.add(
                status=OK,
                message_id=message_id,
                transaction_id=message_id,
                offset=receipt.queue_offset,
                recall_handle="" if receipt.due_ms is None else _recall_handle(message, receipt.due_ms, receipt),
            )
        return response

    async def recall_message(self, call: Call, request: m.RecallMessageRequest) -> m.RecallMessageResponse:
        """Take a delayed message back, so that it is never delivered."""
        message_id = await self._processor.recall(request.topic.name, request.recall_handle)
        return m.RecallMessageResponse(status=ok(), message_id=message_id)

    async def end_transaction(self, call: Call, request: m.EndTransactionRequest) -> m.EndTransactionResponse:
        """Commit or roll back; a resolution that says nothing leaves the transaction pending."""
        resolution = _RESOLUTIONS.get(request.resolution, Resolution.UNKNOWN)
        await self._processor.end_transaction(
            request.topic.name,
            request.message_id,
            request.transaction_id,
            resolution,
            was_asked=request.source == m.SOURCE_SERVER_CHECK,
        )
        return m.EndTransactionResponse(status=ok())


def _recall_handle(message: m.Message, due_ms: int, receipt: SendReceipt) -> str:
    """Only a message that waits can be recalled."""
    handle = RecallHandle(message.topic.name, receipt.broker_name, due_ms, message.system_properties.message_id)
    return handle.encode()
