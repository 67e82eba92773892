"""A small service for tests of the gRPC port, and a wire without sockets whose peer reads as it likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from http2_peer import REQUEST, RawPeer, SentFrame, read_frames
from millstream.model.clock import Clock, ManualClock
from millstream.model.errors import ConnectionFailed
from millstream.protocol.grpc.framing import PREFIX, GrpcStatus
from millstream.protocol.http2.frames import DEFAULT_FRAME_BYTES, PREFACE, WINDOW_UPDATE
from millstream.protocol.http2.hpack import Header, HeaderDecoder
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.grpc.call import GrpcMethod, ServerCall
from millstream.transport.grpc.connection import GrpcConnection
from millstream.transport.grpc.server import GrpcPort

__all__ = ["METHODS", "EchoService", "Wire", "grpc_message", "port_of", "serving"]

METHODS = [
    ("/t.Echo/Unary", GrpcMethod("Unary")),
    ("/t.Echo/Wait", GrpcMethod("Wait")),
    ("/t.Echo/Download", GrpcMethod("Download")),
    ("/t.Echo/Chat", GrpcMethod("Chat", streams=True)),
    ("/t.Echo/Refused", GrpcMethod("Refused")),
]


def grpc_message(body: bytes, *, compressed: int = 0) -> bytes:
    """A message as it stands in the data of a call."""
    return PREFIX.pack(compressed, len(body)) + body


class EchoService:
    """Unary and Chat answer what they get, Download answers `COUNT SIZE` with so many messages, Wait answers when
    `release` is called. `took` are the requests, `gone` the calls that were given up, `refused` what was too slow."""

    def __init__(self) -> None:
        self.took: list[bytes] = []
        self.gone: list[ServerCall] = []
        self.refused: list[ConnectionFailed] = []
        self.waiting: list[ServerCall] = []
        self.tasks: dict[asyncio.Task[None], ServerCall] = {}
        self.written = 0
        """Messages that Download has written."""
        self.may_read = asyncio.Event()
        """Chat takes no message while this is clear."""
        self.may_read.set()

    def admit(self, call: ServerCall) -> None:
        if call.method.name == "Refused":
            call.end(GrpcStatus.PERMISSION_DENIED, "Nobody may.")

    def serve(self, calls: list[ServerCall]) -> None:
        for call in calls:
            self.took.append(call.request)
            if call.method.name == "Unary":
                call.answer(call.request)
            elif call.method.name == "Download":
                self._begin(call, self._download(call))
            else:
                self.waiting.append(call)
                call.on_gone = lambda call=call: self._note_gone(call)  # type: ignore[misc]

    def open(self, call: ServerCall) -> None:
        self._begin(call, self._chat(call))

    def refuse(self, call: ServerCall, error: ConnectionFailed) -> None:
        self.refused.append(error)
        call.end(GrpcStatus.RESOURCE_EXHAUSTED, error.message)
        call.note_gone()

    def release(self) -> None:
        """Answer those who wait."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call.answer(b"released")

    def end_waits(self) -> None:
        """End what would go on for ever."""
        self.release()
        for task, call in list(self.tasks.items()):
            call.end(GrpcStatus.UNAVAILABLE, "The server stops.")
            task.cancel()

    def _begin(self, call: ServerCall, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self.tasks[task] = call

        def give_up() -> None:
            self._note_gone(call)
            task.cancel()

        call.on_gone = give_up
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        call = self.tasks.pop(task)
        call.on_gone = None
        call.end(GrpcStatus.CANCELLED if task.cancelled() else GrpcStatus.OK)

    def _note_gone(self, call: ServerCall) -> None:
        self.gone.append(call)
        if call in self.waiting:
            self.waiting.remove(call)

    async def _download(self, call: ServerCall) -> None:
        count, size = map(int, call.request.split())
        for number in range(count):
            call.write(number.to_bytes(4, "big") + bytes(size - 4))
            self.written += 1
            if call.is_stuffed:
                await call.ready()

    async def _chat(self, call: ServerCall) -> None:
        while (message := await call.next_message()) is not None:
            self.took.append(message)
            call.write(message)
            await call.ready()
            await self.may_read.wait()


def port_of(
    clock: Clock | None = None, memory: ConnectionMemory | None = None, **options: Any
) -> tuple[GrpcPort, EchoService]:
    """A port that does not listen, and its service."""
    port = GrpcPort(METHODS, clock=clock or ManualClock(), memory=memory, **options)
    port.handler = service = EchoService()
    return port, service


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[GrpcPort, EchoService, int]]:
    """A port that listens; at the end nothing may be left of its calls and connections."""
    port, service = port_of(**{"clock": None, **options})
    bound = await port.start()
    try:
        yield port, service, bound
    finally:
        service.end_waits()
        await port.close(0)
        assert (port.calls, port.connections, service.tasks) == (0, 0, {})


