"""Peers of the remoting ports that make the server hold memory for them: frames that do not end, answers unread.

Access control is on, and the server may have 2 GiB. It must live, serve a producer beside in time, and give the memory
back.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from crash.memory_cap import MemoryCap
from crash.programme import ProgrammeRun, Size
from crash.steady_sender import STEADY_TOPIC, SteadySender
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import FRAME_HEAD, encode_frame
from millstream.security.signature import Credentials
from millstream.server.child import ServerProcess
from millstream.transport.signing import sign_command

__all__ = ["hoard_memory"]

CAP_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Memory of the server."""

LEFT_RATIO: Final = 1.2
"""How much of the memory of before may be held a minute after an attack at most."""

LEFT_S: Final = 60.0
MAX_LOG_LINES: Final = 400
"""Lines that the attacks may bring into the server's log."""

_LARGE_TOPIC: Final = "large"
_LARGE_BYTES: Final = 3_900_000
_PULLS: Final = 1_000
_POLLS: Final = 200
_KEYS: Final = Credentials("attacked", "attacked-secret-1")
_TIMEOUT_S: Final = 10.0
_MIB: Final = 1024 * 1024


def hoard_memory(run: ProgrammeRun) -> None:
    """A part of X4: 140 half-sent frames and 6 peers that read nothing (CI), more of both for longer (full, soak)."""
    directory = run.scratch / "hoarded"
    directory.mkdir()
    environment = {**os.environ, "MILLSTREAM_ACCESS_KEY": _KEYS.access_key, "MILLSTREAM_SECRET_KEY": _KEYS.secret_key}
    log = directory / "server.log"
    with ExitStack() as block:
        cap = block.enter_context(MemoryCap(CAP_BYTES))
        run.counts["capped"] = int(cap.is_kept)
        options = ["--secure"]
        server = block.enter_context(
            ServerProcess(directory / "data", options=options, log=log, environment=environment, through=cap.through)
        )
        with BlockingClient(server.addresses.nameserver, credentials=_KEYS) as client:
            client.create_topic(TopicConfig(_LARGE_TOPIC, read_queues=1, write_queues=1))
            client.create_topic(TopicConfig(STEADY_TOPIC))
            # The first request of a connection, and as large as one may be.
            client.send(Message(_LARGE_TOPIC, bytes(_LARGE_BYTES)))
        sender = SteadySender(server.addresses.nameserver, environment)
        with sender:
            asyncio.run(_Attack(run, server).run_all())
        sender.judge(run)
    said = log.read_text(errors="replace")
    run.counts["hoarded_log_lines"] = said.count("\n")
    if "Traceback" in said or said.count("\n") > MAX_LOG_LINES:
        run.fail(f"the server's log has {said.count(chr(10))} lines, among them: {said[-1000:]}")


