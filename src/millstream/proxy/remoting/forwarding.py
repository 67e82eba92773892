"""Requests that are forwarded between remoting clients of a proxy and the brokers they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from millstream.broker.remoting.client_requests import REPLY_TIMEOUT_S, ask_client
from millstream.model.errors import NameRefused, Unreachable
from millstream.model.handles import RecallHandle, ReceiptHandle
from millstream.model.properties import REPLY_TO_CLIENT, TRANSACTION, decode_properties
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.protocol.remoting.fields import TYPED, optional_integer, text
from millstream.protocol.remoting.messages.message_requests import CHECKS_ID, UNDECIDED, Recall
from millstream.protocol.remoting.messages.popping import decode_batch_ack, topic_of_request
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remote.connection_pool import BrokerCallbacks
from millstream.proxy.remoting.clients import ProxyClientHandlers
from millstream.security.guard import Guard
from millstream.security.policy import RequiredAccess
from millstream.transport.gate import allow_more
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_HALVES", "Forwarding", "HalfMessageLocation", "HalfMessageTable", "NotificationForwarder"]


MAX_HALVES: Final = 100_000
"""Half messages whose place is remembered; the oldest is forgotten first."""


class HalfMessageLocation(NamedTuple):
    """The topic, and the broker where the client named one."""

    topic: str
    broker_name: str = ""


class HalfMessageTable:
    """Topics of half messages by message id. RocketMQ's clients before 5.0 end a transaction without its topic."""

    def __init__(self) -> None:
        self._places: dict[str, HalfMessageLocation] = {}

    def note(self, message_id: str, place: HalfMessageLocation) -> None:
        """What was noted first stays."""
        if message_id in self._places:
            return
        if len(self._places) >= MAX_HALVES:
            del self._places[next(iter(self._places))]
        self._places[message_id] = place

    def find(self, *message_ids: str) -> HalfMessageLocation | None:
        """The place that is noted for one of the ids, or None."""
        return next((self._places[one] for one in message_ids if one in self._places), None)


