"""The service's methods as transport-independent handlers: metadata, request and deadline in, response out.

This is the edge: what a handler raises becomes a status in the response, and unforeseen errors go to the log only.

Answers before the caller's deadline, for a proxy whose brokers may not answer at all.

SyncLiteSubscription: which lite topics a client reads.

SendMessage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing
from enum import Enum
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConsumeRefused, MillstreamError, Refused, TimedOut
from millstream.model.handles import RecallHandle
from millstream.model.lite import LiteAction, LiteStart, LiteStartKind, LiteSync
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import Resolution, SendReceipt
from millstream.model.properties import UNIQUE_KEY
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS, Method
from millstream.protocol.grpc.wire import VARINTS, bytes_field, tag
from millstream.proxy.grpc.call import GrpcCall, GrpcGate
from millstream.proxy.grpc.consume_handlers import AckHandlers, GrpcPullHandlers, ReceiveHandlers
from millstream.proxy.grpc.late_frame import LateFrame
from millstream.proxy.grpc.message_conversion import outgoing_message
from millstream.proxy.grpc.namespace import NAMESPACE_HEADER, NO_NAMESPACE, Namespace
from millstream.proxy.grpc.route import Advertised, GrpcRouteHandlers
from millstream.proxy.grpc.status import OK, internal_error, ok, status_of, topic_of
from millstream.proxy.grpc.telemetry import TelemetryHandlers
from millstream.proxy.processor import Processor
from millstream.proxy.throttle import Caller
from millstream.security.guard import Guard

__all__ = [
    "MARGIN_S",
    "GrpcSendHandlers",
    "LiteHandlers",
    "MessagingAdapter",
    "Reason",
    "StreamEnded",
    "in_time",
]

_STATUS = bytes_field(tag(m.SendMessageResponse, "status"), OK.SerializeToString())
_ENTRY = tag(m.SendMessageResponse, "entries")
_ENTRY_STATUS = bytes_field(tag(m.SendResultEntry, "status"), OK.SerializeToString())
_MESSAGE_ID, _TRANSACTION_ID = tag(m.SendResultEntry, "message_id"), tag(m.SendResultEntry, "transaction_id")
_OFFSET, _RECALL = tag(m.SendResultEntry, "offset"), tag(m.SendResultEntry, "recall_handle")
_RESOLUTIONS = {m.COMMIT: Resolution.COMMIT, m.ROLLBACK: Resolution.ROLLBACK}


class GrpcSendHandlers:
    """Messages of producers into the log."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def send_message(self, call: GrpcCall, request: m.SendMessageRequest) -> bytes:
        """The response in wire format: an entry per message, with its producer's id (also as its transaction id)."""
        messages = [outgoing_message(message, call) for message in request.messages[:]]
        receipts = await self._processor.send(messages)
        parts = [_STATUS]
        for sent, receipt in zip(messages, receipts, strict=True):
            entry = _entry(sent, receipt)
            parts += (_ENTRY, VARINTS[len(entry)], entry)
        return b"".join(parts)

    async def recall_message(self, call: GrpcCall, request: m.RecallMessageRequest) -> m.RecallMessageResponse:
        """Take a delayed message back, so that it is never delivered."""
        message_id = await self._processor.recall(request.topic.name, request.recall_handle)
        return m.RecallMessageResponse(status=ok(), message_id=message_id)

    async def end_transaction(self, call: GrpcCall, request: m.EndTransactionRequest) -> m.EndTransactionResponse:
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


_POLICIES = {
    m.OffsetOption.LAST: LiteStartKind.LAST,
    m.OffsetOption.MIN: LiteStartKind.MIN,
    m.OffsetOption.MAX: LiteStartKind.MAX,
}
_ACTIONS = {action.value: action for action in LiteAction}