class _Attack:
    def __init__(self, run: ProgrammeRun, server: ServerProcess) -> None:
        self._run = run
        self._server = server
        self._held_s = run.by_size(1.0, 20.0, 120.0)
        self._open: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def run_all(self) -> None:
        """One attack after the other. What the allocator keeps after a first one is not held against the server, but
        in the small size, which begins with a fresh one."""
        if self._run.size is not Size.CI:
            await self._unread_pulls()
            await asyncio.sleep(self._held_s)
            await self._let_go()
            await asyncio.sleep(LEFT_S / 2)
        before_bytes = self._memory_bytes()
        for name, attack in (
            ("half_frames", self._half_frames),
            ("half_signed_frames", self._half_signed_frames),
            ("unread_pulls", self._unread_pulls),
            ("unread_polls", self._unread_polls),
        ):
            try:
                await self._measured(name, attack, before_bytes)
            except (OSError, KeyError, MillstreamError) as error:
                self._run.fail(f"{name}: the server is gone or does not answer ({type(error).__name__}: {error})")
                return

    async def _measured(self, name: str, attack: Callable[[], Awaitable[None]], before_bytes: int) -> None:
        await attack()
        ends_s = time.monotonic() + self._held_s
        most_bytes = 0
        while time.monotonic() < ends_s:
            most_bytes = max(most_bytes, self._memory_bytes())
            await asyncio.sleep(0.05)
        await self._let_go()
        ends_s = time.monotonic() + LEFT_S
        while (left_bytes := self._memory_bytes()) > before_bytes * LEFT_RATIO and time.monotonic() < ends_s:  # noqa: ASYNC110
            await asyncio.sleep(0.25)
        self._run.counts |= {f"{name}_mib": most_bytes // _MIB, f"{name}_left_mib": left_bytes // _MIB}
        self._run.counts["hoarded_before_mib"] = before_bytes // _MIB
        if most_bytes > CAP_BYTES:
            self._run.fail(f"{name}: the server took {most_bytes:,} bytes; it may have {CAP_BYTES:,}")
        if left_bytes > before_bytes * LEFT_RATIO:
            self._run.fail(f"{name}: of {before_bytes:,} bytes before, {left_bytes:,} were left after {LEFT_S:g} s")

    async def _let_go(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._open:
            one.close()
        self._open, self._tasks = [], []

    async def _half_frames(self) -> None:
        """Frames of 16 MB without a signature, of which 15 MB are sent; half of them to the nameserver."""
        head = _half_frame(RemotingCommand(RequestCode.SEND_MESSAGE_V2), 16_000_000)
        await self._send_halves(head, 15_000_000, self._run.by_size(140, 280, 1_000))

    async def _half_signed_frames(self) -> None:
        """The same with a signature that is none."""
        ext = {"AccessKey": _KEYS.access_key, "Signature": "AAAAAAAAAAAAAAAAAAAAAAAAAAA="}
        head = _half_frame(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext), 4_900_000)
        await self._send_halves(head, 4_800_000, self._run.by_size(140, 1_000, 4_000))

    async def _send_halves(self, head: bytes, size_bytes: int, count: int) -> None:
        rest = bytes(size_bytes)
        for number in range(count):
            address = self._server.addresses.nameserver if number % 2 else self._server.addresses.broker
            self._tasks.append(asyncio.create_task(self._send(await self._connect(address), head + rest)))

    async def _unread_pulls(self) -> None:
        """Pulls of one large message, a thousand at once on each connection, and nothing is read."""
        pulls = b"".join(_pull(offset=0, number=number) for number in range(_PULLS))
        for _ in range(self._run.by_size(6, 60, 300)):
            connection = await self._connect(self._server.addresses.broker)
            self._tasks.append(asyncio.create_task(self._send(connection, pulls)))

    async def _unread_polls(self) -> None:
        """Pulls that wait for a message, which is large and comes."""
        with BlockingClient(self._server.addresses.nameserver, credentials=_KEYS, timeout_s=_TIMEOUT_S) as client:
            end = client.queue_ranges(_LARGE_TOPIC)[0].range.max_offset
            polls = b"".join(_pull(offset=end, number=number, waits=True) for number in range(_POLLS))
            for _ in range(self._run.by_size(6, 60, 300)):
                connection = await self._connect(self._server.addresses.broker)
                self._tasks.append(asyncio.create_task(self._send(connection, polls)))
            await asyncio.sleep(self._run.by_size(0.5, 3.0, 10.0))
            await asyncio.to_thread(client.send, Message(_LARGE_TOPIC, bytes(_LARGE_BYTES)))

    async def _connect(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        connection = socket.socket()
        connection.setblocking(False)
        self._open.append(connection)
        await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
        return connection

    async def _send(self, connection: socket.socket, data: bytes) -> None:
        """As far as the server takes it."""
        with suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(connection, data)
            self._run.count("hoarders_sent_all")

    def _memory_bytes(self) -> int:
        status = Path(f"/proc/{self._server.pid}/status").read_text()
        return int(dict(line.split(":", 1) for line in status.splitlines())["RssAnon"].split()[0]) * 1024


def _half_frame(command: RemotingCommand, announced_bytes: int) -> bytes:
    """The beginning of a frame, up to its body."""
    header = json.dumps({"code": command.code, "extFields": command.ext, "opaque": 1, "flag": 0}).encode()
    return FRAME_HEAD.pack(announced_bytes, 0, 0, len(header)) + header


def _pull(*, offset: int, number: int, waits: bool = False) -> bytes:
    ext = {
        "consumerGroup": "hoarders", "topic": _LARGE_TOPIC, "queueId": "0", "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "6" if waits else "4", "commitOffset": "0",
        "suspendTimeoutMillis": "20000" if waits else "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    request = RemotingCommand(RequestCode.PULL_MESSAGE, ext, opaque=number)
    sign_command(request, _KEYS)
    return b"".join(encode_frame(request))
