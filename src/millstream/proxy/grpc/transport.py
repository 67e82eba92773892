"""The service on grpc.aio: the one module that knows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.message import Message

from millstream.protocol.grpc.service import METHODS, SERVICE_NAME, Method
from millstream.proxy.grpc.adapter import MessagingAdapter, StreamEnded
from millstream.proxy.grpc.call import PEER_KEY

__all__ = ["MAX_REQUEST_BYTES", "GrpcTransport"]

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Bytes of one request at most: well above the limit of a body, so that a large body gets a status that says so."""

MAX_METADATA_BYTES = 64 * 1024
"""Bytes of a call's headers at most."""

MAX_CALLS_PER_CONNECTION = 10_000
"""Calls under way on one connection at most."""

MIN_PING_INTERVAL_MS = 5_000
"""Clients may ping an idle connection so often; gRPC's own default would close theirs."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # A second server on the same port must fail instead of taking half of the connections.
    ("grpc.so_reuseport", 0),
)

_Handler = Callable[[Any, Any], Awaitable[Any]]


class GrpcTransport:
    """A listening gRPC server. Build, `bind`, `serve`, `close`; once each, in one event loop."""

    def __init__(self) -> None:
        self._server = grpc.aio.server(options=_OPTIONS)
        self._waiting: set[asyncio.Task[Any]] = set()
        self._closing = False

    def bind(self, target: str) -> int:
        """Take the port of `host:port`; the bound port. OSError where that fails."""
        try:
            port = self._server.add_insecure_port(target)
        except RuntimeError as error:
            raise OSError(str(error)) from None
        if port == 0:
            raise OSError(f"{target} cannot be bound")
        return int(port)

    async def serve(self, adapter: MessagingAdapter) -> None:
        """Answer calls from now on."""
        calls = _Calls(adapter, self._waiting, lambda: self._closing)
        handlers = {name: calls.handler(method) for name, method in METHODS.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))
        await self._server.start()

    async def close(self, grace_s: float) -> None:
        """Take no more calls, end long polls and telemetry at once, and give the others `grace_s` to be answered."""
        self._closing = True
        stopped = asyncio.ensure_future(self._server.stop(grace_s))
        await asyncio.sleep(0)
        for task in self._waiting:
            task.cancel()
        await stopped


class _Calls:
    """Turns grpc.aio's handlers into calls of the adapter."""

    def __init__(self, adapter: MessagingAdapter, waiting: set[asyncio.Task[Any]], closing: Callable[[], bool]) -> None:
        self._adapter = adapter
        self._waiting = waiting
        self._closing = closing

    def handler(self, method: Method) -> grpc.RpcMethodHandler:
        """The registration of one method."""
        codec = (method.request.FromString, _serialize)
        if method.client_streams:
            return grpc.stream_stream_rpc_method_handler(self._interruptible(self._telemetry), *codec)
        if method.server_streams:
            return grpc.unary_stream_rpc_method_handler(self._interruptible(self._streaming(method.name)), *codec)
        return grpc.unary_unary_rpc_method_handler(self._unary(method.name), *codec)

    def _unary(self, name: str) -> _Handler:
        async def answer(request: Message, context: Any) -> Message:
            return await self._adapter.unary(name, _metadata(context), request, context.time_remaining())

        return answer

    def _streaming(self, name: str) -> _Handler:
        async def answer(request: Message, context: Any) -> None:
            frames = self._adapter.streaming(name, _metadata(context), request, context.time_remaining())
            await _write_all(frames, context)

        return answer

    async def _telemetry(self, requests: AsyncIterator[Any], context: Any) -> None:
        try:
            await _write_all(self._adapter.telemetry(_metadata(context), requests), context)
        except StreamEnded as error:
            code = grpc.StatusCode.INVALID_ARGUMENT if error.refused else grpc.StatusCode.INTERNAL
            await context.abort(code, str(error))

    def _interruptible(self, handler: _Handler) -> _Handler:
        """A handler that may wait for long: `close` ends it, and the client is told that the server goes."""

        async def answer(request: Any, context: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._waiting.add(task)
            try:
                await handler(request, context)
            except asyncio.CancelledError:
                if not self._closing():
                    raise
                await context.abort(grpc.StatusCode.UNAVAILABLE, "The server stops.")
            finally:
                self._waiting.discard(task)

        return answer


async def _write_all(frames: AsyncGenerator[Message, None], context: Any) -> None:
    # Closing the iterator at once, not when it is collected, hands undelivered messages back without delay.
    async with aclosing(frames) as open_frames:
        async for frame in open_frames:
            await context.write(frame)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _metadata(context: Any) -> dict[str, str]:
    found = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
    # gRPC writes the peer as `ipv4:192.0.2.7:50312` or `ipv6:%5B::1%5D:50312`.
    found[PEER_KEY] = unquote(context.peer().partition(":")[2])
    return found
