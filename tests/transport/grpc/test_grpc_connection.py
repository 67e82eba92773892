from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import threading
import tracemalloc

import pytest
from echo_service import EchoService, Wire, grpc_message, port_of

from millstream.model.clock import ManualClock
from millstream.protocol.grpc.framing import PREFIX, GrpcStatus
from millstream.protocol.http2.connection import MAX_HEADER_BLOCK_BYTES, Http2Limits
from millstream.protocol.http2.frames import GOAWAY, PING, RST_STREAM, ErrorCode, SettingId
from millstream.transport.connection_memory import FRAME_LIMIT_S, ConnectionMemory
from millstream.transport.freed_memory import FreedMemory
from millstream.transport.grpc.call import STREAM_HIGH_WATER_BYTES, WRITE_HIGH_WATER_BYTES
from millstream.transport.grpc.connection import GRANT_BYTES, MAX_REQUEST_BYTES
from millstream.transport.grpc.deadlines import TICK_S
from millstream.transport.grpc.server import IDLE_LIMIT_S, PREFACE_LIMIT_S, PROBE_AFTER_S, PROBE_TIMEOUT_S, GrpcPort
from millstream.transport.heavy_work import HEAVY_WORK, MAX_HEAVY_THREADS
from patience import eventually

MIB = 1024 * 1024
NO_WINDOW = ((SettingId.INITIAL_WINDOW_SIZE, 0),)


class Ground:
    """A port with a clock that stands still, and its wires."""

    def __init__(self, **options: object) -> None:
        self.clock = ManualClock()
        # A monotonic clock of 0 would be taken for none.
        self.clock.advance_ms(1_000_000)
        self.memory = ConnectionMemory(freed=FreedMemory(trim=lambda: None, collect=lambda: None))
        self.port, self.service = port_of(self.clock, self.memory, **options)
        self.wire = Wire(self.port)

    def advance(self, seconds: float) -> None:
        """Let time pass, with all that the port does by itself."""
        self.clock.advance_ms(round(seconds * 1000))
        self.port.end_late_calls()
        self.port.check_connections()
        self.memory.sweep(self.clock.monotonic_s())

    def left(self) -> tuple[int, int, int, int]:
        """Calls, connections, bytes of the memory and tasks."""
        return self.port.calls, self.port.connections, self.memory.used_bytes, len(self.service.tasks)


@pytest.fixture
async def ground() -> Ground:
    return Ground()


async def turn(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_all_requests_of_a_chunk_are_served_together_and_answered_in_one_write(ground: Ground) -> None:
    wire = ground.wire
    writes = []
    wire.write = lambda data: writes.append(data)  # type: ignore[method-assign,assignment]
    wire.connection._port.handler.serve = lambda calls, serve=ground.service.serve: (
        served.append(len(calls)),
        serve(calls),
    )  # type: ignore[method-assign,misc]
    served: list[int] = []
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/t.Echo/Unary"),
        ("content-type", "application/grpc"),
    )
    peer = wire.peer
    wire.send(
        *(peer.headers(number, headers) + peer.data(number, grpc_message(b"x"), ends=True) for number in (1, 3, 5))
    )
    assert (served, len(writes)) == ([3], 1)
    assert ground.left()[0] == 0


async def test_answers_that_come_later_leave_in_one_write_and_a_last_one_at_once(ground: Ground) -> None:
    """A turn more would only let a client wait that has nothing else under way."""
    wire = ground.wire
    wire.call(1, "Chat", ends=False)
    for number in (3, 5, 7):
        wire.call(number, "Wait", b"x")
    writes: list[bytes] = []
    wire.write = lambda data: writes.append(data)  # type: ignore[method-assign,assignment]
    first, *others = ground.service.waiting
    first.answer(b"a")
    assert writes == []
    await turn()
    assert len(writes) == 1
    for call in others:
        call.answer(b"b")
    await turn()
    assert len(writes) == 2
    wire.call(9, "Wait", b"x")
    ground.service.waiting[-1].answer(b"c")
    assert len(writes) == 3
    wire.call(11, "Wait", b"x")
    wire.call(13, "Wait", b"x")
    wire.send(wire.peer.reset(13))
    ground.service.waiting[-1].answer(b"d")
    assert len(writes) == 4


