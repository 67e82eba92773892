"""The requests that a replicated broker answers: few as replica, all as master with a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from typing import Final

from millstream.model.errors import ConnectionFailed
from millstream.protocol.remoting.administration.controller_requests import MasterFields
from millstream.protocol.remoting.administration.replica_requests import (
    BrokerEpochs,
    EpochEntry,
    ReplicaClientStatus,
    ReplicaConnectionStatus,
    ReplicationStatus,
)
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.replication import (
    HandoverRequest,
    RangeAnswer,
    RangeRequest,
    SeedFileRequest,
)
from millstream.server.replicas.membership import view_of_notice
from millstream.server.replicas.replica_seed import read_seed_file
from millstream.server.replicas.replicated_broker import ReplicaRole, ReplicatedBroker
from millstream.transport.remoting_connection import Connection, Handler
from millstream.transport.request_batches import BatchHandler

__all__ = ["ReplicaHandlers", "ReplicaTable"]

_CHANGES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTION_GROUP,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.PUT_BROKER_PERMISSION,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)
"""Requests that are answered when the replicas have what they changed: a failover must not take it back."""

_ADMITTED: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.BULK_PUT,
        RequestCode.END_TRANSACTION,
        RequestCode.END_TRANSACTION_BY_ID,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)
"""Requests that need no lease: what they write is acknowledged by the replicas, which a former master does not have."""


class ReplicaTable(Mapping[int, Handler]):
    """Handlers by request code; any other code is answered that this broker is not the master."""

    def __init__(self, handlers: Mapping[int, Handler], other: Handler) -> None:
        self._handlers = handlers
        self._other = other

    def __getitem__(self, code: int) -> Handler:
        return self._handlers.get(code, self._other)

    def __iter__(self) -> Iterator[int]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


class ReplicaHandlers:
    """The tables of one broker of a set."""

    def __init__(self, replicated: ReplicatedBroker, name: str) -> None:
        self._replicated = replicated
        self._name = name
        self._own: dict[int, Handler] = {
            RequestCode.FETCH_LOG: replicated.port.fetch,
            RequestCode.HAND_OVER: self._hand_over,
            RequestCode.FETCH_RANGE: self._range,
            RequestCode.FETCH_SEED: self._seed,
            RequestCode.FETCH_SEED_FILE: self._seed_file,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._note_view,
            RequestCode.GET_BROKER_EPOCH_CACHE: self._epochs,
            RequestCode.GET_BROKER_HA_STATUS: self._status,
        }

    def of_replica(self, reads: Mapping[int, Handler], others: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """While this broker is not the master: `reads` are answered where it follows one, and counted; `others`
        are answered there as well."""
        served = {code: self._serve(self._count(handler)) for code, handler in reads.items()}
        handlers = {code: self._serve(handler) for code, handler in others.items()}
        return ReplicaTable(served | handlers | self._own, self._refuse)

    def of_master(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The broker's handlers, as the master may use them."""
        return {code: self._guard(code, handler) for code, handler in handlers.items()} | self._own

    def _serve(self, handler: Handler) -> Handler:
        """The handler, while there is a log to read."""

        def answer(
            command: RemotingCommand, connection: Connection
        ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
            if not self._replicated.serves_reads:
                self._refuse(command, connection)
            return handler(command, connection)

        return answer

    def _count(self, handler: Handler) -> Handler:
        def answer(
            command: RemotingCommand, connection: Connection
        ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
            result = handler(command, connection)
            if result is None or isinstance(result, RemotingCommand):
                return self._note(result)
            return self._note_later(result)

        return answer

    async def _note_later(self, result: Awaitable[RemotingCommand | None]) -> RemotingCommand | None:
        return self._note(await result)

    def _note(self, answered: RemotingCommand | None) -> RemotingCommand | None:
        reads = self._replicated.reads
        reads.requests += 1
        if answered is not None:
            reads.size_bytes += len(answered.body) + sum(map(len, answered.body_parts))
        return answered

    def _guard(self, code: int, handler: Handler) -> Handler:
        if code in _CHANGES:
            return self._require_lease(self._await_replicas(handler))
        if code in _ADMITTED or isinstance(handler, BatchHandler):
            return handler
        if code == RequestCode.POP_MESSAGE:
            return self._require_lease(self._keep_order(handler))
        return self._require_lease(self._await_takeover(handler) if code == RequestCode.LOCK_BATCH_MQ else handler)

    def _await_takeover(self, handler: Handler) -> Handler:
        """The handler, once the master before cannot answer such a request any more."""

        async def answer(command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
            await asyncio.sleep(self._replicated.takeover_left_s)
            result = handler(command, connection)
            return result if result is None or isinstance(result, RemotingCommand) else await result

        return answer

    def _keep_order(self, handler: Handler) -> Handler:
        """The handler, whose deliveries in order replicas know of before they are answered: of a line of messages that
        somebody works on the next master gives nothing to anybody else."""
        in_order = self._await_replicas(self._await_takeover(handler), writes_state=True)

        def answer(
            command: RemotingCommand, connection: Connection
        ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
            group = self._replicated.broker.groups.find(command.ext.get("consumerGroup", ""))
            is_ordered = command.ext.get("order") == "true" or (group is not None and group.fifo)
            return (in_order if is_ordered else handler)(command, connection)

        return answer

    def _require_lease(self, handler: Handler) -> Handler:
        """The handler, while no other master can be there. Looked at for each request: a process that was stopped does
        not notice."""
        replicated = self._replicated

        def answer(
            command: RemotingCommand, connection: Connection
        ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
            if not replicated.holds_lease:
                self._refuse(command, connection)
            return handler(command, connection)

        return answer

    def _await_replicas(self, handler: Handler, *, writes_state: bool = False) -> Handler:
        async def answer(command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
            result = handler(command, connection)
            answered = result if result is None or isinstance(result, RemotingCommand) else await result
            if writes_state:
                self._replicated.broker.write_state()
            await self._replicated.await_confirmed()
            return answered

        return answer

    def _refuse(self, _command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        view, role = self._replicated.view, self._replicated.role
        if role is ReplicaRole.MASTER:
            raise ConnectionFailed(
                "NOT_MASTER", f"This broker of {self._name} has not heard the controllers for too long."
            )
        master = "not known" if view.address is None else f"{view.master_id} at {view.address}"
        raise ConnectionFailed("NOT_MASTER", f"This broker is a replica of {self._name}, whose master is {master}.")

    def _note_view(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        self._replicated.note_view(view_of_notice(command))
        return command.response()

    async def _hand_over(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        view = await self._replicated.hand_over(HandoverRequest.decode(command.ext).target)
        fields = MasterFields(view.master_id, view.address, view.epoch, view.set_epoch)
        return command.response(ext=fields.encode())

    def _range(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        sound = self._replicated.read_range(RangeRequest.decode(command.ext))
        return command.response(ext=RangeAnswer(sound.end).encode(), body=sound.records)

    async def _seed(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        return command.response(body=await self._replicated.make_seed())

    async def _seed_file(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        request = SeedFileRequest.decode(command.ext)
        return command.response(body=await asyncio.to_thread(read_seed_file, self._replicated.directory, request))

    def _epochs(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        replicated = self._replicated
        log, identity = replicated.log, replicated.identity
        starts = log.epochs.starts
        entries = [EpochEntry(epoch, start, log.epochs.end_of(epoch, log.end)) for epoch, start in starts]
        role_id = 0 if replicated.role is ReplicaRole.MASTER else identity.broker_id
        body = BrokerEpochs(identity.cluster, identity.name, role_id, entries, log.end)
        return command.response(body=encode_body(body))

    def _status(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        replicated = self._replicated
        log, source = replicated.log, replicated.port.source
        if source is not None:
            rows = []
            for broker_id, peer in sorted(replicated.port.replicas.items()):
                acked = source.sync_set.ack_of(broker_id) or 0
                in_sync = broker_id in source.sync_set.members
                rows.append(ReplicaConnectionStatus(peer, acked, log.end - acked, in_sync, 0, acked))
            in_sync_count = len(source.sync_set.members) - 1
            return command.response(body=encode_body(ReplicationStatus(True, log.end, in_sync_count, rows)))
        view = replicated.view
        client = ReplicaClientStatus(
            view.address or "", 0, log.end, 0, 0, replicated.master_end, replicated.role is ReplicaRole.REPLICA
        )
        return command.response(body=encode_body(ReplicationStatus(False, ha_client_runtime_info=client)))
