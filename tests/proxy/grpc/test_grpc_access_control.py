"""The service under access control: signed calls, what each method needs, and what forgers are answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dialled import Dialled
from service_calls import METADATA, Service, message, receive_request

from access_samples import ANN, BOB, ROOT, sample_guard, signed_headers
from millstream.model.clock import ManualClock
from millstream.model.message import Address
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.grpc.adapter import MessagingAdapter, Reason, StreamEnded
from millstream.proxy.grpc.call import NEEDS
from millstream.proxy.grpc.route import Advertised
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.policy import PolicyEntry
from millstream.security.signature import Credentials

NOT_OFFERED = m.NOT_IMPLEMENTED


def headers(credentials: Credentials) -> dict[str, str]:
    return {**METADATA, **signed_headers(credentials)}


@pytest.fixture
def guard(tmp_path: Path, clock: ManualClock) -> Guard:
    return sample_guard(tmp_path, clock)


@pytest.fixture
def guarded(processor: Processor, clock: ManualClock, guard: Guard) -> Service:
    adapter = MessagingAdapter(processor, Advertised(Address("192.0.2.1", 8081)), clock=clock, guard=guard)
    return Service(adapter, headers(ANN))


def resource(name: str) -> Any:
    return m.Resource(name=name)


def naming(method: str, topic: str, group: str) -> Any:
    """A request of the method that names the topic and the group wherever it can."""
    if method == "SendMessage":
        return m.SendMessageRequest(messages=[message(topic)])
    request = METHODS[method].request()
    if "group" in request.DESCRIPTOR.fields_by_name:
        request.group.name = group
    if "topic" in request.DESCRIPTOR.fields_by_name:
        request.topic.name = topic
    if "message_queue" in request.DESCRIPTOR.fields_by_name:
        request.message_queue.topic.name = topic
    return request


async def code_of(service: Service, method: str, request: Any) -> int:
    if METHODS[method].server_streams:
        frames = await service.frames(method, request)
        return next(frame.status.code for frame in frames if frame.HasField("status"))
    return int((await service.call(method, request)).status.code)


def last_reason(caplog: pytest.LogCaptureFixture) -> str:
    found = [record for record in caplog.records if record.name == "millstream.audit"]
    return str(json.loads(found[-1].getMessage())["reason"])


UNARY = sorted(METHODS.keys() - {"Telemetry"})


def test_every_method_says_what_it_needs() -> None:
    assert NEEDS.keys() == METHODS.keys()


async def test_a_user_sends_receives_and_acknowledges_as_the_entries_allow(guarded: Service) -> None:
    assert (await guarded.send("orders")).status.code == m.OK
    frames = await guarded.receive("orders", "billing")
    assert frames[0].status.code == m.OK
    (received,) = [frame.message for frame in frames if frame.HasField("message")]
    entry = m.AckMessageEntry(receipt_handle=received.system_properties.receipt_handle)
    request = m.AckMessageRequest(group=resource("billing"), topic=resource("orders"), entries=[entry])
    assert await code_of(guarded, "AckMessage", request) == m.OK


@pytest.mark.parametrize("method", UNARY)
async def test_strangers_are_unauthorized_everywhere(guarded: Service, method: str) -> None:
    for metadata in (
        METADATA,
        headers(Credentials("ann", "wrong-secret")),
        headers(Credentials("eve", "secret-of-eve")),
        headers(Credentials("", "")),
        {**headers(ANN), "x-mq-date-time": "20260730T120001Z"},
        {**headers(ANN), "x-mq-date-time": ""},
        {**headers(ANN), "authorization": headers(ANN)["authorization"] + ", Credential=root"},
        {**headers(ANN), "authorization": "x" * 8_000},
        {**headers(ANN), "authorization": headers(ANN)["authorization"].replace("ann", "root")},
    ):
        guarded.metadata = dict(metadata)
        assert await code_of(guarded, method, naming(method, "orders", "billing")) in (m.UNAUTHORIZED, NOT_OFFERED)


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"Telemetry", "QueryOffset"}))
async def test_a_user_without_entries_is_forbidden_everywhere(guarded: Service, method: str) -> None:
    guarded.metadata = headers(BOB)
    assert await code_of(guarded, method, naming(method, "orders", "billing")) in (m.FORBIDDEN, NOT_OFFERED)


@pytest.mark.parametrize("method", ["ReceiveMessage", "AckMessage", "ChangeInvisibleDuration", "QueryAssignment"])
async def test_consuming_needs_the_right_to_both_the_group_and_the_topic(guarded: Service, method: str) -> None:
    assert await code_of(guarded, method, naming(method, "others", "billing")) == m.FORBIDDEN
    assert await code_of(guarded, method, naming(method, "orders", "sales")) == m.FORBIDDEN
    assert await code_of(guarded, method, naming(method, "orders", "billing")) != m.FORBIDDEN


async def test_one_message_for_another_topic_spoils_the_whole_send(guarded: Service) -> None:
    request = m.SendMessageRequest(messages=[message("orders"), message("others")])
    assert await code_of(guarded, "SendMessage", request) == m.FORBIDDEN


async def test_a_super_user_may_everything(guarded: Service) -> None:
    guarded.metadata = headers(ROOT)
    assert await code_of(guarded, "QueryRoute", naming("QueryRoute", "ordered", "")) == m.OK


async def test_the_case_of_the_signature_and_the_go_clients_slashes_do_not_matter(guarded: Service) -> None:
    said = headers(ANN)["authorization"]
    start, _, digits = said.partition("Signature=")
    for text in (f"{start}Signature={digits.upper()}", said.replace("Credential=ann", "Credential=ann//RocketMQ")):
        guarded.metadata["authorization"] = text
        assert (await guarded.send("orders")).status.code == m.OK


async def test_an_entry_for_an_address_holds_for_calls_from_it(guarded: Service, guard: Guard) -> None:
    guard.book.put_entries("bob", [PolicyEntry.read("Topic:orders", ["Pub"], ["192.0.2.0/24"], "Allow")])
    guarded.metadata = headers(BOB)
    assert (await guarded.send("orders")).status.code == m.OK
    guarded.metadata["rpc-remote-address"] = "[2001:db8::1]:50312"
    assert (await guarded.send("orders")).status.code == m.FORBIDDEN


def publishing(*topics: str) -> Any:
    topics_of = [resource(topic) for topic in topics]
    return m.TelemetryCommand(settings=m.Settings(client_type=m.PRODUCER, publishing=m.Publishing(topics=topics_of)))


def subscribing(group: str, *topics: str) -> Any:
    entries = [m.SubscriptionEntry(topic=resource(topic), expression=m.FilterExpression(type=m.TAG, expression="*"))
               for topic in topics]  # fmt: skip
    subscription = m.Subscription(group=resource(group), subscriptions=entries)
    return m.TelemetryCommand(settings=m.Settings(client_type=m.SIMPLE_CONSUMER, subscription=subscription))


async def test_settings_are_answered_where_each_topic_and_the_group_are_allowed(guarded: Service) -> None:
    for command in (publishing("orders"), publishing(), subscribing("billing", "orders")):
        (answer,) = await guarded.telemetry(command)
        assert answer.status.code == m.OK


@pytest.mark.parametrize(
    "command", [publishing("orders", "others"), subscribing("billing", "others"), subscribing("sales", "orders")]
)
async def test_a_stream_for_more_than_is_allowed_ends(guarded: Service, command: Any) -> None:
    with pytest.raises(StreamEnded) as ended:
        await guarded.telemetry(command)
    assert ended.value.reason is Reason.FORBIDDEN


async def test_a_strangers_stream_ends_before_it_counts_as_a_client(guarded: Service, processor: Processor) -> None:
    guarded.metadata = dict(METADATA)
    with pytest.raises(StreamEnded) as ended:
        await guarded.telemetry()
    assert ended.value.reason is Reason.UNKNOWN_CALLER
    assert processor.clients.all() == []


async def test_a_streams_user_loses_it_with_the_account(guarded: Service, guard: Guard) -> None:
    async def said() -> Any:
        yield publishing("orders")
        guard.book.delete_user("ann")
        yield publishing("orders")

    answers = guarded.adapter.telemetry(guarded.metadata, said())
    assert (await anext(answers)).status.code == m.OK
    assert (await anext(answers)).status.code == m.UNAUTHORIZED
    with pytest.raises(StreamEnded):
        await anext(answers)


async def test_nobody_takes_the_place_of_another_users_client_or_ends_it(
    guarded: Service, guard: Guard, processor: Processor
) -> None:
    guard.book.put_entries("bob", list(guard.book.entries("ann")))
    assert (await guarded.send("orders")).status.code == m.OK
    guarded.metadata = headers(BOB)
    assert (await guarded.send("orders")).status.code == m.UNAUTHORIZED
    ending = m.NotifyClientTerminationRequest()
    assert (await guarded.call("NotifyClientTermination", ending)).status.code == m.UNAUTHORIZED
    with pytest.raises(StreamEnded):
        await guarded.telemetry(publishing("orders"))
    guarded.metadata = headers(ANN)
    assert (await guarded.call("NotifyClientTermination", ending)).status.code == m.OK
    assert processor.clients.all() == []
    guarded.metadata = headers(BOB)
    assert (await guarded.send("orders")).status.code == m.OK


async def test_the_audit_tells_who_was_refused_what_and_why(guarded: Service, caplog: pytest.LogCaptureFixture) -> None:
    await guarded.frames("ReceiveMessage", receive_request("others", "billing"))
    found = json.loads(caplog.records[-1].getMessage())
    assert found["peer"] == "192.0.2.7"
    assert found["user"] == "ann"
    assert found["action"] == "ReceiveMessage"
    assert found["resource"] == "Sub on Topic:others"
    assert last_reason(caplog) == "no entry of ann matches"


async def test_with_access_control_off_headers_are_not_looked_at(service: Service) -> None:
    service.metadata = {**headers(Credentials("", "")), "x-mq-date-time": ""}
    assert (await service.send("orders")).status.code == m.OK


@pytest.mark.parametrize("method", ["SendMessage", "AckMessage", "QueryRoute"])
async def test_a_stranger_is_refused_before_anything_of_the_request_is_read(
    processor: Processor, guard: Guard, method: str
) -> None:
    server = GrpcServer(processor, "127.0.0.1", 0, guard=guard)
    dialled = Dialled(await server.start())
    try:
        answer = await dialled.begun(method).read()
        assert answer.status.code == m.UNAUTHORIZED
    finally:
        await dialled.channel.close()
        await server.close()
