"""What the proxy notes of messages: everything that happened, within bounds, and never in the way of the message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from memory_backend import MemoryBackend, store_failed

from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PoppedMessage, Resolution
from millstream.model.topic import TopicConfig
from millstream.protocol.trace import (
    TRACE_TOPIC,
    ConsumedTrace,
    DeliveredTrace,
    EndTransactionTrace,
    RecallTrace,
    SentTrace,
    TraceRecord,
    decode_traces,
)
from millstream.proxy import tracer as limits
from millstream.proxy.processor import Processor, ReceiveRequest
from millstream.proxy.tracer import Tracer


class Sink:
    """Keeps trace messages; fails while `failure` is set."""

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []
        self.failure: MillstreamError | None = None

    async def store_traces(self, messages: Sequence[OutgoingMessage]) -> None:
        if self.failure is not None:
            raise self.failure
        self.messages += messages

    @property
    def records(self) -> list[TraceRecord]:
        return [record for message in self.messages for record in decode_traces(message.body)]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def tracer(sink: Sink, clock: ManualClock) -> Tracer:
    """Not started: tests call `flush` themselves."""
    return Tracer(sink, clock)


@pytest.fixture
def processor(backend: MemoryBackend, clock: ManualClock, tracer: Tracer) -> Processor:
    return Processor(backend, clock=clock, tracer=tracer)


async def send(processor: Processor, message_id: str = "ID1", topic: str = "orders", **more: str) -> None:
    held = {"UNIQ_KEY": message_id, **{name.upper(): value for name, value in more.items()}}
    if "TAG" in held:
        held["TAGS"] = held.pop("TAG")
    await processor.send([OutgoingMessage(topic, b"body", held)])


async def receive(processor: Processor, *, invisible_ms: int | None = 10_000) -> PoppedMessage:
    (popped,) = await processor.receive(ReceiveRequest("c", "g", "orders", "broker-a", invisible_ms))
    return popped


async def test_the_whole_life_of_a_message_is_noted(
    processor: Processor, tracer: Tracer, sink: Sink, clock: ManualClock
) -> None:
    await send(processor, keys="k1 k2", tag="blue")
    popped = await receive(processor)
    clock.advance_ms(250)
    await processor.ack("g", "orders", popped.handle.encode())
    await tracer.flush()
    sent, delivered, consumed = sink.records
    assert isinstance(sent, SentTrace)
    assert (sent.topic, sent.message_id, sent.tag, sent.keys) == ("orders", "ID1", "blue", "k1 k2")
    assert (sent.body_bytes, sent.succeeded) == (4, True)
    assert isinstance(delivered, DeliveredTrace)
    assert (delivered.group, delivered.message_id, delivered.retries) == ("g", "ID1", 0)
    assert isinstance(consumed, ConsumedTrace)
    assert (consumed.request_id, consumed.took_ms, consumed.succeeded) == (delivered.request_id, 250, True)


async def test_records_that_wait_are_stored_together_and_found_by_ids_and_keys(
    processor: Processor, tracer: Tracer, sink: Sink
) -> None:
    await send(processor, "ID1", keys="k1")
    await send(processor, "ID2", keys="k1 k2")
    await tracer.flush()
    (message,) = sink.messages
    assert message.topic == TRACE_TOPIC
    assert message.properties == {"KEYS": "ID1 k1 ID2 k2"}


async def test_a_refused_message_is_noted_as_failed(
    processor: Processor, tracer: Tracer, sink: Sink, backend: MemoryBackend
) -> None:
    backend.failure = store_failed()
    with pytest.raises(MillstreamError):
        await send(processor)
    await tracer.flush()
    (sent,) = sink.records
    assert isinstance(sent, SentTrace)
    assert (sent.succeeded, sent.offset_message_id, sent.store_host) == (False, "", "")


async def test_a_push_consumer_that_gives_a_message_back_has_failed(
    processor: Processor, tracer: Tracer, sink: Sink
) -> None:
    await send(processor)
    popped = await receive(processor, invisible_ms=None)
    await processor.change_invisible("g", "orders", popped.handle.encode(), 1000)
    await tracer.flush()
    consumed = sink.records[-1]
    assert isinstance(consumed, ConsumedTrace)
    assert not consumed.succeeded


async def test_a_simple_consumer_that_wants_more_time_has_not_failed(
    processor: Processor, tracer: Tracer, sink: Sink
) -> None:
    await send(processor)
    popped = await receive(processor)
    handle = await processor.change_invisible("g", "orders", popped.handle.encode(), 20_000)
    await processor.ack("g", "orders", handle)
    await tracer.flush()
    outcomes = [record.succeeded for record in sink.records if isinstance(record, ConsumedTrace)]
    assert outcomes == [True]


async def test_renewals_by_the_proxy_are_no_outcome(
    processor: Processor, tracer: Tracer, sink: Sink, clock: ManualClock, backend: MemoryBackend
) -> None:
    await send(processor)
    await receive(processor, invisible_ms=None)
    clock.advance_ms(55_000)
    processor.note_alive("c")
    await processor.sweep()
    assert len(backend.changes) == 1
    await tracer.flush()
    assert [type(record) for record in sink.records] == [SentTrace, DeliveredTrace]


async def test_a_dead_letter_is_noted_as_failed(processor: Processor, tracer: Tracer, sink: Sink) -> None:
    await send(processor)
    popped = await receive(processor)
    await processor.dead_letter("g", "orders", popped.handle.encode())
    await tracer.flush()
    consumed = sink.records[-1]
    assert isinstance(consumed, ConsumedTrace)
    assert not consumed.succeeded


async def test_the_traces_of_messages_are_not_traced(
    processor: Processor, tracer: Tracer, sink: Sink, backend: MemoryBackend
) -> None:
    backend.topics[TRACE_TOPIC] = TopicConfig(TRACE_TOPIC)
    tracer.note_send([OutgoingMessage(TRACE_TOPIC, b"x", {"UNIQ_KEY": "T"})], None, 0)
    tracer.note_delivery("g", TRACE_TOPIC, [])
    with pytest.raises(NameRefused):
        await send(processor, topic=TRACE_TOPIC)
    await tracer.flush()
    assert sink.messages == []


async def test_a_log_that_takes_no_traces_fails_no_message_and_the_drops_are_counted(
    processor: Processor, tracer: Tracer, sink: Sink
) -> None:
    sink.failure = store_failed()
    await send(processor, "ID1")
    await send(processor, "ID2")
    await tracer.flush()
    assert tracer.dropped == 2
    sink.failure = None
    await send(processor, "ID3")
    await tracer.flush()
    assert [record.message_id for record in sink.records] == ["ID3"]


async def test_too_many_waiting_records_are_dropped_and_counted(
    processor: Processor, tracer: Tracer, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_WAITING_RECORDS", 2)
    for number in range(5):
        await send(processor, f"ID{number}")
    await tracer.flush()
    assert [record.message_id for record in sink.records] == ["ID0", "ID1"]
    assert tracer.dropped == 3


async def test_deliveries_that_nobody_settles_are_forgotten_from_the_oldest_on(
    processor: Processor, tracer: Tracer, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_OPEN_DELIVERIES", 1)
    handles = []
    for number in range(2):
        await send(processor, f"ID{number}")
        handles.append((await receive(processor)).handle.encode())
    for handle in handles:
        await processor.ack("g", "orders", handle)
    await tracer.flush()
    assert [record.message_id for record in sink.records if isinstance(record, ConsumedTrace)] == ["ID1"]


@pytest.mark.parametrize(("limit", "value"), [("MAX_TRACE_BODY_BYTES", 150), ("MAX_TRACE_KEYS_CHARACTERS", 9)])
async def test_a_trace_message_is_bounded(
    processor: Processor,
    tracer: Tracer,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
) -> None:
    monkeypatch.setattr(limits, limit, value)
    for number in range(4):
        await send(processor, f"ID{number}")
    await tracer.flush()
    assert len(sink.messages) > 1
    assert [record.message_id for record in sink.records] == ["ID0", "ID1", "ID2", "ID3"]


async def test_a_recall_is_noted_with_its_outcome(tracer: Tracer, sink: Sink) -> None:
    tracer.note_recall("later", "ID1", succeeded=False)
    await tracer.flush()
    (recalled,) = sink.records
    assert isinstance(recalled, RecallTrace)
    assert (recalled.topic, recalled.message_id, recalled.succeeded) == ("later", "ID1", False)


async def test_the_end_of_a_transaction_is_noted_with_who_brought_it_up(
    processor: Processor, tracer: Tracer, sink: Sink, backend: MemoryBackend
) -> None:
    await processor.end_transaction("orders", "ID1", "ID1", Resolution.ROLLBACK, was_asked=True)
    await tracer.flush()
    (ended,) = sink.records
    assert isinstance(ended, EndTransactionTrace)
    assert (ended.topic, ended.message_id, ended.state, ended.from_check) == ("orders", "ID1", "ROLLBACK_MESSAGE", True)


async def test_what_waits_at_the_end_is_stored(tracer: Tracer, sink: Sink, processor: Processor) -> None:
    await tracer.start()
    await send(processor)
    await tracer.close()
    assert len(sink.records) == 1
