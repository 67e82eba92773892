"""X1, malformed input: random and mutated bytes for every method and the layers below, beside a good client."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import suppress
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from crash.attack import InputKind, watch_growth
from crash.attacked_server import AttackedServer
from crash.http2 import PREFACE, Http2Connection, frame, grpc_message, headers_block, request_headers
from crash.programme import ProgrammeRun
from millstream.protocol.grpc.service import METHODS, Method

__all__ = ["mutated", "send_malformed_input"]

ANSWER_TIMEOUT_S = 30.0
CALLS_PER_CONNECTION = 50

_CLIENT = (b"x-mq-client-id", b"x1@1@0@a")
_WORDS = [
    "", "orders", "ordered", "missing", "g", "no good", "%DLQ%g", "x" * 300, "\x00", "naïve", "*", "a||b",
    "a > 1 AND b IS NULL", "0 1700000000000 30000 0 0 broker-a 0 0 0", "0 0 0 0 0 broker-a 99 -1 -1", "TBW102",
]  # fmt: skip
_NUMBERS = [0, 1, -1, 2, 10, 32, 1000, 0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000]


def send_malformed_input(run: ProgrammeRun) -> None:
    """X1. 12,000 inputs (CI), 200,000 (full), 5 million (soak)."""
    asyncio.run(_run(run))


async def _run(run: ProgrammeRun) -> None:
    inputs = run.by_size(12_000, 200_000, 5_000_000)
    with AttackedServer(run) as server:
        await watch_growth(run, server, _Attack(run, server.grpc).kinds, inputs, first_inputs=inputs // 10)


class _Attack:
    """The kinds of inputs, each as often as it is to be sent."""

    def __init__(self, run: ProgrammeRun, address: str) -> None:
        self._run = run
        self._address = address
        self.kinds: list[InputKind] = [
            self._calls, self._calls, self._calls, self._frames, self._garbage, self._half_a_call
        ]  # fmt: skip

    async def _calls(self, rng: random.Random) -> None:
        """Whole calls with mutated requests: each is answered, or the connection is closed."""
        connection = await Http2Connection.open(self._address)
        streams = set()
        for number in range(CALLS_PER_CONNECTION):
            method = rng.choice(list(METHODS.values()))
            stream = 2 * number + 1
            connection.begin(stream, _headers(rng, method))
            connection.send(stream, _data(rng, method)[:15_000], end=True)
            streams.add(stream)
            self._run.count("inputs")
        if not await connection.answered(streams, ANSWER_TIMEOUT_S):
            self._run.fail(f"{len(streams - connection.ended)} calls of {len(streams)} had no end")
        self._run.count("answered", len(streams & connection.ended) - connection.resets)
        self._run.count("reset", connection.resets)
        await connection.close(reset=rng.random() < 0.5)

    async def _half_a_call(self, rng: random.Random) -> None:
        """Calls that break off: without their end, in the middle of a frame, with a reset."""
        connection = await Http2Connection.open(self._address)
        for number in range(rng.randrange(1, CALLS_PER_CONNECTION)):
            method, stream = rng.choice(list(METHODS.values())), 2 * number + 1
            connection.begin(stream, _headers(rng, method))
            data = _data(rng, method)[:1000]
            connection.send(stream, data[: rng.randrange(len(data) + 1)])
            if rng.random() < 0.5:
                connection.write(frame(3, 0, stream, struct.pack(">I", rng.randrange(14))))
            self._run.count("inputs")
        whole = frame(0, 0, 1, rng.randbytes(100))
        connection.write(whole[: rng.randrange(len(whole))])
        await asyncio.sleep(rng.random() * 0.02)
        await connection.close(reset=rng.random() < 0.7)

    async def _frames(self, rng: random.Random) -> None:
        """Frames that lie: kinds, flags, lengths, streams and contents."""
        connection = await Http2Connection.open(self._address)
        for _ in range(rng.randrange(1, 30)):
            payload = rng.choice(
                [rng.randbytes(rng.randrange(64)), b"", headers_block(_headers(rng, METHODS["Heartbeat"]))]
            )
            sent = bytearray(
                frame(rng.randrange(12), rng.randrange(256), rng.choice([0, 1, 2, 3, 2**31 - 1, 2**32 - 1]), payload)
            )
            if rng.random() < 0.2:
                sent[:3] = rng.randbytes(3)
            connection.write(bytes(sent))
            self._run.count("inputs")
        await asyncio.sleep(rng.random() * 0.02)
        await connection.close(reset=rng.random() < 0.5)

    async def _garbage(self, rng: random.Random) -> None:
        """No HTTP/2 at all."""
        host, _, port = self._address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        words = rng.choice([
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /apache.rocketmq.v2.MessagingService/SendMessage HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(64),
            b"\x00\x00\x00\x7f" + rng.randbytes(40),
            PREFACE[: rng.randrange(len(PREFACE))],
            rng.randbytes(rng.randrange(1, 5000)),
        ])  # fmt: skip
        writer.write(words)
        self._run.count("inputs")
        await asyncio.sleep(rng.random() * 0.02)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _headers(rng: random.Random, method: Method) -> list[tuple[bytes, bytes]]:
    more = [_CLIENT, (b"x-mq-namespace", rng.choice(_WORDS).encode()[:20].replace(b"\x00", b""))]
    headers = request_headers(method.path, *more)
    if rng.random() < 0.2:
        place = rng.randrange(len(headers))
        match rng.randrange(5):
            case 0:
                headers[place] = (headers[place][0], rng.randbytes(rng.randrange(40)))
            case 1:
                del headers[place]
            case 2:
                headers.append(
                    (rng.choice([b"x-mq-client-id", b"te", b"x-bin", b"grpc-encoding", b"X-UPPER"]), rng.randbytes(9))
                )
            case 3:
                headers.append((b"x-mq-much", b"x" * rng.choice([5_000, 12_000])))
            case _:
                headers.append((b"x-mq-client-id", b"another"))
    return headers


def _data(rng: random.Random, method: Method) -> bytes:
    raw = mutated(rng, _request(rng, method).SerializeToString())
    if rng.random() < 0.1:
        return grpc_message(
            raw, flags=rng.choice([1, 2, 255]), length=rng.choice([0, 1, len(raw) + 1, 0xFFFFFFFF, 1 << 24])
        )
    return grpc_message(raw)


def _request(rng: random.Random, method: Method) -> Any:
    request = method.request()
    _fill(rng, request, 0)
    return request


def _fill(rng: random.Random, message: Any, depth: int) -> None:
    """Fields of every kind, legal for protobuf and mostly senseless."""
    for described in message.DESCRIPTOR.fields:
        if rng.random() < 0.25 or depth > 4:
            continue
        if described.message_type is not None and described.message_type.GetOptions().map_entry:
            for _ in range(rng.randrange(3)):
                getattr(message, described.name)[rng.choice(_WORDS)] = rng.choice(_WORDS)
        elif described.message_type is not None:
            held = getattr(message, described.name)
            for _ in range(rng.randrange(3) if described.is_repeated else 1):
                _fill(rng, held.add() if described.is_repeated else held, depth + 1)
            if not described.is_repeated:
                held.SetInParent()
        elif described.is_repeated:
            getattr(message, described.name).extend(_value(rng, described) for _ in range(rng.randrange(3)))
        else:
            setattr(message, described.name, _value(rng, described))


def _value(rng: random.Random, described: FieldDescriptor) -> Any:
    match described.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if described.type == FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(rng.randrange(100))
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice(_WORDS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice([0.0, 1.5, float("inf"), float("nan")])
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice([0, 1, 2, 3, 99])
        case FieldDescriptor.CPPTYPE_INT64:
            return rng.choice(_NUMBERS)
        case _:
            return rng.choice([number for number in _NUMBERS if -0x80000000 <= number <= 0x7FFFFFFF])


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """The bytes with up to five faults, often none."""
    sent = bytearray(raw)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
        place = rng.randrange(len(sent) + 1)
        match rng.randrange(8):
            case 0 if sent:
                sent[place % len(sent)] ^= 1 << rng.randrange(8)
            case 1:
                del sent[place:]
            case 2:
                sent[place:place] = rng.randbytes(rng.randrange(1, 20))
            case 3:
                sent[place:place] = b"\xff" * rng.randrange(1, 12)
            case 4:
                sent[place:place] = sent[: rng.randrange(200)] * rng.randrange(1, 20)
            case 5:
                sent[place:place] = b"\x0a\xff\xff\xff\xff\x07"
            case 6:
                sent[place:place] = b"\x0b" * rng.randrange(1, 300)
            case _:
                sent[place:place] = b"\x0a\x03\xc3\x28\xff"
    return bytes(sent)
