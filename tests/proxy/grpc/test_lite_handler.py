"""SyncLiteSubscription, and what else of the service knows lite topics."""

from __future__ import annotations

from typing import Any

import pytest
from memory_backend import MemoryBackend
from service_calls import Service, message

from millstream.model.clock import ManualClock
from millstream.model.commands import NotifyUnsubscribeLite
from millstream.model.group import GroupConfig
from millstream.model.lite import LiteAction, LiteStart, LiteStartKind, LiteSync
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.proxy.clients import CLIENT_EXPIRY_S
from millstream.proxy.processor import Processor

CLIENT = "host@1@0@abc"


@pytest.fixture(autouse=True)
def sessions(backend: MemoryBackend) -> None:
    backend.topics["sessions"] = TopicConfig("sessions", MessageType.LITE)


async def sync(service: Service, *lite_topics: str, topic: str = "sessions", group: str = "g", **more: Any) -> Any:
    names = {"topic": m.Resource(name=topic), "group": m.Resource(name=group)}
    request = m.SyncLiteSubscriptionRequest(lite_topic_set=lite_topics, **names, **more)
    return await service.call("SyncLiteSubscription", request)


@pytest.mark.parametrize(
    ("option", "start"),
    [
        (m.OffsetOption(), LiteStart()),
        (m.OffsetOption(policy=m.OffsetOption.LAST), LiteStart()),
        (m.OffsetOption(policy=m.OffsetOption.MIN), LiteStart(LiteStartKind.MIN)),
        (m.OffsetOption(policy=m.OffsetOption.MAX), LiteStart(LiteStartKind.MAX)),
        (m.OffsetOption(offset=5), LiteStart(LiteStartKind.OFFSET, 5)),
        (m.OffsetOption(tail_n=6), LiteStart(LiteStartKind.TAIL, 6)),
        (m.OffsetOption(timestamp=7), LiteStart(LiteStartKind.TIME, 7)),
    ],
)
async def test_a_subscription_reaches_the_broker_with_its_client_and_its_start(
    service: Service, backend: MemoryBackend, option: Any, start: LiteStart
) -> None:
    answer = await sync(service, "ann", "bob", action=m.PARTIAL_ADD, offset_option=option)
    assert answer.status.code == m.OK
    expected = LiteSync(CLIENT, "g", "sessions", LiteAction.PARTIAL_ADD, ("ann", "bob"), start)
    assert backend.lite_syncs == [expected]


@pytest.mark.parametrize("action", list(LiteAction))
async def test_each_action_is_passed_on(service: Service, backend: MemoryBackend, action: LiteAction) -> None:
    assert (await sync(service, action=action.value)).status.code == m.OK
    assert backend.lite_syncs[0].action is action


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "no good"}, m.ILLEGAL_TOPIC),
        ({"topic": "nowhere"}, m.TOPIC_NOT_FOUND),
        ({"group": ""}, m.ILLEGAL_CONSUMER_GROUP),
        ({"action": 9}, m.NOT_IMPLEMENTED),
    ],
)
async def test_what_cannot_be_subscribed_is_refused(service: Service, wrong: dict[str, Any], code: int) -> None:
    assert (await sync(service, "ann", **wrong)).status.code == code


@pytest.mark.parametrize("kind", [m.LITE_PUSH_CONSUMER, m.LITE_SIMPLE_CONSUMER])
async def test_lite_consumers_are_told_their_quota_and_others_are_not(service: Service, kind: int) -> None:
    def asks(client_type: int) -> m.TelemetryCommand:
        subscription = m.Subscription(group=m.Resource(name="g"))
        return m.TelemetryCommand(settings=m.Settings(client_type=client_type, subscription=subscription))

    lite, other = await service.telemetry(asks(kind), asks(m.PUSH_CONSUMER))
    subscription = lite.settings.subscription
    assert (subscription.lite_subscription_quota, subscription.max_lite_topic_size) == (1200, 64)
    assert not other.settings.subscription.HasField("lite_subscription_quota")


async def test_a_lite_consumer_of_a_fifo_group_polls_once_for_all_its_lite_topics(
    service: Service, backend: MemoryBackend
) -> None:
    backend.groups["g"] = GroupConfig("g", fifo=True)
    request = m.QueryAssignmentRequest(topic=m.Resource(name="sessions"), group=m.Resource(name="g"))
    answer = await service.call("QueryAssignment", request)
    assert [assignment.message_queue.id for assignment in answer.assignments] == [-1]


async def test_a_lite_topic_comes_back_to_the_consumer(service: Service, backend: MemoryBackend) -> None:
    sent = message("sessions", message_type=m.LITE, lite_topic="ann")
    assert (await service.call("SendMessage", m.SendMessageRequest(messages=[sent]))).status.code == m.OK
    system = (await service.receive("sessions"))[1].message.system_properties
    assert (system.lite_topic, system.message_type) == ("ann", m.LITE)
    assert backend.pops[0].client_id == CLIENT


async def test_an_illegal_lite_topic_is_refused(service: Service) -> None:
    answer = await service.send("sessions", message_type=m.LITE, lite_topic="no good")
    assert answer.status.code == m.ILLEGAL_LITE_TOPIC


async def test_a_client_that_ends_or_goes_silent_leaves_its_lite_topics(
    service: Service, processor: Processor, backend: MemoryBackend, clock: ManualClock
) -> None:
    await sync(service, "ann")
    await service.call("NotifyClientTermination", m.NotifyClientTerminationRequest())
    assert backend.left_lite == [CLIENT]
    await sync(service, "ann")
    clock.advance_ms(int(CLIENT_EXPIRY_S * 1000))
    await processor.sweep()
    assert backend.left_lite == [CLIENT, CLIENT]


async def test_a_client_that_loses_a_lite_topic_is_told_on_its_stream(
    service: Service, processor: Processor, backend: MemoryBackend
) -> None:
    outbox = processor.stream_opened("loser")
    backend.lite_lost = [("loser", "ann"), ("nobody", "bob")]
    assert (await sync(service, "ann", "bob")).status.code == m.OK
    assert await outbox.first() == NotifyUnsubscribeLite("ann")
