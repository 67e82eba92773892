"""Waiting requests: woken when they should be, one of a group at a time, bounded, and gone without a trace."""

from __future__ import annotations

import asyncio

import pytest

from millstream.broker.queues.long_polling import LongPolls
from millstream.model.errors import ConsumeRefused
from patience import within_patience

LONG_S = 30.0
Task = asyncio.Task[bool]


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def pop(polls: LongPolls, group: str = "g", queue_id: int | None = None, timeout_s: float = LONG_S) -> Task:
    return asyncio.ensure_future(polls.wait_pop(group, "t", queue_id, timeout_s))  # type: ignore[return-value]


def pull(polls: LongPolls, queue_id: int = 0, timeout_s: float = LONG_S) -> Task:
    return asyncio.ensure_future(polls.wait_pull("t", queue_id, timeout_s))  # type: ignore[return-value]


def assert_empty(polls: LongPolls) -> None:
    assert (polls.waiting, polls._pulls, polls._pops) == (0, {}, {})


async def end(polls: LongPolls, *tasks: Task) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert_empty(polls)


async def test_a_message_wakes_every_pull_of_its_queue_and_no_other() -> None:
    polls = LongPolls()
    first, second, other = pull(polls, 0), pull(polls, 0), pull(polls, 1)
    await settle()
    polls.wake([("t", 0), ("u", 1)])
    assert await first is True
    assert await second is True
    assert not other.done()
    await end(polls, other)


async def test_a_message_wakes_one_pop_of_each_group_the_one_that_waits_longest() -> None:
    polls = LongPolls()
    tasks = {name: pop(polls, name[0]) for name in ("a1", "a2", "b1", "b2")}
    await settle()
    polls.wake([("t", 3)])
    await settle()
    assert [name for name, task in tasks.items() if task.done()] == ["a1", "b1"]
    polls.wake([("t", 3)])
    await settle()
    assert all(task.result() for task in tasks.values())
    assert_empty(polls)


async def test_a_message_wakes_a_pop_of_its_queue_and_one_of_all_queues() -> None:
    polls = LongPolls()
    mine, other, every = pop(polls, queue_id=3), pop(polls, queue_id=2), pop(polls)
    await settle()
    polls.wake([("t", 3)])
    await settle()
    assert (mine.done(), other.done(), every.done()) == (True, False, True)
    await end(polls, other)


async def test_a_wait_ends_with_its_timeout() -> None:
    polls = LongPolls()
    assert await pull(polls, timeout_s=0.01) is False
    assert await pop(polls, timeout_s=0.01) is False
    assert_empty(polls)


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    polls = LongPolls()
    waits = [
        pull(polls),
        pop(polls),
        pop(polls, queue_id=1),
        asyncio.ensure_future(polls.wait_pop("g", "t", 2, 30, [(2, 30.0)])),
    ]
    await settle()
    assert polls.waiting == 4
    alarm = polls._pops["t"]["g"].alarms[2]
    await end(polls, *waits)  # type: ignore[arg-type]
    assert alarm.cancelled()


async def test_a_pop_that_is_cancelled_after_it_was_woken_passes_the_word_on() -> None:
    polls = LongPolls()
    first, second = pop(polls), pop(polls)
    await settle()
    polls.wake([("t", 0)])
    first.cancel()
    assert await within_patience(second) is True
    assert first.cancelled()
    assert_empty(polls)


async def test_a_pop_can_pass_the_word_on() -> None:
    polls = LongPolls()
    first, second = pop(polls), pop(polls, queue_id=1)
    await settle()
    polls.pass_on("g", "t", 1)
    polls.pass_on("g", "u", None)
    await settle()
    assert (first.done(), second.done()) == (False, True)
    await end(polls, first)


async def test_an_alarm_wakes_the_group_when_a_delivery_becomes_visible_again() -> None:
    polls = LongPolls()
    waiting = asyncio.ensure_future(polls.wait_pop("g", "t", None, LONG_S, [(4, 0.01)]))
    assert await within_patience(waiting) is True
    assert_empty(polls)


async def test_an_earlier_alarm_replaces_a_later_one_and_not_the_other_way_round() -> None:
    polls = LongPolls()
    waiting = pop(polls)
    await settle()
    polls.alarm("g", "t", 4, 20)
    polls.alarm("g", "t", 4, 0.01)
    polls.alarm("g", "t", 4, 20)
    polls.alarm("nobody", "t", 4, 0.01)
    assert await within_patience(waiting) is True
    assert_empty(polls)


async def test_waits_for_one_thing_are_bounded() -> None:
    polls = LongPolls(per_key=2)
    waits = [pop(polls), pop(polls), pop(polls, "h"), pop(polls, queue_id=1), pull(polls), pull(polls)]
    await settle()
    for refused in (pop(polls), pull(polls)):
        with pytest.raises(ConsumeRefused, match="2 requests wait") as error:
            await refused
        assert error.value.name == "TOO_MANY_REQUESTS"
    assert polls.waiting == 6
    await end(polls, *waits)


async def test_all_waits_together_are_bounded() -> None:
    polls = LongPolls(total=3)
    waits = [pull(polls, queue_id) for queue_id in range(3)]
    await settle()
    for refused in (pop(polls), pull(polls, 9)):
        with pytest.raises(ConsumeRefused) as error:
            await refused
        assert error.value.name == "TOO_MANY_REQUESTS"
    assert len(polls._pulls) == 3
    await end(polls, *waits)


async def test_a_deleted_topic_wakes_everybody_who_waits_on_it() -> None:
    polls = LongPolls()
    waits = [pull(polls), pop(polls), pop(polls), pop(polls, queue_id=2)]
    await settle()
    polls.wake_topic("u")
    await settle()
    assert polls.waiting == 4
    polls.wake_topic("t")
    assert await asyncio.gather(*waits) == [True] * 4
    assert_empty(polls)


async def test_closing_ends_all_waits_and_later_ones_at_once() -> None:
    polls = LongPolls()
    waits = [pull(polls), pop(polls)]
    await settle()
    polls.close()
    assert await asyncio.gather(*waits) == [False, False]
    assert await pull(polls) is False
    assert await pop(polls) is False
    assert_empty(polls)
