"""Questions that somebody has for a consumer: the broker asks it over its own connection, and passes its answer on."""

from __future__ import annotations

import asyncio
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.returning import ReadableTopics
from millstream.model.errors import MessageRefused, TimedOut, Unreachable
from millstream.model.topic import RETRY_PREFIX, is_system_topic
from millstream.protocol.record import log_offset_of, outline_record
from millstream.protocol.remoting.administration.consumer_status import decode_consumer_status, encode_consumers_status
from millstream.protocol.remoting.administration.group_requests import MemberQuery, MembersStatus
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.message_requests import DirectConsumption
from millstream.transport.remoting_connection import Connection

__all__ = ["ANSWER_LIMIT_S", "ClientRequestHandlers", "ask_client"]

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
