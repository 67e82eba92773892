"""Static topics over remoting: their mappings, and what their leaders ask of other brokers.

Requests about the queues of a static topic are answered by the handlers of all queues: `QueueRouter` picks the queue.
"""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.protocol.remoting.administration.static_topics import (
    decode_mapping,
    encode_topic_state,
    parse_static_topic,
)
from millstream.protocol.remoting.administration.topic_requests import StaticTopicChange, TopicQuery
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.segment_pops import parse_pop, pop_answer
from millstream.transport.remoting_connection import Connection

__all__ = ["StaticTopicHandlers"]


class StaticTopicHandlers:
    """Codes 351, 513 and 9121."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def change(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Create or change a static topic; what moves away has stored its last message when this is answered."""
        config, mapping = parse_static_topic(command.ext), decode_mapping(command.body)
        await self._broker.queues.change_static(config, mapping, force=StaticTopicChange.decode(command.ext).force)
        return command.response()

    def state(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A topic's settings, with its mapping where it is static."""
        topics = self._broker.topics
        config = topics.get(TopicQuery.decode(command.ext).topic)
        return command.response(body=encode_topic_state(config, topics.mapping(config.name)))

    async def pop_segment(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Messages of one of this broker's own queues, for the broker that leads the logic queue now."""
        taken, is_consumed = await self._broker.delivery.pop_segment(parse_pop(command))
        return pop_answer(command, taken, is_consumed)
