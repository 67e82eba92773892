"""The settings handshake, heartbeats and the end of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from memory_backend import MemoryBackend
from service_calls import Service, receive_request

from millstream.model.clock import ManualClock
from millstream.model.commands import (
    NotifyUnsubscribeLite,
    ReconnectEndpoints,
    RecoverOrphanedTransaction,
    VerifyOutcome,
)
from millstream.model.errors import Refused
from millstream.model.group import DEFAULT_BACKOFF_S, ExponentialBackoff, GroupConfig
from millstream.model.message import Address, StoredMessage
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.adapter import Reason, StreamEnded
from millstream.proxy.processor import Processor
from patience import within_patience

CLIENT = "host@1@0@abc"
ALL = m.FilterExpression(expression="*")


def producer(**more: Any) -> Any:
    publishing = m.Publishing(topics=[m.Resource(name="orders")])
    return m.TelemetryCommand(settings=m.Settings(client_type=m.PRODUCER, publishing=publishing, **more))


def consumer(group: str = "g", expression: Any = None, **more: Any) -> Any:
    entry = m.SubscriptionEntry(topic=m.Resource(name="orders"), expression=expression or ALL)
    subscription = m.Subscription(group=m.Resource(name=group), subscriptions=[entry])
    return m.TelemetryCommand(settings=m.Settings(client_type=m.PUSH_CONSUMER, subscription=subscription, **more))


async def test_a_producer_gets_status_ok_and_limits_that_let_it_send(service: Service) -> None:
    (answer,) = await service.telemetry(producer(request_timeout=m.Duration(seconds=3)))
    assert answer.status.code == m.OK
    settings = answer.settings
    assert settings.WhichOneof("pub_sub") == "publishing"
    assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (4194304, True)
    assert [topic.name for topic in settings.publishing.topics] == ["orders"]
    policy = settings.backoff_policy
    assert (policy.max_attempts, policy.WhichOneof("strategy")) == (3, "exponential_backoff")
    backoff = policy.exponential_backoff
    assert (backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds(), backoff.multiplier) == (10, 1000, 2.0)
    assert settings.request_timeout.seconds == 3
    assert settings.HasField("metric")
    assert not settings.metric.on


async def test_a_consumer_gets_its_groups_order_and_backoff(service: Service) -> None:
    (answer,) = await service.telemetry(consumer())
    assert answer.status.code == m.OK
    subscription = answer.settings.subscription
    assert (subscription.group.name, subscription.fifo, subscription.receive_batch_size) == ("g", False, 32)
    assert subscription.long_polling_timeout.seconds == 20
    assert [entry.topic.name for entry in subscription.subscriptions] == ["orders"]
    policy = answer.settings.backoff_policy
    assert (policy.max_attempts, policy.WhichOneof("strategy")) == (17, "customized_backoff")
    assert [step.seconds for step in policy.customized_backoff.next] == list(DEFAULT_BACKOFF_S)


async def test_a_consumer_may_filter_by_condition(service: Service) -> None:
    wanted = m.FilterExpression(type=m.SQL, expression="a = 'b'")
    (answer,) = await service.telemetry(consumer(expression=wanted))
    assert answer.status.code == m.OK
    assert answer.settings.subscription.subscriptions[0].expression == wanted


async def test_a_consumer_of_a_group_with_exponential_backoff_is_told_the_curve(
    service: Service, backend: MemoryBackend
) -> None:
    backend.groups["g"] = GroupConfig("g", max_attempts=4, exponential=ExponentialBackoff(1_500, 60_000, 1.5))
    (answer,) = await service.telemetry(consumer())
    policy = answer.settings.backoff_policy
    assert (policy.max_attempts, policy.WhichOneof("strategy")) == (4, "exponential_backoff")
    backoff = policy.exponential_backoff
    assert (backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds(), backoff.multiplier) == (1500, 60_000, 1.5)


async def test_a_fifo_group_is_told_to_its_consumers(service: Service, backend: MemoryBackend) -> None:
    backend.groups["fifo"] = GroupConfig("fifo", fifo=True, max_attempts=4, backoff_s=(2,))
    (answer,) = await service.telemetry(consumer("fifo"))
    assert answer.settings.subscription.fifo
    assert answer.settings.backoff_policy.max_attempts == 4


async def test_settings_sent_again_are_answered_again_and_the_servers_values_replace_the_clients(
    service: Service,
) -> None:
    (first,) = await service.telemetry(consumer())
    answers = await service.telemetry(
        consumer(backoff_policy=m.RetryPolicy(max_attempts=99, exponential_backoff=m.ExponentialBackoff(multiplier=9))),
        m.TelemetryCommand(settings=first.settings),
    )
    assert answers == [first, first]
    assert answers[0].settings.backoff_policy.max_attempts == 17
    assert answers[0].settings.backoff_policy.WhichOneof("strategy") == "customized_backoff"


async def test_other_commands_of_a_client_are_heard_without_an_answer(service: Service) -> None:
    said = m.TelemetryCommand(thread_stack_trace=m.ThreadStackTrace(nonce="1"))
    assert len(await service.telemetry(said, producer())) == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (m.TelemetryCommand(settings=m.Settings(client_type=m.PRODUCER)), "no publishing or subscription"),
        (consumer("no group"), "not a legal consumer group"),
        (consumer(expression=m.FilterExpression(type=m.SQL, expression="a = 'b")), "at character 5: expected a quote"),
    ],
)
async def test_settings_that_cannot_be_answered_end_the_stream_with_the_reason(
    service: Service, command: Any, words: str
) -> None:
    with pytest.raises(StreamEnded, match=words) as ended:
        await service.telemetry(command)
    assert ended.value.reason is Reason.REFUSED


async def test_an_unforeseen_error_ends_the_stream_without_details(service: Service, backend: MemoryBackend) -> None:
    backend.failure = KeyError("secret-detail")
    with pytest.raises(StreamEnded, match="MS-1006") as ended:
        await service.telemetry(consumer())
    assert ended.value.reason is Reason.FAILED
    assert "secret-detail" not in str(ended.value)


async def test_a_stream_counts_as_the_clients_life_from_its_opening_to_its_end(
    service: Service, processor: Processor
) -> None:
    async def said() -> AsyncIterator[Any]:
        yield producer()
        record = processor.clients.find(CLIENT)
        assert record is not None
        assert (record.streams, record.kind, record.topics) == (1, "PRODUCER", {"orders"})

    assert len([answer async for answer in service.adapter.telemetry(service.metadata, said())]) == 1
    record = processor.clients.find(CLIENT)
    assert record is not None
    assert (record.streams, record.stream_lost_s) == (0, 0.0)


async def test_a_heartbeat_of_an_unknown_client_is_welcome(service: Service, processor: Processor) -> None:
    request = m.HeartbeatRequest(client_type=m.SIMPLE_CONSUMER, group=m.Resource(name="g"))
    assert (await service.call("Heartbeat", request)).status.code == m.OK
    record = processor.clients.find(CLIENT)
    assert record is not None
    assert (record.kind, record.groups) == ("SIMPLE_CONSUMER", {"g"})


async def test_a_heartbeat_without_any_field_is_welcome(service: Service) -> None:
    assert (await service.call("Heartbeat", m.HeartbeatRequest())).status.code == m.OK


@pytest.mark.parametrize("request_fields", [{}, {"group": m.Resource(name="g")}])
async def test_a_heartbeat_without_a_client_type_leaves_a_producer_what_it_is(
    service: Service, processor: Processor, request_fields: dict[str, Any]
) -> None:
    await service.telemetry(producer())
    assert (await service.call("Heartbeat", m.HeartbeatRequest(**request_fields))).status.code == m.OK
    record = processor.clients.find(CLIENT)
    assert record is not None
    assert (record.kind, record.topics) == ("PRODUCER", {"orders"})
    assert processor.clients.producers("orders") == [CLIENT]


async def test_settings_without_a_client_type_make_a_producer_by_what_it_publishes(
    service: Service, processor: Processor
) -> None:
    publishing = m.Publishing(topics=[m.Resource(name="orders")])
    await service.telemetry(m.TelemetryCommand(settings=m.Settings(publishing=publishing)))
    assert (await service.call("Heartbeat", m.HeartbeatRequest())).status.code == m.OK
    assert processor.clients.producers("orders") == [CLIENT]
    record = processor.clients.find(CLIENT)
    assert record is not None
    assert record.kind == "PRODUCER"


async def test_settings_without_a_client_type_keep_what_a_consumer_said_before(
    service: Service, processor: Processor
) -> None:
    await service.telemetry(consumer())
    unnamed = consumer()
    unnamed.settings.ClearField("client_type")
    await service.telemetry(unnamed)
    record = processor.clients.find(CLIENT)
    assert record is not None
    assert (record.kind, record.groups) == ("PUSH_CONSUMER", {"g"})


async def test_a_client_type_from_the_future_is_welcome(service: Service) -> None:
    assert (await service.call("Heartbeat", m.HeartbeatRequest(client_type=77))).status.code == m.OK


@pytest.mark.parametrize("group", [None, m.Resource(name="g")], ids=["producer's form", "consumer's form"])
async def test_termination_hands_back_what_the_client_holds(
    service: Service, backend: MemoryBackend, clock: ManualClock, group: Any
) -> None:
    await service.send()
    service.deadline_s = 23.0
    push = receive_request(auto_renew=True)
    await service.frames("ReceiveMessage", push)
    answer = await service.call("NotifyClientTermination", m.NotifyClientTerminationRequest(group=group))
    assert answer.status.code == m.OK
    assert [change.invisible_ms for change in backend.changes] == [1000]
    clock.advance_ms(1000)
    assert len(await service.frames("ReceiveMessage", push)) == 3


class Conversation:
    """A telemetry stream that stays open while the test goes on."""

    def __init__(self, service: Service) -> None:
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self._answers = service.adapter.telemetry(service.metadata, self._requests())

    async def _requests(self) -> AsyncIterator[Any]:
        while (command := await self._said.get()) is not None:
            yield command

    def say(self, command: Any) -> None:
        self._said.put_nowait(command)

    async def hear(self) -> Any:
        return await within_patience(anext(self._answers))

    async def end(self) -> None:
        await self._answers.aclose()


async def test_commands_reach_the_client_between_the_answers_to_its_settings(
    service: Service, processor: Processor
) -> None:
    stream = Conversation(service)
    stream.say(producer())
    assert (await stream.hear()).WhichOneof("command") == "settings"
    assert processor.tell(CLIENT, NotifyUnsubscribeLite("lite"))
    assert (await stream.hear()).notify_unsubscribe_lite_command.lite_topic == "lite"
    stream.say(producer())
    assert (await stream.hear()).WhichOneof("command") == "settings"
    assert processor.tell(CLIENT, ReconnectEndpoints("n"))
    assert (await stream.hear()).reconnect_endpoints_command.nonce == "n"
    await stream.end()
    assert not processor.tell(CLIENT, ReconnectEndpoints("n"))


async def test_a_transaction_is_asked_about_with_a_message_that_clients_can_read(
    service: Service, processor: Processor
) -> None:
    stream = Conversation(service)
    stream.say(producer())
    await stream.hear()
    host = Address("192.0.2.1", 1)
    stored = StoredMessage(
        "orders", 0, 7, 99, b"body", {"UNIQ_KEY": "ID", "TRAN_MSG": "true", "a": "b"}, 5, host, 6, host
    )
    assert processor.tell(CLIENT, RecoverOrphanedTransaction(stored, "TX"))
    asked = (await stream.hear()).recover_orphaned_transaction_command
    system = asked.message.system_properties
    assert (asked.transaction_id, asked.message.topic.name, asked.message.body) == ("TX", "orders", b"body")
    assert (system.message_id, system.message_type, system.body_encoding) == ("ID", m.TRANSACTION, m.IDENTITY)
    assert (system.delivery_attempt, system.receipt_handle, len(system.body_digest.checksum)) == (1, "", 32)
    assert dict(asked.message.user_properties) == {"a": "b"}
    await stream.end()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (m.OK, VerifyOutcome.CONSUMED),
        (m.FAILED_TO_CONSUME_MESSAGE, VerifyOutcome.FAILED),
        (m.MESSAGE_CORRUPTED, VerifyOutcome.CORRUPTED),
        (m.NOT_IMPLEMENTED, VerifyOutcome.NOT_SUPPORTED),
    ],
)
async def test_what_a_client_says_of_a_trial_message_resolves_the_question(
    service: Service, processor: Processor, code: Any, outcome: VerifyOutcome
) -> None:
    stream = Conversation(service)
    host = Address("192.0.2.1", 1)
    stored = StoredMessage("orders", 0, 7, 99, b"body", {}, 5, host, 6, host)
    stream.say(producer())
    await stream.hear()
    asked = asyncio.create_task(processor.verify_message(CLIENT, stored, 5))
    nonce = (await stream.hear()).verify_message_command.nonce
    hearing = asyncio.create_task(stream.hear())
    stream.say(m.TelemetryCommand(status=m.Status(code=code), verify_message_result=m.VerifyMessageResult(nonce=nonce)))
    assert await asked is outcome
    hearing.cancel()


async def test_a_stack_trace_is_the_clients_text_or_its_refusal(service: Service, processor: Processor) -> None:
    stream = Conversation(service)
    stream.say(producer())
    await stream.hear()
    for said in ("main: runs", None):
        asked = asyncio.create_task(processor.thread_stack_trace(CLIENT, 5))
        nonce = (await stream.hear()).print_thread_stack_trace_command.nonce
        trace = m.ThreadStackTrace(nonce=nonce, thread_stack_trace=said)
        stream.say(m.TelemetryCommand(status=m.Status(code=m.NOT_IMPLEMENTED), thread_stack_trace=trace))
        # The next answer lets the stream read what was said before.
        stream.say(producer())
        await stream.hear()
        if said:
            assert await asked == said
        else:
            with pytest.raises(Refused, match="status 50100"):
                await asked
    await stream.end()
