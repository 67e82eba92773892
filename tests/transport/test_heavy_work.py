"""Heavy work: in threads, bounded in number and bytes, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from millstream.model.errors import ConsumeRefused
from millstream.transport.heavy_work import HeavyWork


async def test_the_loop_goes_on_while_work_is_done_by_as_many_threads_as_are_allowed() -> None:
    heavy, release, seen = HeavyWork(threads=2), threading.Event(), set[str]()

    def work() -> str:
        seen.add(threading.current_thread().name)
        assert release.wait(10)
        return "done"

    running = [asyncio.create_task(heavy.run(1, work)) for _ in range(6)]
    await asyncio.sleep(0.05)
    assert len(seen) == 2
    release.set()
    assert await asyncio.gather(*running) == ["done"] * 6
    assert len(seen) == 2


async def test_work_over_the_limit_of_bytes_is_refused_until_other_work_is_done() -> None:
    heavy, release = HeavyWork(threads=1, max_bytes=10), threading.Event()
    first = asyncio.create_task(heavy.run(100, lambda: release.wait(10)))
    await asyncio.sleep(0)
    with pytest.raises(ConsumeRefused, match="100 bytes wait"):
        await heavy.run(1, lambda: None)
    release.set()
    assert await first
    assert await heavy.run(10, lambda: 7) == 7
    assert heavy.used_bytes == 0


async def test_work_that_fails_raises_and_gives_its_bytes_back() -> None:
    heavy = HeavyWork()

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await heavy.run(10, fail)
    assert heavy.used_bytes == 0
