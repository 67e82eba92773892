"""Client operations about replica sets, asked of the controllers and of masters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from millstream.client.cluster_operations import BrokerStatus
from millstream.client.operations import ClientOperation, ClientOperations
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.administration.broker_report import SetReport
from millstream.protocol.remoting.administration.controller_requests import ControllerMetadata
from millstream.protocol.remoting.administration.sync_state_sets import ReplicaSetInfo, ReplicaSetInfoTable
from millstream.protocol.remoting.bodies import decode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["ControllerStatus", "ReplicaOperations", "ReplicaState", "SetStatus"]


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What one controller said, or (`failure`) why nothing. `peers` are the `host:port` of its group."""

    address: str
    leader: str | None
    """`host:port` of who leads as far as this one knows."""
    peers: tuple[str, ...]
    failure: MillstreamError | None


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica. What nobody could say is None."""

    broker_id: int
    address: str | None
    is_master: bool
    is_alive: bool | None
    in_set: bool
    behind_bytes: int | None
    damaged_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SetStatus:
    """The set of one broker name: what its master says (`report`) and what the controllers do (`info`), if anything."""

    cluster: str
    name: str
    report: SetReport | None
    info: ReplicaSetInfo | None

    @property
    def epoch(self) -> int:
        """The epoch of the present master, or of the last one."""
        known = [self.report.epoch if self.report else 0, self.info.master_epoch if self.info else 0]
        return max(known)

    @property
    def members(self) -> list[int]:
        """The ids of who has everything that was acknowledged; the controllers' word before the master's."""
        if self.info is not None:
            return sorted(one.broker_id for one in self.info.in_sync_replicas)
        return self.report.members if self.report is not None else []

    @property
    def master_id(self) -> int | None:
        """The id of the master; None where there is none."""
        if self.info is not None:
            return self.info.master_broker_id
        return self.report.broker_id if self.report is not None else None

    @property
    def replicas(self) -> list[ReplicaState]:
        """All replicas that anybody knows of, by id; the master is one of them."""
        info, report = self.info, self.report
        rows = [*info.in_sync_replicas, *info.not_in_sync_replicas] if info is not None else []
        alive = {row.broker_id: row.alive for row in rows}
        addresses = {row.broker_id: row.broker_address for row in rows}
        progress = {row.broker_id: row for row in report.replicas} if report is not None else {}
        ids = {*alive, *progress, *self.members}
        members, master = self.members, self.master_id
        behind = {number: row.behind_bytes for number, row in progress.items()}
        damaged = {number: row.damaged_bytes for number, row in progress.items()}
        if report is not None:
            behind[report.broker_id], damaged[report.broker_id] = 0, report.damaged_bytes
        return [
            ReplicaState(
                number,
                addresses.get(number),
                number == master,
                alive.get(number),
                number in members,
                behind.get(number),
                damaged.get(number, 0),
            )
            for number in sorted(ids)
        ]


class ReplicaOperations:
    """The operations, over the servers that `conversations` reaches."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations

    def controllers(self, addresses: Iterable[str]) -> ClientOperation[list[ControllerStatus]]:
        """A look at each of these controllers and at those that they name; it never fails."""
        found: dict[str, ControllerStatus] = {}
        left = sorted(set(addresses))
        while left:
            address = left.pop(0)
            found[address] = yield from self._controller(address)
            left += [peer for peer in found[address].peers if peer not in found and peer not in left]
        return [found[address] for address in sorted(found)]

    def sets(
        self, looks: Sequence[BrokerStatus], controllers: Sequence[ControllerStatus]
    ) -> ClientOperation[list[SetStatus]]:
        """The sets of the brokers that have replicas, by name."""
        masters = {look.broker.name: look for look in looks if look.broker.broker_id == 0}
        known: Mapping[str, ReplicaSetInfo] = {}
        leaders = [one.leader for one in controllers if one.leader is not None]
        for leader in dict.fromkeys(leaders):
            try:
                known = yield from self._sync_state_sets(leader, list(masters))
                break
            except MillstreamError:
                continue
        return [
            SetStatus(look.broker.cluster, name, _set_of(look), known.get(name))
            for name, look in sorted(masters.items())
            if name in known or _set_of(look) is not None
        ]

    def _controller(self, address: str) -> ClientOperation[ControllerStatus]:
        try:
            answer = yield from self._conversations.ask(address, RemotingCommand(RequestCode.GET_CONTROLLER_METADATA))
        except MillstreamError as error:
            return ControllerStatus(address, None, (), error)
        fields = ControllerMetadata.decode(answer.ext)
        peers = tuple(one.partition(":")[2] for one in fields.peers.split(";") if one)
        return ControllerStatus(address, fields.leader_address or None, peers, None)

    def _sync_state_sets(self, leader: str, names: list[str]) -> ClientOperation[Mapping[str, ReplicaSetInfo]]:
        command = RemotingCommand(RequestCode.GET_SYNC_STATE_DATA, {}, msgspec.json.encode(names))
        answer = yield from self._conversations.ask(leader, command)
        return decode_body(ReplicaSetInfoTable, answer.body).replicas_info_table


def _set_of(look: BrokerStatus) -> SetReport | None:
    return look.report.replica_set if look.report is not None else None
