"""Calls of the messaging service at our own gRPC port: from bytes to the adapter's handlers and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed, ConsumeRefused, MessageRefused, Refused
from millstream.protocol.grpc.framing import GrpcStatus
from millstream.protocol.grpc.service import METHODS, Method
from millstream.proxy.budget import Budget, Share
from millstream.proxy.grpc.adapter import MessagingAdapter, Reason, StreamEnded
from millstream.proxy.grpc.call import PEER_KEY
from millstream.proxy.grpc.late_frame import LateFrame
from millstream.proxy.grpc.plain_acks import PlainAcks
from millstream.proxy.grpc.plain_receives import PlainReceives
from millstream.proxy.grpc.plain_sends import PlainSends
from millstream.proxy.grpc.request_reading import decode_request
from millstream.transport.grpc.call import GrpcMethod, ServerCall

__all__ = [
    "FIRST_WORDS_S",
    "LINGER_S",
    "MAX_CALLS",
    "MAX_REQUEST_BYTES_PER_CONNECTION",
    "MAX_REQUEST_BYTES_UNDER_WAY",
    "SMALL_REQUEST_BYTES",
    "MessagingCalls",
    "PlainCalls",
    "offered_methods",
]

MAX_REQUEST_BYTES_UNDER_WAY: Final = 512 * 1024 * 1024
"""Bytes of all requests that are being answered at most; TOO_MANY_REQUESTS refuses further ones."""

MAX_REQUEST_BYTES_PER_CONNECTION: Final = 256 * 1024 * 1024
"""The same for one connection."""

SMALL_REQUEST_BYTES: Final = 4 * 1024
"""Requests that are no larger are not counted there: the number of calls limits them."""

MAX_CALLS: Final = 60_000
"""Calls under way on one server at most, half-sent ones, waiting receives and telemetry included; TOO_MANY_REQUESTS
refuses more."""

FIRST_WORDS_S: Final = 1.0
"""A stream that is refused ends once its client has sent something, or after so many seconds."""

LINGER_S: Final = 5.0
"""A waiting receive may lose its place to others after so long, where the bytes of requests are used up."""

_STREAM_CODES: Final = {
    Reason.REFUSED: GrpcStatus.INVALID_ARGUMENT,
    Reason.UNKNOWN_CALLER: GrpcStatus.UNAUTHENTICATED,
    Reason.FORBIDDEN: GrpcStatus.PERMISSION_DENIED,
    Reason.BUSY: GrpcStatus.RESOURCE_EXHAUSTED,
    Reason.FAILED: GrpcStatus.INTERNAL,
}


def offered_methods() -> list[tuple[str, GrpcMethod]]:
    """The service's methods by their paths."""
    return [(method.path, GrpcMethod(name, method.client_streams)) for name, method in METHODS.items()]


@dataclass(frozen=True, slots=True)
class PlainCalls:
    """What answers ordinary calls."""

    sends: PlainSends
    receives: PlainReceives
    acks: PlainAcks


