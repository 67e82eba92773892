"""Clients of a namespace see their own names; behind the service the names are whole ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_backend import MemoryBackend
from service_calls import Service, message, receive_request

from millstream.model.errors import NameRefused
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.grpc.namespace import Namespace, _find_names
from millstream.proxy.processor import Processor


@pytest.fixture
def tenant(service: Service, backend: MemoryBackend) -> Service:
    """A client of the namespace `acme`; another tenant's topic of the same name is there, too."""
    backend.topics["acme%orders"] = TopicConfig("acme%orders")
    service.metadata["x-mq-namespace"] = "acme"
    return service


def named(name: str, space: str = "acme") -> Any:
    return m.Resource(name=name, resource_namespace=space)


async def test_a_route_is_that_of_the_namespace_and_echoes_the_resource_as_it_was_sent(tenant: Service) -> None:
    for asked in (named("orders"), m.Resource(name="orders")):
        answer = await tenant.call("QueryRoute", m.QueryRouteRequest(topic=asked))
        assert answer.status.code == m.OK
        assert {queue.topic.SerializeToString() for queue in answer.message_queues} == {asked.SerializeToString()}


async def test_messages_stay_within_their_namespace(tenant: Service, backend: MemoryBackend) -> None:
    assert (await tenant.send("orders", b"ours")).status.code == m.OK
    assert [stored.topic for stored in backend.log] == ["acme%orders"]
    queue = m.MessageQueue(topic=named("orders"), id=-1)
    frames = await tenant.receive(message_queue=queue)
    assert [frame.message.body for frame in frames[1:-1]] == [b"ours"]
    assert frames[1].message.topic == named("orders")
    assert {pop.group for pop in backend.pops} == {"acme%g"}
    tenant.metadata["x-mq-namespace"] = ""
    (status,) = await tenant.receive(message_queue=m.MessageQueue(topic=m.Resource(name="orders"), id=-1))
    assert status.status.code == m.MESSAGE_NOT_FOUND


async def test_acknowledgements_and_dead_letters_are_those_of_the_namespaces_group(
    tenant: Service, backend: MemoryBackend
) -> None:
    for _ in range(2):
        await tenant.send("orders")
    frames = await tenant.receive(message_queue=m.MessageQueue(topic=named("orders"), id=-1))
    first, second = (frame.message.system_properties.receipt_handle for frame in frames[1:-1])
    entry = m.AckMessageEntry(receipt_handle=first)
    ack = m.AckMessageRequest(group=named("g"), topic=named("orders"), entries=[entry])
    assert (await tenant.call("AckMessage", ack)).status.code == m.OK
    dead = m.ForwardMessageToDeadLetterQueueRequest(group=named("g"), topic=named("orders"), receipt_handle=second)
    assert (await tenant.call("ForwardMessageToDeadLetterQueue", dead)).status.code == m.OK
    assert [(request.group, request.topic) for request in backend.dead] == [("acme%g", "acme%orders")]


async def test_settings_come_back_with_the_names_that_were_sent(tenant: Service, processor: Processor) -> None:
    entry = m.SubscriptionEntry(topic=named("orders"), expression=m.FilterExpression(type=m.TAG, expression="*"))
    subscription = m.Subscription(group=named("g"), subscriptions=[entry])
    asked = m.Settings(client_type=m.PUSH_CONSUMER, subscription=subscription)
    (answer,) = await tenant.telemetry(m.TelemetryCommand(settings=asked))
    assert answer.settings.subscription.group == named("g")
    assert answer.settings.subscription.subscriptions[0].topic == named("orders")
    await tenant.call("Heartbeat", m.HeartbeatRequest(client_type=m.PUSH_CONSUMER, group=named("g")))
    (record,) = processor.clients.all()
    assert (record.groups, record.topics) == ({"acme%g"}, {"acme%orders"})


async def test_a_missing_topic_is_told_by_the_name_that_was_asked_for(tenant: Service) -> None:
    answer = await tenant.call("QueryRoute", m.QueryRouteRequest(topic=named("missing")))
    assert answer.status.code == m.TOPIC_NOT_FOUND
    assert "No topic route info in name server for the topic: missing " in answer.status.message


@pytest.mark.parametrize(
    ("header", "resource", "words"),
    [("a", "b", "two namespaces"), ("a%b", "", "legal"), ("", "x" * 65, "legal"), ("é", "", "legal")],
)
async def test_namespaces_that_are_none_are_refused(service: Service, header: str, resource: str, words: str) -> None:
    service.metadata["x-mq-namespace"] = header
    answer = await service.call("QueryRoute", m.QueryRouteRequest(topic=named("orders", resource)))
    assert answer.status.code == m.BAD_REQUEST
    assert words in answer.status.message
    assert "MS-3220" in answer.status.message


async def test_a_client_without_a_namespace_is_as_before(service: Service, backend: MemoryBackend) -> None:
    assert (await service.send()).status.code == m.OK
    assert backend.log[0].topic == "orders"


@pytest.mark.parametrize(
    ("own", "whole"),
    [
        ("orders", "acme%orders"),
        ("%DLQ%g", "%DLQ%acme%g"),
        ("%RETRY%g", "%RETRY%acme%g"),
        ("", ""),
        ("TBW102", "TBW102"),
        ("rmq_sys_x", "rmq_sys_x"),
    ],
)
def test_whole_names_have_rocketmqs_form(own: str, whole: str) -> None:
    space = Namespace("acme")
    assert space.whole(own) == whole
    assert space.whole(whole) == whole
    assert space.own(whole) == own


@given(
    st.from_regex(r"(%DLQ%|%RETRY%)?[a-z|_-]{1,20}", fullmatch=True), st.from_regex(r"[A-Z0-9]{1,9}", fullmatch=True)
)
def test_a_name_comes_back_as_it_was(name: str, space: str) -> None:
    assert Namespace(space).own(Namespace(space).whole(name)) == name


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_topic_and_group_of_every_request_is_reached(name: str) -> None:
    """Against the text form of the message, in which each name stands out."""
    request = METHODS[name].request()
    _fill(request)
    wanted = str(request).count("plain-name")
    Namespace("acme").enter(request)
    assert str(request).count('"acme%plain-name"') == wanted
    assert len(list(_find_names(request))) >= wanted


def _fill(request: Any) -> None:
    for field in request.DESCRIPTOR.fields:
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        part = getattr(request, field.name)
        if field.is_repeated:
            part = part.add()
        part.SetInParent()
        if field.message_type.full_name == "apache.rocketmq.v2.Resource":
            part.name = "plain-name"
        else:
            _fill(part)


def test_two_namespaces_in_one_request_are_refused() -> None:
    request = receive_request()
    request.message_queue.topic.resource_namespace = "a"
    request.group.resource_namespace = "b"
    with pytest.raises(NameRefused):
        Namespace.of({}, request)


def test_messages_of_a_send_are_all_reached() -> None:
    request = m.SendMessageRequest(messages=[message("a"), message("b")])
    Namespace("acme").enter(request)
    assert [one.topic.name for one in request.messages] == ["acme%a", "acme%b"]
