"""Queue sharing among members: assignment by the server (code 400), and locks at the brokers."""

from __future__ import annotations

import logging
from typing import Final

from millstream.broker.queues.consumer_groups import RequestKind
from millstream.broker.remoting.queue_sharing import BROADCAST, STRATEGIES, readable_queues
from millstream.model.errors import ConnectionFailed, NameRefused
from millstream.model.topic import RETRY_PREFIX, Permission
from millstream.protocol.remoting.administration.assignment import AssignedQueue, AssignmentBody, AssignmentQuery
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import LockBody, LockedBody, QueueName
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remote.connection_pool import gather_until_deadline
from millstream.proxy.remoting.clients import ProxyClientHandlers
from millstream.proxy.remoting.queue_numbers import ONLY_BROKER, QueueNumbers
from millstream.transport.remoting_connection import Connection

__all__ = ["ANSWER_TIMEOUT_S", "ProxyAssignmentHandlers", "ProxyLockHandlers"]


class ProxyAssignmentHandlers:
    """Code 400. The mode is PULL for all: what the brokers' mode is for, a member that is stuck, no pull suffers from
    here."""

    def __init__(self, backend: RemoteBackend, clients: ProxyClientHandlers) -> None:
        self._backend = backend
        self._clients = clients

    async def query(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The member's queues. Nothing for a topic, member or strategy that is not known: it keeps its own."""
        request = decode_body(AssignmentQuery, command.body)
        try:
            known = await self._backend.known_route(request.topic)
        except NameRefused:
            return command.response(body=encode_body(AssignmentBody()))
        places = sorted(readable_queues(known.data))
        if request.message_model != BROADCAST:
            members = await self._clients.sharing(request.consumer_group, connection)
            strategy = STRATEGIES.get(request.strategy_name)
            if request.client_id not in members or strategy is None:
                return command.response(body=encode_body(AssignmentBody()))
            places = list(strategy(members.index(request.client_id), len(members), places))
        mode = RequestKind.PULL.value
        assigned = [AssignedQueue(QueueName(request.topic, one.broker_name, one.queue_id), mode) for one in places]
        return command.response(body=encode_body(AssignmentBody(assigned)))


ANSWER_TIMEOUT_S: Final = 0.8
"""Seconds after which a client is told what it has locked so far; RocketMQ's wait for a second."""

_log = logging.getLogger(__name__)

_Asked = list[tuple[QueueName, QueueName]]
"""Queues as a client names them, and as their broker does."""


class ProxyLockHandlers:
    """Codes 41 and 42."""

    def __init__(self, backend: RemoteBackend, clients: ProxyClientHandlers, numbers: QueueNumbers) -> None:
        self._backend = backend
        self._numbers = numbers
        self._clients = clients

    async def lock(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Each broker is asked for its own queues; those of a broker that does not answer are not locked."""
        body = decode_body(LockBody, command.body)
        if command.code == RequestCode.LOCK_BATCH_MQ:
            await self._clients.keeps_order(body.consumer_group)
        by_address: dict[str, _Asked] = {}
        for queue in body.mq_set:
            try:
                address, sent = await self._place(queue)
            except NameRefused:
                continue
            by_address.setdefault(address, []).append((queue, sent))
        parts = await gather_until_deadline(
            (self._ask(command, body, *item) for item in by_address.items()), ANSWER_TIMEOUT_S
        )
        locked = LockedBody([queue for part in parts for queue in part])
        return command.response(body=encode_body(locked))

    async def _ask(self, command: RemotingCommand, body: LockBody, address: str, asked: _Asked) -> list[QueueName]:
        own = LockBody(body.consumer_group, body.client_id, [sent for _, sent in asked])
        part = RemotingCommand(command.code, dict(command.ext), encode_body(own), version=command.version)
        try:
            [answer] = await self._backend.passage.to_all([address], part)
        except ConnectionFailed as error:
            _log.info("%s locks no queues of %s now: %s", address, body.consumer_group, error)
            return []
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return []
        locked = decode_body(LockedBody, answer.body).locked
        return [queue for queue, sent in asked if sent in locked]

    async def _place(self, queue: QueueName) -> tuple[str, QueueName]:
        """Where the queue's lock is kept, and how it is named there. Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND."""
        try:
            known = await self._backend.known_route(queue.topic)
        except NameRefused:
            masters = await self._backend.passage.masters()
            address = next((address for name, address in masters if name == queue.broker_name), None)
            if address is None or not queue.topic.startswith(RETRY_PREFIX):
                raise
            return address, queue
        if queue.broker_name != ONLY_BROKER or ONLY_BROKER in known.addresses:
            return known.address(queue.broker_name, queue.queue_id), queue
        place = (await self._numbers.get(known)).place(queue.queue_id, Permission.READ)
        return known.addresses[place.broker_name], QueueName(queue.topic, place.broker_name, place.queue_id)
