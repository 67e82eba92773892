"""SendMessage."""

from __future__ import annotations

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
        submissions = [submission(message, call) for message in request.messages[:]]
        receipts = await self._processor.send(submissions)
        response = m.SendMessageResponse()
        response.status.CopyFrom(OK)
        add = response.entries.add
        for sent, receipt in zip(submissions, receipts, strict=True):
            # Field by field: keywords cost as much as the values.
            entry, message_id = add(), sent.message_id
            entry.status.CopyFrom(OK)
            entry.message_id = message_id
            entry.transaction_id = message_id
            entry.offset = receipt.queue_offset
            if receipt.due_ms is not None:
                # Only a message that waits can be recalled.
                handle = RecallHandle(sent.message.topic, receipt.broker_name, receipt.due_ms, message_id)
                entry.recall_handle = handle.encode()
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
