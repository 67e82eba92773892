"""Which queues a member has, for clients that leave the sharing to the server (code 400)."""

from __future__ import annotations

from millstream.broker.queues.consumer_groups import RequestKind
from millstream.broker.remoting.queue_sharing import BROADCAST, STRATEGIES, readable_queues
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.assignment import AssignedQueue, AssignmentBody, AssignmentQuery
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.queue_set import QueueName
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remoting.clients import ProxyClientHandlers
from millstream.transport.remoting_connection import Connection

__all__ = ["ProxyAssignmentHandlers"]


class ProxyAssignmentHandlers:
    """Code 400. The mode is PULL for all: what the brokers' mode is for, a member that is stuck, no pull suffers from
    here."""

    def __init__(self, backend: RemoteBackend, clients: ProxyClientHandlers) -> None:
        self._backend = backend
        self._clients = clients

    async def query(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The member's queues. Nothing for a topic, member or strategy that is not known: it keeps its own."""
        asked = decode_body(AssignmentQuery, command.body)
        try:
            known = await self._backend.known_route(asked.topic)
        except NameRefused:
            return command.response(body=encode_body(AssignmentBody()))
        places = sorted(readable_queues(known.data))
        if asked.message_model != BROADCAST:
            members = await self._clients.sharing(asked.consumer_group, connection)
            strategy = STRATEGIES.get(asked.strategy_name)
            if asked.client_id not in members or strategy is None:
                return command.response(body=encode_body(AssignmentBody()))
            places = list(strategy(members.index(asked.client_id), len(members), places))
        mode = RequestKind.PULL.value
        assigned = [AssignedQueue(QueueName(asked.topic, one.broker_name, one.queue_id), mode) for one in places]
        return command.response(body=encode_body(AssignmentBody(assigned)))
