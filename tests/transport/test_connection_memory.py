"""What strangers can make a server hold: half-sent frames and unread answers, on connections without sockets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable

import pytest

from millstream.model.clock import ManualClock
from millstream.model.message import Address
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame
from millstream.transport.connection_memory import (
    FRAME_LIMIT_S,
    UNREAD_LIMIT_S,
    ConnectionMemory,
    HalfFrames,
    UnreadAnswers,
)
from millstream.transport.freed_memory import FreedMemory
from millstream.transport.late_answers import LATE_AT_ONCE, LateAnswers
from millstream.transport.remoting_connection import MAX_UNSIGNED_BYTES, WRITE_HIGH_WATER_BYTES, Connection
from millstream.transport.remoting_server import RemotingServer

MIB = 1024 * 1024
LARGE, SMALL = 1, 2


class Wire(asyncio.Transport):
    """A transport whose peer reads `read` bytes, all of them where that is None."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.room: int | None = 0
        self.received = bytearray()
        self.kept = bytearray()
        self.reads = True
        self.is_closed = False
        connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.kept += data
        self.pass_on()
        if self.kept:
            self.connection.pause_writing()

    def pass_on(self) -> None:
        size = len(self.kept) if self.room is None else min(self.room, len(self.kept))
        self.received += self.kept[:size]
        del self.kept[:size]
        if self.room is not None:
            self.room -= size

    def read(self, size_bytes: int | None) -> None:
        """The peer reads on."""
        self.room = size_bytes
        had = bool(self.kept)
        self.pass_on()
        if had and not self.kept:
            self.connection.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.kept)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    close = abort

    def arrive(self, data: bytes) -> None:
        """The peer sends; in pieces, as long as it is read from."""
        left = memoryview(data)
        while left and self.reads and not self.is_closed:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            self.connection.buffer_updated(size)

    def send(self, *codes: int) -> None:
        """The peer asks, all in one chunk."""
        self.arrive(b"".join(b"".join(encode_frame(RemotingCommand(code, opaque=n))) for n, code in enumerate(codes)))

    @property
    def answers(self) -> list[int]:
        return [answer.opaque for answer in FrameDecoder().feed(bytes(self.received))]


class Gate:
    """Lets requests in that have the field `signed`."""

    def check(self, command: RemotingCommand, peer: Address) -> None:
        if "signed" not in command.ext:
            raise PermissionError("not signed")


