"""Runs a server in the foreground, from its start to the signal that ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from millstream.cli.gc_tuning import freeze_gc
from millstream.cli.servers.event_loop import describe_loop, loop_factory

__all__ = ["serve"]

_started_s = time.monotonic()

_Places = TypeVar("_Places", covariant=True)
_Told = TypeVar("_Told")


class Server(Protocol[_Places]):
    """What can be served."""

    async def start(self) -> _Places: ...

    async def close(self) -> None: ...

    def reload_certificate(self) -> None: ...


def serve(
    server: Server[_Told],
    announce: Callable[[_Told], None],
    farewell: str | Callable[[], str],
    *,
    has_tls: bool,
    ends_with_input: bool = False,
    until: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Start the server, say where it is, and stop it at SIGINT or SIGTERM. Raises what `start` raises.

    SIGHUP has it read its certificate again. `ends_with_input` stops it at the end of standard input, too: with the
    process that holds the other end. `until` stops it when it returns, and raises what it raises.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(server, announce, has_tls, ends_with_input, until))
    print(farewell if isinstance(farewell, str) else farewell(), flush=True)


async def _serve(
    server: Server[_Told],
    announce: Callable[[_Told], None],
    has_tls: bool,
    ends_with_input: bool,
    until: Callable[[], Awaitable[None]] | None,
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if has_tls:
        loop.add_signal_handler(signal.SIGHUP, server.reload_certificate)
    if ends_with_input:
        loop.add_reader(sys.stdin.fileno(), _read_on, stopped)
    addresses = await server.start()
    try:
        announce(addresses)
        print(f"ready in {time.monotonic() - _started_s:.2f} s on {describe_loop()}", flush=True)
        freeze_gc()
        await _stopped_or_done(stopped, until)
    finally:
        await server.close()


async def _stopped_or_done(stopped: asyncio.Event, until: Callable[[], Awaitable[None]] | None) -> None:
    if until is None:
        await stopped.wait()
        return
    ends = {asyncio.ensure_future(until()), asyncio.ensure_future(stopped.wait())}
    done, others = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    for one in done:
        one.result()


def _read_on(stopped: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stopped.set()
