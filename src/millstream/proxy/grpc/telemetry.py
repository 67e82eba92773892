"""Client lifecycle: telemetry streams, heartbeats and termination.

The server's commands and the clients' answers between the service's form and the domain's.

The settings that a client gets back: its own, with what the server decides written over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from millstream.model.commands import (
    NotifyUnsubscribeLite,
    PrintThreadStackTrace,
    ReconnectEndpoints,
    RecoverOrphanedTransaction,
    ServerCommand,
    VerifyMessage,
    VerifyOutcome,
)
from millstream.model.errors import ConsumeRefused, MessageRefused, MillstreamError
from millstream.model.group import GroupConfig
from millstream.model.lite import MAX_LITE_SUBSCRIPTIONS, MAX_LITE_TOPIC_CHARACTERS
from millstream.model.message import MAX_BODY_BYTES, StoredMessage
from millstream.protocol.grpc import messages as m
from millstream.proxy.clients import MAX_NAMES_PER_CLIENT, PRODUCER
from millstream.proxy.grpc.call import GrpcCall
from millstream.proxy.grpc.message_conversion import message_filter
from millstream.proxy.grpc.message_encoder import message_of
from millstream.proxy.grpc.status import ok
from millstream.proxy.processor import MAX_RECEIVE_MESSAGES, Processor

__all__ = [
    "TelemetryHandlers",
    "answer_of",
    "check_role",
    "consumer_settings",
    "producer_settings",
    "telemetry_command",
]

_PRODUCER_ATTEMPTS = 3
_PRODUCER_INITIAL_MS = 10
_PRODUCER_LONGEST_MS = 1000
_PRODUCER_MULTIPLIER = 2.0
_LONG_POLLING_S = 20
_LITE_CONSUMERS = (m.LITE_PUSH_CONSUMER, m.LITE_SIMPLE_CONSUMER)


def check_role(client_id: str, asked: m.Settings) -> None:
    """Refuse settings that name neither a producer nor a consumer, or too many topics."""
    named = len(asked.publishing.topics) + len(asked.subscription.subscriptions)
    if named > MAX_NAMES_PER_CLIENT:
        raise MessageRefused(
            "REQUEST_TOO_LARGE", f"The settings name {named} topics; the limit is {MAX_NAMES_PER_CLIENT}."
        )
    if asked.WhichOneof("pub_sub") is None:
        raise ConsumeRefused(
            "UNSUPPORTED_CLIENT_TYPE", f"The settings of {client_id} have no publishing or subscription."
        )


def producer_settings(asked: m.Settings) -> m.Settings:
    """For a producer. The backoff must be exponential: Java's and Node's clients take no other."""
    settings = _copy(asked)
    settings.publishing.max_body_size = MAX_BODY_BYTES
    settings.publishing.validate_message_type = True
    policy = settings.backoff_policy
    policy.max_attempts = _PRODUCER_ATTEMPTS
    policy.exponential_backoff.initial.FromMilliseconds(_PRODUCER_INITIAL_MS)
    policy.exponential_backoff.max.FromMilliseconds(_PRODUCER_LONGEST_MS)
    policy.exponential_backoff.multiplier = _PRODUCER_MULTIPLIER
    return settings


def consumer_settings(asked: m.Settings, group: GroupConfig) -> m.Settings:
    """For a consumer of `group`. Every field is set: clients take 0 for what is missing, and poll without pause."""
    settings = _copy(asked)
    settings.subscription.fifo = group.fifo
    settings.subscription.receive_batch_size = MAX_RECEIVE_MESSAGES
    settings.subscription.long_polling_timeout.FromSeconds(_LONG_POLLING_S)
    if settings.client_type in _LITE_CONSUMERS:
        settings.subscription.lite_subscription_quota = MAX_LITE_SUBSCRIPTIONS
        settings.subscription.max_lite_topic_size = MAX_LITE_TOPIC_CHARACTERS
    policy = settings.backoff_policy
    policy.max_attempts = group.max_attempts
    curve = group.exponential
    if curve is None:
        for step_s in group.backoff_s:
            policy.customized_backoff.next.add().FromSeconds(step_s)
    else:
        policy.exponential_backoff.initial.FromMilliseconds(curve.initial_ms)
        policy.exponential_backoff.max.FromMilliseconds(curve.longest_ms)
        policy.exponential_backoff.multiplier = curve.multiplier
    return settings


def _copy(asked: m.Settings) -> m.Settings:
    settings = m.Settings()
    settings.CopyFrom(asked)
    settings.ClearField("backoff_policy")
    settings.metric.on = False
    return settings


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
            return trace.nonce, _refusal_of(command)
        case "verify_message_result":
            outcome = _OUTCOMES.get(command.status.code)
            return command.verify_message_result.nonce, outcome or _refusal_of(command)
    return None


def _message(stored: StoredMessage) -> m.Message:
    return message_of(stored, m.Resource(name=stored.topic))


def _refusal_of(command: m.TelemetryCommand) -> ConsumeRefused:
    words = command.status.message[:200] or "no reason"
    return ConsumeRefused("UNSUPPORTED_FEATURE", f"The client answers with status {command.status.code}: {words}.")


_MAX_VERSION_CHARACTERS = 64


class TelemetryHandlers:
    """One telemetry stream per client and endpoints; it stays open as long as the client lives."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def telemetry(
        self, call: GrpcCall, requests: AsyncIterator[m.TelemetryCommand]
    ) -> AsyncGenerator[m.TelemetryCommand, None]:
        """Answers each settings command with the settings that hold, and says what the outbox has in between.

        Raises the refusal of settings that name no role, or a group or a filter that is not legal. A client that does
        not read its stream is not read either.
        """
        outbox = self._processor.stream_opened(call.client_id)
        reading = asyncio.create_task(_next(requests))
        telling = asyncio.create_task(outbox.first())
        try:
            while True:
                await asyncio.wait((reading, telling), return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    command = reading.result()
                    if command is None:
                        return
                    answer = await self._answer_command(call, command)
                    if answer is not None:
                        yield answer
                    reading = asyncio.create_task(_next(requests))
                if telling.done():
                    yield telemetry_command(telling.result())
                    outbox.note_sent()
                    telling = asyncio.create_task(outbox.first())
        finally:
            reading.cancel()
            telling.cancel()
            await asyncio.gather(reading, telling, return_exceptions=True)
            self._processor.stream_closed(call.client_id, outbox)

    async def _answer_command(self, call: GrpcCall, command: m.TelemetryCommand) -> m.TelemetryCommand | None:
        """The answer to a client's command, if it wants one."""
        self._processor.note_alive(call.client_id)
        if command.WhichOneof("command") == "settings":
            return m.TelemetryCommand(status=ok(), settings=await self._answer(call, command.settings))
        answer = answer_of(command)
        if answer is not None:
            self._processor.note_answer(call.client_id, *answer)
        return None

    async def heartbeat(self, call: GrpcCall, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
        """The client lives. One that is unknown, as after a restart of the server, is welcome.

        What it said of itself in its settings holds: some clients name no type here.
        """
        group = request.group.name if request.HasField("group") else ""
        record = self._processor.clients.find(call.client_id)
        kind = "" if record is not None and record.kind else _kind(request.client_type)
        self._processor.declare(call.client_id, kind, group=group)
        return m.HeartbeatResponse(status=ok())

    async def notify_client_termination(
        self, call: GrpcCall, request: m.NotifyClientTerminationRequest
    ) -> m.NotifyClientTerminationResponse:
        """The client ends; what it holds goes back."""
        group = request.group.name if request.HasField("group") else None
        await self._processor.terminate(call.client_id, group)
        return m.NotifyClientTerminationResponse(status=ok())

    async def _answer(self, call: GrpcCall, asked: m.Settings) -> m.Settings:
        check_role(call.client_id, asked)
        if asked.WhichOneof("pub_sub") == "publishing":
            topics = [topic.name for topic in asked.publishing.topics]
            self._processor.declare(call.client_id, PRODUCER, topics=topics)
            self._processor.clients.name_agent(call.client_id, *_agent(asked.user_agent))
            return producer_settings(asked)
        for entry in asked.subscription.subscriptions:
            message_filter(entry.expression)
        topics = [entry.topic.name for entry in asked.subscription.subscriptions]
        group = await self._processor.group(asked.subscription.group.name)
        self._processor.declare(call.client_id, _kind(asked.client_type), group=group.name, topics=topics)
        self._processor.clients.name_agent(call.client_id, *_agent(asked.user_agent))
        return consumer_settings(asked, group)


async def _next(requests: AsyncIterator[m.TelemetryCommand]) -> m.TelemetryCommand | None:
    return await anext(requests, None)


def _agent(told: m.UA) -> tuple[str, str]:
    """The client's language and version, as far as they can be told; a version may be any text."""
    named = m.Language.DESCRIPTOR.values_by_number.get(told.language)
    language = named.name.lower() if named and told.language else ""
    return language, told.version[:_MAX_VERSION_CHARACTERS]


def _kind(client_type: m.ClientType) -> str:
    """The name of the type; blank where the client named none."""
    if client_type == m.CLIENT_TYPE_UNSPECIFIED:
        return ""
    # A number that this release does not know is kept as text: it is told to people only.
    named = m.ClientType.DESCRIPTOR.values_by_number.get(client_type)
    return named.name if named else str(client_type)
