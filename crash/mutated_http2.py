"""X5, mutated HTTP/2: traffic of real clients with frames changed, cut, doubled, moved and mixed, to the core."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import grpc.aio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from crash.programme import ANY_ERROR, ProgrammeRun
from millstream.protocol.http2.connection import (
    MAX_HEADER_BLOCK_BYTES,
    MAX_UNSENT_REPLIES_BYTES,
    Http2Core,
    Http2Limits,
)
from millstream.protocol.http2.frames import DEFAULT_FRAME_BYTES, PREFACE, ErrorCode
from millstream.protocol.http2.sending import MAX_ENDED_EARLY
from millstream.protocol.http2.stream import ENDED, RESET, Http2Stream

__all__ = ["mutated_traffic", "play_traffic", "recordings", "send_mutated_http2"]

_LIMITS = Http2Limits(max_streams=50)
_ANSWER = ((":status", "200"), ("content-type", "application/grpc"))
_OK = (("grpc-status", "0"),)
_FAULTS_AT_MOST = 6


def send_mutated_http2(run: ProgrammeRun) -> None:
    """X5. 3,000 inputs (CI), 150,000 (full), 5 million (soak); each is made of the run's seed and its own number.

    gRPC's client sends other bytes each time; the bytes of an input that failed are kept.
    """
    recorded = recordings(run.seed)
    for number in range(run.by_size(3_000, 150_000, 5_000_000)):
        rng = random.Random(f"{run.seed} {number}")
        raw = mutated_traffic(rng, recorded)
        run.count("inputs")
        try:
            core = play_traffic(rng, raw)
        except ANY_ERROR as error:
            kept = run.scratch / f"input-{number}"
            kept.mkdir()
            (kept / "bytes").write_bytes(raw)
            run.fail(f"input {number}: {error!r}", kept)
            continue
        run.count("connections that ended" if core.failure else "connections that went on")


def recordings(seed: int) -> list[list[bytes]]:
    """Frames that gRPC's client and the `h2` package send, each connection from its first SETTINGS on."""
    rng = random.Random(seed)
    raw = [asyncio.run(_record_grpc(rng)), *(_record_h2(rng) for _ in range(5))]
    return [_frames(one.removeprefix(PREFACE)) for one in raw]


def mutated_traffic(rng: random.Random, recorded: Sequence[list[bytes]]) -> bytes:
    """What one connection sends: recorded frames with some faults, behind the preface mostly."""
    frames = list(rng.choice(recorded))
    for _ in range(rng.randrange(_FAULTS_AT_MOST)):
        _break(rng, frames, recorded)
    raw = bytearray(b"".join(frames))
    if rng.random() < 0.3:
        for _ in range(rng.randrange(1, 8)):
            place = rng.randrange(len(raw) + 1)
            match rng.randrange(4):
                case 0 if place < len(raw):
                    raw[place] ^= 1 << rng.randrange(8)
                case 1:
                    del raw[place : place + rng.randrange(1, 40)]
                case 2:
                    raw[place:place] = rng.randbytes(rng.randrange(1, 20))
                case _:
                    raw[place:place] = raw[place : place + rng.randrange(1, 200)]
    return (b"" if rng.random() < 0.02 else PREFACE) + bytes(raw)


def _break(rng: random.Random, frames: list[bytes], recorded: Sequence[list[bytes]]) -> None:
    """One fault of whole frames."""
    place = rng.randrange(len(frames))
    frame = bytearray(frames[place])
    match rng.randrange(9):
        case 0:
            frames.insert(place, frames[rng.randrange(len(frames))])
        case 1:
            del frames[place:][1:2]
        case 2:
            other = rng.randrange(len(frames))
            frames[place], frames[other] = frames[other], frames[place]
        case 3:
            frame[3] = rng.randrange(12)
            frames[place] = bytes(frame)
        case 4:
            frame[4] = rng.randrange(256)
            frames[place] = bytes(frame)
        case 5:
            frame[5:9] = rng.choice([0, 1, 2, 3, 5, 99, 2**31 - 1, 2**31 + 1]).to_bytes(4, "big")
            frames[place] = bytes(frame)
        case 6:
            frame[:3] = rng.choice([0, 1, 4, 5, 8, len(frame), 16_384, 16_385, 2**24 - 1]).to_bytes(3, "big")
            frames[place] = bytes(frame)
        case 7:
            content = rng.randbytes(rng.choice([0, 1, 4, 5, 6, 8, 12, 100]))
            frames[place] = len(content).to_bytes(3, "big") + bytes(frame[3:9]) + content
        case _:
            other_frames = rng.choice(recorded)
            start = rng.randrange(len(other_frames))
            frames[place:place] = other_frames[start : start + rng.randrange(1, 10)] * rng.choice([1, 1, 1, 30])


def play_traffic(rng: random.Random, raw: bytes) -> Http2Core:
    """The core behind the bytes, which come in chunks of any size; AssertionError if it held more than it may.

    Requests are answered, given up or left, as it comes, and the client reads now and then.
    """
    core = Http2Core(_LIMITS)
    waiting: list[Http2Stream] = []
    answered: list[Http2Stream] = []
    at, now_s, written = 0, 0.0, 0
    while at < len(raw):
        size = rng.choice([1, 5, 9, 100, 5_000, len(raw)])
        news = core.receive(raw[at : at + size], now_s)
        at += size
        now_s += rng.choice([0.0, 0.001, 1.0])
        for stream in news:
            what, stream.news = stream.news, 0
            if what & ENDED and not what & RESET:
                waiting.append(stream)
            if rng.random() < 0.5:
                core.grant(stream, len(stream.take_inbox()))
        while waiting and rng.random() < 0.5:
            stream = waiting.pop(rng.randrange(len(waiting)))
            body = bytes(rng.choice([0, 5, 20_000, 100_000]))
            if rng.random() < 0.1:
                core.reset(stream, ErrorCode.INTERNAL_ERROR)
            elif stream.is_open:
                written += len(body) + 500
                core.send_whole(stream, _ANSWER, body, _OK)
                answered.append(stream)
        if answered and rng.random() < 0.2:
            core.reset(answered.pop(), ErrorCode.CANCEL)
        _check(core, written)
        if rng.random() < 0.7:
            _read_back(core)
            written = core.queued_bytes
    core.receive(b"", now_s)
    if core.failure is not None:
        _read_back(core)
        assert core.receive(raw, now_s) == [], "news behind a failure"
        assert not core.outgoing, "words behind the last ones"
    return core


