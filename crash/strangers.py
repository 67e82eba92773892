"""A part of X4, strangers: silent connections, floods of bad frames and bodies that grow, with access control on.

The server has few descriptors, so that few connections use them up. Beside it a client with keys sends all the while.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import os
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import grpc.aio

from crash.programme import ProgrammeRun
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.group import GroupConfig
from millstream.model.message import MAX_BODY_BYTES, Message
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.security.signature import Credentials
from millstream.server.child import ServerProcess

__all__ = ["meet_strangers"]

DESCRIPTORS: Final = 256
"""What the server's process may have open."""

SILENT_CONNECTIONS: Final = 300
"""To each of its four ports: more than it has descriptors."""

SLOW_MS: Final = 1_000
"""Of a send beside the attack, for 99 of 100."""

LEFT_RATIO: Final = 1.2
LEFT_BYTES: Final = 64 * 1024 * 1024
"""Memory after the attacks, against that before: what a small process keeps of its allocator's is more than a fifth."""

MAX_LOG_BYTES: Final = 64 * 1024
"""Bytes of the whole log."""

BOMBS: Final = 32
"""Messages of a few KiB that grow to MiB, half of them to 66."""

_KEYS: Final = Credentials("owner", "secret-of-owner")
_PATIENCE_S: Final = 60.0
_ANSWER_S: Final = 10.0


def meet_strangers(run: ProgrammeRun) -> None:
    """One round (CI), 10 (full), 200 (soak)."""
    scratch = run.scratch / "strangers"
    scratch.mkdir()
    with _Server(run, scratch) as server:
        for _ in range(run.by_size(1, 10, 200)):
            asyncio.run(_attack(run, server))


async def _attack(run: ProgrammeRun, server: _Server) -> None:
    before = server.memory_bytes()
    await _be_silent(run, server)
    await _be_loud(run, server)
    await _grow(run, server)
    await _let_go(run, server, before)


