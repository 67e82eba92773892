"""Requests that are the broker's to answer, passed on to the broker that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.properties import TRANSACTION
from millstream.model.recall import RecallHandle
from millstream.model.receipt import ReceiptHandle
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import optional_integer, text
from millstream.protocol.remoting.popping import asked_topic
from millstream.protocol.remoting.queue_set import LockBody, LockedBody
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remoting.half_places import HalfPlace, HalfPlaces
from millstream.security.guard import Guard
from millstream.security.policy import Wish
from millstream.transport.gate import allow_more
from millstream.transport.remoting_server import Connection

__all__ = ["Forwarding"]

_BROKER_FIELDS: Final = ("bname", "n", "brokerName")
_HALF: Final = f"{TRANSACTION}\x01true"


class Forwarding:
    """Codes whose answer is the broker's. Clients name the broker; where a topic has one only, they need not."""

    def __init__(self, backend: RemoteBackend, guard: Guard | None) -> None:
        self._backend = backend
        self._guard = guard
        self.halves = HalfPlaces()

    async def send(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 10, 310 and 320."""
        is_long = command.code == RequestCode.SEND_MESSAGE
        topic = text(command.ext, "topic" if is_long else "b")
        answer = await self.to_broker(command, topic)
        if answer.code == ResponseCode.SUCCESS and _HALF in command.ext.get("properties" if is_long else "i", ""):
            self.halves.note(answer.ext.get("transactionId", ""), HalfPlace(topic, _broker_named(command.ext)))
        return answer

    async def end(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 37. Older clients leave the topic out, which is known from the send or from a question."""
        ext = command.ext
        place = HalfPlace(ext.get("topic", ""))
        if not place.topic:
            found = self.halves.find(ext.get("transactionId", ""), ext.get("msgId", ""))
            if found is None:
                words = "The request names no topic, and the transaction was not begun at this proxy."
                raise MessageRefused("TRANSACTION_NOT_FOUND", words)
            allow_more(self._guard, command, connection.peer, Wish.publish(found.topic))
            place = found
        return await self.to_broker(command, place.topic, _broker_named(ext) or place.broker_name)

    async def of_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 14, 29, 30 and 31."""
        return await self.to_broker(command, text(command.ext, "topic"))

    async def pop(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 200050, which may wait."""
        wait_ms = optional_integer(command.ext, "pollTime", 0)
        return await self.to_broker(command, text(command.ext, "topic"), wait_ms=wait_ms)

    async def delivery(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 200051 and 200053: the handle names the broker."""
        ext = command.ext
        topic = asked_topic(text(ext, "consumerGroup"), text(ext, "topic"))
        return await self.to_broker(command, topic, ReceiptHandle.decode(text(ext, "extraInfo")).broker_name)

    async def recall(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Code 370: the handle names the broker."""
        topic = text(command.ext, "topic")
        handle = RecallHandle.decode_for(topic, text(command.ext, "recallHandle"))
        return await self.to_broker(command, topic, handle.broker_name)

    async def pull(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 11 and 361 as they stand, which may wait."""
        wait_ms = optional_integer(command.ext, "suspendTimeoutMillis", 0)
        return await self.to_broker(command, text(command.ext, "topic"), wait_ms=wait_ms)

    async def lock(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Codes 41 and 42: each broker is asked for its own queues."""
        body = decode_body(LockBody, command.body)
        locked = LockedBody()
        for name in dict.fromkeys(queue.broker_name for queue in body.mq_set):
            own = LockBody(body.consumer_group, body.client_id, [one for one in body.mq_set if one.broker_name == name])
            part = RemotingCommand(command.code, dict(command.ext), encode_body(own), version=command.version)
            answer = await self._backend.forward(own.mq_set[0].topic, name, part)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                locked.locked += decode_body(LockedBody, answer.body).locked
        return command.response(body=encode_body(locked))

    async def to_broker(
        self, command: RemotingCommand, topic: str, broker_name: str = "", *, wait_ms: int = 0
    ) -> RemotingCommand:
        """The broker's answer as the answer to `command`."""
        ext = command.ext
        name = broker_name or _broker_named(ext)
        request = RemotingCommand(
            command.code, dict(ext), command.body, 0, command.flag & 0, None, command.language, command.version
        )
        try:
            answer = await self._backend.forward(topic, name, request, wait_ms)
        except NameRefused as error:
            if error.name != "QUEUE_NOT_FOUND" or name:
                raise
            remark = f"Several brokers hold the topic {topic[:200]!r}, and the request names none of them."
            return command.response(ResponseCode.VERSION_NOT_SUPPORTED, remark=remark)
        return command.response(answer.code, ext=answer.ext, remark=answer.remark, body=answer.body)


def _broker_named(ext: Mapping[str, str]) -> str:
    return next((ext[field] for field in _BROKER_FIELDS if ext.get(field)), "")
