"""Commands of the server wait in bounds, reach the client's newest stream, and survive the break of another one."""

from __future__ import annotations

import asyncio

import pytest

from millstream.model.commands import (
    NotifyUnsubscribeLite,
    PrintThreadStackTrace,
    RecoverOrphanedTransaction,
    ServerCommand,
    VerifyMessage,
    VerifyOutcome,
)
from millstream.model.errors import ConsumeRefused, Refused, TimedOut
from millstream.model.message import Address, StoredMessage
from millstream.proxy import client_commands as outbox_module
from millstream.proxy.client_commands import MAX_WAITING_COMMANDS, Outbox, Outboxes
from millstream.proxy.processor import Processor

HERE = Address("127.0.0.1", 1)


def notice(name: str) -> ServerCommand:
    return NotifyUnsubscribeLite(name)


def check(size_bytes: int) -> ServerCommand:
    return RecoverOrphanedTransaction(StoredMessage("t", 0, 0, 0, b"x" * size_bytes, {}, 0, HERE, 0, HERE), "id")


def drained(outbox: Outbox) -> list[ServerCommand]:
    found = []
    while len(outbox):
        found.append(outbox.take_all())
    return [command for commands in found for command in commands]


async def test_commands_come_in_their_order_and_stay_until_they_are_sent() -> None:
    outboxes = Outboxes()
    outbox = outboxes.open("c")
    waiting = asyncio.create_task(outbox.first())
    await asyncio.sleep(0)
    assert outboxes.tell("c", notice("a"))
    assert outboxes.tell("c", notice("b"))
    assert await waiting == notice("a")
    assert await outbox.first() == notice("a")
    outbox.note_sent()
    assert await outbox.first() == notice("b")
    assert outboxes.waiting == 1


async def test_a_client_without_a_stream_cannot_be_told() -> None:
    outboxes = Outboxes()
    assert not outboxes.tell("c", notice("a"))
    outboxes.close("c", outboxes.open("c"))
    assert not outboxes.tell("c", notice("a"))


async def test_a_client_that_does_not_read_is_told_no_more_than_the_limit() -> None:
    outboxes = Outboxes()
    outboxes.open("slow")
    other = outboxes.open("other")
    told = [outboxes.tell("slow", notice(str(number))) for number in range(MAX_WAITING_COMMANDS + 5)]
    assert told == [True] * MAX_WAITING_COMMANDS + [False] * 5
    assert outboxes.tell("other", notice("a"))
    assert drained(other) == [notice("a")]


async def test_the_bytes_that_wait_are_bounded_for_a_stream_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MAX_STREAM_BYTES", 10_000)
    monkeypatch.setattr(outbox_module, "MAX_TOTAL_BYTES", 25_000)
    outboxes = Outboxes()
    first = outboxes.open("a")
    outboxes.open("b")
    assert outboxes.tell("a", check(12_000)), "one that is alone may be larger"
    assert not outboxes.tell("a", check(1))
    assert outboxes.tell("b", check(9_000))
    assert not outboxes.tell("b", check(9_000))
    outboxes.open("c")
    assert not outboxes.tell("c", check(9_000)), "all together have enough"
    first.note_sent()
    assert outboxes.tell("c", check(9_000))


async def test_what_a_broken_stream_did_not_carry_moves_to_the_clients_other_stream() -> None:
    outboxes = Outboxes()
    older, newer = outboxes.open("c"), outboxes.open("c")
    for name in "ab":
        outboxes.tell("c", notice(name))
    assert (len(older), len(newer)) == (0, 2)
    outboxes.close("c", newer)
    assert drained(older) == [notice("a"), notice("b")]
    outboxes.tell("c", notice("c"))
    outboxes.close("c", older)
    assert (outboxes.waiting, outboxes.client_ids()) == (0, [])


async def answer_with(processor: Processor, outbox: Outbox, answer: object, client_id: str = "c") -> None:
    command = await outbox.first()
    outbox.note_sent()
    assert isinstance(command, PrintThreadStackTrace | VerifyMessage)
    processor.note_answer("someone else", command.nonce, "not mine to answer")
    processor.note_answer(client_id, "another nonce", "no")
    processor.note_answer(client_id, command.nonce, answer)
    processor.note_answer(client_id, command.nonce, "too late")


async def test_a_question_is_answered_by_its_nonce_and_its_client(processor: Processor) -> None:
    outbox = processor.stream_opened("c")
    asked = asyncio.create_task(processor.thread_stack_trace("c", 5))
    await answer_with(processor, outbox, "main: sleeping")
    assert await asked == "main: sleeping"
    message = StoredMessage("t", 0, 0, 0, b"x", {}, 0, HERE, 0, HERE)
    verified = asyncio.create_task(processor.verify_message("c", message, 5))
    await answer_with(processor, outbox, VerifyOutcome.FAILED)
    assert await verified is VerifyOutcome.FAILED


async def test_a_clients_refusal_is_raised_to_whoever_asked(processor: Processor) -> None:
    outbox = processor.stream_opened("c")
    asked = asyncio.create_task(processor.thread_stack_trace("c", 5))
    await answer_with(processor, outbox, ConsumeRefused("UNSUPPORTED_FEATURE", "I do not tell."))
    with pytest.raises(Refused, match="I do not tell"):
        await asked


async def test_a_question_without_an_answer_ends_with_its_time_or_its_stream(processor: Processor) -> None:
    with pytest.raises(ConsumeRefused) as refused:
        await processor.thread_stack_trace("c", 5)
    assert refused.value.name == "CLIENT_NOT_CONNECTED"
    outbox = processor.stream_opened("c")
    with pytest.raises(TimedOut):
        await processor.thread_stack_trace("c", 0.001)
    asked = asyncio.create_task(processor.thread_stack_trace("c", 5))
    await asyncio.sleep(0)
    processor.stream_closed("c", outbox)
    with pytest.raises(ConsumeRefused, match="no open stream"):
        await asked


async def test_a_question_to_a_client_that_does_not_read_is_refused_at_once(processor: Processor) -> None:
    processor.stream_opened("c")
    for number in range(MAX_WAITING_COMMANDS):
        processor.tell("c", notice(str(number)))
    with pytest.raises(ConsumeRefused) as refused:
        await processor.thread_stack_trace("c", 5)
    assert refused.value.name == "TOO_MANY_REQUESTS"


async def test_a_stop_tells_all_clients_and_does_not_wait_for_ever(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.proxy.processor.RECONNECT_TIMEOUT_S", 0.05)
    await processor.reconnect_all()
    outbox = processor.stream_opened("c")
    telling = asyncio.create_task(processor.reconnect_all())
    assert type(await outbox.first()).__name__ == "ReconnectEndpoints"
    outbox.note_sent()
    await telling
    await processor.reconnect_all()
    assert len(outbox) == 1, "the client did not read, and the stop went on"
