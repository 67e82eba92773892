"""Requests about messages that consumers send back and about dead letters: list and redrive."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.model.operations import SendBackRequest
from millstream.protocol.remoting.administration.dead_letters import (
    decode_dead_letter_query,
    encode_dead_letter_page,
    encode_redrive_result,
)
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.message_requests import SendBack
from millstream.transport.remoting_connection import Connection

__all__ = ["DeadLetterHandlers", "ReadableTopics", "ReturnHandlers"]

_FIRST_VERSION_WITH_LIMIT = 121
"""RocketMQ 3.4.9: older clients fill the field with what means nothing."""


class ReturnHandlers:
    """Code 36."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers

    async def send_back(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Deliver a message to the group again, after a while; only one that it may have got."""
        call = SendBack.decode(command.ext)
        has_limit = command.version >= _FIRST_VERSION_WITH_LIMIT and call.max_reconsume_times >= 0
        request = SendBackRequest(
            call.group,
            call.log_offset,
            call.delay_level,
            call.message_id,
            call.max_reconsume_times if has_limit else None,
            ReadableTopics(self._broker, self._consumers, call.group, call.topic),
        )
        await self._broker.delivery.send_back(request)
        return command.response()


@dataclass(frozen=True, slots=True)
class ReadableTopics:
    """Holds the topic that the request names, those that the group's members want, and where it has a position."""

    broker: Broker
    consumers: ConsumerRegistry
    group: str
    named: str

    def __contains__(self, topic: object) -> bool:
        found = self.broker.topics.find(topic) if isinstance(topic, str) else None
        if found is None:
            return False
        if found.name == self.named or self.consumers.subscription(self.group, found.name) is not None:
            return True
        queues = range(found.queues)
        return any(self.broker.queues.own_offset(self.group, found.name, queue_id) is not None for queue_id in queues)


class DeadLetterHandlers:
    """Codes 9111 and 9112, which are our own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def page(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        query, _ = decode_dead_letter_query(command.body)
        return command.response(body=encode_dead_letter_page(self._broker.delivery.dead_letters(query)))

    async def redrive(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Refusals of single letters are in the answer; a failing store fails the request."""
        query, target = decode_dead_letter_query(command.body)
        result = await self._broker.delivery.redrive(query, target)
        return command.response(body=encode_redrive_result(result))