class Ground:
    """A server without a port, whose memory is small."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.given_back = 0
        self.memory = ConnectionMemory(freed=FreedMemory(trim=self._count, collect=lambda: None, resident=lambda: 0))
        self.memory.frames = HalfFrames(16 * MIB, 16 * MIB)
        self.memory.unsigned_frames = HalfFrames(4 * MIB, 4 * MIB)
        self.memory.answers = UnreadAnswers(24 * MIB)
        self.served: list[int] = []
        self.wakes: list[asyncio.Future[None]] = []
        handlers = {LARGE: self.large, SMALL: self.small}
        self.server = RemotingServer(handlers, clock=self.clock, memory=self.memory)

    def _count(self) -> None:
        self.given_back += 1

    def large(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.served.append(command.opaque)
        return command.response(body_parts=(memoryview(bytes(MIB)),))

    def small(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.served.append(command.opaque)
        return command.response(body=b"small")

    def connect(self) -> Wire:
        return Wire(Connection(self.server, self.clock))

    def sweep(self, after_s: float) -> None:
        self.clock.advance_ms(int(after_s * 1000))
        self.memory.sweep(self.clock.monotonic_s())


@pytest.fixture
async def ground() -> Ground:
    return Ground()


def half(announced_bytes: int, sent_bytes: int, header: bytes = b'{"code":2}') -> bytes:
    return struct.pack(">iBBH", announced_bytes, 0, 0, len(header)) + header + bytes(sent_bytes)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_chunk_of_pulls_is_served_no_further_than_the_peer_reads(ground: Ground) -> None:
    wire = ground.connect()
    wire.send(*[LARGE] * 100)
    limit = WRITE_HIGH_WATER_BYTES // MIB
    assert len(ground.served) == limit
    assert not wire.reads
    wire.read(10 * MIB)
    await settle()
    assert len(ground.served) <= limit + 11
    wire.read(None)
    await settle()
    assert wire.answers == list(range(100))
    assert wire.reads
    assert ground.memory.used_bytes == 0


async def test_requests_of_a_connection_that_is_gone_are_dropped(ground: Ground) -> None:
    wire = ground.connect()
    wire.send(*[LARGE] * 100)
    served = len(ground.served)
    wire.abort()
    await settle()
    assert len(ground.served) == served
    assert ground.memory.used_bytes == 0


async def test_all_connections_share_one_budget_of_answers_and_a_peer_that_reads_is_served(ground: Ground) -> None:
    greedy = [ground.connect() for _ in range(12)]
    for wire in greedy:
        wire.send(*[LARGE] * 100)
    assert ground.memory.answers.used_bytes <= 30 * MIB
    healthy = ground.connect()
    healthy.room = None
    healthy.send(SMALL, SMALL)
    assert healthy.answers == [0, 1]
    ground.sweep(UNREAD_LIMIT_S)
    assert any(wire.is_closed for wire in greedy)
    assert not healthy.is_closed
    assert ground.memory.answers.used_bytes <= 24 * MIB


async def test_an_answer_in_small_pieces_is_handed_over_as_the_peer_reads(ground: Ground) -> None:
    wire = ground.connect()
    wire.send(LARGE, LARGE)
    assert len(wire.kept) <= MIB // 2
    wire.read(None)
    assert wire.answers == [0, 1]


async def test_half_frames_of_all_connections_share_one_budget_and_small_ones_go_through(ground: Ground) -> None:
    wires = [ground.connect() for _ in range(30)]
    data = half(16_000_000, 15_000_000)
    for wire in wires:
        wire.arrive(data)
    assert ground.memory.frames.used_bytes <= 20 * MIB
    healthy = ground.connect()
    healthy.room = None
    healthy.send(SMALL)
    assert healthy.answers == [0]
    for wire in wires:
        wire.abort()
    await settle()
    assert ground.memory.used_bytes == 0


async def test_a_half_sent_frame_has_a_deadline(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    wire = ground.connect()
    wire.arrive(half(1000, 10))
    ground.sweep(FRAME_LIMIT_S - 1)
    assert not wire.is_closed
    ground.sweep(1)
    assert wire.is_closed
    assert "MS-5012" in caplog.text


async def test_a_connection_that_sends_whole_frames_all_the_time_meets_no_deadline(ground: Ground) -> None:
    wire = ground.connect()
    wire.room = None
    frame = b"".join(encode_frame(RemotingCommand(SMALL)))
    wire.arrive(frame[:10])
    for _ in range(int(FRAME_LIMIT_S) + 2):
        ground.sweep(1)
        wire.arrive(frame[10:] + frame[:10])
    assert not wire.is_closed


async def test_before_a_connection_signed_its_large_frames_are_refused_unless_they_say_who_signed(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    ground.server.gate = Gate()  # type: ignore[assignment]
    silent, signing = ground.connect(), ground.connect()
    silent.arrive(half(MAX_UNSIGNED_BYTES + 1, 10))
    assert silent.is_closed
    assert "MS-5017" in caplog.text
    header = b'{"code":2,"extFields":{"AccessKey":"a","Signature":"b","signed":"1"}}'
    signing.room = None
    frame = half(MIB + len(header) + 4, MIB, header)
    signing.arrive(frame[:-10])
    assert ground.memory.unsigned_frames.used_bytes > 0
    signing.arrive(frame[-10:])
    assert len(signing.answers) == 1
    signing.arrive(half(16_000_000, 2 * MIB))
    assert not signing.is_closed
    assert ground.memory.unsigned_frames.used_bytes == 0
    assert ground.memory.frames.used_bytes > 0


async def test_strangers_cannot_use_up_the_memory_of_those_who_signed(ground: Ground) -> None:
    ground.server.gate = Gate()  # type: ignore[assignment]
    header = b'{"code":2,"extFields":{"AccessKey":"a","Signature":"b"}}'
    for _ in range(50):
        ground.connect().arrive(half(4 * MIB, 3 * MIB, header))
    assert ground.memory.used_bytes <= 5 * MIB
    assert ground.memory.frames.used_bytes == 0


async def test_an_idle_peer_that_does_not_read_is_cut_off(ground: Ground) -> None:
    wire = ground.connect()
    wire.send(LARGE)
    ground.clock.advance_ms(121_000)
    ground.server.close_idle()
    assert wire.is_closed
    assert ground.memory.used_bytes == 0


async def test_memory_is_given_back_once_much_was_freed(ground: Ground) -> None:
    ground.memory.answers = UnreadAnswers()
    wires = [ground.connect() for _ in range(10)]
    for wire in wires:
        wire.send(*[LARGE] * 100)
    ground.sweep(1)
    for wire in wires:
        wire.abort()
    await settle()
    for _ in range(3):
        ground.sweep(1)
    assert ground.given_back == 0
    ground.sweep(1)
    assert ground.given_back == 1


async def test_requests_that_wake_together_are_answered_while_the_peer_reads(ground: Ground) -> None:
    event = asyncio.Event()
    made: list[int] = []

    def poll(command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        async def answer() -> RemotingCommand:
            await event.wait()
            await connection.ready()
            connection.note_size(MIB)
            made.append(command.opaque)
            return command.response(body_parts=(memoryview(bytes(MIB)),))

        return answer()

    ground.server.handlers = {LARGE: poll}
    wires = [ground.connect() for _ in range(2)]
    for wire in wires:
        wire.send(*[LARGE] * 50)
    event.set()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(made) <= 4 * (WRITE_HIGH_WATER_BYTES // MIB) + 8
    for wire in wires:
        wire.read(None)
    for _ in range(300):
        await asyncio.sleep(0)
    await settle()
    assert [sorted(wire.answers) for wire in wires] == [list(range(50))] * 2


async def test_more_late_answers_than_one_turn_takes_all_get_theirs() -> None:
    late, made = LateAnswers(), []

    async def answer(number: int) -> None:
        await late.turn()
        made.append(number)

    tasks = [asyncio.create_task(answer(number)) for number in range(3 * LATE_AT_ONCE)]
    await settle()
    assert LATE_AT_ONCE <= len(made) < 3 * LATE_AT_ONCE
    await asyncio.gather(*tasks)
    assert made == list(range(3 * LATE_AT_ONCE))


async def test_what_others_hold_counts_when_much_was_freed(ground: Ground) -> None:
    held = [64 * MIB]
    ground.memory.watch(lambda: held[0])
    ground.sweep(1)
    held[0] = 0
    for _ in range(3):
        ground.sweep(1)
    assert ground.given_back == 0
    ground.sweep(1)
    assert ground.given_back == 1
    assert ground.memory.used_bytes == 0
