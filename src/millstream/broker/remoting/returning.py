"""Messages that consumers give back."""

from __future__ import annotations

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.readable import ReadableTopics
from millstream.model.operations import SendBackRequest
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, optional_integer, text
from millstream.transport.remoting_connection import Connection

__all__ = ["ReturnHandlers"]

_FIRST_VERSION_WITH_LIMIT = 121
"""RocketMQ 3.4.9: older clients fill the field with what means nothing."""


class ReturnHandlers:
    """Code 36."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers

    async def send_back(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Deliver a message to the group again, after a while; only one that it may have got."""
        ext = command.ext
        group = text(ext, "group")
        max_reconsume_times = optional_integer(ext, "maxReconsumeTimes", -1)
        request = SendBackRequest(
            group,
            integer(ext, "offset"),
            optional_integer(ext, "delayLevel", 0),
            ext.get("originMsgId", ""),
            max_reconsume_times if command.version >= _FIRST_VERSION_WITH_LIMIT and max_reconsume_times >= 0 else None,
            ReadableTopics(self._broker, self._consumers, group, ext.get("originTopic", "")),
        )
        await self._broker.delivery.send_back(request)
        return command.response()
