"""The controller's remoting requests: codes 904, 1001 to 1006 and 1009 to 1013."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from millstream.controller.controller import Controller
from millstream.controller.elections import ElectionOutcome
from millstream.controller.replica_sets import ReplicaSet
from millstream.controller.settings import KeptSettings, change_settings, peers_text, settings_of
from millstream.model.errors import MillstreamError, TimedOut
from millstream.protocol.remoting.administration.controller_requests import (
    AlterSetRequest,
    ApplyIdRequest,
    BrokerHeartbeat,
    CleanBrokerRequest,
    ControllerMetadata,
    ElectRequest,
    MasterFields,
    NextIdAnswer,
    NextIdQuery,
    RegisterReplicaRequest,
    ReplicaSetQuery,
)
from millstream.protocol.remoting.administration.sync_state_sets import (
    ElectedMasterBody,
    InSyncReplica,
    ReplicaSetInfo,
    ReplicaSetInfoTable,
    SyncStateSetBody,
    decode_broker_names,
)
from millstream.protocol.remoting.bodies import BrokerMemberGroup, decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import decode_java_properties, encode_java_properties
from millstream.protocol.remoting.refusals import response_code_of
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["LEASE_FIELD", "ControllerHandlers"]

LEASE_FIELD: Final = "leaseMs"
"""Ours, in the answer to a master's heartbeat: how long it may go on, counted from when it sent the heartbeat."""

_REQUEST_TYPES: Final[dict[int, str]] = {
    RequestCode.BROKER_HEARTBEAT: "CONTROLLER_BROKER_HEARTBEAT",
    RequestCode.ALTER_SYNC_STATE_SET: "CONTROLLER_ALTER_SYNC_STATE_SET",
    RequestCode.ELECT_MASTER: "CONTROLLER_ELECT_MASTER",
    RequestCode.REGISTER_REPLICA: "CONTROLLER_REGISTER_BROKER",
    RequestCode.GET_REPLICA_INFO: "CONTROLLER_GET_REPLICA_INFO",
    RequestCode.GET_CONTROLLER_METADATA: "CONTROLLER_GET_METADATA_INFO",
    RequestCode.GET_SYNC_STATE_DATA: "CONTROLLER_GET_SYNC_STATE_DATA",
    RequestCode.UPDATE_CONTROLLER_CONFIG: "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
    RequestCode.GET_CONTROLLER_CONFIG: "CONTROLLER_GET_CONTROLLER_CONFIG",
    RequestCode.CLEAN_BROKER_DATA: "CONTROLLER_CLEAN_BROKER_DATA",
    RequestCode.GET_NEXT_BROKER_ID: "CONTROLLER_GET_NEXT_BROKER_ID",
    RequestCode.APPLY_BROKER_ID: "CONTROLLER_APPLY_BROKER_ID",
}
"""RocketMQ's names of the requests in its metrics."""

_Answer = Callable[[RemotingCommand, Connection], Awaitable[RemotingCommand]]


