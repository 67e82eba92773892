"""The remoting port of a proxy: what clients of RocketMQ 4 and 5 ask of brokers and nameservers, in one place."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from millstream.broker.remoting.sending import REGION
from millstream.model.clock import Clock
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.message import Address
from millstream.model.topic import RETRY_PREFIX, Permission
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.processor import Processor
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remoting.clients import ProxyClientHandlers
from millstream.proxy.remoting.consumption import ConsumptionHandlers
from millstream.proxy.remoting.forwarding import Forwarding, HalfMessageLocation, NotificationForwarder
from millstream.proxy.remoting.queue_numbers import (
    FIRST_NAMING_VERSION,
    QUEUE_FIELDS,
    NumberedQueues,
    QueueFields,
    QueueNumbers,
)
from millstream.proxy.remoting.queue_sharing import ProxyAssignmentHandlers, ProxyLockHandlers
from millstream.proxy.remoting.routes import ProxyRouteHandlers
from millstream.proxy.throttle import Caller
from millstream.security.guard import Guard
from millstream.security.signature import ACCESS_KEY
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["RemotingFront"]

_THROTTLED: Final = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
    )
)


class RemotingFront:
    """The remoting side of one proxy: one for all of its ports, so that their clients know of each other.

    `guard` is the access control of these ports.
    """

    def __init__(self, processor: Processor, backend: RemoteBackend, clock: Clock, guard: Guard | None = None) -> None:
        self._processor = processor
        self._backend = backend
        self._clock = clock
        self.clients = ProxyClientHandlers(processor, backend, clock, guard)
        self._forwarding = Forwarding(backend, self.clients, guard)
        self._numbers = QueueNumbers(backend.passage, clock)
        self._locks = ProxyLockHandlers(backend, self.clients, self._numbers)
        self._assignment = ProxyAssignmentHandlers(backend, self.clients)
        NotificationForwarder(backend.hearing, self.clients)
        self._consumption = ConsumptionHandlers(processor, backend, self.clients, self._forwarding)
        self._unwatch = backend.watch_transactions(self._ask)
        backend.announce(processor.clients.published_topics, self.clients.producer_groups)

    async def close(self) -> None:
        """Wait for what is on its way back to the brokers; the ports are closed by their owner, before."""
        self._unwatch()
        await self._consumption.close()
        await self.clients.close()

    def handlers(self, announced: Address) -> dict[int, Handler]:
        """The handlers of a port whose clients are told that all brokers are at `announced`."""
        clients, consumption, forwarding = self.clients, self._consumption, self._forwarding
        locks = self._locks
        plain: dict[int, Handler] = {
            RequestCode.GET_ROUTE_BY_TOPIC: ProxyRouteHandlers(self._backend, self._numbers, announced).route,
            RequestCode.SEND_MESSAGE: forwarding.send,
            RequestCode.SEND_MESSAGE_V2: forwarding.send,
            RequestCode.SEND_BATCH_MESSAGE: forwarding.send,
            RequestCode.RECALL_MESSAGE: forwarding.recall,
            RequestCode.END_TRANSACTION: forwarding.end,
            RequestCode.QUERY_CONSUMER_OFFSET: consumption.offset,
            RequestCode.GET_MAX_OFFSET: forwarding.of_topic,
            RequestCode.GET_MIN_OFFSET: forwarding.of_topic,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: forwarding.of_topic,
            RequestCode.GET_EARLIEST_MSG_STORE_TIME: forwarding.of_topic,
            RequestCode.QUERY_MESSAGE: forwarding.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: forwarding.by_offset,
            RequestCode.SEND_REPLY_MESSAGE: forwarding.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: forwarding.reply,
            RequestCode.QUERY_ASSIGNMENT: self._assignment.query,
            RequestCode.POP_MESSAGE: forwarding.waiting,
            RequestCode.NOTIFICATION: forwarding.waiting,
            RequestCode.PEEK_MESSAGE: forwarding.of_topic,
            RequestCode.POLLING_INFO: forwarding.of_topic,
            RequestCode.BATCH_ACK_MESSAGE: forwarding.deliveries,
            RequestCode.ACK_MESSAGE: forwarding.delivery,
            RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME: forwarding.delivery,
            RequestCode.LOCK_BATCH_MQ: locks.lock,
            RequestCode.UNLOCK_BATCH_MQ: locks.lock,
            RequestCode.PULL_MESSAGE: consumption.pull,
            RequestCode.LITE_PULL_MESSAGE: consumption.pull,
            RequestCode.UPDATE_CONSUMER_OFFSET: consumption.commit,
            RequestCode.CONSUMER_SEND_MSG_BACK: consumption.send_back,
            RequestCode.HEART_BEAT: clients.heartbeat,
            RequestCode.UNREGISTER_CLIENT: clients.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: clients.check,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: clients.members,
        }
        return {code: partial(self._answer, handler) for code, handler in plain.items()}

    def _ask(self, question: RecoverOrphanedTransaction) -> bool:
        half = question.message
        self._forwarding.halves.note(half.message_id, HalfMessageLocation(half.topic))
        return self.clients.producers.ask(question)

    def _answer(
        self, handler: Handler, command: RemotingCommand, connection: Connection
    ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
        """The handler's answer with the two fields that proxies add to all of theirs."""
        fields = QUEUE_FIELDS.get(command.code) if command.version < FIRST_NAMING_VERSION else None
        if fields is not None and fields.broker not in command.ext:
            return self._answer_located(handler, command, connection, fields)
        self._consumption.note_alive(connection)
        caller = None
        if command.code in _THROTTLED and self._processor.throttle.has_rules:
            caller = self._throttle(command, connection)
        answer = handler(command, connection)
        if answer is None or isinstance(answer, RemotingCommand):
            return _mark(answer)
        return self._marked_later(answer, caller)

    def _answer_located(
        self, handler: Handler, command: RemotingCommand, connection: Connection, fields: QueueFields
    ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
        """The same for a client that does not know of brokers."""
        topic = command.ext.get(fields.topic, "")
        if topic.startswith(RETRY_PREFIX):
            command.ext[fields.broker] = ""
            return self._answer(handler, command, connection)
        known = self._backend.cached_route(topic)
        numbered = None if known is None else self._numbers.find(known)
        if numbered is None:
            return self._located_later(handler, command, connection, fields)
        return self._answer_numbered(handler, command, connection, fields, numbered)

    def _answer_numbered(
        self,
        handler: Handler,
        command: RemotingCommand,
        connection: Connection,
        fields: QueueFields,
        numbered: NumberedQueues,
    ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
        numbered.locate(command.ext, fields)
        answer = self._answer(handler, command, connection)
        if fields.permission is not Permission.WRITE or answer is None or isinstance(answer, RemotingCommand):
            return answer
        return _numbered_later(answer, numbered, command.ext[fields.broker])

    async def _located_later(
        self, handler: Handler, command: RemotingCommand, connection: Connection, fields: QueueFields
    ) -> RemotingCommand | None:
        numbered = await self._numbers.get(await self._backend.known_route(command.ext.get(fields.topic, "")))
        answer = self._answer_numbered(handler, command, connection, fields, numbered)
        return answer if answer is None or isinstance(answer, RemotingCommand) else await answer

    async def _marked_later(
        self, answering: Awaitable[RemotingCommand | None], caller: Caller | None
    ) -> RemotingCommand | None:
        answer = _mark(await answering)
        if caller is not None and answer is not None and answer.body:
            self._processor.throttle.charge(caller, len(answer.body), self._clock.monotonic_s())
        return answer

    def _throttle(self, command: RemotingCommand, connection: Connection) -> Caller:
        """Count a request that sends or receives; whose it is."""
        ext = command.ext
        client_id = self.clients.client_id(connection) or connection.peer.host
        caller = Caller(client_id, ext.get("consumerGroup", ""), ext.get(ACCESS_KEY, ""))
        self._processor.throttle.admit(caller, len(command.body), self._clock.monotonic_s())
        return caller


async def _numbered_later(
    answering: Awaitable[RemotingCommand | None], numbered: NumberedQueues, broker_name: str
) -> RemotingCommand | None:
    answer = await answering
    if answer is not None and "queueId" in answer.ext:
        answer.ext["queueId"] = str(numbered.number(broker_name, int(answer.ext["queueId"])))
    return answer


def _mark(answer: RemotingCommand | None) -> RemotingCommand | None:
    if answer is not None:
        answer.ext.setdefault("MSG_REGION", REGION)
        answer.ext.setdefault("TRACE_ON", "true")
    return answer
