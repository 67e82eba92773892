"""A server that is attacked over the network, with a client beside the attack that must not notice it."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from crash.bystander import BESIDE, Bystander
from crash.programme import ProgrammeRun
from millstream.client.blocking import BlockingClient
from millstream.model.group import GroupConfig
from millstream.model.topic import MessageType, TopicConfig
from millstream.server.child import ServerProcess

__all__ = ["AttackedServer", "Measured", "count_descriptors"]

SETTLE_TIMEOUT_S = 15.0

NOTICE_TIMEOUT_S = 30.0
"""A server that does not read a client sees that it is gone when it writes the next time: a stream after 15 s."""

_PORTS = ("--mqtt-port", "0", "--amqp-port", "0", "--http-port", "0")

_NOT_FOR_CLIENTS = re.compile(r"^(Traceback|ERROR|CRITICAL|E\d{4} )", re.MULTILINE)
"""What a log must not hold of a client's doings: stack traces and errors of the server."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The server's process at one moment. Files of its store do not count as descriptors: they are kept open up to a
    limit of their own, and what attacks store makes more of them."""

    memory_bytes: int
    descriptors: int
    threads: int


class AttackedServer:
    """Runs within its block; at its end the log and the bystander are judged. `grpc`, `broker`, `nameserver`, `mqtt`,
    `amqp` and `http` are its addresses; `options` are further ones of quickstart."""

    def __init__(self, run: ProgrammeRun, *options: str) -> None:
        self._run = run
        self._log = run.scratch / "server.log"
        self._data = run.scratch / "data"
        histories = run.scratch / "histories"
        histories.mkdir()
        self._resources = ExitStack()
        self._process = self._resources.enter_context(
            ServerProcess(self._data, options=(*_PORTS, *options), log=self._log)
        )
        self.grpc = self._process.addresses.grpc
        self.broker, self.nameserver = self._process.addresses.broker, self._process.addresses.nameserver
        self.mqtt, self.amqp, self.http = (self._process.addresses.protocols[name] for name in ("mqtt", "amqp", "http"))
        with BlockingClient(self._process.addresses.nameserver) as client:
            client.create_topic(TopicConfig("orders"))
            client.create_topic(TopicConfig("ordered", MessageType.FIFO))
            client.create_topic(TopicConfig(BESIDE))
            client.create_group(GroupConfig(BESIDE))
        self._bystander = self._resources.enter_context(Bystander(self.grpc, histories))

    def __enter__(self) -> AttackedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()
        self._bystander.judge(self._run)
        log = self._log.read_text(errors="replace")
        if found := _NOT_FOR_CLIENTS.search(log):
            self._run.fail(f"the server's log has: {log[found.start() : found.start() + 2000]}")
        self._run.count("log_lines", log.count("\n"))

    def measure(self) -> Measured:
        """The server's memory, descriptors and threads now."""
        process = Path("/proc") / str(self._process.pid)
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return Measured(
            memory_bytes=int(status["RssAnon"].split()[0]) * 1024,
            descriptors=count_descriptors(process / "fd", self._data),
            threads=int(status["Threads"]),
        )

    async def settle(self) -> None:
        """Return once the number of descriptors no longer falls."""
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            before = self.measure().descriptors + 1
            while (now := self.measure().descriptors) < before:
                before = now
                await asyncio.sleep(0.5)

    async def fewer_descriptors(self, most: int) -> int:
        """The number of descriptors once it is no more than that, or after a time."""
        give_up_s = time.monotonic() + NOTICE_TIMEOUT_S
        while (held := self.measure().descriptors) > most and time.monotonic() < give_up_s:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        return held


def count_descriptors(directory: Path, data: Path) -> int:
    """The descriptors of a directory of /proc that are none of files below `data`."""
    count = 0
    for one in directory.iterdir():
        with suppress(FileNotFoundError):
            count += not one.readlink().is_relative_to(data)
    return count