class Wire(asyncio.Transport):
    """One connection of a port, its client and what lies between them. The client reads `room` bytes, all where that
    is None."""

    def __init__(self, port: GrpcPort, *, settings: tuple[tuple[int, int], ...] = (), begins: bool = True) -> None:
        super().__init__()
        self.room: int | None = None
        self.reads = True
        self.is_closed = False
        self.is_aborted = False
        self._kept = bytearray()
        self._received = bytearray()
        self._decoder = HeaderDecoder(max_list_bytes=1 << 20)
        self.heard: list[SentFrame] = []
        self.peer = RawPeer(begins=False)
        """Makes the frames; its own core is not used."""
        self.connection = GrpcConnection(port)
        self.connection.connection_made(self)
        if begins:
            self.send(PREFACE + self.peer.settings(*settings))

    # the client

    def send(self, *raw: bytes) -> None:
        """Bytes of the client arrive."""
        if not self.is_closed:
            self.connection.data_received(b"".join(raw))

    def call(
        self, number: int, method: str, body: bytes | None = None, *more: Header, ends: bool = True
    ) -> None:  # fmt: skip
        """Begin a call, with its message if there is one."""
        headers = tuple((name, f"/t.Echo/{method}" if name == ":path" else value) for name, value in REQUEST)
        self.send(self.peer.headers(number, (*headers, *more), ends=body is None and ends))
        if body is not None:
            self.data(number, grpc_message(body), ends=ends)

    def data(self, number: int, content: bytes, *, ends: bool = False) -> None:
        """Data of a call in frames as large as they may be, all in one chunk."""
        pieces = [content[at : at + DEFAULT_FRAME_BYTES] for at in range(0, len(content), DEFAULT_FRAME_BYTES)] or [b""]
        self.send(*(self.peer.data(number, one, ends=ends and one is pieces[-1]) for one in pieces))

    def hear(self) -> list[SentFrame]:
        """The frames that the client has read since the last look."""
        raw = bytes(self._received)
        whole = 0
        while len(raw) - whole >= 9 and len(raw) - whole - 9 >= (length := int.from_bytes(raw[whole : whole + 3])):
            whole += 9 + length
        del self._received[:whole]
        found = read_frames(raw[:whole])
        self.heard += found
        return found

    def headers_of(self, number: int) -> list[dict[str, str]]:
        """The header blocks of a stream; to be asked once, for blocks are read in order."""
        self.hear()
        blocks = [(one.stream, dict(self._decoder.decode(one.content))) for one in self.heard if one.kind == 1]
        return [block for stream, block in blocks if stream == number]

    def status(self, number: int) -> tuple[int, str]:
        """How a call ended, as its trailers say; to be asked once."""
        last = self.headers_of(number)[-1]
        return int(last["grpc-status"]), last.get("grpc-message", "")

    def data_of(self, number: int) -> bytes:
        self.hear()
        return b"".join(one.content for one in self.heard if one.kind == 0 and one.stream == number)

    def granted(self, number: int) -> int:
        self.hear()
        return sum(one.word for one in self.heard if one.kind == WINDOW_UPDATE and one.stream == number)

    def read(self, size_bytes: int | None) -> None:
        """The client reads on."""
        self.room = size_bytes
        had = bool(self._kept)
        self._pass_on()
        if had and not self._kept:
            self.connection.resume_writing()

    def vanish(self) -> None:
        """The connection is gone."""
        self.is_closed = True
        self.connection.connection_lost(None)

    # asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed, "written after the end"
        had = bool(self._kept)
        self._kept += data
        self._pass_on()
        if self._kept and not had:
            self.connection.pause_writing()

    def _pass_on(self) -> None:
        size = len(self._kept) if self.room is None else min(self.room, len(self._kept))
        self._received += self._kept[:size]
        del self._kept[:size]
        if self.room is not None:
            self.room -= size

    def get_write_buffer_size(self) -> int:
        return len(self._kept)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.7", 4711) if name == "peername" else default

    def is_closing(self) -> bool:
        return self.is_closed

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def abort(self) -> None:
        self.is_aborted = True
        self._kept.clear()
        self.close()
