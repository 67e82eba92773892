"""SendMessage."""

from __future__ import annotations

from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt
from millstream.model.properties import UNIQUE_KEY
from millstream.model.recall import RecallHandle
from millstream.model.transaction import Resolution
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.wire import VARINTS, bytes_field, tag
from millstream.proxy.grpc.call import Call
from millstream.proxy.grpc.convert import outgoing_message
from millstream.proxy.grpc.status import OK, ok
from millstream.proxy.processor import Processor

__all__ = ["SendHandlers"]

_STATUS = bytes_field(tag(m.SendMessageResponse, "status"), OK.SerializeToString())
_ENTRY = tag(m.SendMessageResponse, "entries")
_ENTRY_STATUS = bytes_field(tag(m.SendResultEntry, "status"), OK.SerializeToString())
_MESSAGE_ID, _TRANSACTION_ID = tag(m.SendResultEntry, "message_id"), tag(m.SendResultEntry, "transaction_id")
_OFFSET, _RECALL = tag(m.SendResultEntry, "offset"), tag(m.SendResultEntry, "recall_handle")
_RESOLUTIONS = {m.COMMIT: Resolution.COMMIT, m.ROLLBACK: Resolution.ROLLBACK}


class SendHandlers:
    """Messages of producers into the log."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def send_message(self, call: Call, request: m.SendMessageRequest) -> bytes:
        """The response in wire format: an entry per message, with its producer's id (also as its transaction id)."""
        messages = [outgoing_message(message, call) for message in request.messages[:]]
        receipts = await self._processor.send(messages)
        parts = [_STATUS]
        for sent, receipt in zip(messages, receipts, strict=True):
            entry = _entry(sent, receipt)
            parts += (_ENTRY, VARINTS[len(entry)], entry)
        return b"".join(parts)

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


def _entry(sent: OutgoingMessage, receipt: SendReceipt) -> bytes:
    """What became of one message, in wire format: every send has one."""
    name, queue_offset = sent.properties[UNIQUE_KEY], receipt.queue_offset
    message_id = name.encode()
    size = VARINTS[len(message_id)]
    known = (_ENTRY_STATUS, _MESSAGE_ID, size, message_id, _TRANSACTION_ID, size, message_id)
    offset = _OFFSET + VARINTS[queue_offset] if queue_offset else b""
    if receipt.due_ms is None:
        return b"".join((*known, offset))
    # Only a message that waits can be recalled.
    handle = RecallHandle(sent.topic, receipt.broker_name, receipt.due_ms, name)
    return b"".join((*known, offset, bytes_field(_RECALL, handle.encode().encode())))
