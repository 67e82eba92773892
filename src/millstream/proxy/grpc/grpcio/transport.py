"""The service on grpc.aio; the only module that imports it.

grpc.aio's server with two faults mended that any client could use.

A call whose path is no UTF-8 ends the loop that accepts calls, and with it the whole server; and headers that are no
UTF-8, or clients that go before their answer, put stack traces into the log. Both were found in grpcio 1.85, on whose
inner names this module stands; where those are missing the server is as grpcio made it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, closing
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc._cython import cygrpc
from grpc.aio._server import Server

from millstream.model.errors import ConsumeRefused, MessageRefused, Refused
from millstream.protocol.grpc.service import METHODS, SERVICE_NAME, Method
from millstream.proxy.budget import Budget, Share
from millstream.proxy.grpc.adapter import MessagingAdapter, Reason, StreamEnded
from millstream.proxy.grpc.call import PEER_KEY
from millstream.proxy.grpc.grpcio.read_limiter import RequestReadLimiter
from millstream.proxy.grpc.grpcio.tls_sniffing_proxy import INNER_HOST
from millstream.proxy.grpc.late_frame import LateFrame
from millstream.proxy.grpc.request_reading import decode_request
from millstream.security.tls import ServerIdentity

__all__ = [
    "MAX_CALLS",
    "MAX_CONNECTIONS",
    "MAX_REQUEST_BYTES",
    "MAX_REQUEST_BYTES_UNDER_WAY",
    "GrpcTransport",
    "make_patched_server",
]

_IS_KNOWN = hasattr(cygrpc, "_MethodResolver") and hasattr(cygrpc.AioServer, "_request_call")

_ABOUT_CLIENTS = ("Invalid encoding on", "ExecuteBatchError raised in core")
"""How the lines begin that say what a client did: a header that is no text, and an answer that nobody waits for."""


def make_patched_server(options: tuple[tuple[str, Any], ...]) -> Any:
    """A `grpc.aio.Server` with these channel arguments, for registered methods only."""
    logger = logging.getLogger("grpc._cython.cygrpc")
    if _is_about_the_server not in logger.filters:
        logger.addFilter(_is_about_the_server)
    if not _IS_KNOWN:
        return grpc.aio.server(options=options)
    server = Server.__new__(Server)
    server._loop = cygrpc.get_working_loop()
    server._server = _Server(server._loop, None, (), (), options, None)
    return server


class _Server(cygrpc.AioServer if _IS_KNOWN else object):  # type: ignore[misc]
    """Answers calls of unknown methods itself: the loop that accepts calls would read their paths."""

    async def _request_call(self) -> None:
        loop = asyncio.get_running_loop()
        nothing = cygrpc._MethodResolver([], {})
        answering: set[asyncio.Task[None]] = set()
        while True:
            call = await super()._request_call()
            refused = cygrpc._handle_rpc("unknown", nothing, (), call, loop, False)
            task = loop.create_task(cygrpc._schedule_rpc_coro(refused, call, loop, "unknown"))
            answering.add(task)
            task.add_done_callback(answering.discard)


def _is_about_the_server(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_ABOUT_CLIENTS)


MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Bytes of one request at most: well above the limit of a body, so that a large body gets a status that says so."""

MAX_REQUEST_BYTES_UNDER_WAY = 512 * 1024 * 1024
"""Bytes of all requests that are being answered at most; TOO_MANY_REQUESTS refuses further ones."""

MAX_REQUEST_BYTES_PER_CONNECTION = 256 * 1024 * 1024
"""The same for one connection."""

MAX_METADATA_BYTES = 64 * 1024
"""Bytes of a call's headers at most; the transport refuses more. From 16 KiB on the adapter refuses, with a status."""

MAX_CONNECTIONS = 10_000
"""Connections of one server at most, and no more than half of the descriptors for connections; the next one is closed
at once."""

MAX_CALLS_PER_CONNECTION = 10_000
"""Calls under way on one connection at most; clients wait with further ones."""

MAX_CALLS = 60_000
"""Calls under way on one server at most, waiting receives and telemetry included; TOO_MANY_REQUESTS refuses more."""

MAX_CALLS_BEFORE_THE_DOOR = 10_000
"""Calls that have arrived and are not yet handled, at most; gRPC itself cuts further ones off, a few from half of them
on."""

MIN_PING_INTERVAL_MS = 5_000
"""Clients may ping an idle connection so often; gRPC's own default would close theirs."""

HANDSHAKE_TIMEOUT_MS = 10_000
"""A connection without HTTP/2 by then is closed."""

