"""Input of many clients is taken in slices, and in the order in which it came."""

from __future__ import annotations

import asyncio

from millstream.transport.input_pacing import INPUT_AT_ONCE_BYTES, InputPacing

PIECE = 4096


async def next_turn() -> None:
    await asyncio.sleep(0)


async def test_one_turn_takes_no_more_than_its_share() -> None:
    pacing = InputPacing()
    taken = sum(pacing.take_now(PIECE) for _ in range(1_000))
    assert taken == INPUT_AT_ONCE_BYTES // PIECE


async def test_a_new_turn_has_a_share_of_its_own() -> None:
    pacing = InputPacing()
    while pacing.take_now(PIECE):
        pass
    await next_turn()
    assert pacing.take_now(PIECE)


async def test_what_waits_is_taken_in_its_order_and_before_what_comes_later() -> None:
    pacing, taken = InputPacing(), list[int]()
    while pacing.take_now(PIECE):
        pass
    for number in range(20):
        pacing.wait(PIECE, lambda number=number: taken.append(number))  # type: ignore[misc]
    await next_turn()
    assert taken == list(range(INPUT_AT_ONCE_BYTES // PIECE))
    assert not pacing.take_now(PIECE)
    for _ in range(3):
        await next_turn()
    assert taken == list(range(20))
    assert pacing.waiting == 0


async def test_a_piece_larger_than_a_share_is_taken_in_a_turn_of_its_own() -> None:
    pacing, taken = InputPacing(), list[int]()
    for number in range(3):
        pacing.wait(2 * INPUT_AT_ONCE_BYTES, lambda number=number: taken.append(number))  # type: ignore[misc]
    for expected in ([0], [0, 1], [0, 1, 2]):
        await next_turn()
        assert taken == expected


async def test_work_that_waits_goes_on_though_a_task_before_it_was_cancelled() -> None:
    pacing = InputPacing()
    for _ in range(5):
        pacing.wait(INPUT_AT_ONCE_BYTES, lambda: None)
    first, second = (asyncio.create_task(pacing.turn(PIECE)) for _ in range(2))
    await next_turn()
    first.cancel()
    await asyncio.wait_for(second, 5)
    assert first.cancelled()
