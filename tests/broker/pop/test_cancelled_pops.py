"""Pops that are cancelled, at each of their turns: nothing stays hidden that nobody got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from broker_bench import Bench, attempts, bodies, open_bench, settle

from millstream.broker.pop.dead_letters import DeadLetterQueues
from millstream.model.group import GroupConfig
from millstream.model.operations import PoppedMessage

MOST_TURNS = 12
"""More than a pop that moves a dead letter takes."""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path) as opened:
        yield opened


async def cancelled_after(turns: int, popping: Awaitable[list[PoppedMessage]]) -> list[PoppedMessage]:
    """What a pop gives that is cancelled after so many turns of the event loop; nothing where that was in time."""
    task = asyncio.ensure_future(popping)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        return await task
    return []


async def expect_all(bench: Bench, got: list[PoppedMessage], wanted: list[str]) -> None:
    """What was not handed out can be popped at once, in its place, and does not count as delivered."""
    await settle()
    rest = await bench.pop()
    assert bodies(got) + bodies(rest) == wanted
    assert attempts(rest) == [1] * len(rest)


@pytest.mark.parametrize("turns", range(MOST_TURNS))
async def test_what_a_pop_took_before_it_moves_a_dead_letter_comes_at_once_where_it_is_cancelled(
    bench: Bench, turns: int
) -> None:
    bench.broker.groups.create(GroupConfig("g", max_attempts=1))
    await bench.send("poison")
    await bench.pop(invisible_ms=1_000)
    await bench.send("a", "b")
    bench.clock.advance_ms(1_000)
    await expect_all(bench, await cancelled_after(turns, bench.pop()), ["a", "b"])


@pytest.mark.parametrize("turns", range(MOST_TURNS))
async def test_a_message_that_arrives_as_a_waiting_pop_is_cancelled_comes_at_once(bench: Bench, turns: int) -> None:
    popping = bench.waiting_pop()
    await settle()

    async def arrive_and_pop() -> list[PoppedMessage]:
        sending = asyncio.create_task(bench.send("a"))
        for _ in range(turns):
            await asyncio.sleep(0)
        popping.cancel()
        await sending
        with suppress(asyncio.CancelledError):
            return await popping
        return []

    await expect_all(bench, await arrive_and_pop(), ["a"])


async def test_what_a_pop_took_comes_at_once_where_a_dead_letter_fails_in_an_unforeseen_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.broker.groups.create(GroupConfig("g", max_attempts=1))
    await bench.send("poison")
    await bench.pop(invisible_ms=1_000)
    await bench.send("a")
    bench.clock.advance_ms(1_000)

    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    bury: Callable[..., Awaitable[object]] = fail
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetterQueues, "bury_all", bury)
        with pytest.raises(ZeroDivisionError):
            await bench.pop()
    await expect_all(bench, [], ["a"])