class TestRefusals:
    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ((("grpc-timeout", "soon"),), GrpcStatus.INTERNAL),
            ((("grpc-timeout", "999999999S"),), GrpcStatus.INTERNAL),
            ((("grpc-encoding", "snappy"),), GrpcStatus.UNIMPLEMENTED),
        ],
    )
    async def test_headers_that_cannot_be_followed_end_the_call(
        self, ground: Ground, headers: tuple[tuple[str, str], ...], status: GrpcStatus
    ) -> None:
        ground.wire.call(1, "Unary", b"x", *headers)
        assert ground.wire.status(1)[0] == status
        assert ground.left() == (0, 1, 0, 0)
        assert ground.service.took == []

    async def test_a_method_that_is_not_there_is_unimplemented(self, ground: Ground) -> None:
        ground.wire.call(1, "Nothing", b"x")
        assert ground.wire.status(1)[0] == GrpcStatus.UNIMPLEMENTED

    async def test_a_call_that_is_not_admitted_is_not_read(self, ground: Ground) -> None:
        ground.wire.call(1, "Refused", bytes(60_000), ends=False)
        assert ground.wire.status(1) == (GrpcStatus.PERMISSION_DENIED, "Nobody may.")
        assert [one.word for one in ground.wire.heard if one.kind == RST_STREAM] == [ErrorCode.NO_ERROR]
        assert ground.left() == (0, 1, 0, 0)

    @pytest.mark.parametrize("kind", ["application/grpc-web", "application/json", "application/grpcs"])
    async def test_another_content_type_is_told_so(self, ground: Ground, kind: str) -> None:
        headers = ((":method", "POST"), (":scheme", "http"), (":path", "/t.Echo/Unary"), ("content-type", kind))
        ground.wire.send(ground.wire.peer.headers(1, headers, ends=True))
        assert ground.wire.headers_of(1)[0][":status"] == "415"

    @pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"])
    async def test_each_form_of_the_content_type_of_grpc_is_taken(self, ground: Ground, kind: str) -> None:
        headers = ((":method", "POST"), (":scheme", "http"), (":path", "/t.Echo/Unary"), ("content-type", kind))
        peer = ground.wire.peer
        ground.wire.send(peer.headers(1, headers) + peer.data(1, grpc_message(b"x"), ends=True))
        assert ground.wire.data_of(1) == grpc_message(b"x")

    async def test_another_method_of_http_is_told_so(self, ground: Ground) -> None:
        headers = ((":method", "GET"), (":scheme", "http"), (":path", "/"))
        ground.wire.send(ground.wire.peer.headers(1, headers, ends=True))
        assert ground.wire.headers_of(1)[0][":status"] == "405"