IDLE_LIMIT_MS = 300_000
"""A connection without a call for so long is closed in good order; clients send a heartbeat every 10 s."""

PROBE_INTERVAL_MS = 60_000
"""A connection that is silent for so long is probed."""

PROBE_TIMEOUT_MS = 20_000
"""One that does not answer by then is closed."""

STREAM_WINDOW_BYTES = 64 * 1024
"""Bytes of a request that are received before the server reads it."""

_KNOWN_PEERS = 4096
"""Connections whose address is kept: each of their calls needs it."""

_LINGER_S = 5.0
"""A waiting receive may lose its place to others after so long, where the bytes of requests are used up."""

_IDENTITY_ONLY = 1
"""Compressed requests are refused: a few bytes of them can unpack to more than any limit."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
    ("grpc.server.max_pending_requests", MAX_CALLS_BEFORE_THE_DOOR // 2),
    ("grpc.server.max_pending_requests_hard_limit", MAX_CALLS_BEFORE_THE_DOOR),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_connection_idle_ms", IDLE_LIMIT_MS),
    ("grpc.keepalive_time_ms", PROBE_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", PROBE_TIMEOUT_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
    ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
    # A second server on the same port must fail instead of taking half of the connections.
    ("grpc.so_reuseport", 0),
)

_Handler = Callable[[Any, Any], Awaitable[Any]]

_STREAM_CODES = {
    Reason.REFUSED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNKNOWN_CALLER: grpc.StatusCode.UNAUTHENTICATED,
    Reason.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    Reason.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.FAILED: grpc.StatusCode.INTERNAL,
}


class GrpcTransport:
    """A listening gRPC server. Build, `bind`, `serve`, `close`; once each, in one event loop."""

    def __init__(self, max_connections: int = MAX_CONNECTIONS) -> None:
        self.peer_of: Callable[[int], str | None] | None = None
        """Who is behind a port of this machine, where a front carries the connections; None where there is none."""
        self._server = make_patched_server((*_OPTIONS, ("grpc.max_allowed_incoming_connections", max_connections)))
        self._streams: set[asyncio.Task[Any]] = set()
        self._adapter: MessagingAdapter | None = None
        self._closing = False

    def bind(self, target: str, identity: ServerIdentity | None = None) -> int:
        """Take the port of `host:port`, with an identity for TLS; the bound port. OSError where that fails."""
        try:
            if identity is None:
                port = self._server.add_insecure_port(target)
            else:
                port = self._server.add_secure_port(target, _server_credentials(identity))
        except RuntimeError as error:
            raise OSError(str(error)) from None
        if port == 0:
            raise OSError(f"{target} cannot be bound")
        return int(port)

    async def serve(self, adapter: MessagingAdapter) -> None:
        """Answer calls from now on."""
        self._adapter = adapter
        calls = _Calls(adapter, self._streams, lambda: self._closing, self.peer_of)
        handlers = {name: calls.handler(method) for name, method in METHODS.items()}
        self._server.add_registered_method_handlers(SERVICE_NAME, handlers)
        await self._server.start()

    async def close(self, grace_s: float) -> None:
        """Take no more calls, end telemetry and the waiting of receives at once, and answer the others in `grace_s`."""
        self._closing = True
        stopped = asyncio.ensure_future(self._server.stop(grace_s))
        await asyncio.sleep(0)
        if self._adapter is not None:
            self._adapter.end_waits()
        for task in self._streams:
            task.cancel()
        await stopped


class _Calls:
    """Turns grpc.aio's handlers into calls of the adapter.

    To grpc.aio every method is one with a stream of requests. Else it would read a request, whatever its size, before
    anybody could refuse it, and log a stack trace for bytes that are none.
    """

    def __init__(
        self,
        adapter: MessagingAdapter,
        streams: set[asyncio.Task[Any]],
        closing: Callable[[], bool],
        peer_of: Callable[[int], str | None] | None,
    ) -> None:
        self._adapter = adapter
        self._streams = streams
        self._closing = closing
        self._peer_of = peer_of
        self._under_way = 0
        self._intake = RequestReadLimiter()
        self._requests = Budget(
            "requests",
            total_bytes=MAX_REQUEST_BYTES_UNDER_WAY,
            owner_bytes=MAX_REQUEST_BYTES_PER_CONNECTION,
            patience_s=_LINGER_S,
        )

    def handler(self, method: Method) -> grpc.RpcMethodHandler:
        """The registration of one method."""
        if method.client_streams:
            return grpc.stream_stream_rpc_method_handler(self._telemetry(method), None, _serialize)
        if method.server_streams:
            return grpc.stream_stream_rpc_method_handler(self._streaming(method), None, _serialize)
        return grpc.stream_unary_rpc_method_handler(self._unary(method), None, _serialize)

    def _unary(self, method: Method) -> _Handler:
        async def answer(_: Any, context: Any) -> Message | bytes:
            metadata = self._metadata(context)
            try:
                request, share = await self._admit(method, context, metadata)
            except Refused as error:
                return self._adapter.refusal(method, error)
            try:
                return await self._adapter.unary(method.name, metadata, request, context.time_remaining())
            finally:
                self._release(share)

        return answer

    def _streaming(self, method: Method) -> _Handler:
        async def answer(_: Any, context: Any) -> None:
            metadata = self._metadata(context)
            task = asyncio.current_task()
            assert task is not None
            try:
                request, share = await self._admit(method, context, metadata, task.cancel)
            except Refused as error:
                await context.write(self._adapter.refusal(method, error))
                return
            try:
                left_s = context.time_remaining()
                # Closed at once, not when they are collected: undelivered messages go back without delay.
                with closing(await self._adapter.streaming(method.name, metadata, request, left_s)) as frames:
                    for frame in frames:
                        await context.write(await frame.make(frames) if isinstance(frame, LateFrame) else frame)
            finally:
                self._release(share)

        return answer

    def _telemetry(self, method: Method) -> _Handler:
        async def answer(requests: AsyncIterator[bytes], context: Any) -> None:
            try:
                self._enter()
            except Refused as error:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            try:
                said = self._adapter.telemetry(self._metadata(context), _decode_requests(method, requests))
                async with aclosing(said) as answers:
                    async for one in answers:
                        await context.write(one)
            except StreamEnded as error:
                await context.abort(_STREAM_CODES[error.reason], str(error))
            finally:
                self._under_way -= 1

        return self._interruptible(answer)

    async def _admit(
        self, method: Method, context: Any, metadata: dict[str, str], give_way: Callable[[], Any] | None = None
    ) -> tuple[Message, Share]:
        """The request of a call that sends one, and its share of the bytes under way; raises Refused over a limit, and
        where a stranger calls, before anything of the request is read."""
        self._enter()
        try:
            self._adapter.check_caller(method, metadata)
            connection = metadata[PEER_KEY]
            raw = await self._intake.read(connection, context.read)
            if raw is grpc.aio.EOF:
                raise MessageRefused("REQUEST_MALFORMED", "The call ended without a request.")
            request = decode_request(method, raw)
            now_s = asyncio.get_running_loop().time()
            return request, self._requests.take(connection, len(raw), now_s, give_way)
        except BaseException:
            self._under_way -= 1
            raise

    def _release(self, share: Share) -> None:
        self._under_way -= 1
        self._requests.free(share)

    def _enter(self) -> None:
        if self._under_way >= MAX_CALLS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"{self._under_way} calls are under way, which is the limit.")
        self._under_way += 1

    def _metadata(self, context: Any) -> dict[str, str]:
        found = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        peer = _address(context.peer())
        if self._peer_of is not None and peer.startswith(INNER_HOST):
            peer = self._peer_of(int(peer.rpartition(":")[2])) or peer
        found[PEER_KEY] = peer
        return found

    def _interruptible(self, handler: _Handler) -> _Handler:
        """The handler of a stream that lives as long as its client: `close` ends it and says that the server goes."""

        async def answer(request: Any, context: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._streams.add(task)
            try:
                await handler(request, context)
            except asyncio.CancelledError:
                if not self._closing():
                    raise
                await context.abort(grpc.StatusCode.UNAVAILABLE, "The server stops.")
            finally:
                self._streams.discard(task)

        return answer


async def _decode_requests(method: Method, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for raw in requests:
        yield decode_request(method, raw)


@lru_cache(maxsize=_KNOWN_PEERS)
def _address(peer: str) -> str:
    """The address in gRPC's word for a peer, as in `ipv4:192.0.2.7:50312` or `ipv6:%5B::1%5D:50312`."""
    return unquote(peer.partition(":")[2])


def _serialize(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def _server_credentials(identity: ServerIdentity) -> grpc.ServerCredentials:
    """Asks the identity at each new connection whether it has changed."""
    told = identity.version

    def configuration() -> Any:
        return grpc.ssl_server_certificate_configuration([(identity.key_pem, identity.chain_pem)])

    def configuration_if_changed() -> Any:
        nonlocal told
        if told == identity.version:
            return None
        told = identity.version
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), configuration_if_changed)
