"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from memory_backend import MemoryBackend, store_failed
from service_calls import Service

from millstream.model.clock import ManualClock
from millstream.protocol.grpc import messages as m

NAMES = {"group": m.Resource(name="g"), "topic": m.Resource(name="orders")}


async def received_handle(service: Service) -> str:
    await service.send()
    handle: str = (await service.receive())[1].message.system_properties.receipt_handle
    return handle


async def ack(service: Service, *handles: str) -> Any:
    entries = [m.AckMessageEntry(message_id=f"id-{handle[:5]}", receipt_handle=handle) for handle in handles]
    return await service.call("AckMessage", m.AckMessageRequest(entries=entries, **NAMES))


async def change(service: Service, handle: str, seconds: int, **more: Any) -> Any:
    request = m.ChangeInvisibleDurationRequest(
        receipt_handle=handle, invisible_duration=m.Duration(seconds=seconds), message_id="01ABC", **NAMES, **more
    )
    return await service.call("ChangeInvisibleDuration", request)


async def test_an_acknowledged_message_is_answered_by_its_entry_and_never_seen_again(
    service: Service, clock: ManualClock
) -> None:
    handle = await received_handle(service)
    answer = await ack(service, handle)
    assert (answer.status.code, answer.entries[0].status.code) == (m.OK, m.OK)
    assert answer.entries[0].receipt_handle == handle
    clock.advance_ms(24 * 3600 * 1000)
    assert len(await service.receive()) == 1


async def test_acknowledging_twice_is_no_error(service: Service) -> None:
    handle = await received_handle(service)
    await ack(service, handle)
    assert (await ack(service, handle)).status.code == m.OK


@pytest.mark.parametrize("handle", ["", "garbage", "0 0 0 0 0 broker-a 0 0 0", "x" * 4000])
async def test_a_dead_handle_answers_the_one_code_on_which_clients_give_up(service: Service, handle: str) -> None:
    assert (await ack(service, handle)).status.code == m.INVALID_RECEIPT_HANDLE
    assert (await change(service, handle, 10)).status.code == m.INVALID_RECEIPT_HANDLE


async def test_a_client_that_suspends_a_message_says_so_to_the_broker(service: Service, backend: MemoryBackend) -> None:
    await change(service, await received_handle(service), 10, suspend=True)
    await change(service, await received_handle(service), 10)
    assert [change.suspend for change in backend.changes] == [True, False]


async def test_a_long_list_of_handles_lets_others_in_between(service: Service) -> None:
    handles = [f"0 1 2 0 0 broker-a 0 {number} {number}" for number in range(1_000)]
    acking = asyncio.create_task(ack(service, *handles))
    turns = 0
    while not acking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert len((await acking).entries) == 1_000


async def test_an_expired_handle_is_dead(service: Service, clock: ManualClock) -> None:
    handle = await received_handle(service)
    clock.advance_ms(30_000)
    assert (await ack(service, handle)).status.code == m.INVALID_RECEIPT_HANDLE


async def test_different_outcomes_are_told_by_entry(service: Service) -> None:
    handle = await received_handle(service)
    answer = await ack(service, handle, "garbage")
    assert answer.status.code == m.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [m.OK, m.INVALID_RECEIPT_HANDLE]


async def test_no_handle_at_all_is_a_bad_request(service: Service) -> None:
    assert (await ack(service)).status.code == m.BAD_REQUEST


async def test_a_failing_store_is_not_told_as_a_dead_handle(service: Service, backend: MemoryBackend) -> None:
    handle = await received_handle(service)
    for failure in (store_failed(), KeyError("secret-detail")):
        backend.failure = failure
        answer = await ack(service, handle)
        assert answer.entries[0].status.code == m.INTERNAL_SERVER_ERROR
        assert "secret-detail" not in answer.entries[0].status.message


async def test_a_change_returns_a_new_handle_and_ends_the_old_one(service: Service, clock: ManualClock) -> None:
    handle = await received_handle(service)
    clock.advance_ms(5)
    answer = await change(service, handle, 20)
    assert answer.status.code == m.OK
    assert answer.receipt_handle not in ("", handle)
    assert (await ack(service, handle)).status.code == m.INVALID_RECEIPT_HANDLE
    assert (await ack(service, answer.receipt_handle)).status.code == m.OK


async def test_a_change_to_nothing_makes_the_message_visible_at_once(service: Service) -> None:
    handle = await received_handle(service)
    assert (await change(service, handle, 0)).status.code == m.OK
    assert (await service.receive())[1].message.system_properties.delivery_attempt == 2


@pytest.mark.parametrize("seconds", [-1, 12 * 3600 + 1])
async def test_a_change_out_of_range_is_refused_and_returns_the_old_handle(service: Service, seconds: int) -> None:
    handle = await received_handle(service)
    answer = await change(service, handle, seconds)
    assert (answer.status.code, answer.receipt_handle) == (m.ILLEGAL_INVISIBLE_TIME, handle)


async def test_a_change_that_fails_returns_the_old_handle(service: Service, backend: MemoryBackend) -> None:
    handle = await received_handle(service)
    backend.failure = store_failed()
    answer = await change(service, handle, 20)
    assert (answer.status.code, answer.receipt_handle) == (m.INTERNAL_SERVER_ERROR, handle)


async def test_a_dead_letter_is_moved_and_acknowledged(service: Service, backend: MemoryBackend) -> None:
    handle = await received_handle(service)
    request = m.ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle, message_id="01ABC", **NAMES)
    assert (await service.call("ForwardMessageToDeadLetterQueue", request)).status.code == m.OK
    assert len(backend.dead) == 1
