"""Few requests at a time are in the reading; nobody is passed over, and who dawdles gives way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from millstream.model.errors import MessageRefused
from millstream.proxy.grpc.grpcio.read_limiter import RequestReadLimiter
from patience import eventually


class Reads:
    """Reads that end when the test says so."""

    def __init__(self, intake: RequestReadLimiter) -> None:
        self.intake = intake
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Future[str]] = {}

    def start(self, connection: str, name: str) -> asyncio.Task[str]:
        async def receive() -> str:
            self.begun.append(name)
            self.ends[name] = asyncio.get_running_loop().create_future()
            return await self.ends[name]

        return asyncio.create_task(self.intake.read(connection, receive))

    async def begin(self, connection: str, *names: str) -> list[asyncio.Task[str]]:
        tasks = [self.start(connection, name) for name in names]
        await settle()
        return tasks

    async def end(self, name: str) -> None:
        self.ends[name].set_result(name)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def gone(tasks: list[asyncio.Task[str]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_read_gives_what_it_read() -> None:
    reads = Reads(RequestReadLimiter())
    (task,) = await reads.begin("a", "1")
    await reads.end("1")
    assert await task == "1"


async def test_a_connection_waits_for_itself_and_others_pass() -> None:
    reads = Reads(RequestReadLimiter(per_connection=2))
    tasks = await reads.begin("a", "a1", "a2", "a3", "a4")
    tasks += await reads.begin("b", "b1")
    assert reads.begun == ["a1", "a2", "b1"]
    await reads.end("a2")
    assert reads.begun == ["a1", "a2", "b1", "a3"]
    await gone(tasks)


async def test_free_places_go_round_the_connections_that_wait() -> None:
    reads = Reads(RequestReadLimiter(quick_places=1))
    tasks = await reads.begin("a", "a1", "a2", "a3")
    tasks += await reads.begin("b", "b1", "b2")
    for name in ("a1", "a2", "b1", "a3"):
        await reads.end(name)
    assert reads.begun == ["a1", "a2", "b1", "a3", "b2"]
    await gone(tasks)


@pytest.mark.parametrize("leaves", [lambda tasks: [tasks[1]], lambda tasks: [tasks[0]], lambda tasks: tasks[:2]])
async def test_who_leaves_takes_no_place_along(
    leaves: Callable[[list[asyncio.Task[str]]], list[asyncio.Task[str]]],
) -> None:
    reads = Reads(RequestReadLimiter(quick_places=1))
    tasks = await reads.begin("a", "1", "2", "3")
    await gone(leaves(tasks))
    for name in ("1", "2"):
        if name in reads.ends and not reads.ends[name].done():
            await reads.end(name)
    assert reads.begun[-1] == "3"
    await reads.end("3")
    assert await tasks[2] == "3"
    (after,) = await reads.begin("b", "4")
    assert reads.begun[-1] == "4"
    await gone([after])


async def test_a_place_that_was_given_to_one_who_leaves_at_that_moment_goes_on_to_the_next() -> None:
    reads = Reads(RequestReadLimiter(quick_places=1))
    tasks = await reads.begin("a", "1", "2", "3")
    reads.ends["1"].set_result("1")
    await tasks[0]
    await gone([tasks[1]])
    await settle()
    assert reads.begun[-1] == "3"
    await gone(tasks)


async def test_a_read_that_takes_too_long_is_told_so() -> None:
    reads = Reads(RequestReadLimiter(quick_s=0.01, timeout_s=0.02))
    (task,) = await reads.begin("a", "1")
    with pytest.raises(MessageRefused) as refusal:
        await task
    assert refusal.value.name == "REQUEST_TOO_SLOW"


async def test_a_slow_read_leaves_its_place_to_the_next_and_goes_on() -> None:
    reads = Reads(RequestReadLimiter(quick_places=1, slow_places=1, quick_s=0.01, patience_s=1000, timeout_s=1000))
    slow = await reads.begin("slow", "s1")
    quick = await reads.begin("b", "b1")
    await eventually(lambda: "b1" in reads.begun)
    assert not slow[0].done()
    await reads.end("s1")
    await reads.end("b1")
    assert [await task for task in slow + quick] == ["s1", "b1"]


async def test_at_the_limit_of_slow_reads_the_newcomer_is_given_up_before_one_that_is_not_long_slow() -> None:
    reads = Reads(RequestReadLimiter(quick_places=1, slow_places=1, quick_s=0.01, patience_s=1000, timeout_s=1000))
    slow = await reads.begin("a", "a1", "a2", "a3")
    with pytest.raises(MessageRefused):
        await slow[1]
    assert not slow[0].done()
    await eventually(lambda: "a3" in reads.begun)
    await gone(slow)


async def test_at_the_limit_of_slow_reads_the_one_that_was_slow_for_long_gives_way() -> None:
    reads = Reads(RequestReadLimiter(quick_places=1, slow_places=1, quick_s=0.01, patience_s=0.02, timeout_s=1000))
    slow = await reads.begin("a", "a1")
    await asyncio.sleep(0.05)
    slow += await reads.begin("a", "a2", "a3")
    with pytest.raises(MessageRefused):
        await slow[0]
    assert not slow[1].done()
    await gone(slow)


async def test_slow_reads_disturb_nobody_as_long_as_nobody_waits() -> None:
    reads = Reads(RequestReadLimiter(quick_places=2, slow_places=1, quick_s=0.01, patience_s=0.01, timeout_s=1000))
    slow = await reads.begin("a", "a1", "a2")
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in slow)
    await gone(slow)
    quick = await reads.begin("b", "b1", "b2")
    assert reads.begun[-2:] == ["b1", "b2"], "every place is free again"
    await gone(quick)


async def test_a_cancelled_read_is_cancelled_and_not_too_slow() -> None:
    reads = Reads(RequestReadLimiter())
    (task,) = await reads.begin("a", "1")
    await gone([task])
    assert task.cancelled()