class LiteHandlers:
    """Subscriptions of lite consumers: each change at once, and all of them every 30 s."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def sync_lite_subscription(
        self, call: GrpcCall, request: m.SyncLiteSubscriptionRequest
    ) -> m.SyncLiteSubscriptionResponse:
        """The subscriptions are as the client says."""
        action = _ACTIONS.get(request.action)
        if action is None:
            raise ConsumeRefused("UNSUPPORTED_FEATURE", f"The action {request.action} is unknown.")
        await self._processor.sync_lite_subscription(
            LiteSync(
                client_id=call.client_id,
                group=request.group.name,
                topic=request.topic.name,
                action=action,
                lite_topics=tuple(request.lite_topic_set),
                start=_start(request.offset_option),
            )
        )
        return m.SyncLiteSubscriptionResponse(status=ok())


def _start(option: m.OffsetOption) -> LiteStart:
    kind = option.WhichOneof("offset_type")
    if kind == "offset":
        return LiteStart(LiteStartKind.OFFSET, option.offset)
    if kind == "tail_n":
        return LiteStart(LiteStartKind.TAIL, option.tail_n)
    if kind == "timestamp":
        return LiteStart(LiteStartKind.TIME, option.timestamp)
    return LiteStart(_POLICIES.get(option.policy, LiteStartKind.LAST))


MARGIN_S: Final = 0.25
"""Seconds before its deadline at which a call is answered with TIMED_OUT, so that its client hears why."""

_T = TypeVar("_T")


def in_time(handler: Callable[[GrpcCall, Any], Awaitable[_T]]) -> Callable[[GrpcCall, Any], Awaitable[_T]]:
    """The handler, which raises TimedOut shortly before the call's deadline."""

    async def answer(call: GrpcCall, request: Any) -> _T:
        if call.deadline_s is None:
            return await handler(call, request)
        try:
            async with asyncio.timeout(call.deadline_s - MARGIN_S) as limit:
                return await handler(call, request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(f"No broker answered within {call.deadline_s:.3g} s, the call's deadline.") from None

    return answer


_OK = int(m.OK)
_THROTTLED = frozenset(("SendMessage", "ReceiveMessage", "PullMessage"))
_log = logging.getLogger(__name__)

Metadata = Mapping[str, str]
Answer = Message | bytes
"""A response or one frame of it. Bytes are in wire format: of a success, with the names that the client knows."""

Unary = Callable[[GrpcCall, Any], Awaitable[Answer]]
Frames = Generator[Answer | LateFrame, None, None]
Streaming = Callable[[GrpcCall, Any], Awaitable[Frames]]


class Reason(Enum):
    """Why a stream cannot go on: the client's words, who it is, a limit, or a failure of the server."""

    REFUSED = "refused"
    UNKNOWN_CALLER = "unknown caller"
    FORBIDDEN = "forbidden"
    BUSY = "busy"
    FAILED = "failed"


_REASONS = {
    m.TOO_MANY_REQUESTS: Reason.BUSY,
    m.UNAUTHORIZED: Reason.UNKNOWN_CALLER,
    m.FORBIDDEN: Reason.FORBIDDEN,
}


class StreamEnded(Exception):
    """A telemetry stream cannot go on; the text is the client's to read."""

    def __init__(self, text: str, reason: Reason) -> None:
        super().__init__(text)
        self.reason = reason


class MessagingAdapter:
    """The service over a processor; `advertised` is what routes tell clients to dial, `guard` the access control.

    With `keeps_deadlines` every call is answered before its deadline, whatever the processor waits for.
    """

    def __init__(
        self,
        processor: Processor,
        advertised: Advertised,
        *,
        clock: Clock | None = None,
        guard: Guard | None = None,
        keeps_deadlines: bool = False,
    ) -> None:
        self._processor = processor
        self._gate = GrpcGate(guard)
        self._clock = clock or SystemClock()
        routes = GrpcRouteHandlers(processor, advertised)
        acks = AckHandlers(processor)
        sends = GrpcSendHandlers(processor)
        pulls = GrpcPullHandlers(processor.pulls)
        telemetry = TelemetryHandlers(processor)
        self._telemetry = telemetry.telemetry
        self._unary: dict[str, Unary] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "Heartbeat": telemetry.heartbeat,
            "NotifyClientTermination": telemetry.notify_client_termination,
            "SendMessage": sends.send_message,
            "RecallMessage": sends.recall_message,
            "EndTransaction": sends.end_transaction,
            "AckMessage": acks.ack_message,
            "ChangeInvisibleDuration": acks.change_invisible_duration,
            "ForwardMessageToDeadLetterQueue": acks.forward_message_to_dead_letter_queue,
            "UpdateOffset": pulls.update_offset,
            "GetOffset": pulls.get_offset,
            "QueryOffset": pulls.query_offset,
        }
        self._unary["SyncLiteSubscription"] = LiteHandlers(processor).sync_lite_subscription
        self._streaming: dict[str, Streaming] = {
            "PullMessage": pulls.pull_message,
            "ReceiveMessage": ReceiveHandlers(processor, self._clock).receive_message,
        }
        if keeps_deadlines:
            self._unary = {name: in_time(handler) for name, handler in self._unary.items()}
            self._streaming = {name: in_time(handler) for name, handler in self._streaming.items()}

    async def unary(self, name: str, metadata: Metadata, request: Message, deadline_s: float | None) -> Answer:
        """The response of a method that answers once; its status tells of failures."""
        arrived_s = self._clock.monotonic_s()
        response: Answer
        space = NO_NAMESPACE
        try:
            handler = self._unary.get(name)
            if handler is None:
                raise _not_offered(name)
            call = self._let_in(name, metadata, request, deadline_s, arrived_s)
            space = call.space
            response = await handler(call, request)
            if not isinstance(response, bytes):
                space.leave(response)
        except Exception as error:  # noqa: BLE001 - the edge of one call
            response = _refusal(error, name, request, space)
        self._note(name, response, arrived_s)
        return response

    async def streaming(self, name: str, metadata: Metadata, request: Message, deadline_s: float | None) -> Frames:
        """The frames of a method that answers with many; the first, or after a failure the last, holds a status.

        The caller closes them, whether or not it has read all: what was taken for it and not read goes back then.
        """
        arrived_s = self._clock.monotonic_s()
        space = NO_NAMESPACE
        try:
            handler = self._streaming.get(name)
            if handler is None:
                raise _not_offered(name)
            call = self._let_in(name, metadata, request, deadline_s, arrived_s)
            space = call.space
            frames = await handler(call, request)
        except Exception as error:  # noqa: BLE001 - the edge of one call
            refusal = _refusal(error, name, request, space)
            self._note(name, refusal, arrived_s)
            return _only(refusal)
        return self._encode_frames(name, request, frames, space, arrived_s)

    def _encode_frames(
        self, name: str, request: Message, frames: Frames, space: Namespace, arrived_s: float | None
    ) -> Frames:
        """The frames as the client reads them; a failure while they are made is the last one."""
        try:
            for frame in frames:
                if arrived_s is not None:
                    self._note(name, frame, arrived_s)
                    arrived_s = None
                if isinstance(frame, LateFrame):
                    yield frame.then(space.leave)
                    continue
                if not isinstance(frame, bytes):
                    space.leave(frame)
                yield frame
        except Exception as error:  # noqa: BLE001 - the edge of one call
            refusal = _refusal(error, name, request, space)
            if arrived_s is not None:
                self._note(name, refusal, arrived_s)
            yield refusal
        finally:
            frames.close()

    def _let_in(
        self, name: str, metadata: Metadata, request: Message, deadline_s: float | None, arrived_s: float
    ) -> GrpcCall:
        """Who calls and in which namespace; from here on the names in the request are whole ones.

        Raises what refuses the caller, then the names are as they came.
        """
        call = GrpcCall.of(metadata, deadline_s)
        call.space = space = Namespace.of(metadata, request)
        space.enter(request)
        try:
            clients, user = self._processor.clients, ""
            if self._gate.is_closed:
                user = self._gate.check(name, metadata, request, clients.owner(call.client_id))
            if name != "NotifyClientTermination":
                clients.note_alive(call.client_id, arrived_s, user)
            if self._processor.throttle.has_rules and name in _THROTTLED:
                self._throttle(call, request, user)
        except BaseException:
            space.leave(request)
            raise
        return call

    def _throttle(self, call: GrpcCall, request: Any, user: str) -> None:
        """Count a call that sends or receives."""
        sent = getattr(request, "messages", ())
        group = "" if sent else request.group.name
        size_bytes = sum(len(message.body) for message in sent)
        caller = Caller(call.client_id, group, user)
        self._processor.throttle.admit(caller, size_bytes, self._clock.monotonic_s())

    async def telemetry(
        self, metadata: Metadata, requests: AsyncIterator[m.TelemetryCommand]
    ) -> AsyncGenerator[m.TelemetryCommand, None]:
        """The server's side of a telemetry stream; what it refuses ends it: a status alone, then StreamEnded."""
        method = METHODS["Telemetry"]
        try:
            call = GrpcCall.of(metadata, None)
            owner = self._processor.clients.owner(call.client_id)
            user = self._gate.check(method.name, metadata, m.TelemetryCommand(), owner)
            self._processor.note_alive(call.client_id, user)
            async with aclosing(self._telemetry(call, self._check_commands(metadata, requests))) as answers:
                async for answer in answers:
                    Namespace.of(metadata, answer).leave(answer)
                    yield answer
        except Exception as error:  # noqa: BLE001 - the edge of one stream
            status = _status(error, method, None)
            # Node's client waits for settings without end; a status alone makes its start fail with these words.
            yield m.TelemetryCommand(status=status)
            other = Reason.REFUSED if isinstance(error, Refused) else Reason.FAILED
            raise StreamEnded(status.message, _REASONS.get(status.code, other)) from None

    @property
    def takes_plain_calls(self) -> bool:
        """Whether ordinary calls may be answered without a look at each caller: nobody has to sign, nothing is
        throttled and nothing is traced."""
        return not self._gate.is_closed and not self._processor.throttle.has_rules and not self._processor.is_traced

    def enter_plain(self, metadata: Metadata, now_s: float) -> Address | None:
        """Note that the client of an ordinary call lives; its address. None for headers that somebody has to look at
        closer."""
        if metadata.get(NAMESPACE_HEADER):
            return None
        try:
            call = GrpcCall.of(metadata, None)
        except Refused:
            return None
        self._processor.clients.note_alive(call.client_id, now_s)
        return call.peer

    def note_alive(self, client_id: str, now_s: float) -> None:
        """Note that a client that was let in before lives."""
        self._processor.clients.note_alive(client_id, now_s)

    def note(self, name: str, code: int, arrived_s: float, count: int = 1) -> None:
        """Note how long calls took that were answered together."""
        self._processor.latency.note(name, code, self._clock.monotonic_s() - arrived_s, count)

    def failure(self, name: str, error: BaseException, arrived_s: float, count: int) -> bytes:
        """The answer to calls that failed together."""
        if not isinstance(error, Exception):
            raise error
        status = _status(error, METHODS[name], None)
        self.note(name, status.code, arrived_s, count)
        return METHODS[name].response(status=status).SerializeToString()

    @property
    def checks_callers(self) -> bool:
        """Whether callers have to say who they are."""
        return self._gate.is_closed

    def check_caller(self, method: Method, metadata: Metadata) -> None:
        """Return if the headers are those of a user, before the request is read; UNAUTHORIZED."""
        arrived_s = self._clock.monotonic_s()
        try:
            self._gate.caller(method.name, metadata)
        except Refused as error:
            self._note(method.name, self.refusal(method, error), arrived_s)
            raise

    def refusal(self, method: Method, error: Refused) -> Message:
        """The response to a request that was refused before it could be read."""
        return method.response(status=status_of(error))

    def end_waits(self) -> None:
        """Answer the receives that wait, and let none wait from now on: the server stops."""
        self._processor.end_waits()

    async def _check_commands(
        self, metadata: Metadata, requests: AsyncIterator[m.TelemetryCommand]
    ) -> AsyncIterator[m.TelemetryCommand]:
        """The commands of a stream, each checked when it comes: the stream may outlive its user's rights."""
        async for command in requests:
            Namespace.of(metadata, command).enter(command)
            self._gate.check("Telemetry", metadata, command)
            yield command

    def _note(self, name: str, response: Any, arrived_s: float) -> None:
        self.note(name, _OK if isinstance(response, bytes) else response.status.code, arrived_s)


def _only(frame: Message) -> Frames:
    yield frame


def _not_offered(name: str) -> MillstreamError:
    return Refused("UNSUPPORTED_FEATURE", f"The method {name} is not offered.")


def _refusal(error: Exception, name: str, request: Message, space: Namespace) -> Message:
    """The response that tells of a failure in the names that the client knows."""
    space.leave(request)
    method = METHODS[name]
    return method.response(status=_status(error, method, request))


def _status(error: Exception, method: Method, request: Message | None) -> m.Status:
    if isinstance(error, MillstreamError):
        if not isinstance(error, Refused):
            _log.error("%s failed: %s", method.name, error)
        return status_of(error, topic_of(request) if request is not None else "")
    _log.error("%s failed in an unforeseen way", method.name, exc_info=error)
    return internal_error()
