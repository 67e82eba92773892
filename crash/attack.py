"""Many senseless inputs at a server's port, and what the server keeps of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from crash.attacked_server import AttackedServer
from crash.programme import ProgrammeRun

__all__ = ["CONNECTIONS_AT_ONCE", "MAX_GROWTH_BYTES", "InputKind", "send_inputs", "watch_growth"]

MAX_GROWTH_BYTES: Final = 16 * 1024 * 1024
"""How much the server's memory may have grown at the end."""

CONNECTIONS_AT_ONCE: Final = 8

InputKind = Callable[[random.Random], Awaitable[None]]
"""Sends inputs of one kind over a connection of its own, and counts them as `inputs`."""


async def send_inputs(run: ProgrammeRun, kinds: Sequence[InputKind], inputs: int) -> None:
    """Send so many inputs more; what is sent depends on the run's seed alone. A server that is gone fails the run."""
    wanted = run.counts.get("inputs", 0) + inputs
    running: set[asyncio.Task[None]] = set()
    while run.counts.get("inputs", 0) < wanted or running:
        while run.counts.get("inputs", 0) < wanted and len(running) < CONNECTIONS_AT_ONCE:
            running.add(asyncio.create_task(_send_one(run, kinds, run.random.getrandbits(64))))
            await asyncio.sleep(0)
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def watch_growth(
    run: ProgrammeRun, server: AttackedServer, kinds: Sequence[InputKind], inputs: int, *, first_inputs: int
) -> None:
    """Send the inputs; the server's memory and descriptors may not grow by them.

    `first_inputs` go before, so that what is made once, such as topics of senseless names, is made.
    """
    await send_inputs(run, kinds, first_inputs)
    await server.settle()
    before = server.measure()
    await send_inputs(run, kinds, inputs)
    await server.settle()
    await server.fewer_descriptors(before.descriptors + CONNECTIONS_AT_ONCE)
    after = server.measure()
    grown_bytes = after.memory_bytes - before.memory_bytes
    run.counts |= {"grown_kib": grown_bytes // 1024, "descriptors": after.descriptors - before.descriptors}
    if grown_bytes > MAX_GROWTH_BYTES:
        run.fail(f"the server's memory grew by {grown_bytes:,} bytes")
    if after.descriptors > before.descriptors + CONNECTIONS_AT_ONCE:
        run.fail(f"the server held {before.descriptors} descriptors, in the end {after.descriptors}")


async def _send_one(run: ProgrammeRun, kinds: Sequence[InputKind], seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice(kinds)
    try:
        await kind(rng)
    except ConnectionRefusedError as error:
        run.fail(f"the server is gone after {kind.__name__} of seed {seed}: {error}")
        raise
    except OSError:
        run.count("cut_off")
