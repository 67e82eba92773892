"""grpc.testing.TestService, as gRPC's interop test cases describe it, over the public interface of `GrpcPort`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc  # type: ignore[import-untyped]

from millstream.model.errors import ConnectionFailed
from millstream.protocol.grpc.framing import GrpcStatus
from millstream.transport.grpc.call import GrpcMethod, ServerCall

__all__ = ["METHODS", "StatusRaised", "TestService", "messages"]

_SOURCE: Final = "testing.proto"
_STREAMED: Final = ("StreamingInputCall", "FullDuplexCall")

METHODS: Final = [
    (f"/grpc.testing.TestService/{name}", GrpcMethod(name, streams=name in _STREAMED))
    for name in ("EmptyCall", "UnaryCall", "StreamingOutputCall", *_STREAMED)
]
"""What the service offers; test cases also ask for UnimplementedCall, which it must not have."""


class StatusRaised(Exception):
    """A call ends with a status that is not OK."""

    def __init__(self, status: GrpcStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


@cache
def messages() -> dict[str, type[Message]]:
    """The message classes of testing.proto by name, in a pool of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch, "built")
        folder = files(__package__)
        status = protoc.main(["protoc", f"--proto_path={folder}", f"--descriptor_set_out={built}", _SOURCE])
        assert status == 0, f"protoc ended with {status}"
        described = FileDescriptorSet.FromString(built.read_bytes())
    pool = DescriptorPool()
    pool.Add(described.file[0])
    found = pool.FindFileByName(_SOURCE).message_types_by_name
    return {name: GetMessageClass(message) for name, message in found.items()}


class TestService:
    """Answers the calls of a port. `began` are the methods of calls as they come, `gone` of those that were given up;
    `metadata` is what the last call brought."""

    __test__ = False

    def __init__(self) -> None:
        self.began: list[str] = []
        self.gone: list[str] = []
        self.metadata: dict[str, str] = {}
        self.compressed = 0
        """Requests of unary calls that came compressed."""
        self.faults: list[BaseException] = []
        """What the service itself did wrong."""
        self.tasks: set[asyncio.Task[None]] = set()

    # CallHandler

    def admit(self, call: ServerCall) -> None:
        self.began.append(call.method.name)
        self.metadata = dict(call.metadata)

    def serve(self, calls: list[ServerCall]) -> None:
        for call in calls:
            match call.method.name:
                case "EmptyCall":
                    call.answer(b"")
                case "UnaryCall":
                    self._begin(call, self._unary(call))
                case _:
                    self._begin(call, self._download(call))

    def open(self, call: ServerCall) -> None:
        self._begin(call, self._sum(call) if call.method.name == "StreamingInputCall" else self._chat(call))

    def refuse(self, call: ServerCall, error: ConnectionFailed) -> None:
        self.faults.append(error)
        call.end(GrpcStatus.RESOURCE_EXHAUSTED, error.message)
        call.note_gone()

    # the methods

    async def _unary(self, call: ServerCall) -> None:
        request: Any = messages()["SimpleRequest"].FromString(call.request)
        self.compressed += call.is_compressed
        if request.HasField("expect_compressed") and request.expect_compressed.value != call.is_compressed:
            words = f"The request is {'' if call.is_compressed else 'not '}compressed."
            raise StatusRaised(GrpcStatus.INVALID_ARGUMENT, words)
        _raise_asked_status(request)
        call.answer(messages()["SimpleResponse"](payload=_payload(request.response_size)).SerializeToString())

    async def _download(self, call: ServerCall) -> None:
        await self._send_asked(call, messages()["StreamingOutputCallRequest"].FromString(call.request))
        call.end()

    async def _sum(self, call: ServerCall) -> None:
        total_bytes = 0
        while (raw := await call.next_message()) is not None:
            request: Any = messages()["StreamingInputCallRequest"].FromString(raw)
            total_bytes += len(request.payload.body)
        answer = messages()["StreamingInputCallResponse"](aggregated_payload_size=total_bytes)
        call.answer(answer.SerializeToString())

    async def _chat(self, call: ServerCall) -> None:
        while (raw := await call.next_message()) is not None:
            request: Any = messages()["StreamingOutputCallRequest"].FromString(raw)
            _raise_asked_status(request)
            await self._send_asked(call, request)
        call.end()

    async def _send_asked(self, call: ServerCall, request: Any) -> None:
        for asked in request.response_parameters:
            if asked.interval_us:
                await asyncio.sleep(asked.interval_us / 1e6)
            call.write(messages()["StreamingOutputCallResponse"](payload=_payload(asked.size)).SerializeToString())
            await call.ready()

    # inside

    def _begin(self, call: ServerCall, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(call, work))
        self.tasks.add(task)

        def give_up() -> None:
            self.gone.append(call.method.name)
            task.cancel()

        call.on_gone = give_up
        task.add_done_callback(self._end)

    async def _run(self, call: ServerCall, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except StatusRaised as raised:
            call.end(raised.status, str(raised))
        call.on_gone = None

    def _end(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.faults.append(error)


def _payload(size_bytes: int) -> Message:
    return messages()["Payload"](body=bytes(size_bytes))


def _raise_asked_status(request: Any) -> None:
    if request.response_status.code:
        raise StatusRaised(GrpcStatus(request.response_status.code), request.response_status.message)
