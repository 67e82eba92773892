"""What a call costs, and our own part of it: one process with the layers of the transport on ports of their own.

`plain` is grpc.aio's ordinary unary method, `grpcio` our transport over grpc.aio, `http2` our own HTTP/2, each with an
empty handler and the last two with all checks of a transport; `whole` is the product over `http2`. Calls go to them
in turns, so that they are compared under the same load of the machine.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from benchmarks.grpc_load import ack_request, receive_request, send_request
from millstream.broker.broker import Broker
from millstream.model.errors import ConnectionFailed
from millstream.model.message import Address
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.framing import GrpcStatus
from millstream.protocol.grpc.service import METHODS, SERVICE_NAME
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.call import PEER_KEY
from millstream.proxy.grpc.calls import offered_methods
from millstream.proxy.grpc.grpcio.transport import GrpcTransport
from millstream.proxy.grpc.route import Advertised
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.transport.grpc.call import ServerCall
from millstream.transport.grpc.server import GrpcPort

__all__ = ["PORTS", "TOPIC"]

PORTS = ("plain", "grpcio", "http2", "whole")
TOPIC = "bench"
_GROUP = "bench-readers"
_METADATA = {"x-mq-client-id": "bench@1@0@a", PEER_KEY: "127.0.0.1:50312"}
_ROUNDS = 7
_CALLS = 2000
_BATCH = 32
_ANSWER = m.SendMessageResponse(
    status=m.Status(code=m.OK, message="OK"),
    entries=[
        m.SendResultEntry(status=m.Status(code=m.OK, message="OK"), message_id="m", transaction_id="m", offset=12345)
    ],
)


class _EmptyAdapter:
    """Answers every unary call with the same response."""

    async def unary(self, name: str, metadata: Any, request: Message, deadline_s: float | None) -> Message:
        return _ANSWER

    def check_caller(self, method: Any, metadata: Any) -> None:
        """Everybody may."""

    def end_waits(self) -> None:
        """Nobody waits."""


class _EmptyCalls:
    """Answers every call of an own port with the same response."""

    def admit(self, call: ServerCall) -> None:
        """Everybody may."""

    def serve(self, calls: list[ServerCall]) -> None:
        """Read the request and answer."""
        for call in calls:
            METHODS["SendMessage"].request.FromString(call.request)
            call.answer(_ANSWER.SerializeToString())

    def open(self, call: ServerCall) -> None:
        """No call of the load is a stream."""
        call.end(GrpcStatus.UNIMPLEMENTED, "")

    def refuse(self, call: ServerCall, error: ConnectionFailed) -> None:
        """The load is small enough."""
        raise AssertionError(error)


async def _empty(request: Message, context: Any) -> Message:
    return _ANSWER


async def _serve_ordinary(handler: grpc.RpcMethodHandler) -> tuple[Any, int]:
    server = grpc.aio.server()
    server.add_registered_method_handlers(SERVICE_NAME, {"SendMessage": handler})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def _serve_over_grpcio() -> tuple[GrpcTransport, int]:
    transport = GrpcTransport()
    port = transport.bind("127.0.0.1:0")
    await transport.serve(_EmptyAdapter())
    return transport, port


async def _serve_over_http2() -> tuple[GrpcPort, int]:
    port = GrpcPort(offered_methods())
    number = await port.start()
    port.handler = _EmptyCalls()
    return port, number


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


async def _call_directly(adapter: MessagingAdapter) -> dict[str, float]:
    """Processor microseconds of our handlers without a transport, a call: the median of rounds, and the least."""
    send = send_request(TOPIC)
    one_message, batch = (receive_request(TOPIC, _GROUP, size, 1) for size in (1, _BATCH))
    frames: list[Any] = []

    async def unary(name: str, requests: Sequence[Any]) -> None:
        for request in requests:
            await adapter.unary(name, _METADATA, request, 10.0)

    async def receive(requests: Sequence[Any]) -> None:
        for request in requests:
            frames.extend(await adapter.streaming("ReceiveMessage", _METADATA, request, 10.0))

    def acks() -> list[m.AckMessageRequest]:
        messages = [m.ReceiveMessageResponse.FromString(frame).message for frame in frames if isinstance(frame, bytes)]
        held = [message.system_properties.receipt_handle for message in messages if message.HasField("topic")]
        frames.clear()
        return [ack_request(TOPIC, _GROUP, handle) for handle in held]

    taken: dict[str, list[float]] = {}

    async def measure(name: str, work: Awaitable[None], calls: int) -> None:
        began_s = time.process_time()
        await work
        taken.setdefault(name, []).append((time.process_time() - began_s) / calls * 1e6)

    for _ in range(_ROUNDS):
        await measure("send", unary("SendMessage", [send] * _CALLS), _CALLS)
        await measure("receive", receive([one_message] * (_CALLS // 2)), _CALLS // 2)
        prepared = acks()
        await measure("ack", unary("AckMessage", prepared), len(prepared))
        batches = _CALLS // 2 // _BATCH
        await measure("receive_32", receive([batch] * batches), batches)
        await unary("AckMessage", acks())
    return {
        **{f"{name}_us": round(statistics.median(found), 1) for name, found in taken.items()},
        **{f"{name}_least_us": round(min(found), 1) for name, found in taken.items()},
    }


async def _main(directory: Path) -> None:
    broker = Broker(directory)
    await broker.start()
    broker.topics.create(TopicConfig(TOPIC))
    backend = LocalBackend(broker)
    processor = Processor(backend)
    await processor.start()
    adapter = MessagingAdapter(processor, Advertised(Address("127.0.0.1", 8081)))
    method = METHODS["SendMessage"]
    plain = grpc.unary_unary_rpc_method_handler(_empty, method.request.FromString, _serialize)
    ordinary, ordinary_port = await _serve_ordinary(plain)
    over_grpcio, grpcio_port = await _serve_over_grpcio()
    over_http2, http2_port = await _serve_over_http2()
    whole = GrpcServer(processor, "127.0.0.1", 0, delivery=backend.delivery)
    ports = (ordinary_port, grpcio_port, http2_port, await whole.start())
    _say(dict(zip(PORTS, ports, strict=True)))
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip() == "cpu":
            _say({"cpu_s": time.process_time()})
        else:
            _say(await _call_directly(adapter))
    await ordinary.stop(None)
    await over_grpcio.close(0.1)
    await over_http2.close(0.1)
    await whole.close(0.1)
    await processor.close()
    await broker.close()


def _say(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(_main(Path(scratch)))