class ControllerHandlers:
    """The handlers of a controller's port, by request code; `counts` are its requests by name and outcome. Settings
    that are changed are `kept`, if that is given."""

    def __init__(self, controller: Controller, kept: KeptSettings | None = None) -> None:
        self.controller = controller
        self._kept = kept
        self._lines: dict[tuple[str, int], Connection] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.table: dict[int, Handler] = {RequestCode.BROKER_HEARTBEAT: self.beat}
        self.table |= {
            code: self._handler(code, answer)
            for code, answer in (
                (RequestCode.ALTER_SYNC_STATE_SET, self._alter),
                (RequestCode.ELECT_MASTER, self._elect),
                (RequestCode.REGISTER_REPLICA, self._register),
                (RequestCode.GET_REPLICA_INFO, self._replica_info),
                (RequestCode.GET_CONTROLLER_METADATA, self._metadata),
                (RequestCode.GET_SYNC_STATE_DATA, self._sync_state_data),
                (RequestCode.UPDATE_CONTROLLER_CONFIG, self._change_settings),
                (RequestCode.GET_CONTROLLER_CONFIG, self._settings),
                (RequestCode.CLEAN_BROKER_DATA, self._clean),
                (RequestCode.GET_NEXT_BROKER_ID, self._next_id),
                (RequestCode.APPLY_BROKER_ID, self._apply_id),
            )
        }

    def _handler(self, code: int, answer: _Answer) -> _Answer:
        return lambda command, connection: self._count(code, command, answer(command, connection))

    async def _count(
        self, code: int, command: RemotingCommand, answering: Awaitable[RemotingCommand]
    ) -> RemotingCommand:
        """The answer, whose request is counted; a refusal by one that does not lead says who does."""
        kind, outcome = _REQUEST_TYPES[code], "failed"
        try:
            answered = await answering
            outcome = "success" if answered.code == ResponseCode.SUCCESS else "failed"
            return answered
        except TimedOut:
            outcome = "timeout"
            raise
        except MillstreamError as error:
            if error.name != "CONTROLLER_NOT_LEADER":
                raise
            return command.response(response_code_of(error), ext=self._leader_fields(), remark=str(error))
        finally:
            self.counts[kind, outcome] += 1

    def _leader_fields(self) -> dict[str, str]:
        leader = self.controller.log.leader
        return {} if leader is None else ControllerMetadata("", leader.id, leader.address).encode()

    def beat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | Awaitable[RemotingCommand]:
        """The answer to a heartbeat: at once but to masters, so that a thousand sets cost little."""
        heartbeat = BrokerHeartbeat.decode(command.ext)
        try:
            is_masters = self.controller.beat(heartbeat)
        except MillstreamError:
            self.counts[_REQUEST_TYPES[RequestCode.BROKER_HEARTBEAT], "failed"] += 1
            raise
        self._note_line(heartbeat, connection)
        if is_masters:
            return self._count(RequestCode.BROKER_HEARTBEAT, command, self._answer_master(heartbeat, command))
        self.counts[_REQUEST_TYPES[RequestCode.BROKER_HEARTBEAT], "success"] += 1
        return command.response(ext=self._hint(heartbeat.name) if self.controller.leads() else self._leader_fields())

    async def _answer_master(self, told: BrokerHeartbeat, command: RemotingCommand) -> RemotingCommand:
        lease_ms = await self.controller.renew_lease(told)
        lease = {LEASE_FIELD: str(lease_ms)} if lease_ms else {}
        return command.response(ext=self._hint(told.name) | lease)

    def _hint(self, name: str) -> dict[str, str]:
        """Ours: by these epochs a replica finds that it missed an election or a change of its set."""
        found = self.controller.sets.find(name)
        if found is None:
            return {}
        return {"masterEpoch": str(found.master_epoch), "syncStateSetEpoch": str(found.set_epoch)}

    def _note_line(self, told: BrokerHeartbeat, connection: Connection) -> None:
        key = told.name, told.broker_id
        if told.is_goodbye:
            self._lines.pop(key, None)
        elif self._lines.get(key) is not connection:
            self._lines[key] = connection
            connection.on_close.append(lambda closed: self._note_closed(key, closed))

    def close(self) -> None:
        """Closing connections say nothing about brokers from now on."""
        self._lines.clear()
        for task in self._closing:
            task.cancel()

    def _note_closed(self, key: tuple[str, int], connection: Connection) -> None:
        if self._lines.get(key) is not connection:
            return
        del self._lines[key]
        task = asyncio.get_running_loop().create_task(self.controller.note_closed(*key))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _alter(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        wanted = decode_body(SyncStateSetBody, command.body)
        found = await self.controller.alter(AlterSetRequest.decode(command.ext), wanted)
        return command.response(ext={"newSyncStateSetEpoch": str(found.set_epoch)}, body=_set_body(found))

    async def _elect(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        elected = await self.controller.elect(ElectRequest.decode(command.ext))
        found = elected.found
        if elected.election.outcome is ElectionOutcome.KEPT:
            remark = f"The master {found.master} of {found.name} lives, so it stays."
            body = encode_body(ElectedMasterBody(sync_state_set=list(found.members)))
            code = ResponseCode.MASTER_STILL_EXISTS
            return command.response(code, ext=_master_fields(found).encode(), remark=remark, body=body)
        group = BrokerMemberGroup(found.cluster, found.name, found.addresses)
        body = encode_body(ElectedMasterBody(group, list(found.members)))
        fields = _master_fields(found, round(elected.election.previous_lease_s * 1000))
        return command.response(ext=fields.encode(), body=body)

    async def _register(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        request = RegisterReplicaRequest.decode(command.ext)
        found = await self.controller.register(request)
        who = {"clusterName": found.cluster, "brokerName": found.name}
        is_led = found.master is not None and self.controller.lives(found.name, found.master)
        fields = _master_fields(found).encode() if is_led else {}
        return command.response(ext=who | fields, body=_set_body(found))

    async def _replica_info(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        found = await self.controller.replica_info(ReplicaSetQuery.decode(command.ext).name)
        fields = MasterFields(found.master, found.master_address, found.master_epoch)
        return command.response(ext=fields.encode(), body=_set_body(found))

    async def _metadata(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        controller, leader = self.controller, self.controller.log.leader
        fields = ControllerMetadata(
            controller.options.group,
            leader.id if leader else None,
            leader.address if leader else None,
            str(controller.leads()).lower(),
            peers_text(controller),
        )
        return command.response(ext=fields.encode())

    async def _sync_state_data(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        sets = await self.controller.find_sets(decode_broker_names(command.body))
        return command.response(body=encode_body(ReplicaSetInfoTable({one.name: self._info(one) for one in sets})))

    def _info(self, found: ReplicaSet) -> ReplicaSetInfo:
        rows = {
            number: InSyncReplica(found.name, number, address, self.controller.lives(found.name, number))
            for number, address in found.addresses.items()
        }
        return ReplicaSetInfo(
            found.master,
            found.master_address,
            found.master_epoch,
            found.set_epoch,
            [row for number, row in rows.items() if number in found.members],
            [row for number, row in rows.items() if number not in found.members],
        )

    async def _change_settings(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        change_settings(self.controller, decode_java_properties(command.body), self._kept)
        return command.response()

    async def _settings(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        return command.response(body=encode_java_properties(settings_of(self.controller)))

    async def _clean(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        await self.controller.clean(CleanBrokerRequest.decode(command.ext))
        return command.response()

    async def _next_id(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        query = NextIdQuery.decode(command.ext)
        answer = NextIdAnswer(query.cluster, query.name, await self.controller.next_id(query.name))
        return command.response(ext=answer.encode())

    async def _apply_id(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        request = ApplyIdRequest.decode(command.ext)
        await self.controller.apply_id(request)
        return command.response(ext={"clusterName": request.cluster, "brokerName": request.name})


def _master_fields(found: ReplicaSet, previous_lease_ms: int = 0) -> MasterFields:
    return MasterFields(found.master, found.master_address, found.master_epoch, found.set_epoch, previous_lease_ms)


def _set_body(found: ReplicaSet) -> bytes:
    return encode_body(SyncStateSetBody(list(found.members), found.set_epoch))