class NotificationForwarder:
    """Codes 40, 220, 221, 307, 309 and 326, as brokers send them."""

    def __init__(self, hearing: BrokerCallbacks, clients: ProxyClientHandlers) -> None:
        self._clients = clients
        hearing.by_code[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = self._members_changed
        hearing.by_code[RequestCode.RESET_CONSUMER_CLIENT_OFFSET] = self._reset
        for code in (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        ):
            hearing.by_code[code] = self._ask

    def _members_changed(self, command: RemotingCommand) -> None:
        self._clients.consumers.tell_all(command.ext.get("consumerGroup", ""))

    def _reset(self, command: RemotingCommand) -> None:
        group = command.ext.get("group", "")
        for connection in dict.fromkeys(member.connection for member in self._clients.consumers.online(group)):
            connection.send(RemotingCommand(command.code, dict(command.ext), command.body, flag=FLAG_ONEWAY))

    async def _ask(self, command: RemotingCommand) -> RemotingCommand:
        client_id = _client_of(command)
        connection = self._clients.connection_of(client_id)
        if connection is None:
            remark = f"The client {client_id[:200]!r} is not at this proxy."
            return command.response(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        answer = await ask_client(connection, command.code, dict(command.ext), command.body)
        return command.response(answer.code, ext=answer.ext, remark=answer.remark, body=answer.body)


def _client_of(command: RemotingCommand) -> str:
    if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
        held = decode_properties(command.ext.get("properties", "").encode())
        return held.get(REPLY_TO_CLIENT, "")
    return command.ext.get("clientId", "")


_BROKER_FIELDS: Final = ("bname", "n", "brokerName")
_HALF: Final = f"{TRANSACTION}\x01true"
_ASKS: Final = f"{REPLY_TO_CLIENT}\x01"
_REPLY_WAIT_MS: Final = int(REPLY_TIMEOUT_S * 1000)


class Forwarding:
    """Codes whose answer is the broker's. Clients name the broker; where a topic has one only, they need not."""

    def __init__(self, backend: RemoteBackend, clients: ProxyClientHandlers, guard: Guard | None) -> None:
        self._backend = backend
        self._guard = guard
        self._clients = clients
        self.halves = HalfMessageTable()

    async def send(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 10, 310 and 320."""
        is_long = command.code == RequestCode.SEND_MESSAGE
        topic = text(command.ext, "topic" if is_long else "b")
        held = command.ext.get("properties" if is_long else "i", "")
        if _ASKS in held:
            group = command.ext.get("producerGroup" if is_long else "a", "")
            await self._clients.waits_for_replies(command, connection, group)
        if not topic.startswith(RETRY_PREFIX):
            command.ext.update(TYPED)
        answer = await self.to_broker(command, topic)
        if answer.code == ResponseCode.SUCCESS and _HALF in held:
            self.halves.note(
                answer.ext.get("transactionId", ""), HalfMessageLocation(topic, _broker_named(command.ext))
            )
        return answer

    async def end(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 37, which may come to any proxy. Clients before 4.9.4 name neither topic nor broker."""
        ext = command.ext
        found = self.halves.find(ext.get("transactionId", ""), ext.get("msgId", ""))
        topic, name = ext.get("topic", ""), _broker_named(ext)
        if not topic and found is not None:
            topic, name = found.topic, name or found.broker_name
            allow_more(self._guard, command, connection.peer, RequiredAccess.publish(topic))
        if topic and name:
            return await self.to_broker(command, topic, name)
        return await self._end_anywhere(command, connection, topic, name)

    async def _end_anywhere(
        self, command: RemotingCommand, connection: Connection, topic: str, name: str
    ) -> RemotingCommand:
        """Ask which broker has a half message at these offsets and of this id; it says of which topic it is."""
        passage = self._backend.passage
        if topic:
            addresses = [*(await self._backend.known_route(topic)).addresses.values()]
        else:
            addresses = [address for one, address in await passage.masters() if name in ("", one)]
        command.ext[CHECKS_ID] = "true"
        looking = RemotingCommand(command.code, {**command.ext, **UNDECIDED})
        failure: RemotingCommand | None = None
        for address, answer in await passage.to_each(addresses, looking):
            if answer.code == ResponseCode.SUCCESS:
                if not topic:
                    allow_more(
                        self._guard, command, connection.peer, RequiredAccess.publish(answer.ext.get("topic", ""))
                    )
                [(_, ended)] = await passage.to_each([address], command)
                return _answer(command, ended)
            failure = failure or answer
        if failure is None:
            raise Unreachable("The nameservers know no such broker.")
        return _answer(command, failure)

    async def reply(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 324 and 325; the broker hands the reply to the client that waits, through its proxy."""
        is_long = command.code == RequestCode.SEND_REPLY_MESSAGE
        topic = text(command.ext, "topic" if is_long else "b")
        return await self.to_broker(command, topic, wait_ms=_REPLY_WAIT_MS)

    async def of_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 14, 29 to 32, and those that look at what waits for a pop."""
        return await self.to_broker(command, text(command.ext, "topic"))

    async def waiting(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 200050 and 200054, which may wait."""
        wait_ms = optional_integer(command.ext, "pollTime", 0)
        return await self.to_broker(command, text(command.ext, "topic"), wait_ms=wait_ms)

    async def delivery(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 200051 and 200053: the handle names the broker."""
        ext = command.ext
        topic = topic_of_request(text(ext, "consumerGroup"), text(ext, "topic"))
        broker_name = ReceiptHandle.decode(text(ext, "extraInfo")).broker_name
        return _answer(command, await self._backend.passage.to_holder(topic, broker_name, command))

    async def deliveries(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 200151: all of one broker."""
        requests = decode_batch_ack(command.body)
        if not requests:
            return command.response(ext={"missed": "0"})
        first = requests[0]
        return _answer(command, await self._backend.passage.to_holder(first.topic, first.handle.broker_name, command))

    async def recall(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 370: the handle names the broker."""
        call = Recall.decode(command.ext)
        handle = RecallHandle.decode_for(call.topic, call.handle)
        return await self.to_broker(command, call.topic, handle.broker_name)

    async def pull(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 11 and 361 as they stand, which may wait."""
        wait_ms = optional_integer(command.ext, "suspendTimeoutMillis", 0)
        return await self.to_broker(command, text(command.ext, "topic"), wait_ms=wait_ms)

    async def by_key(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 12: what all brokers of the topic have, where the request names none."""
        topic = text(command.ext, "topic")
        if _broker_named(command.ext):
            return await self.to_broker(command, topic)
        known = await self._backend.known_route(topic)
        answers = await self._backend.passage.to_all(known.addresses.values(), command)
        found = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
        if not found:
            return _answer(command, answers[0])
        return command.response(ext=found[0].ext, body=b"".join(answer.body for answer in found))

    async def by_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 33: a place in the log of the broker that is named, or of the only one."""
        topic = command.ext.get("topic", "")
        if topic:
            return await self.to_broker(command, topic)
        try:
            return _answer(command, await self._backend.passage.to_master(_broker_named(command.ext), command))
        except NameRefused as error:
            return command.response(ResponseCode.VERSION_NOT_SUPPORTED, remark=str(error))

    async def to_broker(
        self, command: RemotingCommand, topic: str, broker_name: str = "", *, wait_ms: int = 0
    ) -> RemotingCommand:
        """The broker's answer as the answer to `command`."""
        ext = command.ext
        name = broker_name or _broker_named(ext)
        number = ext.get("queueId") or ext.get("e") or ""
        queue_id = int(number) if number.isdecimal() else None
        try:
            answer = await self._backend.passage.to_queue(topic, name, command, wait_ms, queue_id)
        except NameRefused as error:
            if error.name != "QUEUE_NOT_FOUND" or name:
                raise
            remark = f"Several brokers hold the topic {topic[:200]!r}, and the request names none of them."
            return command.response(ResponseCode.VERSION_NOT_SUPPORTED, remark=remark)
        return _answer(command, answer)


def _answer(command: RemotingCommand, answer: RemotingCommand) -> RemotingCommand:
    return command.response(answer.code, ext=answer.ext, remark=answer.remark, body=answer.body)


def _broker_named(ext: Mapping[str, str]) -> str:
    return next((ext[field] for field in _BROKER_FIELDS if ext.get(field)), "")