class TestRequests:
    @pytest.mark.parametrize("size", [0, 1, 65_530, 4 * MIB, MAX_REQUEST_BYTES])
    async def test_a_request_of_any_size_comes_as_far_as_it_is_granted(self, ground: Ground, size: int) -> None:
        body = bytes(range(256)) * (size // 256) + bytes(size % 256)
        wire, raw = ground.wire, grpc_message(body)
        wire.call(1, "Unary", ends=False)
        sent, largest = 0, 0
        while sent < len(raw):
            room = 65_535 + wire.granted(1) - sent
            largest = max(largest, room)
            assert room > 0, "the client waits for ever"
            piece = raw[sent : sent + min(room, 16_384)]
            wire.send(wire.peer.data(1, piece))
            sent += len(piece)
        wire.send(wire.peer.data(1, ends=True))
        assert ground.service.took == [body]
        assert largest <= GRANT_BYTES + 65_535
        assert ground.left() == (0, 1, wire.connection.core.queued_bytes, 0)

    async def test_a_request_over_the_limit_is_refused_by_its_prefix(self, ground: Ground) -> None:
        ground.wire.call(1, "Unary", ends=False)
        ground.wire.send(ground.wire.peer.data(1, PREFIX.pack(0, MAX_REQUEST_BYTES + 1)))
        assert ground.wire.status(1)[0] == GrpcStatus.RESOURCE_EXHAUSTED
        assert ground.left() == (0, 1, 0, 0)

    @pytest.mark.parametrize(
        "data",
        [
            grpc_message(b"one") + grpc_message(b"two"),
            grpc_message(b"one")[:-1],
            grpc_message(b"one")[:3],
            grpc_message(b"one") + b"x",
            grpc_message(b"one", compressed=1),
        ],
        ids=["two messages", "half a message", "half a prefix", "more than a message", "compressed and not said so"],
    )
    async def test_data_that_is_not_one_message_ends_the_call(self, ground: Ground, data: bytes) -> None:
        ground.wire.call(1, "Unary", ends=False)
        ground.wire.send(ground.wire.peer.data(1, data, ends=True))
        assert ground.wire.status(1)[0] == GrpcStatus.INTERNAL
        assert (ground.left(), ground.service.took) == ((0, 1, 0, 0), [])

    async def test_a_request_byte_by_byte_is_taken(self, ground: Ground) -> None:
        ground.wire.call(1, "Unary", ends=False)
        for byte in grpc_message(b"hello"):
            ground.wire.send(ground.wire.peer.data(1, bytes((byte,))))
        assert ground.port.calls == 1
        ground.wire.send(ground.wire.peer.data(1, ends=True))
        assert ground.service.took == [b"hello"]
        assert ground.left() == (0, 1, 0, 0)

    async def test_a_request_that_comes_too_slowly_is_refused(self, ground: Ground) -> None:
        ground.wire.call(1, "Unary", ends=False)
        ground.wire.send(ground.wire.peer.data(1, grpc_message(b"hello")[:6]))
        assert ground.memory.used_bytes == 6
        ground.advance(FRAME_LIMIT_S - 1)
        assert ground.service.refused == []
        ground.advance(1)
        [error] = ground.service.refused
        assert error.label == "MS-5012"
        await turn()
        assert ground.wire.status(1)[0] == GrpcStatus.RESOURCE_EXHAUSTED
        assert ground.left() == (0, 1, 0, 0)

    async def test_a_call_without_any_request_is_given_up_in_time(self, ground: Ground) -> None:
        ground.wire.call(1, "Unary", ends=False)
        ground.advance(FRAME_LIMIT_S)
        assert len(ground.service.refused) == 1
        assert ground.left() == (0, 1, 0, 0)

    async def test_a_call_that_waits_for_its_answer_is_not_given_up_as_slow(self, ground: Ground) -> None:
        ground.wire.call(1, "Wait", b"x")
        ground.advance(10 * FRAME_LIMIT_S)
        ground.service.release()
        await turn()
        assert ground.wire.status(1) == (0, "")


class TestCompression:
    async def test_a_request_in_gzip_is_taken(self, ground: Ground) -> None:
        body = b"hello" * 100_000
        ground.wire.call(1, "Unary", None, ("grpc-encoding", "gzip"), ends=False)
        ground.wire.send(ground.wire.peer.data(1, grpc_message(gzip.compress(body), compressed=1), ends=True))
        # From a thread: it is large.
        await eventually(lambda: ground.service.took == [body])

    async def test_a_small_request_in_gzip_is_taken_at_once(self, ground: Ground) -> None:
        ground.wire.call(1, "Unary", None, ("grpc-encoding", "gzip"), ends=False)
        ground.wire.send(ground.wire.peer.data(1, grpc_message(gzip.compress(b"hello"), compressed=1), ends=True))
        assert ground.service.took == [b"hello"]

    async def test_a_client_that_goes_while_its_request_is_unpacked_is_not_served(self, ground: Ground) -> None:
        gate = threading.Event()
        # Every thread is busy, so that the request is still to be unpacked when the client goes.
        busy = [asyncio.ensure_future(HEAVY_WORK.run(1, gate.wait)) for _ in range(MAX_HEAVY_THREADS)]
        await turn()
        ground.wire.call(1, "Unary", None, ("grpc-encoding", "gzip"), ends=False)
        body = grpc_message(gzip.compress(bytes(1_000_000)), compressed=1)
        ground.wire.send(ground.wire.peer.data(1, body, ends=True))
        await turn()
        ground.wire.send(ground.wire.peer.reset(1))
        gate.set()
        await asyncio.gather(*busy)
        await eventually(lambda: HEAVY_WORK.used_bytes == 0)
        await turn()
        assert ground.service.took == []

    async def test_a_request_that_is_not_compressed_may_say_gzip(self, ground: Ground) -> None:
        ground.wire.call(1, "Unary", b"plain", ("grpc-encoding", "gzip"))
        assert ground.service.took == [b"plain"]

    async def test_a_request_that_grows_beyond_the_limit_is_refused(self, ground: Ground) -> None:
        bomb = gzip.compress(bytes(MAX_REQUEST_BYTES + 1))
        ground.wire.call(1, "Unary", None, ("grpc-encoding", "gzip"), ends=False)
        ground.wire.send(ground.wire.peer.data(1, PREFIX.pack(1, len(bomb))))
        for at in range(0, len(bomb), 16_384):
            ground.wire.send(ground.wire.peer.data(1, bomb[at : at + 16_384], ends=at + 16_384 >= len(bomb)))
        await eventually(lambda: ground.port.calls == 0)
        await turn()
        assert ground.wire.status(1)[0] == GrpcStatus.RESOURCE_EXHAUSTED
        assert (ground.left(), ground.service.took) == ((0, 1, 0, 0), [])

    @pytest.mark.parametrize("cut", [lambda raw: raw[:-1], lambda raw: raw + b"x", lambda _: b"garbage", lambda _: b""])
    async def test_a_request_that_is_no_gzip_is_refused(self, ground: Ground, cut: object) -> None:
        raw = cut(gzip.compress(b"hello"))  # type: ignore[operator]
        ground.wire.call(1, "Unary", None, ("grpc-encoding", "gzip"), ends=False)
        ground.wire.send(ground.wire.peer.data(1, grpc_message(raw, compressed=1), ends=True))
        assert ground.wire.status(1)[0] == GrpcStatus.INTERNAL
        assert (ground.left(), ground.service.took) == ((0, 1, 0, 0), [])


class TestDeadlines:
    async def test_a_call_ends_at_its_deadline_and_its_work_with_it(self, ground: Ground) -> None:
        ground.wire.call(1, "Wait", b"x", ("grpc-timeout", "500m"))
        ground.advance(0.5)
        assert ground.service.gone == []
        ground.advance(TICK_S)
        assert len(ground.service.gone) == 1
        await turn()
        assert ground.wire.status(1)[0] == GrpcStatus.DEADLINE_EXCEEDED
        assert ground.left() == (0, 1, 0, 0)

    async def test_a_call_that_was_answered_in_time_has_no_deadline_left(self, ground: Ground) -> None:
        ground.wire.call(1, "Wait", b"x", ("grpc-timeout", "500m"))
        ground.service.release()
        await turn()
        ground.advance(5)
        assert ground.wire.status(1) == (0, "")
        assert len(ground.port.deadlines) == 0

    async def test_the_deadline_of_a_half_sent_request_frees_its_memory(self, ground: Ground) -> None:
        ground.wire.call(1, "Unary", None, ("grpc-timeout", "1S"), ends=False)
        ground.wire.data(1, grpc_message(bytes(50_000))[:40_000])
        assert ground.memory.used_bytes == 40_000
        ground.advance(1.2)
        await turn()
        assert ground.wire.status(1)[0] == GrpcStatus.DEADLINE_EXCEEDED
        assert ground.left() == (0, 1, 0, 0)

    async def test_the_deadline_of_an_answer_that_waits_for_a_window_drops_it(self, ground: Ground) -> None:
        wire = Wire(ground.port, settings=NO_WINDOW)
        wire.call(1, "Download", b"10 50000", ("grpc-timeout", "1S"))
        await turn()
        assert wire.connection.core.queued_bytes > STREAM_HIGH_WATER_BYTES
        ground.advance(1.2)
        await turn()
        assert len(ground.service.gone) == 1
        assert (wire.connection.core.queued_bytes, wire.connection.calls) == (0, 0)
        assert ground.left() == (0, 2, 0, 0)


class TestEnds:
    async def test_an_answer_that_waits_for_a_window_is_ended_once(self, ground: Ground) -> None:
        wire = Wire(ground.port, settings=NO_WINDOW)
        wire.call(1, "Wait", b"x")
        [call] = ground.service.waiting
        call.on_gone = None
        call.write(b"hello")
        call.end(GrpcStatus.UNAVAILABLE, "It stops.")
        call.end(GrpcStatus.CANCELLED)
        call.answer(b"more")
        call.write(b"more")
        call.flush()
        assert ground.port.calls == 0
        wire.send(wire.peer.window(1, 1000))
        assert wire.data_of(1) == grpc_message(b"hello")
        assert wire.status(1) == (GrpcStatus.UNAVAILABLE, "It stops.")

    async def test_a_call_that_its_client_gives_up_is_told_once(self, ground: Ground) -> None:
        ground.wire.call(1, "Wait", b"x", ("grpc-timeout", "5S"))
        ground.wire.send(ground.wire.peer.reset(1))
        ground.wire.vanish()
        ground.advance(10)
        assert len(ground.service.gone) == 1
        assert ground.left() == (0, 0, 0, 0)

    async def test_a_stream_that_its_client_gives_up_behind_a_large_answer_is_told(self, ground: Ground) -> None:
        ground.wire.call(1, "Chat", bytes(40_000), ends=False)
        await turn()
        ground.wire.send(ground.wire.peer.data(1, grpc_message(b"again")))
        await turn()
        assert len(ground.service.took) == 2
        ground.wire.send(ground.wire.peer.reset(1))
        await turn()
        assert len(ground.service.gone) == 1
        assert ground.left() == (0, 1, 0, 0)

    @pytest.mark.parametrize(
        "stage", ["preface", "block", "headers", "prefix", "half", "waiting", "answering", "chatting"]
    )
    async def test_a_client_that_vanishes_at_any_stage_leaves_nothing(self, stage: str) -> None:
        ground = Ground()
        ground.wire.vanish()
        wire = Wire(ground.port, settings=NO_WINDOW if stage == "answering" else (), begins=stage != "preface")
        if stage == "block":
            wire.send(b"\x00\x00\x05\x01\x00\x00\x00\x00\x01" + bytes(5))
            assert ground.memory.used_bytes == 5
        elif stage == "headers":
            wire.call(1, "Unary", ends=False)
        elif stage == "prefix":
            wire.call(1, "Unary", ends=False)
            wire.send(wire.peer.data(1, b"\0\0"))
        elif stage == "half":
            wire.call(1, "Unary", ends=False)
            wire.data(1, grpc_message(bytes(50_000))[:30_000])
        elif stage == "waiting":
            wire.call(1, "Wait", b"x", ("grpc-timeout", "5S"))
        elif stage == "answering":
            wire.call(1, "Download", b"100 50000")
            await turn()
            assert ground.memory.used_bytes > 0
        elif stage == "chatting":
            wire.call(1, "Chat", b"hello", ends=False)
            await turn()
            wire.send(wire.peer.data(1, grpc_message(b"again")[:-1]))
        wire.vanish()
        await turn()
        assert ground.left() == (0, 0, 0, 0)
        assert len(ground.port.deadlines) == 0
        assert ground.memory.frames.waiting == 0


class TestStreams:
    async def test_each_message_is_answered_in_order(self, ground: Ground) -> None:
        ground.wire.call(1, "Chat", b"0", ends=False)
        raw = b"".join(grpc_message(str(number).encode()) for number in range(1, 50))
        for at in range(0, len(raw), 7):
            ground.wire.send(ground.wire.peer.data(1, raw[at : at + 7]))
        ground.wire.send(ground.wire.peer.data(1, ends=True))
        await turn(200)
        assert ground.service.took == [str(number).encode() for number in range(50)]
        assert ground.wire.data_of(1) == grpc_message(b"0") + raw
        assert ground.wire.status(1) == (0, "")

    async def test_a_stream_that_ends_within_a_message_is_refused(self, ground: Ground) -> None:
        ground.wire.call(1, "Chat", ends=False)
        ground.wire.send(ground.wire.peer.data(1, grpc_message(b"hello")[:-1], ends=True))
        await turn()
        assert ground.wire.status(1)[0] == GrpcStatus.INTERNAL
        assert ground.left() == (0, 1, 0, 0)

    async def test_a_message_that_is_compressed_is_unpacked(self, ground: Ground) -> None:
        ground.wire.call(1, "Chat", None, ("grpc-encoding", "gzip"), ends=False)
        ground.wire.send(ground.wire.peer.data(1, grpc_message(gzip.compress(b"hello"), compressed=1), ends=True))
        await turn()
        assert ground.service.took == [b"hello"]

    async def test_many_tiny_messages_of_a_chunk_cost_no_more_than_their_bytes(self, ground: Ground) -> None:
        """Each was cut off the rest of all, which grows by the square."""
        copied = 0

        class Counted(bytes):
            def __getitem__(self, key: object) -> bytes:  # type: ignore[override]
                nonlocal copied
                found = bytes.__getitem__(self, key)  # type: ignore[index]
                if isinstance(key, slice):
                    copied += len(found)
                    return Counted(found)
                return found

        ground.wire.call(1, "Chat", ends=False)
        stream = ground.wire.connection.core.streams[1]
        take = type(stream).take_inbox
        raw = grpc_message(b"") * 12_000
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(stream), "take_inbox", lambda stream: Counted(take(stream)))
            ground.wire.send(*(ground.wire.peer.data(1, raw[at : at + 15_000]) for at in range(0, len(raw), 15_000)))
        assert copied <= 20 * len(raw)
        for _ in range(40):
            await turn(1000)
        assert len(ground.service.took) == 12_000

    async def test_a_client_may_send_no_more_than_is_taken(self, ground: Ground) -> None:
        """However large the messages were that were taken: what may come again is what the stream began with."""
        wire = ground.wire
        wire.call(1, "Chat", ends=False)
        sent = 0
        for round_ in range(4):
            raw = grpc_message(bytes(2 * MIB))
            ground.service.may_read.clear()
            at = 0
            while at < len(raw) and (room := 65_535 + wire.granted(1) - sent) > 0:
                piece = raw[at : at + min(room, 16_384)]
                wire.send(wire.peer.data(1, piece))
                at += len(piece)
                sent += len(piece)
            assert at == len(raw), f"the message of round {round_} does not come through"
            ground.service.may_read.set()
            wire.send(wire.peer.window(0, 4 * MIB), wire.peer.window(1, 4 * MIB))
            await turn(50)
            assert len(ground.service.took) == round_ + 1
            assert 0 < 65_535 + wire.granted(1) - sent <= 65_535

    async def test_a_client_that_never_stops_sending_is_not_taken_for_a_slow_one(self, ground: Ground) -> None:
        """The end of each message comes with the beginning of the next, so that something is always half there."""
        ground.wire.call(1, "Chat", ends=False)
        message = grpc_message(bytes(1000))
        ground.wire.data(1, message[:100])
        for _ in range(2 * int(FRAME_LIMIT_S)):
            ground.advance(1)
            ground.wire.data(1, message[100:] + message[:100])
            await turn()
            assert ground.memory.used_bytes == 100
        assert ground.service.refused == []
        assert len(ground.service.took) == 2 * FRAME_LIMIT_S

    async def test_messages_that_nobody_takes_count_as_memory_and_hold_their_sender_back(self, ground: Ground) -> None:
        wire = ground.wire
        ground.service.may_read.clear()
        wire.call(1, "Chat", b"first", ends=False)
        await turn()
        sent = len(grpc_message(b"first"))
        raw = grpc_message(bytes(MIB)) * 8
        at = 0
        while at < len(raw) and (room := 65_535 + wire.granted(1) - sent) > 0:
            piece = raw[at : at + min(room, 16_384)]
            wire.send(wire.peer.data(1, piece))
            at += len(piece)
            sent += len(piece)
        assert at < 2 * MIB
        assert ground.memory.used_bytes >= at - 65_535
        wire.vanish()
        await turn()
        assert ground.left() == (0, 0, 0, 0)


