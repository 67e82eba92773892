"""Each status code that a client can provoke, over a real connection to a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dialled import CLIENT_ID, Dialled
from memory_backend import MemoryBackend
from service_calls import message, receive_request

from millstream.broker.broker import Broker, BrokerOptions
from millstream.model.errors import MillstreamError, TimedOut
from millstream.model.group import GroupConfig
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor
from millstream.store.message_store import StoreOptions
from millstream.transport import connection_memory
from patience import eventually

NOT_PROVOKED = {
    "CODE_UNSPECIFIED": "never answered: clients take it for an illegal answer",
    "INVALID_TRANSACTION_ID": "transactions have suites of their own",
    "UNRECOGNIZED_CLIENT_TYPE": "ends a telemetry stream, which has no status: test_telemetry_handlers.py",
    "ILLEGAL_OFFSET": "pulling has a suite of its own",
    "OFFSET_NOT_FOUND": "pulling has a suite of its own",
    "ILLEGAL_LITE_TOPIC": "lite topics have suites of their own",
    "LITE_TOPIC_QUOTA_EXCEEDED": "lite topics have suites of their own",
    "LITE_SUBSCRIPTION_QUOTA_EXCEEDED": "lite topics have suites of their own",
    "UNAUTHORIZED": "access control has suites of its own",
    "PAYMENT_REQUIRED": "nothing here costs money",
    "NOT_FOUND": "what can be missing has a code of its own",
    "PRECONDITION_FAILED": "no request has preconditions",
    "INTERNAL_ERROR": "a client's own failures; a server's are INTERNAL_SERVER_ERROR",
    "HA_NOT_AVAILABLE": "there are no replicas",
    "SLAVE_PERSISTENCE_TIMEOUT": "there are no replicas",
    "UNSUPPORTED": "what is not offered answers NOT_IMPLEMENTED, as RocketMQ's proxy does",
    "VERSION_UNSUPPORTED": "no version of a client is refused",
    "VERIFY_FIFO_MESSAGE_UNSUPPORTED": "said by clients to servers",
    "FAILED_TO_CONSUME_MESSAGE": "said by clients to servers",
}
"""Codes that no client gets from this table, and why."""


@dataclass
class Site:
    """A served broker, and a second server: over a backend that fails on demand, and with little patience."""

    dialled: Dialled
    broker: Broker
    failing: Dialled
    backend: MemoryBackend

    async def receive(self, **wish: Any) -> Any:
        return await self.dialled.ask("ReceiveMessage", receive_request(**wish))

    async def send(self, topic: str = "orders", body: bytes = b"body", **filled: Any) -> Any:
        request = m.SendMessageRequest(messages=[message(topic, body, **filled)])
        return await self.dialled.ask("SendMessage", request)

    async def taken(self) -> str:
        """The receipt handle of a message."""
        await self.send()
        call = self.dialled.method("ReceiveMessage")
        frames = [frame async for frame in call(receive_request(), metadata=CLIENT_ID, timeout=10)]
        return str(frames[1].message.system_properties.receipt_handle)

    async def fails(self, error: Exception) -> Any:
        self.backend.failure = error
        return (await self.failing.send(b"body")).status


@pytest.fixture
async def site(tmp_path: Path, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    store = StoreOptions(segment_bytes=1 << 20, consume_queue_entries=1000)
    options = BrokerOptions(store=store, auto_create_groups=False, max_waiting_per_key=1)
    broker = Broker(tmp_path, options=options)
    await broker.start()
    for kind in (MessageType.FIFO, MessageType.DELAY):
        broker.topics.create(TopicConfig(kind.value.lower(), kind, read_queues=1, write_queues=1))
    broker.topics.create(TopicConfig("orders", read_queues=1, write_queues=1))
    broker.topics.create(TopicConfig("sealed", permission=Permission.READ))
    broker.groups.create(GroupConfig("g"))
    servers = [GrpcServer(Processor(behind), "127.0.0.1", 0) for behind in (LocalBackend(broker), backend)]
    dialled = [Dialled(await servers[0].start())]
    monkeypatch.setattr(connection_memory, "FRAME_LIMIT_S", 0.5)
    dialled.append(Dialled(await servers[1].start()))
    yield Site(dialled[0], broker, dialled[1], backend)
    for client, server in zip(dialled, servers, strict=True):
        await client.channel.close()
        await server.close(0)
    await broker.close()


async def second_receive_at_once(site: Site) -> Any:
    waiting = site.dialled.receive()
    await eventually(lambda: site.broker.maintenance.waiting_requests == 1)
    status = await site.receive(long_polling_timeout=m.Duration(seconds=5))
    waiting.cancel()
    return status


async def half_a_request(site: Site) -> Any:
    """A call whose request never comes."""
    call = site.failing.begun("Heartbeat")
    return (await call.read()).status


async def one_good_and_one_dead_handle(site: Site) -> Any:
    entries = [m.AckMessageEntry(receipt_handle=handle) for handle in (await site.taken(), "dead")]
    request = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name="orders"), entries=entries)
    return await site.dialled.ask("AckMessage", request)


async def a_far_access_point(site: Site) -> Any:
    addresses = [m.Address(host="x" * 300, port=8081)]
    request = m.QueryRouteRequest(topic=m.Resource(name="orders"), endpoints=m.Endpoints(addresses=addresses))
    return await site.dialled.ask("QueryRoute", request)


async def a_near_deadline(site: Site) -> Any:
    request = receive_request(auto_renew=True, long_polling_timeout=m.Duration(seconds=20))
    return await site.dialled.ask("ReceiveMessage", request, timeout_s=3)


async def route(site: Site, topic: str) -> Any:
    return await site.dialled.ask("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name=topic)))


PROVOKED: dict[str, Callable[[Site], Awaitable[Any]]] = {
    "OK": lambda site: site.send(),
    "MULTIPLE_RESULTS": one_good_and_one_dead_handle,
    "BAD_REQUEST": lambda site: site.dialled.ask("AckMessage", m.AckMessageRequest()),
    "ILLEGAL_ACCESS_POINT": a_far_access_point,
    "ILLEGAL_TOPIC": lambda site: site.send("no good"),
    "ILLEGAL_CONSUMER_GROUP": lambda site: site.receive(group="no good"),
    "ILLEGAL_MESSAGE_TAG": lambda site: site.send(tag="a|b"),
    "ILLEGAL_MESSAGE_KEY": lambda site: site.send(keys=[""]),
    "ILLEGAL_MESSAGE_GROUP": lambda site: site.send("fifo", message_group="g" * 65),
    "ILLEGAL_MESSAGE_PROPERTY_KEY": lambda site: site.send(user={"UNIQ_KEY": "mine"}),
    "ILLEGAL_MESSAGE_ID": lambda site: site.send(message_id=" "),
    "ILLEGAL_FILTER_EXPRESSION": lambda site: site.receive(
        filter_expression=m.FilterExpression(type=m.SQL, expression="a >")
    ),
    "ILLEGAL_INVISIBLE_TIME": lambda site: site.receive(invisible_duration=m.Duration(seconds=9)),
    "ILLEGAL_DELIVERY_TIME": lambda site: site.send("delay", delivery_timestamp=m.Timestamp(seconds=1 << 35)),
    "INVALID_RECEIPT_HANDLE": lambda site: change(site, "dead"),
    "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE": lambda site: site.send("fifo"),
    "MESSAGE_CORRUPTED": lambda site: site.dialled.ask("SendMessage", m.SendMessageRequest()),
    "CLIENT_ID_REQUIRED": lambda site: site.dialled.ask("Heartbeat", m.HeartbeatRequest(), ()),
    "ILLEGAL_POLLING_TIME": a_near_deadline,
    "FORBIDDEN": lambda site: site.send("sealed"),
    "MESSAGE_NOT_FOUND": lambda site: site.receive(),
    "TOPIC_NOT_FOUND": lambda site: route(site, "missing"),
    "CONSUMER_GROUP_NOT_FOUND": lambda site: site.receive(group="missing"),
    "REQUEST_TIMEOUT": half_a_request,
    "PAYLOAD_TOO_LARGE": lambda site: site.dialled.ask("QueryRoute", m.QueryRouteRequest(topic=long_name(1 << 17))),
    "MESSAGE_BODY_TOO_LARGE": lambda site: site.send(body=bytes((4 << 20) + 1)),
    "MESSAGE_BODY_EMPTY": lambda site: site.send(body=b""),
    "TOO_MANY_REQUESTS": second_receive_at_once,
    "REQUEST_HEADER_FIELDS_TOO_LARGE": lambda site: site.dialled.ask(
        "Heartbeat", m.HeartbeatRequest(), (*CLIENT_ID, ("x-mq-much", "x" * 20_000))
    ),
    "MESSAGE_PROPERTIES_TOO_LARGE": lambda site: site.send(user={"much": "x" * 20_000}),
    "INTERNAL_SERVER_ERROR": lambda site: site.fails(KeyError("detail")),
    "NOT_IMPLEMENTED": lambda site: site.fails(MillstreamError("UNSUPPORTED_FEATURE", "It is not there yet.")),
    "PROXY_TIMEOUT": lambda site: site.fails(TimedOut("The broker did not answer.")),
    "MASTER_PERSISTENCE_TIMEOUT": lambda site: site.fails(MillstreamError("FLUSH_TIMEOUT", "The disk is slow.")),
}
"""Code -> what a client does to get it."""


async def dead(site: Site, name: str, handle: str) -> Any:
    """The status of a method that takes a receipt handle."""
    request = METHODS[name].request(group=m.Resource(name="g"), topic=m.Resource(name="orders"))
    if name == "AckMessage":
        request.entries.add(receipt_handle=handle)
    else:
        request.receipt_handle = handle
    return await site.dialled.ask(name, request)


def long_name(characters: int) -> Any:
    return m.Resource(name="x" * characters)


async def change(site: Site, handle: str, **what: Any) -> Any:
    request = m.ChangeInvisibleDurationRequest(
        group=m.Resource(name="g"), topic=m.Resource(name="orders"), receipt_handle=handle, **what
    )
    return await site.dialled.ask("ChangeInvisibleDuration", request)


@pytest.mark.parametrize("name", PROVOKED)
async def test_a_client_can_provoke_the_code(site: Site, name: str) -> None:
    status = await PROVOKED[name](site)
    assert m.Code.Name(status.code) == name
    assert status.message


def test_every_code_of_the_service_is_provoked_or_has_a_reason_why_not() -> None:
    assert PROVOKED.keys() | NOT_PROVOKED.keys() == set(m.Code.keys())
    assert not PROVOKED.keys() & NOT_PROVOKED.keys()


BY_HANDLE = ["AckMessage", "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"]

BAD_HANDLES = {
    "blank": "",
    "words": "a b c d e f g h i",
    "too few": "0 0 0 0 0 broker-a 0 0",
    "too many": "0 0 0 0 0 broker-a 0 0 0 0",
    "another broker": "0 0 30000 0 0 broker-b 0 0 0",
    "another queue": "0 0 30000 0 0 broker-a 77 0 0",
    "never delivered": "9 9 30000 0 0 broker-a 0 9 9",
    "beyond 64 bits": f"0 {1 << 80} 30000 0 0 broker-a 0 {1 << 80} 0",
    "negative": "-1 -1 -1 -1 -1 broker-a -1 -1 -1",
    "long": "0 " * 100_000,
    "not ASCII": "0 0 0 0 0 bröker 0 0 0",
}


@pytest.mark.parametrize("name", BY_HANDLE)
@pytest.mark.parametrize("handle", BAD_HANDLES.values(), ids=BAD_HANDLES.keys())
async def test_a_handle_that_never_was_one_is_dead_and_nothing_else(site: Site, name: str, handle: str) -> None:
    await site.taken()
    status = await dead(site, name, handle[:60_000])
    assert m.Code.Name(status.code) == "INVALID_RECEIPT_HANDLE"


@pytest.mark.parametrize("name", BY_HANDLE)
@pytest.mark.parametrize("end", ["replaced", "topic deleted", "group deleted"])
async def test_a_handle_that_was_one_is_dead_and_nothing_else(site: Site, name: str, end: str) -> None:
    handle = await site.taken()
    match end:
        case "replaced":
            assert (await change(site, handle)).code == m.OK
        case "topic deleted":
            site.broker.topics.delete("orders")
        case "group deleted":
            site.broker.groups.delete("g")
    assert m.Code.Name((await dead(site, name, handle)).code) == "INVALID_RECEIPT_HANDLE"


async def test_a_handle_is_good_until_its_message_is_delivered_again(site: Site) -> None:
    handle = await site.taken()
    assert (await dead(site, "AckMessage", handle)).code == m.OK
    assert (await dead(site, "AckMessage", handle)).code == m.OK, "a second acknowledgement is no error"
