"""EndTransaction, and the questions about transactions that come back to producers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from memory_backend import MemoryBackend
from service_calls import Service

from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import MessageRefused
from millstream.model.message import Address, StoredMessage
from millstream.model.operations import RECOVERY_TIME_S, Resolution
from millstream.protocol.grpc import messages as m
from millstream.proxy.client_commands import Outbox
from millstream.proxy.processor import Processor

HOST = Address("192.0.2.1", 1)


def request(**changed: Any) -> Any:
    filled = {
        "topic": m.Resource(name="anything"),
        "message_id": "ID",
        "transaction_id": "ID",
        "resolution": m.COMMIT,
        "source": m.SOURCE_CLIENT,
    }
    return m.EndTransactionRequest(**(filled | changed))


def question(topic: str = "orders", **held: str) -> RecoverOrphanedTransaction:
    return RecoverOrphanedTransaction(StoredMessage(topic, 0, 0, 0, b"x", held, 0, HOST, 0, HOST), "ID")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (m.COMMIT, Resolution.COMMIT),
        (m.ROLLBACK, Resolution.ROLLBACK),
        (m.TRANSACTION_RESOLUTION_UNSPECIFIED, Resolution.UNKNOWN),
        (77, Resolution.UNKNOWN),
    ],
)
async def test_the_broker_hears_what_the_producer_says(
    service: Service, backend: MemoryBackend, said: int, meant: Resolution
) -> None:
    answer = await service.call("EndTransaction", request(resolution=said, message_id=""))
    assert answer.status.code == m.OK
    assert backend.ended == [("anything", "ID", meant)]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"transaction_id": ""}, m.INVALID_TRANSACTION_ID),
        ({"transaction_id": " ", "message_id": ""}, m.INVALID_TRANSACTION_ID),
        ({"transaction_id": "OTHER"}, m.INVALID_TRANSACTION_ID),
        ({"topic": m.Resource(name="no such topic")}, m.ILLEGAL_TOPIC),
        ({"topic": m.Resource(name="RMQ_SYS_TRANS_HALF_TOPIC")}, m.ILLEGAL_TOPIC),
    ],
)
async def test_an_end_that_names_no_transaction_never_reaches_the_broker(
    service: Service, backend: MemoryBackend, changed: dict[str, Any], code: int
) -> None:
    answer = await service.call("EndTransaction", request(**changed))
    assert m.Code.Name(answer.status.code) == m.Code.Name(code)
    assert backend.ended == []


@pytest.mark.parametrize(
    ("name", "code"),
    [("TRANSACTION_NOT_FOUND", m.INVALID_TRANSACTION_ID), ("TRANSACTION_ENDED", m.PRECONDITION_FAILED)],
)
async def test_what_the_broker_refuses_has_a_status_of_its_own(
    service: Service, backend: MemoryBackend, name: str, code: int
) -> None:
    backend.failure = MessageRefused(name, "No.")
    answer = await service.call("EndTransaction", request())
    assert m.Code.Name(answer.status.code) == m.Code.Name(code)


async def test_a_transactional_message_says_when_its_producer_wants_to_be_asked(
    service: Service, backend: MemoryBackend
) -> None:
    for wish in ({}, {"orphaned_transaction_recovery_duration": m.Duration(seconds=61, nanos=1_000_000)}):
        answer = await service.send("anything", message_type=m.TRANSACTION, **wish)
        (entry,) = answer.entries
        assert (answer.status.code, entry.transaction_id) == (m.OK, entry.message_id)
    first, second = (message.properties for message in backend.log)
    assert (first["TRAN_MSG"], first.get(RECOVERY_TIME_S)) == ("true", None)
    assert second[RECOVERY_TIME_S] == "62"


@pytest.fixture
async def watched(processor: Processor, backend: MemoryBackend) -> AsyncIterator[Processor]:
    await processor.start()
    yield processor
    await processor.close()
    assert backend.watchers == []


def joined(processor: Processor, client_id: str, *topics: str, kind: str = "PRODUCER") -> Outbox:
    outbox = processor.stream_opened(client_id)
    processor.declare(client_id, kind, topics=topics)
    return outbox


async def test_producers_of_the_topic_are_asked_in_turn(watched: Processor, backend: MemoryBackend) -> None:
    (ask,) = backend.watchers
    assert not ask(question()), "nobody is there"
    first, second = joined(watched, "a", "orders"), joined(watched, "b", "orders", "more")
    consumer, other = joined(watched, "c", "orders", kind="PUSH_CONSUMER"), joined(watched, "d", "more")
    assert [ask(question()) for _ in range(4)] == [True] * 4
    assert [len(outbox) for outbox in (first, second, consumer, other)] == [2, 2, 0, 0]


async def test_a_message_of_a_remoting_producer_group_is_not_for_producers_of_grpc(
    watched: Processor, backend: MemoryBackend
) -> None:
    (ask,) = backend.watchers
    outbox = joined(watched, "a", "orders")
    assert not ask(question(PGROUP="billing-producers"))
    assert ask(question(PGROUP="orders"))
    assert len(outbox) == 1


async def test_a_producer_that_has_gone_or_changed_its_topics_is_not_asked(
    watched: Processor, backend: MemoryBackend
) -> None:
    (ask,) = backend.watchers
    first, second = joined(watched, "a", "orders"), joined(watched, "b", "orders")
    watched.declare("a", "PRODUCER", topics=["more"])
    assert [ask(question()), ask(question()), ask(question("more"))] == [True] * 3
    assert (len(first), len(second)) == (1, 2)
    watched.stream_closed("b", second)
    assert not ask(question()), "its stream is closed"
    await watched.terminate("a")
    assert not ask(question("more"))
    assert watched.clients.producers("more") == []