class _Server:
    """Runs within its block; at its end the log and the client beside are judged."""

    def __init__(self, run: ProgrammeRun, scratch: Path) -> None:
        self._run = run
        self._resources = ExitStack()
        self._log = scratch / "server.log"
        keys = {"MILLSTREAM_ACCESS_KEY": _KEYS.access_key, "MILLSTREAM_SECRET_KEY": _KEYS.secret_key}
        words = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"]
        process = ServerProcess(scratch / "data", options=["--secure"], log=self._log, environment=keys, through=words)
        self._process = self._resources.enter_context(process)
        self.addresses = process.addresses
        with self.client() as client:
            for topic in ("beside", "later", "bombs"):
                client.create_topic(TopicConfig(topic))
            for number in range(4):
                client.create_group(GroupConfig(f"g{number}"))
        self.beside = self._resources.enter_context(_Beside(self))

    def __enter__(self) -> _Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()
        self.beside.judge(self._run)
        log = self._log.read_text(errors="replace")
        self._run.counts["strangers_log_bytes"] = len(log)
        if len(log) > MAX_LOG_BYTES or "Traceback" in log:
            self._run.fail(f"strangers: the server's log has {len(log):,} bytes: {log[-500:]}")

    def client(self) -> BlockingClient:
        """A client with keys."""
        return BlockingClient(self.addresses.nameserver, credentials=_KEYS, timeout_s=10)

    def memory_bytes(self) -> int:
        """Of the process, without the files that it maps."""
        status = (Path("/proc") / str(self._process.pid) / "status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) * 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))


@dataclass
class _Beside:
    """A client with keys that sends in a thread of its own, over the connection that it has."""

    server: _Server

    def __post_init__(self) -> None:
        self._late_ms: list[float] = []
        self._failures: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send, name="beside")

    def __enter__(self) -> _Beside:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()

    def _send(self) -> None:
        with self.server.client() as client:
            while not self._ends.wait(0.01):
                began_s = time.monotonic()
                try:
                    client.send(Message("beside", b"beside"))
                except MillstreamError as error:
                    self._failures.append(str(error))
                self._late_ms.append((time.monotonic() - began_s) * 1000)

    def judge(self, run: ProgrammeRun) -> None:
        late_ms = sorted(self._late_ms)
        p99_ms = late_ms[len(late_ms) * 99 // 100]
        run.counts |= {"strangers_beside": len(late_ms), "strangers_p99_ms": round(p99_ms)}
        if self._failures:
            run.fail(f"beside the strangers {len(self._failures)} sends failed: {self._failures[0]}")
        if p99_ms > SLOW_MS:
            run.fail(f"beside the strangers 1 of 100 sends took {p99_ms:.0f} ms")


async def _be_silent(run: ProgrammeRun, server: _Server) -> None:
    """More connections than there are descriptors, to all ports: the store, new clients and the pages go on."""
    places = server.addresses
    assert places.metrics is not None
    silent: list[asyncio.StreamWriter] = []
    for address in (places.broker, places.nameserver, places.grpc, places.metrics):
        with suppress(OSError, TimeoutError):
            for _ in range(SILENT_CONNECTIONS):
                _, writer = await _open(address)
                silent.append(writer)
    await asyncio.sleep(1)
    run.count("silent_connections", len(silent))
    run.counts["silent_descriptors"] = max(run.counts.get("silent_descriptors", 0), server.descriptors())
    await asyncio.to_thread(_use, run, server, "while others are silent")
    await _ask_the_page(run, places.metrics)
    await _close(silent)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(_use, run, server, "after the silent ones are gone")


def _use(run: ProgrammeRun, server: _Server, when: str) -> None:
    """A new client makes a topic, which is saved in files, and sends to it."""
    name = f"made-{time.monotonic_ns()}"
    try:
        with server.client() as client:
            client.create_topic(TopicConfig(name))
            client.send(Message(name, b"first"))
            client.send(Message("later", b"more"))
    except MillstreamError as error:
        run.fail(f"{when} a new client is refused: {error}")
    else:
        run.count("strangers_uses")


async def _ask_the_page(run: ProgrammeRun, address: str) -> None:
    try:
        reader, writer = await _open(address)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(_ANSWER_S):
            answer = await reader.read()
        await _close([writer])
    except (OSError, TimeoutError) as error:
        answer = repr(error).encode()
    if not answer.startswith(b"HTTP/1.1 200"):
        run.fail(f"the page of health said while others were silent: {answer[:200]!r}")


async def _be_loud(run: ProgrammeRun, server: _Server) -> None:
    """Bad frames, one a connection."""
    for number in range(600):
        address = (server.addresses.broker, server.addresses.nameserver)[number % 2]
        with suppress(OSError, TimeoutError):
            _, writer = await _open(address)
            writer.write(b"\xff" * 64)
            await _close([writer])
        run.count("loud_connections")


async def _grow(run: ProgrammeRun, server: _Server) -> None:
    """Messages that grow when they are read, beyond the limit of a body and up to it, by four groups at a time."""
    bombs = [gzip.compress(bytes(size_bytes), 9) for size_bytes in (66 * 1024 * 1024, MAX_BODY_BYTES)]
    async with grpc.aio.insecure_channel(
        server.addresses.grpc, options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        send, receive = (METHODS[name].stub(channel) for name in ("SendMessage", "ReceiveMessage"))
        for number in range(BOMBS):
            system = m.SystemProperties(message_id=f"bomb{number}", body_encoding=m.GZIP)
            body = bombs[number % len(bombs)]
            message = m.Message(topic=m.Resource(name="bombs"), body=body, system_properties=system)
            answer = await send(m.SendMessageRequest(messages=[message]), metadata=_signed(), timeout=30)
            if answer.status.code != m.OK:
                run.fail(f"a message that grows is refused: {answer.status.message}")

        async def read(group: str) -> None:
            wish = m.ReceiveMessageRequest(
                group=m.Resource(name=group),
                message_queue=m.MessageQueue(topic=m.Resource(name="bombs"), id=-1),
                batch_size=32,
                invisible_duration=m.Duration(seconds=600),
                long_polling_timeout=m.Duration(seconds=1),
            )
            async for frame in receive(wish, metadata=_signed(), timeout=60):
                if frame.WhichOneof("content") == "message":
                    run.count("grown_messages")

        await asyncio.gather(*(read(f"g{number}") for number in range(4)))


async def _let_go(run: ProgrammeRun, server: _Server, before_bytes: int) -> None:
    """The memory comes back."""
    may_stay_bytes = max(before_bytes * LEFT_RATIO, before_bytes + LEFT_BYTES)
    give_up_s = time.monotonic() + _PATIENCE_S
    while (left_bytes := server.memory_bytes()) > may_stay_bytes and time.monotonic() < give_up_s:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    run.counts["strangers_left_kib"] = (left_bytes - before_bytes) // 1024
    if left_bytes > may_stay_bytes:
        run.fail(f"the strangers left {left_bytes - before_bytes:,} bytes beside {before_bytes:,}")


async def _open(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_ANSWER_S):
        return await asyncio.open_connection(host, int(port))


async def _close(writers: Iterable[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.close()
    for writer in writers:
        with suppress(ConnectionError):
            await writer.wait_closed()


def _signed() -> tuple[tuple[str, str], ...]:
    """The headers by which official clients sign their calls."""
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hmac.new(_KEYS.secret_key.encode(), date.encode(), "sha1").hexdigest()
    said = f"MQv2-HMAC-SHA1 Credential={_KEYS.access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return (("x-mq-client-id", "strangers@1@0@a"), ("x-mq-date-time", date), ("authorization", said))
