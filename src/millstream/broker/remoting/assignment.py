"""Sharing a topic's queues among a group's members here, instead of in each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from millstream.broker.allocation import STRATEGIES, QueuePlace, allocate_pops
from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.request_modes import RequestKind, RequestMode
from millstream.model.errors import NameRefused
from millstream.model.group import check_group_name
from millstream.model.topic import RETRY_PREFIX, Permission
from millstream.protocol.remoting.assignment import AssignedQueue, AssignmentBody, AssignmentQuery, RequestModeBody
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.queue_set import QueueName
from millstream.transport.remoting_server import Connection

__all__ = ["AssignmentHandlers", "QueueSource"]

QueueSource = Callable[[str], Awaitable[Sequence[QueuePlace] | None]]
"""The readable queues of a topic on all brokers; None for a topic that nobody has."""

_BROADCAST: Final = "BROADCASTING"


class AssignmentHandlers:
    """Codes 400 and 401. `queues` knows the other brokers' queues; None where there are none."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry, queues: QueueSource | None = None) -> None:
        self._broker = broker
        self._consumers = consumers
        self._source = queues or self._own_queues

    async def query(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer the member's queues. Nothing for a topic, member or strategy that is not known: it keeps its own."""
        asked = decode_body(AssignmentQuery, command.body)
        queues = await self._source(asked.topic)
        if queues is None:
            return command.response(body=encode_body(AssignmentBody()))
        mode = self._broker.request_modes.get(asked.topic, asked.consumer_group)
        places = self._allocate(asked, sorted(queues), mode)
        if places is None:
            return command.response(body=encode_body(AssignmentBody()))
        assigned = [
            AssignedQueue(QueueName(asked.topic, place.broker_name, place.queue_id), mode.kind.value)
            for place in places
        ]
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
        self._broker.request_modes.put(topic.name, body.consumer_group, mode)
        return command.response()

    def _allocate(
        self, asked: AssignmentQuery, queues: Sequence[QueuePlace], mode: RequestMode
    ) -> Sequence[QueuePlace] | None:
        if asked.message_model == _BROADCAST:
            return queues
        self._consumers.expire(self._broker.clock.monotonic_s())
        members = self._consumers.clients(asked.consumer_group)
        strategy = STRATEGIES.get(asked.strategy_name)
        if asked.client_id not in members or strategy is None:
            return None
        number = members.index(asked.client_id)
        if mode.kind is RequestKind.POP:
            return allocate_pops(strategy, number, len(members), queues, mode.share_count)
        return strategy(number, len(members), queues)

    async def _own_queues(self, topic: str) -> Sequence[QueuePlace] | None:
        config = self._broker.topics.find(topic)
        if config is None:
            return None
        count = config.read_queues if config.permission & Permission.READ else 0
        return [QueuePlace(self._broker.name, queue_id) for queue_id in range(count)]
