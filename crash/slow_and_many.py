"""X2, slow and many: clients that say nothing, read nothing, send byte by byte or never end, beside a good client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from crash.attacked_server import AttackedServer
from crash.http2 import Http2Connection, grpc_message, request_headers
from crash.measured_attack import measure_attack
from crash.programme import ProgrammeRun
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS

__all__ = ["be_slow_and_many"]

IDLE_CONNECTION_BYTES = 64 * 1024
"""Memory of a connection that says nothing at most."""

WAITING_CALL_BYTES = 96 * 1024
"""Memory of a receive that waits, and of a telemetry stream that stays open, at most."""

UNREAD_BYTES = 640 * 1024 * 1024
"""Memory that answers which nobody reads may take: the limit of the proxy, and the copies that the transport makes."""

HALF_REQUEST_BYTES = 512 * 1024 * 1024
"""The same for requests that do not end."""

_LARGE_BODY = bytes(1024 * 1024)


def be_slow_and_many(run: ProgrammeRun) -> None:
    """X2. 500 clients (CI), 2,000 (full), 8,000 (soak) in each way of being slow."""
    asyncio.run(_run(run))


async def _run(run: ProgrammeRun) -> None:
    clients = run.by_size(500, 2_000, 8_000)
    with AttackedServer(run) as server:
        attack = _Attack(run, server, clients)
        await attack.measured("silent", attack.silent, clients * IDLE_CONNECTION_BYTES)
        await attack.measured("waiting", attack.waiting, clients * WAITING_CALL_BYTES)
        await attack.measured("open_streams", attack.open_streams, clients * WAITING_CALL_BYTES)
        await attack.measured("half_requests", attack.half_requests, HALF_REQUEST_BYTES)
        await attack.measured("byte_by_byte", attack.byte_by_byte, clients * WAITING_CALL_BYTES)
        await attack.measured("unread", attack.unread, UNREAD_BYTES)


class _Attack:
    def __init__(self, run: ProgrammeRun, server: AttackedServer, clients: int) -> None:
        self._run = run
        self._server = server
        self._clients = clients
        self._round = 0
        self._open: list[Http2Connection] = []
        self._tasks: list[asyncio.Task[object]] = []

    async def measured(self, name: str, attack: Callable[[], Coroutine[Any, Any, None]], limit_bytes: int) -> None:
        """Attack twice, within the limit."""
        await measure_attack(self._run, self._server, name, attack, self._let_go, limit_bytes)

    async def _let_go(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._open:
            await connection.close(reset=True)
        self._open, self._tasks = [], []
        await self._server.settle()

    async def silent(self) -> None:
        """Connections without a byte."""
        host, _, port = self._server.grpc.rpartition(":")
        writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(self._clients)]
        await asyncio.sleep(1)
        self._tasks.append(asyncio.create_task(_hold(writers)))
        await asyncio.sleep(0)

    async def waiting(self) -> None:
        """Receives that wait for a message, 50 to a connection and 500 to a group."""
        for number, connection, stream in await self._streams(50):
            wish = m.ReceiveMessageRequest(
                group=m.Resource(name=f"waiting-{number // 500}"),
                message_queue=m.MessageQueue(topic=m.Resource(name="orders"), id=-1),
                invisible_duration=m.Duration(seconds=60),
                long_polling_timeout=m.Duration(seconds=20),
            )
            self._begin(connection, stream, "ReceiveMessage", f"w{number}")
            connection.send(stream, grpc_message(wish.SerializeToString()), end=True)
        await asyncio.sleep(2)
        self._run.count("waiting", sum(1 for one in self._open if not one.is_closed))

    async def open_streams(self) -> None:
        """Telemetry that says who it is and no more."""
        command = m.TelemetryCommand(settings=m.Settings(publishing=m.Publishing(topics=[m.Resource(name="orders")])))
        for number, connection, stream in await self._streams(50):
            self._begin(connection, stream, "Telemetry", f"t{number}")
            connection.send(stream, grpc_message(command.SerializeToString()))
        await asyncio.sleep(2)

    async def half_requests(self) -> None:
        """Sends that announce 15 MiB and stop after one: 2 GiB and more in all, if somebody takes it."""
        data = grpc_message(_LARGE_BODY, length=15 * 1024 * 1024)
        for number, connection, stream in await self._streams(100, least=2_000):
            self._begin(connection, stream, "SendMessage", f"h{number}")
            self._tasks.append(asyncio.create_task(connection.push(stream, data)))
        done, _ = await asyncio.wait(self._tasks, timeout=self._run.by_size(3, 8, 8))
        self._run.count("half_requests_taken", sum(1 for task in done if task.result() == len(data)))

    async def byte_by_byte(self) -> None:
        """Requests that come a byte at a time."""
        data = grpc_message(m.HeartbeatRequest(group=m.Resource(name="g" * 100)).SerializeToString())
        streams = await self._streams(10)
        for number, connection, stream in streams:
            self._begin(connection, stream, "Heartbeat", f"b{number}")
        for place in range(10):
            for _, connection, stream in streams:
                connection.send(stream, data[place : place + 1])
            await asyncio.sleep(0.3)

    async def unread(self) -> None:
        """Consumers of a backlog of large messages that read none of it."""
        self._round += 1
        await self._fill_the_topic(by_mib=128 if self._clients <= 500 else 512)
        for number in range(min(self._clients, 500)):
            connection = await Http2Connection.open(self._server.grpc, reads=False)
            self._open.append(connection)
            wish = m.ReceiveMessageRequest(
                group=m.Resource(name=f"unread-{self._round}-{number % 8}"),
                message_queue=m.MessageQueue(topic=m.Resource(name="orders"), id=-1),
                batch_size=32,
                invisible_duration=m.Duration(seconds=60),
                long_polling_timeout=m.Duration(seconds=1),
            )
            self._begin(connection, 1, "ReceiveMessage", f"u{number}")
            connection.send(1, grpc_message(wish.SerializeToString()), end=True)
        await asyncio.sleep(4)

    async def _fill_the_topic(self, *, by_mib: int) -> None:
        connection = await Http2Connection.open(self._server.grpc)
        for number in range(by_mib):
            system = m.SystemProperties(message_id=f"l{number}", body_encoding=m.IDENTITY)
            message = m.Message(topic=m.Resource(name="orders"), body=_LARGE_BODY, system_properties=system)
            stream = 2 * number + 1
            self._begin(connection, stream, "SendMessage", "filler")
            request = m.SendMessageRequest(messages=[message]).SerializeToString()
            await connection.push(stream, grpc_message(request))
            connection.send(stream, b"", end=True)
            if not await connection.answered({stream}, 20):
                self._run.fail("a large message was not taken")
        await connection.close()

    async def _streams(self, per_connection: int, *, least: int = 0) -> list[tuple[int, Http2Connection, int]]:
        """A number, connection and stream for each client."""
        found = []
        for number in range(max(self._clients, least)):
            if number % per_connection == 0:
                self._open.append(await Http2Connection.open(self._server.grpc))
            found.append((number, self._open[-1], 2 * (number % per_connection) + 1))
        return found

    def _begin(self, connection: Http2Connection, stream: int, method: str, client: str) -> None:
        client_id = (b"x-mq-client-id", client.encode())
        connection.begin(stream, request_headers(METHODS[method].path, client_id, timeout=b"90S"))


async def _hold(writers: Iterable[asyncio.StreamWriter]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        for writer in writers:
            writer.close()
        for writer in writers:
            with suppress(ConnectionError):
                await writer.wait_closed()
