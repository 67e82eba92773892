"""QueryRoute and QueryAssignment."""

from __future__ import annotations

from typing import Any

import pytest
from memory_backend import MemoryBackend
from service_calls import Service

from millstream.model.group import GroupConfig
from millstream.model.message import Address
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.route import Advertised


async def route(service: Service, topic: str) -> Any:
    return await service.call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name=topic)))


async def assignments(service: Service, topic: str, group: str) -> Any:
    request = m.QueryAssignmentRequest(topic=m.Resource(name=topic), group=m.Resource(name=group))
    return await service.call("QueryAssignment", request)


async def test_a_route_lists_every_queue_on_a_master_that_can_be_dialled(service: Service) -> None:
    answer = await route(service, "orders")
    assert answer.status.code == m.OK
    assert [queue.id for queue in answer.message_queues] == [0, 1]
    for queue in answer.message_queues:
        assert (queue.topic.name, queue.topic.resource_namespace) == ("orders", "")
        assert (queue.broker.name, queue.broker.id, queue.permission) == ("broker-a", 0, m.READ_WRITE)
        assert queue.broker.endpoints.scheme == m.IPv4
        assert [(a.host, a.port) for a in queue.broker.endpoints.addresses] == [("192.0.2.1", 8081)]


@pytest.mark.parametrize(
    ("topic", "types"),
    [("orders", [m.NORMAL]), ("ordered", [m.FIFO]), ("anything", [m.NORMAL, m.FIFO, m.DELAY, m.TRANSACTION])],
)
async def test_a_route_says_which_messages_the_topic_takes(service: Service, topic: str, types: list[int]) -> None:
    assert list((await route(service, topic)).message_queues[0].accept_message_types) == types


@pytest.mark.parametrize(
    ("permission", "told"),
    [
        (Permission.READ, m.READ),
        (Permission.WRITE, m.WRITE),
        (Permission.NONE, m.NONE),
        (Permission.READ | Permission.WRITE | Permission.INHERIT, m.READ_WRITE),
    ],
)
async def test_a_route_tells_the_permission(
    service: Service, backend: MemoryBackend, permission: Permission, told: int
) -> None:
    backend.topics["limited"] = TopicConfig("limited", permission=permission)
    assert (await route(service, "limited")).message_queues[0].permission == told


async def test_an_unknown_topic_is_told_in_the_words_that_programs_match(service: Service) -> None:
    answer = await route(service, "missing")
    assert answer.status.code == m.TOPIC_NOT_FOUND
    assert "CODE: 17  DESC: No topic route info in name server for the topic: missing" in answer.status.message
    assert "MS-2101" in answer.status.message


@pytest.mark.parametrize("topic", ["", "no blanks", "x" * 128, "TBW102", "rmq_sys_REVIVE_LOG"])
async def test_a_route_of_an_illegal_name_is_refused(service: Service, topic: str) -> None:
    assert (await route(service, topic)).status.code == m.ILLEGAL_TOPIC


async def test_a_plain_group_polls_all_queues_of_a_broker_at_once(service: Service) -> None:
    answer = await assignments(service, "orders", "g")
    queues = [assignment.message_queue for assignment in answer.assignments]
    assert [(queue.broker.name, queue.broker.id, queue.id) for queue in queues] == [("broker-a", 0, -1)]
    assert queues[0].broker.endpoints.addresses[0].port == 8081


async def test_a_fifo_group_polls_each_queue(service: Service, backend: MemoryBackend) -> None:
    backend.groups["fifo"] = GroupConfig("fifo", fifo=True)
    answer = await assignments(service, "ordered", "fifo")
    assert [assignment.message_queue.id for assignment in answer.assignments] == [0, 1, 2, 3]


async def test_assignments_are_the_same_at_every_call(service: Service, backend: MemoryBackend) -> None:
    backend.groups["fifo"] = GroupConfig("fifo", fifo=True)
    answers = [await assignments(service, "ordered", "fifo") for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]


async def test_a_topic_that_cannot_be_read_has_no_assignment(service: Service, backend: MemoryBackend) -> None:
    backend.topics["inbox"] = TopicConfig("inbox", MessageType.NORMAL, permission=Permission.WRITE)
    assert (await assignments(service, "inbox", "g")).status.code == m.FORBIDDEN


@pytest.mark.parametrize(
    ("host", "scheme"), [("192.0.2.1", m.IPv4), ("2001:db8::1", m.IPv6), ("broker.example", m.DOMAIN_NAME)]
)
def test_an_advertised_address_has_the_scheme_of_its_host(host: str, scheme: int) -> None:
    told = Advertised(Address(host, 8081)).to(m.Endpoints())
    assert (told.scheme, len(told.addresses), told.addresses[0].host) == (scheme, 1, host)


def test_a_server_on_all_addresses_tells_clients_the_one_by_which_they_came() -> None:
    reached = m.Endpoints(scheme=m.DOMAIN_NAME, addresses=[m.Address(host="gateway", port=80)])
    advertised = Advertised(Address("127.0.0.1", 8081), as_reached=True)
    assert advertised.to(reached) == reached
    assert advertised.to(m.Endpoints()).addresses[0].port == 8081
