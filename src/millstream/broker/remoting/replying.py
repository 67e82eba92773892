"""Request and reply: a reply is handed to the client that waits for it, and kept in the cluster's reply topic."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.broker.remoting.sending import REGION, answer_fields
from millstream.model.errors import MessageRefused, MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.model.properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT, encode_properties
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.sends import SendCall, decode_send
from millstream.transport.remoting_connection import Connection

__all__ = ["REPLY_TIMEOUT_S", "ReplyHandlers"]

_log = logging.getLogger(__name__)

REPLY_TIMEOUT_S: Final = 10.0
"""Seconds in which the client that waits for a reply must say that it has it."""


class ReplyHandlers:
    """Codes 324 and 325, and the requests of code 326."""

    def __init__(self, broker: Broker, producers: ProducerRegistry) -> None:
        self._broker = broker
        self._producers = producers

    def reply(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        """Code 324."""
        return self._reply(command, decode_send(command.ext, command.body, connection.peer, is_short=False))

    def reply_v2(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        """Code 325."""
        return self._reply(command, decode_send(command.ext, command.body, connection.peer, is_short=True))

    async def _reply(self, command: RemotingCommand, call: SendCall) -> RemotingCommand:
        """Answer once the client has it. Whether it could be kept as well makes no difference, as in RocketMQ."""
        message = call.message
        self._broker.topics.get(message.topic)
        try:
            await self._hand_over(message, call.producer_group)
        finally:
            kept = await self._keep(message)
        queue_id = message.queue_id or 0
        nowhere = {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0", "MSG_REGION": REGION, "TRACE_ON": "true"}
        return command.response(ext=kept or nowhere)

    async def _hand_over(self, message: OutgoingMessage, group: str) -> None:
        client_id = message.properties.get(REPLY_TO_CLIENT)
        if not client_id:
            raise MessageRefused("MESSAGE_MALFORMED", f"The reply lacks the property {REPLY_TO_CLIENT}.")
        connection = self._producers.connection_of_client(client_id)
        if connection is None:
            raise MessageRefused(
                "CLIENT_NOT_CONNECTED",
                f"The client {client_id[:120]!r}, which a reply is for, is not connected to this broker.",
                remedy="It may have stopped waiting; see which producers are connected.",
            )
        message.properties[PUSH_REPLY_TIME] = str(self._broker.clock.now_ms())
        push = RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._fields(message, group), message.body)
        answer = await connection.ask(push, REPLY_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            reason = (answer.remark or "no reason given")[:400]
            words = f"The client {client_id[:120]!r} refused the reply with code {answer.code}: {reason}"
            raise MillstreamError("REFUSED_BY_SERVER", words)

    def _fields(self, message: OutgoingMessage, group: str) -> dict[str, str]:
        born, stored = message.born_host, self._broker.advertised
        return {
            "producerGroup": group,
            "topic": message.topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": str(message.queue_id or 0),
            "sysFlag": str(int(message.system_flag)),
            "bornTimestamp": str(message.born_timestamp_ms),
            "flag": str(message.flag),
            "properties": encode_properties(message.properties).decode(),
            "reconsumeTimes": str(message.reconsume_times),
            "unitMode": "false",
            "bornHost": f"{born.host}:{born.port}",
            "storeHost": f"{stored.host}:{stored.port}",
            "storeTimestamp": str(self._broker.clock.now_ms()),
        }

    async def _keep(self, message: OutgoingMessage) -> dict[str, str] | None:
        """Store the reply; the fields of the answer then, None where it could not be stored."""
        try:
            [receipt] = await self._broker.delivery.send([message])
        except MillstreamError as error:
            _log.warning("A reply was not kept in the topic %s: %s", message.topic, error)
            return None
        return answer_fields(receipt, receipt.offset_message_id)