class MessagingCalls:
    """Answers the calls of one port. `end_streams` and the adapter's `end_waits` end what would go on for ever.

    `open_calls` says how many calls the port has, the one that is admitted included.
    `plain` answers ordinary calls at a broker of the same process, without a task for each.
    """

    __slots__ = (
        "_adapter", "_checks_callers", "_clock", "_loop", "_open_calls", "_plain", "_requests", "_streams",
    )  # fmt: skip

    def __init__(
        self, adapter: MessagingAdapter, clock: Clock, open_calls: Callable[[], int], plain: PlainCalls | None = None
    ) -> None:
        self._adapter = adapter
        self._checks_callers = adapter.checks_callers
        self._clock = clock
        self._open_calls = open_calls
        self._plain = plain
        self._loop = asyncio.get_running_loop()
        self._streams: dict[asyncio.Task[None], ServerCall] = {}
        self._requests = Budget(
            "requests",
            total_bytes=MAX_REQUEST_BYTES_UNDER_WAY,
            owner_bytes=MAX_REQUEST_BYTES_PER_CONNECTION,
            patience_s=LINGER_S,
        )

    # CallHandler

    def admit(self, call: ServerCall) -> None:
        """See `CallHandler`: strangers, and calls over the limit, are refused before their request is read."""
        call.metadata[PEER_KEY] = call.peer
        try:
            if self._open_calls() > MAX_CALLS:
                raise ConsumeRefused("TOO_MANY_REQUESTS", f"{MAX_CALLS} calls are under way, which is the limit.")
            if self._checks_callers and not call.method.streams:
                self._adapter.check_caller(METHODS[call.method.name], call.metadata)
        except Refused as error:
            if call.method.streams:
                call.end(GrpcStatus.RESOURCE_EXHAUSTED, str(error))
            else:
                self._refuse(call, error)

    def serve(self, calls: list[ServerCall]) -> None:
        """See `CallHandler`."""
        position = 0
        while position < len(calls):
            call = calls[position]
            count = 0
            if self._plain is not None:
                name = call.method.name
                if name == "SendMessage":
                    count = self._plain.sends.take(calls, position)
                elif name == "ReceiveMessage":
                    count = self._plain.receives.answer(call)
                elif name == "AckMessage":
                    count = self._plain.acks.take(calls, position)
            if not count:
                self._serve_one(call)
                count = 1
            position += count

    def open(self, call: ServerCall) -> None:
        """See `CallHandler`: telemetry."""
        task = self._loop.create_task(self._telemetry(call))
        self._streams[task] = call
        call.on_gone = task.cancel
        task.add_done_callback(self._end_stream)

    def refuse(self, call: ServerCall, error: ConnectionFailed) -> None:
        """See `CallHandler`."""
        if call.method.streams:
            call.end(GrpcStatus.RESOURCE_EXHAUSTED, error.message)
            call.note_gone()
        else:
            self._refuse(call, MessageRefused("REQUEST_TOO_SLOW", error.message))

    def end_streams(self) -> None:
        """End telemetry: the server stops."""
        for task, call in list(self._streams.items()):
            call.end(GrpcStatus.UNAVAILABLE, "The server stops.")
            task.cancel()

    # inside

    def _serve_one(self, call: ServerCall) -> None:
        method = METHODS[call.method.name]
        try:
            request, share = self._read(method, call)
        except Refused as error:
            self._refuse(call, error)
            return
        if method.server_streams:
            frames = self._loop.create_task(self._streaming(method.name, call, request))
            if share is not None:
                share.give_way = frames.cancel
            call.on_gone = frames.cancel
            frames.add_done_callback(partial(self._end_frames, call, share))
            return
        answer = self._loop.create_task(self._adapter.unary(method.name, call.metadata, request, call.deadline_s))
        call.on_gone = answer.cancel
        answer.add_done_callback(partial(self._end_unary, call, share))

    def _read(self, method: Method, call: ServerCall) -> tuple[Message, Share | None]:
        raw, call.request = call.request, b""
        if not raw and not call.expected_bytes:
            raise MessageRefused("REQUEST_MALFORMED", "The call ended without a request.")
        request = decode_request(method, raw)
        if len(raw) <= SMALL_REQUEST_BYTES:
            return request, None
        return request, self._requests.take(call.peer, len(raw), self._clock.monotonic_s())

    def _refuse(self, call: ServerCall, error: Refused) -> None:
        call.answer(self._adapter.refusal(METHODS[call.method.name], error).SerializeToString())

    def _end_unary(self, call: ServerCall, share: Share | None, task: asyncio.Task[Message | bytes]) -> None:
        self._release(share)
        if task.cancelled():
            call.end(GrpcStatus.CANCELLED)
            return
        call.on_gone = None
        response = task.result()
        call.answer(response if isinstance(response, bytes) else response.SerializeToString())

    async def _streaming(self, name: str, call: ServerCall, request: Message) -> None:
        # Closed at once, not when they are collected: undelivered messages go back without delay.
        frames = await self._adapter.streaming(name, call.metadata, request, call.deadline_s)
        with closing(frames):
            for frame in frames:
                if isinstance(frame, LateFrame):
                    call.flush()
                    frame = await frame.make(frames)
                call.write(frame if isinstance(frame, bytes) else frame.SerializeToString())
                if call.is_stuffed:
                    await call.ready()
                elif not call.is_open:
                    return

    def _end_frames(self, call: ServerCall, share: Share | None, task: asyncio.Task[None]) -> None:
        self._release(share)
        if task.cancelled():
            call.end(GrpcStatus.CANCELLED)
            return
        call.on_gone = None
        error = task.exception()
        call.end(GrpcStatus.OK if error is None else GrpcStatus.INTERNAL)

    async def _telemetry(self, call: ServerCall) -> None:
        method = METHODS["Telemetry"]
        try:
            said: AsyncGenerator[Any, None] = self._adapter.telemetry(call.metadata, _decode_messages(method, call))
            async with aclosing(said) as answers:
                async for one in answers:
                    call.write(one.SerializeToString())
                    await call.ready()
        except StreamEnded as error:
            # A client whose first words are on their way would see that they cannot be sent, and not why.
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_WORDS_S):
                    await call.wait_for_words()
            call.end(_STREAM_CODES[error.reason], str(error))
        else:
            call.end()

    def _end_stream(self, task: asyncio.Task[None]) -> None:
        call = self._streams.pop(task)
        call.on_gone = None
        if task.cancelled():
            call.end(GrpcStatus.CANCELLED)
        elif task.exception() is not None:
            call.end(GrpcStatus.INTERNAL)

    def _release(self, share: Share | None) -> None:
        if share is not None:
            self._requests.free(share)


async def _decode_messages(method: Method, call: ServerCall) -> AsyncIterator[Any]:
    while (raw := await call.next_message()) is not None:
        yield decode_request(method, raw)
