"""What backends do with messages whose senders say later whether they count."""

from __future__ import annotations

import asyncio

import pytest
from contract_ground import Ground, outgoing, refused

from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.operations import Resolution, SendReceipt
from millstream.model.topic import MessageType


@pytest.fixture
async def ledger(ground: Ground) -> Ground:
    ground.create("ledger", MessageType.TRANSACTION)
    return ground


async def begun(ground: Ground) -> SendReceipt:
    message = outgoing("ledger", b"x", MessageType.TRANSACTION, TRAN_MSG="true", PGROUP="ledger")
    (receipt,) = await ground.backend.send([message])
    return receipt


async def test_a_message_counts_once_it_is_committed(ledger: Ground) -> None:
    receipt = await begun(ledger)
    assert await ledger.pop("ledger") == []
    await ledger.backend.end_transaction("ledger", receipt.message_id, Resolution.UNKNOWN)
    assert await ledger.pop("ledger") == []
    await ledger.backend.end_transaction("ledger", receipt.message_id, Resolution.COMMIT)
    await ledger.backend.end_transaction("ledger", receipt.message_id, Resolution.COMMIT)
    (popped,) = await ledger.pop("ledger")
    assert popped.message.message_id == receipt.message_id


async def test_a_message_that_is_rolled_back_never_counts(ledger: Ground) -> None:
    receipt = await begun(ledger)
    await ledger.backend.end_transaction("ledger", receipt.message_id, Resolution.ROLLBACK)
    assert await ledger.pop("ledger") == []
    end = ledger.backend.end_transaction
    assert await refused(end("ledger", receipt.message_id, Resolution.COMMIT)) == "TRANSACTION_ENDED"


async def test_ends_of_what_never_began_are_refused(ledger: Ground) -> None:
    end = ledger.backend.end_transaction
    assert await refused(end("ledger", "nobody", Resolution.COMMIT)) == "TRANSACTION_NOT_FOUND"
    assert await refused(end("missing", "nobody", Resolution.COMMIT)) == "TRANSACTION_NOT_FOUND"


async def test_a_silent_producer_is_asked_and_can_still_commit(ledger: Ground) -> None:
    questions: asyncio.Queue[RecoverOrphanedTransaction] = asyncio.Queue()

    def ask(question: RecoverOrphanedTransaction) -> bool:
        questions.put_nowait(question)
        return True

    unwatch = ledger.backend.watch_transactions(ask)
    await ledger.announce("ledger")
    receipt = await begun(ledger)
    ledger.clock.advance_ms(7_000)
    question = await questions.get()
    unwatch()
    assert (question.transaction_id, question.message.message_id) == (receipt.message_id, receipt.message_id)
    assert (question.message.topic, question.message.body) == ("ledger", b"x")
    await ledger.backend.end_transaction("ledger", question.transaction_id, Resolution.COMMIT)
    assert len(await ledger.pop("ledger")) == 1
