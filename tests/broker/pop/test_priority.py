"""Topics of type PRIORITY: a priority is a queue, and what is higher comes first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_bench import Bench, bodies, open_bench

from millstream.model.topic import MessageType


@pytest.fixture
async def urgent(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path, takes=MessageType.PRIORITY) as bench:
        yield bench


async def send(bench: Bench, *priorities: int, queue_id: int | None = None) -> list[int]:
    """One message for each priority; the queues that they got."""
    receipts = [
        await bench.send(str(priority), queue_id=queue_id, _SYS_MSG_PRIORITY_=str(priority)) for priority in priorities
    ]
    return [receipt.queue_id for sent in receipts for receipt in sent]


async def test_a_priority_is_its_queue_and_those_beyond_the_last_queue_share_it(urgent: Bench) -> None:
    assert await send(urgent, 0, 1, 2, 3, 4, 2_147_483_647) == [0, 1, 2, 3, 3, 3]


async def test_the_priority_decides_even_where_the_sender_names_a_queue(urgent: Bench) -> None:
    assert await send(urgent, 2, queue_id=0) == [2]


async def test_higher_priorities_come_first_and_equal_ones_in_their_order(urgent: Bench) -> None:
    await send(urgent, 0, 2, 1, 3, 2, 0)
    assert bodies(await urgent.pop(max_messages=4)) == ["3", "2", "2", "1"]
    await send(urgent, 3)
    assert bodies(await urgent.pop()) == ["3", "0", "0"]


async def test_a_message_that_comes_again_keeps_its_rank(urgent: Bench) -> None:
    await send(urgent, 3, 1)
    (high, _) = await urgent.pop(invisible_ms=1_000)
    urgent.clock.advance_ms(1_000)
    assert bodies(await urgent.pop(max_messages=1)) == ["3"]
    assert high.message.priority == 3


async def test_lower_priorities_wait_as_long_as_higher_ones_have_messages(urgent: Bench) -> None:
    await send(urgent, 0)
    for _ in range(5):
        await send(urgent, 1)
        assert bodies(await urgent.pop(max_messages=1)) == ["1"]
    assert bodies(await urgent.pop(max_messages=1)) == ["0"]
