"""The settings handshake, heartbeats and the end of a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from memory_backend import MemoryBackend
from service_calls import Service, receive_request

from millstream.model.clock import ManualClock
from millstream.model.group import DEFAULT_BACKOFF_S, GroupConfig
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.adapter import StreamEnded
from millstream.proxy.processor import Processor

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
        (
            m.TelemetryCommand(settings=m.Settings(client_type=m.LITE_PUSH_CONSUMER)),
            "LITE_PUSH_CONSUMER are not served",
        ),
    ],
)
async def test_settings_that_cannot_be_answered_end_the_stream_with_the_reason(
    service: Service, command: Any, words: str
) -> None:
    with pytest.raises(StreamEnded, match=words) as ended:
        await service.telemetry(command)
    assert ended.value.refused


async def test_an_unforeseen_error_ends_the_stream_without_details(service: Service, backend: MemoryBackend) -> None:
    backend.failure = KeyError("secret-detail")
    with pytest.raises(StreamEnded, match="MS-1006") as ended:
        await service.telemetry(consumer())
    assert not ended.value.refused
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
