"""Messages of a living push consumer stay out of sight; those of one that went come back soon."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_backend import BROKER, MemoryBackend, Progress, store_failed, unforeseen

from example_counts import scaled
from millstream.model.clock import BackedClock, ManualClock
from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.model.group import ExponentialBackoff, GroupConfig
from millstream.model.handles import ReceiptHandle
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage
from millstream.model.topic import TopicConfig
from millstream.proxy.clients import CLIENT_EXPIRY_S, STREAM_GRACE_S
from millstream.proxy.processor import Processor, ReceiveRequest
from millstream.proxy.renewal import RENEW_FOR_MS, RENEW_LIMIT_MS

MINUTE_MS = 60_000


async def send(processor: Processor, number: int = 0) -> None:
    await processor.send([OutgoingMessage("orders", b"body", {"UNIQ_KEY": f"id-{number}"})])


async def receive(processor: Processor, client: str = "c", group: str = "g") -> list[PoppedMessage]:
    return await processor.receive(ReceiveRequest(client, group, "orders", BROKER, invisible_ms=None))


async def pass_time(processor: Processor, clock: ManualClock, amount_ms: int, *, alive: str = "c") -> None:
    for _ in range(amount_ms // 1000):
        clock.advance_ms(1000)
        if alive:
            processor.note_alive(alive)
        await processor.sweep()


def state(backend: MemoryBackend, number: int = 0, group: str = "g") -> Progress:
    return backend.progress[group, number]


async def test_a_slow_consumer_acknowledges_with_its_first_handle_after_an_hour(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    await send(processor)
    (popped,) = await receive(processor)
    assert popped.handle.invisible_ms == RENEW_FOR_MS
    await pass_time(processor, clock, 60 * MINUTE_MS)
    assert await receive(processor, "other") == []
    assert len(backend.changes) > 50
    await processor.ack("g", "orders", popped.handle.encode())
    assert state(backend).acked
    assert len(processor.renewer.table) == 0


async def test_a_delivery_is_not_renewed_for_more_than_three_hours(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    backend.groups["g"] = GroupConfig("g", backoff_s=(7, 8))
    await send(processor)
    await receive(processor)
    await pass_time(processor, clock, RENEW_LIMIT_MS + 2 * MINUTE_MS)
    assert backend.changes[-1].invisible_ms == 7000
    assert len(processor.renewer.table) == 0
    (again,) = await receive(processor)
    assert again.delivery_attempt == 2


async def test_a_client_that_ends_gives_its_deliveries_back_in_a_second(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    await send(processor)
    await receive(processor)
    await processor.terminate("c", "g")
    assert processor.clients.find("c") is None
    assert await receive(processor, "other") == []
    clock.advance_ms(1000)
    assert len(await receive(processor, "other")) == 1


async def test_a_client_whose_stream_broke_and_who_is_silent_gives_its_deliveries_back(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    outbox = processor.stream_opened("c")
    await send(processor)
    await receive(processor)
    processor.stream_closed("c", outbox)
    await pass_time(processor, clock, int(STREAM_GRACE_S * 1000) - 1000, alive="")
    assert backend.changes == []
    await pass_time(processor, clock, 2000, alive="")
    assert [change.invisible_ms for change in backend.changes] == [1000]


async def test_a_client_without_a_stream_is_given_up_after_two_minutes(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    await send(processor)
    await receive(processor)
    await pass_time(processor, clock, int(CLIENT_EXPIRY_S * 1000) + 2000, alive="")
    assert backend.changes[-1].invisible_ms == 1000
    assert len(await receive(processor, "other")) == 1


async def test_messages_received_for_a_client_that_was_forgotten_meanwhile_are_not_renewed_for_hours(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(processor.receive(ReceiveRequest("c", "g", "orders", BROKER, None, wait_ms=2000)))
    await asyncio.sleep(0)
    await processor.terminate("c", "g")
    await send(processor)
    assert len(await waiting) == 1
    await pass_time(processor, clock, int(CLIENT_EXPIRY_S * 1000) + 2000, alive="")
    assert len(processor.renewer.table) == 0


async def test_a_failed_acknowledgement_keeps_the_way_to_the_latest_handle(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    await send(processor)
    (popped,) = await receive(processor)
    await pass_time(processor, clock, 5 * MINUTE_MS)
    backend.failure = store_failed()
    with pytest.raises(MillstreamError):
        await processor.ack("g", "orders", popped.handle.encode())
    backend.failure = None
    await processor.ack("g", "orders", popped.handle.encode())
    assert state(backend).acked


@pytest.mark.parametrize("failure", [store_failed(), unforeseen()], ids=["foreseen", "unforeseen"])
async def test_a_renewal_that_failed_once_is_made_up_for_before_any_message_is_seen_again(
    processor: Processor, backend: MemoryBackend, clock: ManualClock, failure: Exception
) -> None:
    for number in range(3):
        await send(processor, number)
    await receive(processor)
    clock.advance_ms(50_000)
    backend.failure = failure
    with suppress(KeyError):
        await processor.sweep()
    backend.failure = None
    await pass_time(processor, clock, 5 * MINUTE_MS)
    assert await receive(processor, "other") == []
    assert len(processor.renewer.table) == 3


async def test_a_nack_ends_the_renewal_and_returns_a_handle_that_works(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    await send(processor)
    (popped,) = await receive(processor)
    await pass_time(processor, clock, 5 * MINUTE_MS)
    text = await processor.change_invisible("g", "orders", popped.handle.encode(), 30_000)
    assert len(processor.renewer.table) == 0
    await processor.ack("g", "orders", text)
    assert state(backend).acked


async def test_an_acknowledgement_waits_for_the_renewal_that_is_under_way(clock: ManualClock) -> None:
    class SlowBackend(MemoryBackend):
        answer: asyncio.Event

        async def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
            changed = await super().change_invisible(request)
            await self.answer.wait()
            return changed

    backend = SlowBackend(clock, {"orders": TopicConfig("orders")})
    backend.answer = asyncio.Event()
    processor = Processor(backend, clock=clock)
    await send(processor)
    (popped,) = await receive(processor)
    clock.advance_ms(55_000)
    sweep = asyncio.create_task(processor.sweep())
    await asyncio.sleep(0)
    acking = asyncio.create_task(processor.ack("g", "orders", popped.handle.encode()))
    await asyncio.sleep(0)
    backend.answer.set()
    await asyncio.gather(sweep, acking)
    assert state(backend).acked
    assert len(processor.renewer.table) == 0


async def test_a_full_table_refuses_receives_instead_of_losing_track(processor: Processor) -> None:
    processor.renewer.table._capacity = 31
    with pytest.raises(ConsumeRefused) as refusal:
        await receive(processor)
    assert refusal.value.name == "TOO_MANY_REQUESTS"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.just(0)),
        st.tuples(st.just("receive"), st.sampled_from([0, 1])),
        st.tuples(st.just("ack"), st.integers(0, 20)),
        st.tuples(st.just("nack"), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.integers(1, 90)),
        st.tuples(st.just("leave"), st.sampled_from([0, 1])),
    ),
    max_size=40,
)


@settings(max_examples=scaled(150), deadline=None)
@given(STEPS)
def test_no_history_shows_a_held_message_to_another_or_keeps_one_that_nobody_holds(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(run_history(steps))


async def run_history(steps: list[tuple[str, int]]) -> None:
    """Two consumers of one group. `held` is what the model expects: message number -> (client, first handle)."""
    clock = ManualClock()
    backend = MemoryBackend(clock, {"orders": TopicConfig("orders")})
    processor = Processor(backend, clock=clock)
    held: dict[int, tuple[str, str]] = {}
    for action, number in steps:
        client = f"client-{number}"
        if action == "send":
            await send(processor)
        elif action == "receive":
            processor.note_alive(client)
            for popped in await receive(processor, client):
                place = popped.message.log_offset
                assert place not in held
                held[place] = (client, popped.handle.encode())
        elif action in ("ack", "nack") and held:
            place = list(held)[number % len(held)]
            _, text = held.pop(place)
            if action == "ack":
                await processor.ack("g", "orders", text)
                assert state(backend, place).acked
            else:
                await processor.change_invisible("g", "orders", text, 5000)
        elif action == "wait":
            for _ in range(number):
                clock.advance_ms(1000)
                processor.note_alive("client-0")
                processor.note_alive("client-1")
                await processor.sweep()
        elif action == "leave":
            await processor.terminate(client)
            held = {place: holder for place, holder in held.items() if holder[0] != client}
        check_history(backend, processor, clock, held)


def check_history(
    backend: MemoryBackend, processor: Processor, clock: ManualClock, held: dict[int, tuple[str, str]]
) -> None:
    assert len(processor.renewer.table) == len(held)
    for place in range(len(backend.log)):
        progress = backend.progress.get(("g", place))
        if progress is None or progress.acked:
            continue
        left_ms = progress.visible_ms - clock.now_ms()
        if place in held:
            assert left_ms > 0
        else:
            assert left_ms <= 5000


def test_dead_letters_go_by_the_latest_handle() -> None:
    async def history() -> None:
        clock = ManualClock()
        backend = MemoryBackend(clock, {"orders": TopicConfig("orders")})
        processor = Processor(backend, clock=clock)
        await send(processor)
        (popped,) = await receive(processor)
        await pass_time(processor, clock, 5 * MINUTE_MS)
        await processor.dead_letter("g", "orders", popped.handle.encode())
        assert [type(request) for request in backend.dead] == [AckRequest]
        assert backend.dead[0].handle != popped.handle

    asyncio.run(history())


async def test_a_delivery_that_is_given_up_waits_by_its_groups_exponential_backoff(
    processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    backend.groups["g"] = GroupConfig("g", exponential=ExponentialBackoff(7_000, 90_000, 10))
    for attempt_ms in (7_000, 70_000):
        if attempt_ms == 7_000:
            await send(processor)
        await receive(processor)
        await pass_time(processor, clock, RENEW_LIMIT_MS + 2 * MINUTE_MS)
        assert backend.changes[-1].invisible_ms == attempt_ms


@pytest.mark.parametrize("step_ms", [4 * 60 * MINUTE_MS, -60 * MINUTE_MS])
async def test_a_delivery_is_renewed_in_time_and_kept_whatever_the_wall_clock_does(
    processor: Processor, backend: MemoryBackend, clock: ManualClock, step_ms: int
) -> None:
    backend.clock = BackedClock(clock)  # The broker sees to its own clock.
    await send(processor)
    (popped,) = await receive(processor)
    clock.set_wall(step_ms)
    before = len(backend.changes)
    await pass_time(processor, clock, 10 * MINUTE_MS)
    renewals = backend.changes[before:]
    assert {change.invisible_ms for change in renewals} == {RENEW_FOR_MS}
    # One each 50 s, neither a burst nor a gap.
    assert 10 <= len(renewals) <= 13
    await processor.ack("g", "orders", popped.handle.encode())
    assert len(processor.renewer.table) == 0