class TestSlowReaders:
    async def test_an_answer_is_made_as_far_as_its_client_reads(self, ground: Ground) -> None:
        wire = Wire(ground.port, settings=NO_WINDOW)
        wire.call(1, "Download", b"1000 10000")
        await turn()
        assert STREAM_HIGH_WATER_BYTES < wire.connection.core.queued_bytes < STREAM_HIGH_WATER_BYTES + 42_000
        read = 0
        while ground.service.written < 1000 or wire.connection.core.queued_bytes:
            wire.send(wire.peer.window(1, 30_000), wire.peer.window(0, 30_000))
            await turn()
            read += 30_000
            assert wire.connection.core.queued_bytes < STREAM_HIGH_WATER_BYTES + 42_000
            assert read < 12_000_000
        assert len(wire.data_of(1)) == 1000 * 10_005
        assert ground.left() == (0, 2, 0, 0)

    async def test_a_socket_that_is_not_read_stops_its_answers_and_then_its_requests(self, ground: Ground) -> None:
        wire = Wire(ground.port)
        wire.send(wire.peer.settings((SettingId.INITIAL_WINDOW_SIZE, 2**30)), wire.peer.window(0, 2**30))
        wire.read(0)
        wire.call(1, "Download", b"1000 50000")
        await turn(2000)
        held = wire.connection._measure_unread()
        assert WRITE_HIGH_WATER_BYTES <= held < WRITE_HIGH_WATER_BYTES + 200_000
        assert not wire.reads
        # Another connection is served meanwhile.
        ground.wire.call(1, "Unary", b"hello")
        assert ground.wire.data_of(1) == grpc_message(b"hello")
        wire.read(None)
        await turn(5000)
        assert wire.reads
        assert len(wire.data_of(1)) == 1000 * 50_005
        assert ground.left() == (0, 2, 0, 0)

    async def test_a_stream_that_is_given_up_unread_frees_its_memory_at_once(self, ground: Ground) -> None:
        wire = Wire(ground.port, settings=NO_WINDOW)
        wire.call(1, "Download", b"100 50000")
        await turn()
        assert ground.memory.used_bytes > 0
        wire.send(wire.peer.reset(1))
        await turn()
        assert ground.left() == (0, 2, 0, 0)

    async def test_the_other_answers_go_on_when_the_unread_one_is_given_up(self, ground: Ground) -> None:
        wire = Wire(ground.port, settings=NO_WINDOW)
        wire.send(wire.peer.window(0, 100 * MIB))
        wire.call(1, "Wait", b"x")
        [call] = ground.service.waiting
        call.write(bytes(WRITE_HIGH_WATER_BYTES))
        call.flush()
        await turn()
        assert wire.connection.is_stuffed
        wire.call(3, "Download", b"20 5000")
        await turn()
        wire.send(wire.peer.window(3, 100 * MIB))
        await turn()
        assert ground.service.written < 20
        wire.send(wire.peer.reset(1))
        await turn(200)
        assert len(wire.data_of(3)) == 20 * 5005

    async def test_who_waits_for_room_ends_when_its_client_is_gone_and_another_stuffs_the_connection(
        self, ground: Ground
    ) -> None:
        wire = Wire(ground.port, settings=NO_WINDOW)
        wire.call(1, "Wait", b"x")
        wire.call(3, "Wait", b"x")
        first, second = ground.service.waiting
        first.write(bytes(WRITE_HIGH_WATER_BYTES))
        first.flush()
        second.write(b"hello")
        waits = asyncio.create_task(second.ready())
        await turn()
        assert not waits.done()
        wire.send(wire.peer.reset(3))
        await turn()
        assert waits.done()

    async def test_a_window_that_opens_a_little_wakes_only_who_may_go_on(self, ground: Ground) -> None:
        wire = Wire(ground.port, settings=NO_WINDOW)
        for number in range(20):
            wire.call(2 * number + 1, "Download", b"10 40000")
        await turn()
        woken = 0
        for call in ground.service.tasks.values():
            task_writer = call._writer
            assert task_writer is not None
            task_writer.add_done_callback(lambda _: _count())

        def _count() -> None:
            nonlocal woken
            woken += 1

        wire.send(wire.peer.window(1, 70_000))
        await turn()
        assert woken == 1
        wire.vanish()

    async def test_answers_that_nobody_reads_close_their_connection_before_the_memory_is_gone(
        self, ground: Ground
    ) -> None:
        wires = [Wire(ground.port, settings=NO_WINDOW) for _ in range(8)]
        most = 0
        number = 1
        while not any(wire.is_closed for wire in wires):
            for wire in wires:
                wire.call(number, "Wait", b"x")
            for call in list(ground.service.waiting):
                call.answer(bytes(4 * MIB))
            ground.service.waiting.clear()
            await turn()
            most = max(most, ground.memory.used_bytes)
            number += 2
        assert most <= 280 * MIB
        assert sum(wire.is_aborted for wire in wires) < 8
        ground.wire.call(1, "Unary", b"hello")
        assert ground.wire.data_of(1) == grpc_message(b"hello")

    async def test_streams_that_wait_for_a_window_count_with_what_they_take_themselves(self, ground: Ground) -> None:
        wire = Wire(ground.port, settings=NO_WINDOW)
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(1000):
                wire.call(2 * number + 1, "Unary", b"x")
            wire.hear()
            wire.heard.clear()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert wire.connection.calls == 1000
        assert ground.memory.used_bytes >= held // 4


