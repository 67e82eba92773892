"""Requests that the broker sends to clients over their connections: checks, and replies to request-reply calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.broker.remoting.returning import ReadableTopics
from millstream.broker.remoting.sending import REGION, answer_fields
from millstream.model.errors import MessageRefused, MillstreamError, TimedOut, Unreachable
from millstream.model.message import OutgoingMessage
from millstream.model.properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT, encode_properties
from millstream.model.topic import RETRY_PREFIX, is_system_topic
from millstream.protocol.record import log_offset_of, outline_record
from millstream.protocol.remoting.administration.consumption import decode_consumer_status, encode_consumers_status
from millstream.protocol.remoting.administration.topic_requests import MemberQuery, MembersStatus
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.message_requests import DirectConsumption
from millstream.protocol.remoting.messages.sends import SendCall, decode_send
from millstream.transport.remoting_connection import Connection

__all__ = ["ANSWER_LIMIT_S", "REPLY_TIMEOUT_S", "ClientRequestHandlers", "ReplyHandlers", "ask_client"]


ANSWER_LIMIT_S: Final = 10.0
"""Seconds that a consumer has for its answer to a question that was passed on to it."""

_PASSED_ON: Final = frozenset(("consumerGroup", "clientId", "jstackEnable", "msgId", "brokerName", "topic"))


class ClientRequestHandlers:
    """Codes 223, 307 and 309."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers

    async def running_info(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """What a consumer says of its queues, threads and settings."""
        return await self._ask_one(command)

    async def consume_directly(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Have a consumer consume one message now; it answers what came of it. No position is moved by it."""
        return await self._ask_one(command, self._record(command))

    async def status(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Where the group's consumers say they are in the topic's queues, or where one of them is."""
        call = MembersStatus.decode(command.ext)
        group, topic, wanted = call.group, call.topic, call.client_id
        members = [member for member in self._consumers.online(group) if wanted in (None, member.client_id)]
        if not members:
            return _offline(command, group, wanted)
        ext = {"group": group, "topic": topic}
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        answers = await asyncio.gather(
            *(ask_client(member.connection, code, {**ext, "clientId": member.client_id}) for member in members)
        )
        found = {
            member.client_id: decode_consumer_status(answer.body)
            for member, answer in zip(members, answers, strict=True)
            if answer.code == ResponseCode.SUCCESS
        }
        failed = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
        if not found:
            return command.response(failed[0].code, remark=failed[0].remark)
        return command.response(body=encode_consumers_status(found))

    async def _ask_one(self, command: RemotingCommand, body: bytes = b"") -> RemotingCommand:
        call = MemberQuery.decode(command.ext)
        group, client_id = call.group, call.client_id
        lines = [member.connection for member in self._consumers.online(group) if member.client_id == client_id]
        if not lines:
            return _offline(command, group, client_id)
        # What signs the question is its sender's alone.
        ext = {name: value for name, value in command.ext.items() if name in _PASSED_ON}
        answer = await ask_client(lines[0], command.code, ext, body)
        return command.response(answer.code, ext=answer.ext, remark=answer.remark, body=answer.body)

    def _record(self, command: RemotingCommand) -> bytes:
        """The record of the message that is meant, of a topic that the group reads."""
        call = DirectConsumption.decode(command.ext)
        group, message_id = call.group, call.message_id
        log_offset = log_offset_of(message_id)
        record = None if log_offset is None else self._broker.queues.record_at(log_offset)
        topic = "" if record is None else outline_record(record).topic
        readable = ReadableTopics(self._broker, self._consumers, group, call.topic)
        if record is None or is_system_topic(topic) or (topic != RETRY_PREFIX + group and topic not in readable):
            raise MessageRefused(
                "MESSAGE_NOT_FOUND",
                f"{message_id[:80]!r} is the offset message id of no message that the group {group!r} reads.",
                remedy="Pass the id that ends with the message's place in the log; message get shows it.",
            )
        return bytes(record)


async def ask_client(line: Connection, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
    """The client's answer; a client that gives none in time, or is gone, has one made for it."""
    try:
        return await line.ask(RemotingCommand(code, ext, body), ANSWER_LIMIT_S)
    except TimedOut as error:
        return RemotingCommand(ResponseCode.CONSUME_MSG_TIMEOUT, remark=str(error))
    except Unreachable as error:
        return RemotingCommand(ResponseCode.CONSUMER_NOT_ONLINE, remark=str(error))


def _offline(command: RemotingCommand, group: str, client_id: str | None) -> RemotingCommand:
    who = f"no consumer {client_id[:200]!r}" if client_id else "no consumer"
    return command.response(ResponseCode.CONSUMER_NOT_ONLINE, remark=f"Group {group} has {who} here.")


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
