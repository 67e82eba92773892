"""A raw load of AMQP 0-9-1 on any server: `python -m benchmarks.amqp_load PORT PID`, for ours or for RabbitMQ.

It publishes durable messages of 100 bytes with confirms on some connections with some in flight each, the same with a
consumer that acknowledges, and opens idle connections; it prints messages a second, processor time of the process PID
a message, memory a connection, and how long a message takes. Its own work is little: frames are built once, and
answers are only counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.protocol.amqp.basic_methods import BasicAck, BasicConsume, BasicPublish, BasicQos, ConfirmSelect
from millstream.protocol.amqp.content import ContentProperties, encode_properties
from millstream.protocol.amqp.frames import BODY, FRAME_HEADER, PROTOCOL_HEADER, content_frames, method_frame
from millstream.protocol.amqp.method_codec import METHOD_ID, AmqpMethod, encode_method
from millstream.protocol.amqp.session_methods import ChannelOpen, ConnectionOpen, ConnectionStartOk, ConnectionTuneOk
from millstream.protocol.amqp.topology_methods import QueueDeclare, QueueDelete, QueueDeleteOk
from millstream.server.child import ServerProcess

__all__ = ["measure_amqp"]

_QUEUE: Final = "bench.q"
_BODY: Final = b"x" * 100
_PROPERTIES: Final = encode_properties(ContentProperties(content_type="text/plain", delivery_mode=2))
_PUBLISH: Final = content_frames(
    1, encode_method(BasicPublish(routing_key=_QUEUE)), _PROPERTIES, _BODY, frame_max_bytes=131_072
)
_ACK: Final = METHOD_ID.pack(*BasicAck.method_id)
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_PREFETCH: Final = 200
_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.001


class _Client(asyncio.Protocol):
    """One connection with channel 1. `on_frame` gets the kind and the payload of each frame once it is open."""

    def __init__(self) -> None:
        self._rest = b""
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.on_frame: Callable[[int, bytes], None] = lambda kind, payload: self._answers.put_nowait(payload)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at, size = 0, len(data)
        while size - at >= 8:
            kind, _, length = FRAME_HEADER.unpack_from(data, at)
            end = at + 7 + length
            if end >= size:
                break
            if kind != 8:
                self.on_frame(kind, data[at + 7 : end])
            at = end + 1
        self._rest = data[at:]

    def write(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]

    async def ask(self, method: AmqpMethod, channel: int = 1) -> bytes:
        self.write(method_frame(channel, method))
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._answers.get()

    async def open(self) -> None:
        self.write(PROTOCOL_HEADER)
        await self._answers.get()
        await self.ask(ConnectionStartOk(response=b"\0guest\0guest"), 0)
        self.write(method_frame(0, ConnectionTuneOk(0, 131_072, 0)))
        await self.ask(ConnectionOpen("/"), 0)
        await self.ask(ChannelOpen())


async def _connect(port: int) -> _Client:
    _, client = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    await client.open()
    return client


async def _publish(client: _Client, count: int, in_flight: int) -> None:
    """Send so many with confirms, so many of them unconfirmed at a time."""
    done = asyncio.get_running_loop().create_future()
    sent = confirmed = alone = 0

    def send(more: int) -> None:
        nonlocal sent
        more = min(more, count - sent)
        sent += more
        if more:
            client.write(_PUBLISH * more)

    def take(_kind: int, payload: bytes) -> None:
        nonlocal confirmed, alone
        if payload[:4] != _ACK:
            return
        tag, before = int.from_bytes(payload[4:12]), confirmed
        if payload[12]:
            confirmed, alone = tag, 0
        else:
            alone += 1
            confirmed += 1
        send(confirmed - before)
        if confirmed >= count and not done.done():
            done.set_result(None)

    client.on_frame = take
    send(in_flight)
    async with asyncio.timeout(_TIMEOUT_S):
        await done


async def _consume(port: int, count: int) -> None:
    """Take so many from the queue, and acknowledge each tenth with those before it."""
    client = await _connect(port)
    await client.ask(BasicQos(prefetch_count=_PREFETCH))
    done = asyncio.get_running_loop().create_future()
    taken = 0

    def take(_kind: int, payload: bytes) -> None:
        nonlocal taken
        if payload[:4] != _DELIVER:
            return
        taken += 1
        if taken % 10 == 0 or taken == count:
            client.write(method_frame(1, BasicAck(taken, True)))
        if taken == count and not done.done():
            done.set_result(None)

    client.on_frame = take
    client.write(method_frame(1, BasicConsume(queue=_QUEUE)))
    async with asyncio.timeout(_TIMEOUT_S):
        await done


def _cpu_s(pid: int) -> float:
    """Processor time of a process so far, user and system (proc(5): fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure_confirms(
    port: int, pid: int, connections: int, in_flight: int, count: int, *, out: bool
) -> dict[str, float]:
    """Messages in, with `out` also delivered and acknowledged: a second, and microseconds of the server for each."""
    clients = [await _connect(port) for _ in range(connections)]
    for client in clients:
        await client.ask(ConfirmSelect())
    await clients[0].ask(QueueDeclare(queue=_QUEUE, durable=True))
    before, began_s = _cpu_s(pid), time.perf_counter()
    work = [_publish(client, count // connections, in_flight) for client in clients]
    if out:
        work.append(_consume(port, count // connections * connections))
    await asyncio.gather(*work)
    wall_s, cpu_s = time.perf_counter() - began_s, _cpu_s(pid) - before
    for client in clients:
        client.transport.close()
    last = await _connect(port)
    while (await last.ask(QueueDelete(queue=_QUEUE)))[:4] != METHOD_ID.pack(*QueueDeleteOk.method_id):
        pass
    last.transport.close()
    return {"messages_per_s": round(count / wall_s), "us_per_message": round(cpu_s / count * 1e6, 1)}


async def measure_idle(port: int, pid: int, connections: int) -> dict[str, float]:
    """Memory of an idle connection with a channel, and what it costs to open one."""
    warm = [await _connect(port) for _ in range(20)]
    before_bytes, before_s = _memory_bytes(pid), _cpu_s(pid)
    clients = [await _connect(port) for _ in range(connections)]
    found = {
        "bytes_per_connection": round((_memory_bytes(pid) - before_bytes) / connections),
        "us_per_connect": round((_cpu_s(pid) - before_s) / connections * 1e6),
    }
    for client in (*warm, *clients):
        client.transport.close()
    return found


async def measure_latency(port: int, count: int = 500) -> dict[str, float]:
    """Milliseconds from a publication to its delivery at another connection, one message under way at a time."""
    writer, reader = await _connect(port), await _connect(port)
    await writer.ask(QueueDeclare(queue=_QUEUE, durable=True))
    await reader.ask(BasicConsume(queue=_QUEUE, no_ack=True))
    arrived: asyncio.Queue[float] = asyncio.Queue()
    reader.on_frame = lambda kind, _payload: arrived.put_nowait(time.perf_counter()) if kind == BODY else None
    found = []
    for _ in range(count):
        began_s = time.perf_counter()
        writer.write(_PUBLISH)
        async with asyncio.timeout(_TIMEOUT_S):
            found.append((await arrived.get() - began_s) * 1000)
        await asyncio.sleep(_PAUSE_S)
    await writer.ask(QueueDelete(queue=_QUEUE))
    writer.transport.close()
    reader.transport.close()
    cuts = statistics.quantiles(found, n=100)
    return {"median_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


async def measure(port: int, pid: int, count: int, idle: int) -> dict[str, object]:
    """All of it."""
    # First: later on the server has freed memory that connections would take.
    found: dict[str, object] = {"idle": await measure_idle(port, pid, idle), "latency": await measure_latency(port)}
    await measure_confirms(port, pid, 8, 64, count // 4, out=False)
    return found | {
        "in, 8 connections, 64 in flight": await measure_confirms(port, pid, 8, 64, count, out=False),
        "in, 64 connections, 1 in flight": await measure_confirms(port, pid, 64, 1, count // 2, out=False),
        "in and out, 8 connections, 64 in flight": await measure_confirms(port, pid, 8, 64, count, out=True),
    }


def measure_amqp() -> dict[str, object]:
    """All of it on a server of ours."""
    options = ("--amqp-port", "0", "--mqtt-port", "off", "--http-port", "off")
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data", options=options) as server:
        port = int(server.addresses.protocols["amqp"].rpartition(":")[2])
        return asyncio.run(measure(port, server.pid, 40_000, 1_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("pid", type=int, help="the server's process")
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--idle", type=int, default=500)
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments.port, arguments.pid, arguments.count, arguments.idle))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