class TestHeaderBlocks:
    async def test_headers_that_do_not_end_count_as_memory_and_are_given_up_in_time(self, ground: Ground) -> None:
        wire = Wire(ground.port)
        block = bytes(16_384)
        wire.send(b"\x00\x40\x00\x01\x00\x00\x00\x00\x01" + block)
        wire.send(*(wire.peer.continuation(1, block) for _ in range(MAX_HEADER_BLOCK_BYTES // 16_384 - 2)))
        assert ground.memory.used_bytes > MAX_HEADER_BLOCK_BYTES // 2
        for _ in range(int(FRAME_LIMIT_S)):
            ground.advance(1)
            if not wire.is_closed:
                wire.send(wire.peer.continuation(1, b"\0"))
        await turn()
        assert wire.is_closed
        assert ground.left() == (0, 1, 0, 0)


class TestChecks:
    async def test_who_does_not_speak_http2_in_time_is_closed(self, ground: Ground) -> None:
        wire = Wire(ground.port, begins=False)
        wire.send(b"PRI * HTTP/2.0\r\n")
        ground.advance(PREFACE_LIMIT_S - 0.1)
        assert not wire.is_closed
        ground.advance(0.1)
        assert wire.is_closed

    async def test_a_silent_client_is_asked_for_a_sign_of_life_and_closed_without_one(self, ground: Ground) -> None:
        ground.wire.call(1, "Wait", b"x")
        ground.advance(PROBE_AFTER_S)
        assert [one.kind for one in ground.wire.hear()][-1] == PING
        ground.advance(PROBE_TIMEOUT_S - 0.1)
        assert not ground.wire.is_closed
        ground.advance(0.1)
        await turn()
        assert ground.wire.is_closed
        assert len(ground.service.gone) == 1

    async def test_a_client_that_waits_and_answers_pings_stays_for_ever(self, ground: Ground) -> None:
        ground.wire.call(1, "Wait", b"x")
        self._live(ground, ground.wire, 5 * IDLE_LIMIT_S)
        assert not ground.wire.is_closed

    async def test_a_client_without_a_call_is_closed_in_good_order_though_it_answers_pings(
        self, ground: Ground
    ) -> None:
        ground.wire.call(1, "Unary", b"x")
        self._live(ground, ground.wire, IDLE_LIMIT_S - 10)
        assert not ground.wire.is_closed
        self._live(ground, ground.wire, 20)
        assert ground.wire.is_closed
        assert not ground.wire.is_aborted
        ground.wire.hear()
        [goaway] = [one for one in ground.wire.heard if one.kind == GOAWAY]
        assert (goaway.word, goaway.content[4:8]) == (1, bytes(4))

    async def test_a_client_that_calls_now_and_then_is_not_idle(self, ground: Ground) -> None:
        for number in range(10):
            ground.wire.call(2 * number + 1, "Unary", b"x")
            self._live(ground, ground.wire, IDLE_LIMIT_S / 2)
        assert not ground.wire.is_closed

    @staticmethod
    def _live(ground: Ground, wire: Wire, seconds: float) -> None:
        """Time passes, and the client answers pings."""
        for _ in range(int(seconds / 2)):
            ground.advance(2)
            if wire.is_closed:
                return
            wire.send(*(wire.peer.ping(one.content, 1) for one in wire.hear() if one.kind == PING))


class TestViolations:
    async def test_a_violation_closes_behind_goaway_and_is_one_line_of_the_log(
        self, ground: Ground, caplog: pytest.LogCaptureFixture
    ) -> None:
        ground.wire.call(1, "Wait", b"x")
        with caplog.at_level(logging.INFO):
            for _ in range(20):
                wire = Wire(ground.port)
                wire.send(wire.peer.window(0, 0))
                wire.send(wire.peer.window(0, 0))
                assert wire.is_closed
            ground.wire.send(ground.wire.peer.data(9, b"x"))
        await turn()
        [record] = caplog.records
        assert record.getMessage() == (
            "Closing the connection from 192.0.2.7:4711. WINDOW_UPDATE adds nothing. [PROTOCOL_ERROR]"
        )
        ground.wire.hear()
        assert ground.wire.heard[-1].kind == GOAWAY
        assert ground.left() == (0, 0, 0, 0)
        assert len(ground.service.gone) == 1

    async def test_a_violation_of_a_client_that_does_not_read_closes_as_well(self, ground: Ground) -> None:
        wire = Wire(ground.port)
        wire.read(0)
        wire.send(wire.peer.settings((SettingId.INITIAL_WINDOW_SIZE, 2**30)), wire.peer.window(0, 2**30))
        wire.call(1, "Wait", b"x")
        ground.service.waiting[0].answer(bytes(WRITE_HIGH_WATER_BYTES + 1))
        await turn()
        wire.send(wire.peer.window(0, 0))
        await turn()
        assert wire.is_aborted
        assert ground.left() == (0, 1, 0, 0)


async def test_one_more_stream_than_the_limit_is_refused(ground: Ground) -> None:
    assert ground.port.http2_limits.max_streams == 10_000
    for number in range(10_000):
        ground.wire.call(2 * number + 1, "Wait", b"x")
    assert ground.port.calls == 10_000
    ground.wire.call(20_001, "Wait", b"x")
    assert ground.port.calls == 10_000
    [reset] = [one for one in ground.wire.hear() if one.kind == RST_STREAM]
    assert (reset.stream, reset.word) == (20_001, ErrorCode.REFUSED_STREAM)
    ground.wire.vanish()
    assert ground.left() == (0, 0, 0, 0)


async def test_a_port_knows_how_many_calls_are_under_way(ground: Ground) -> None:
    port: GrpcPort = ground.port
    service: EchoService = ground.service
    ground.wire.call(1, "Wait", b"x")
    ground.wire.call(3, "Wait", b"x")
    assert port.calls == 2
    service.release()
    assert port.calls == 0


def test_limits_are_what_the_port_says() -> None:
    assert Http2Limits().max_streams == 10_000
