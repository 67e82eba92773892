"""Sharing a topic's queues among a group's members here, instead of in each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from millstream.broker.allocation import ALL_QUEUES_OF_BROKER, STRATEGIES, QueuePlace, allocate_pops
from millstream.broker.broker import Broker
from millstream.broker.queues.request_modes import RequestKind, RequestMode
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.model.errors import NameRefused
from millstream.model.group import check_group_name
from millstream.model.topic import RETRY_PREFIX, Permission
from millstream.protocol.remoting.administration.assignment import (
    AssignedQueue,
    AssignmentBody,
    AssignmentQuery,
    RequestModeBody,
)
from millstream.protocol.remoting.administration.static_topics import LOGIC_BROKER_NAME
from millstream.protocol.remoting.bodies import TopicRouteData, decode_body, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.queue_set import QueueName
from millstream.transport.remoting_connection import Connection

__all__ = ["BROADCAST", "AssignmentHandlers", "readable_queues"]

BROADCAST: Final = "BROADCASTING"
"""The model of groups whose members each get everything."""


class AssignmentHandlers:
    """Codes 400 and 401."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers

    async def query(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer the member's queues. Nothing for a topic, member or strategy that is not known: it keeps its own."""
        asked = decode_body(AssignmentQuery, command.body)
        route = await self._broker.queues.route(asked.topic)
        places = None if route is None else self._allocate(asked, route)
        if places is None:
            return command.response(body=encode_body(AssignmentBody()))
        kind = self._mode(asked).kind.value
        assigned = [AssignedQueue(QueueName(asked.topic, place.broker_name, place.queue_id), kind) for place in places]
        return command.response(body=encode_body(AssignmentBody(assigned)))

    def set_mode(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Set how a group gets a topic's messages; its members learn it when they ask for their queues again."""
        body = decode_body(RequestModeBody, command.body)
        if body.topic.startswith(RETRY_PREFIX):
            raise NameRefused(
                "ILLEGAL_TOPIC",
                f"{body.topic[:200]!r} is a retry topic; how it is read follows from the topic's own mode.",
                remedy="Name the topic itself.",
            )
        try:
            kind = RequestKind(body.mode)
        except ValueError:
            words = f"{body.mode[:40]!r} is no mode of getting messages."
            raise NameRefused("ILLEGAL_GROUP_SETTING", words, remedy="Use the mode PULL or POP.") from None
        check_group_name(body.consumer_group)
        topic = self._broker.topics.get(body.topic)
        mode = RequestMode(kind, body.pop_share_queue_num)
        self._broker.groups.set_request_mode(topic.name, body.consumer_group, mode)
        return command.response()

    def _mode(self, asked: AssignmentQuery) -> RequestMode:
        return self._broker.groups.request_mode(asked.topic, asked.consumer_group)

    def _allocate(self, asked: AssignmentQuery, route: TopicRouteData) -> Sequence[QueuePlace] | None:
        queues = sorted(readable_queues(route))
        if asked.message_model == BROADCAST:
            return queues
        self._consumers.expire(self._broker.clock.monotonic_s())
        members = self._consumers.clients(asked.consumer_group)
        strategy = STRATEGIES.get(asked.strategy_name)
        if asked.client_id not in members or strategy is None:
            return None
        number, mode = members.index(asked.client_id), self._mode(asked)
        if mode.kind is RequestKind.PULL:
            return strategy(number, len(members), queues)
        if route.topic_queue_mapping_by_broker:
            # Who pops asks a broker for what it leads; which queues these are is not the client's business.
            return sorted(QueuePlace(data.broker_name, ALL_QUEUES_OF_BROKER) for data in route.queue_datas)
        return allocate_pops(strategy, number, len(members), queues, mode.share_count)


def readable_queues(route: TopicRouteData) -> Iterator[QueuePlace]:
    """The queues as clients name them; those of a static topic lie on no broker in particular."""
    mappings = route.topic_queue_mapping_by_broker or {}
    for number in range(max((each.total_queues for each in mappings.values()), default=0)):
        yield QueuePlace(LOGIC_BROKER_NAME, number)
    for data in route.queue_datas if not mappings else ():
        if data.perm & Permission.READ:
            for number in range(data.read_queue_nums):
                yield QueuePlace(data.broker_name, number)
