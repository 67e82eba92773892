"""An attack that is made twice, and the server's memory held against a limit: at the most, and of what is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from crash.attacked_server import AttackedServer
from crash.programme import ProgrammeRun

__all__ = ["LEFT_BYTES", "measure_attack"]

LEFT_BYTES: Final = 64 * 1024 * 1024
"""How much more memory than after a first attack may be held after a second one like it."""

_LEFT_DESCRIPTORS: Final = 8
_PATIENCE_S: Final = 60.0
_LOOK_INTERVAL_S: Final = 0.1


async def measure_attack(
    run: ProgrammeRun,
    server: AttackedServer,
    name: str,
    attack: Callable[[], Coroutine[Any, Any, None]],
    let_go: Callable[[], Awaitable[None]],
    limit_bytes: int,
) -> None:
    """Attack twice, hold the server's memory at its most against the limit, and let go. What the allocator keeps after
    the first time is not held against the server; what is more after the second is."""
    before = server.measure()
    most_bytes, left_bytes = 0, list[int]()
    may_stay_bytes = before.memory_bytes
    for _ in range(2):
        most_bytes = max(most_bytes, await _most_during(server, attack()) - before.memory_bytes)
        await let_go()
        left_bytes.append(await _freed(server, may_stay_bytes + LEFT_BYTES))
        may_stay_bytes = left_bytes[0]
    run.counts[f"{name}_kib"] = most_bytes // 1024
    if most_bytes > limit_bytes:
        run.fail(f"{name}: the server took {most_bytes:,} bytes; {limit_bytes:,} are the limit")
    if left_bytes[1] - left_bytes[0] > LEFT_BYTES:
        run.fail(f"{name}: a second time left {left_bytes[1] - left_bytes[0]:,} bytes more")
    left = await server.fewer_descriptors(before.descriptors + _LEFT_DESCRIPTORS) - before.descriptors
    if left > _LEFT_DESCRIPTORS:
        run.fail(f"{name}: {left} descriptors are left")


async def _most_during(server: AttackedServer, attack: Coroutine[Any, Any, None]) -> int:
    """The server's memory at its most while it is attacked, and at the end."""
    most_bytes = 0
    attacking = asyncio.create_task(attack)
    while not attacking.done():
        await asyncio.wait((attacking,), timeout=_LOOK_INTERVAL_S)
        most_bytes = max(most_bytes, server.measure().memory_bytes)
    await attacking
    return most_bytes


async def _freed(server: AttackedServer, limit_bytes: int) -> int:
    """The server's memory once it is within the limit, or after a time: what streams held is freed by and by."""
    give_up_s = time.monotonic() + _PATIENCE_S
    while (held_bytes := server.measure().memory_bytes) > limit_bytes and time.monotonic() < give_up_s:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    return held_bytes
