"""The server's commands and the clients' answers between the service's form and the domain's."""

from __future__ import annotations

from millstream.model.commands import (
    NotifyUnsubscribeLite,
    PrintThreadStackTrace,
    ReconnectEndpoints,
    RecoverOrphanedTransaction,
    ServerCommand,
    VerifyMessage,
    VerifyOutcome,
)
from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.model.message import StoredMessage
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.message_encoder import shown

__all__ = ["answer_of", "telemetry_command"]

_OUTCOMES = {
    m.OK: VerifyOutcome.CONSUMED,
    m.FAILED_TO_CONSUME_MESSAGE: VerifyOutcome.FAILED,
    m.MESSAGE_CORRUPTED: VerifyOutcome.CORRUPTED,
    m.VERIFY_FIFO_MESSAGE_UNSUPPORTED: VerifyOutcome.NOT_SUPPORTED,
    m.NOT_IMPLEMENTED: VerifyOutcome.NOT_SUPPORTED,
}


def telemetry_command(command: ServerCommand) -> m.TelemetryCommand:
    """The command as a client reads it."""
    match command:
        case RecoverOrphanedTransaction(stored, transaction_id):
            asked = m.RecoverOrphanedTransactionCommand(message=_message(stored), transaction_id=transaction_id)
            return m.TelemetryCommand(recover_orphaned_transaction_command=asked)
        case PrintThreadStackTrace(nonce):
            return m.TelemetryCommand(print_thread_stack_trace_command=m.PrintThreadStackTraceCommand(nonce=nonce))
        case VerifyMessage(nonce, stored):
            trial = m.VerifyMessageCommand(nonce=nonce, message=_message(stored))
            return m.TelemetryCommand(verify_message_command=trial)
        case ReconnectEndpoints(nonce):
            return m.TelemetryCommand(reconnect_endpoints_command=m.ReconnectEndpointsCommand(nonce=nonce))
        case NotifyUnsubscribeLite(lite_topic):
            notice = m.NotifyUnsubscribeLiteCommand(lite_topic=lite_topic)
            return m.TelemetryCommand(notify_unsubscribe_lite_command=notice)


def answer_of(command: m.TelemetryCommand) -> tuple[str, object | MillstreamError] | None:
    """The nonce and the answer to a question, an error where the client does not tell; None for other commands."""
    match command.WhichOneof("command"):
        case "thread_stack_trace":
            trace = command.thread_stack_trace
            if trace.HasField("thread_stack_trace"):
                return trace.nonce, trace.thread_stack_trace
            return trace.nonce, _refused(command)
        case "verify_message_result":
            outcome = _OUTCOMES.get(command.status.code)
            return command.verify_message_result.nonce, outcome or _refused(command)
    return None


def _message(stored: StoredMessage) -> m.Message:
    return shown(stored, m.Resource(name=stored.topic))


def _refused(command: m.TelemetryCommand) -> ConsumeRefused:
    words = command.status.message[:200] or "no reason"
    return ConsumeRefused("UNSUPPORTED_FEATURE", f"The client answers with status {command.status.code}: {words}.")
