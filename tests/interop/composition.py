"""A broker with its gRPC port, as the tests of official clients need it: in a thread, or as a program of its own.

As a program it prints its port, obeys lines on its standard input (`topic NAME TYPE`, `group NAME ATTEMPTS`) and
answers each with `done`. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.broker.broker import Broker, BrokerOptions
from millstream.model.group import GroupConfig
from millstream.model.topic import MessageType, TopicConfig
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor

START_TIMEOUT_S = 30


@asynccontextmanager
async def serving(directory: Path, port: int = 0) -> AsyncIterator[tuple[int, Broker]]:
    """The bound port and the broker."""
    broker = Broker(directory, options=BrokerOptions(offset_save_interval_s=0.5))
    await broker.start()
    processor = Processor(LocalBackend(broker))
    await processor.start()
    server = GrpcServer(processor, "127.0.0.1", port)
    try:
        yield await server.start(), broker
    finally:
        await server.close(0.5)
        await processor.close()
        await broker.close()


@dataclass
class Running:
    """A server that tests talk to."""

    port: int
    create_topic: Callable[[str, str], None]
    create_fifo_group: Callable[[str, int], None]
    pid: int | None = None
    kill: Callable[[], None] | None = None


@contextmanager
def in_this_process(directory: Path) -> Iterator[Running]:
    """The server on an event loop in a thread of this process."""
    loop, started = asyncio.new_event_loop(), threading.Event()
    ending = asyncio.Event()
    found: dict[str, Any] = {}

    async def run() -> None:
        try:
            async with serving(directory) as (port, broker):
                found.update(port=port, broker=broker)
                started.set()
                await ending.wait()
        finally:
            started.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    started.wait(START_TIMEOUT_S)

    def create(order: str) -> None:
        async def obey_here() -> None:
            obey(found["broker"], order)

        asyncio.run_coroutine_threadsafe(obey_here(), loop).result(START_TIMEOUT_S)

    yield Running(
        found["port"],
        lambda name, kind: create(f"topic {name} {kind}"),
        lambda name, attempts: create(f"group {name} {attempts}"),
    )
    loop.call_soon_threadsafe(ending.set)
    thread.join(START_TIMEOUT_S)
    loop.close()


@contextmanager
def as_a_program(directory: Path, port: int = 0) -> Iterator[Running]:
    """The server as a process of its own; `kill` ends it without warning."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(directory), str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    told, asked = process.stdout, process.stdin

    def create(order: str) -> None:
        asked.write(order + "\n")
        asked.flush()
        assert told.readline() == "done\n"

    def kill() -> None:
        process.kill()
        process.wait(START_TIMEOUT_S)

    try:
        yield Running(
            int(told.readline()),
            lambda name, kind: create(f"topic {name} {kind}"),
            lambda name, attempts: create(f"group {name} {attempts}"),
            process.pid,
            kill,
        )
    finally:
        asked.close()
        try:
            process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            kill()
            raise
        finally:
            told.close()


def obey(broker: Broker, order: str) -> None:
    """Carry out `topic NAME TYPE` or `group NAME ATTEMPTS` (a FIFO group)."""
    match order.split():
        case ["topic", name, kind]:
            broker.topics.create(TopicConfig(name, MessageType[kind]))
        case ["group", name, attempts]:
            broker.groups.create(GroupConfig(name, fifo=True, max_attempts=int(attempts)))
        case _:
            raise ValueError(order)


async def main(directory: Path, port: int) -> None:
    """Serve until standard input ends."""
    async with serving(directory, port) as (bound, broker):
        sys.stdout.write(f"{bound}\n")
        sys.stdout.flush()
        while order := await asyncio.to_thread(sys.stdin.readline):
            obey(broker, order)
            sys.stdout.write("done\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