def _check(core: Http2Core, written: int) -> None:
    """Hold the core to its limits."""
    assert len(core.streams) <= _LIMITS.max_streams, f"{len(core.streams)} streams are open"
    assert core.held_bytes <= MAX_HEADER_BLOCK_BYTES + 2 * DEFAULT_FRAME_BYTES, f"{core.held_bytes} bytes are held"
    assert len(core._ended_early) <= MAX_ENDED_EARLY
    assert core.replies_bytes <= MAX_UNSENT_REPLIES_BYTES + 64, f"{core.replies_bytes} bytes of replies wait"
    for stream in core.streams.values():
        held = stream.inbox_bytes + max(stream.receive_window_bytes, 0)
        assert held <= _LIMITS.stream_window_bytes, f"stream {stream.number} may hold {held} bytes"
        assert stream.inbox_bytes == sum(map(len, stream.inbox))
    queued = sum(stream.queued_bytes for stream in core.streams.values())
    assert queued <= core.queued_bytes <= queued + len(core.streams) * 4096, "queued bytes are not those of streams"
    assert core.outgoing_bytes + queued <= written + core.replies_bytes + 64 * 1024 + 1024 * len(core.streams)


def _read_back(core: Http2Core) -> None:
    """Read what the core has sent: whole frames of a size that every client takes."""
    raw = b"".join(core.take_outgoing())
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 3], "big")
        assert len(raw) - at >= 9 + size, "a frame is not whole"
        assert raw[at + 3] <= 9, "a frame of no kind"
        at += 9 + size


def _frames(raw: bytes) -> list[bytes]:
    found, at = [], 0
    while len(raw) - at >= 9:
        end = at + 9 + int.from_bytes(raw[at : at + 3], "big")
        found.append(raw[at:end])
        at = end
    return found


async def _record_grpc(rng: random.Random) -> bytes:
    """What gRPC's client sends for calls of several sizes, one of them given up."""
    sent = bytearray()
    writers: list[asyncio.StreamWriter] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        core = Http2Core()
        while chunk := await reader.read(65_536):
            sent.extend(chunk)
            for stream in core.receive(chunk, 0.0):
                news, stream.news = stream.news, 0
                core.grant(stream, len(data := stream.take_inbox()))
                if news & ENDED and stream.head.path != "/t.Echo/Wait":
                    core.send_whole(stream, _ANSWER, data[:5] if len(data) == 5 else bytes(5), _OK)
            writer.write(b"".join(core.take_outgoing()))
        over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        for size in (0, 10, 1_000, 20_000, 3):
            metadata = (("x-mq-client-id", f"client-{size}"), ("x-bin", rng.randbytes(9)))
            await channel.unary_unary("/t.Echo/Unary")(bytes(size), metadata=metadata, timeout=30)
        given_up = channel.unary_unary("/t.Echo/Wait")(b"x")
        await asyncio.sleep(0)
        await channel.unary_unary("/t.Echo/Unary")(b"x", timeout=30)
        given_up.cancel()
        await channel.unary_unary("/t.Echo/Unary")(b"x", timeout=30)
    # The client keeps its connection for a while.
    for writer in writers:
        writer.close()
    await over.wait()
    server.close()
    await server.wait_closed()
    return bytes(sent)


def _record_h2(rng: random.Random) -> bytes:
    """What the `h2` package sends for requests of every kind."""
    client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    client.initiate_connection()
    client.receive_data(b"".join(Http2Core(_LIMITS).take_outgoing()))
    for _ in range(rng.randrange(3, 12)):
        number = client.get_next_available_stream_id()
        headers = [
            (":method", "POST"), (":scheme", "http"), (":path", rng.choice(["/t.Echo/Unary", "/t.Echo/Chat"])),
            (":authority", "localhost"), ("te", "trailers"), ("content-type", "application/grpc"),
            ("x-much", "m" * rng.choice([1, 100, 20_000])),
        ]  # fmt: skip
        ends = rng.random() < 0.2
        client.send_headers(number, headers, end_stream=ends)
        if not ends:
            body = rng.randbytes(rng.randrange(600))
            client.send_data(number, body[:300], pad_length=rng.choice([None, 0, 40]))
            if rng.random() < 0.2:
                client.send_headers(number, [("x-trailer", "1")], end_stream=True)
            elif rng.random() < 0.2:
                client.reset_stream(number, ErrorCode.CANCEL)
            else:
                client.send_data(number, body[300:], end_stream=True)
        match rng.randrange(6):
            case 0:
                client.ping(rng.randbytes(8))
            case 1:
                client.increment_flow_control_window(rng.randrange(1, 100_000))
            case 2:
                client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: rng.randrange(100_000)})
            case 3:
                client.update_settings({SettingCodes.HEADER_TABLE_SIZE: rng.randrange(5_000)})
            case _:
                pass
    client.close_connection()
    return client.data_to_send()
