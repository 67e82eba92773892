"""A replica's requests to the controllers: its id, the master, and changes of the sync state set."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

import msgspec

from millstream.model.errors import NameRefused, StartRefused, StoreError
from millstream.protocol.remoting.administration.controller_requests import (
    AlterSetRequest,
    ApplyIdRequest,
    BrokerHeartbeat,
    ElectRequest,
    MasterFields,
    NextIdAnswer,
    NextIdQuery,
    RegisterReplicaRequest,
    ReplicaSetQuery,
)
from millstream.protocol.remoting.administration.sync_state_sets import ReplicaSetInfoTable, SyncStateSetBody
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.refusals import error_of
from millstream.replication.follower import ReplicaIdentity
from millstream.replication.sync_set import AckPolicy, SetRequest
from millstream.server.replicas.controller_lines import ControllerLines
from millstream.store.snapshot import Snapshot

__all__ = ["IDENTITY", "MasterView", "Membership", "view_of_notice"]

_log = logging.getLogger(__name__)

IDENTITY: Final = "replica.json"
"""The document in the data directory: which replica the directory is of."""

_VERSION: Final = 1
_MAX_ID_TRIES: Final = 10
_GOODBYE_S: Final = 1.0


class _Identity(msgspec.Struct):
    version: int
    cluster: str
    name: str
    broker_id: int
    check_code: str
    """Tells a repetition of the wish for this id from another broker's."""
    is_applied: bool


@dataclass(frozen=True, slots=True)
class MasterView:
    """What a controller said about the set."""

    master_id: int | None
    address: str | None
    epoch: int
    members: frozenset[int]
    set_epoch: int
    previous_lease_ms: int | None = None
    """How long the master before may still hold its lease; None where that is not known."""

    @property
    def order(self) -> tuple[int, int]:
        """The later one of two views is the greater."""
        return self.epoch, self.set_epoch


class Membership:
    """One replica, at `address`, of the broker `name`. Raises Unreachable and TimedOut where no controller answers."""

    def __init__(
        self, lines: ControllerLines, cluster: str, name: str, address: str, policy: AckPolicy, document: Snapshot
    ) -> None:
        self.lines = lines
        self.cluster = cluster
        self.name = name
        self.address = address
        self._policy = policy
        self._document = document
        self.broker_id = 0
        """The controller id; 0 until `enter` has returned."""

    @property
    def identity(self) -> ReplicaIdentity:
        """Which replica this is."""
        return ReplicaIdentity(self.cluster, self.name, self.broker_id)

    def check(self) -> None:
        """Refuse a directory of another broker or cluster: ILLEGAL_SETTING. Raises STORE_FORMAT."""
        noted = self._load()
        if noted is not None and (noted.cluster, noted.name) != (self.cluster, self.name):
            raise StartRefused(
                "ILLEGAL_SETTING",
                f"The directory is that of a replica of {noted.name} in {noted.cluster}, not of {self.name} in "
                f"{self.cluster}.",
                remedy="Start it with that name and cluster, or with another directory.",
            )

    async def enter(self) -> None:
        """Have an id: the one in the directory, or a new one. Raises BROKER_ID_INVALID."""
        noted = self._load()
        for _ in range(_MAX_ID_TRIES):
            if noted is None:
                query = NextIdQuery(self.cluster, self.name)
                answer = await self._ask(RequestCode.GET_NEXT_BROKER_ID, query.encode())
                number = NextIdAnswer.decode(answer.ext).next_id
                check_code = f"{self.address};{time.time_ns() // 1_000_000}"
                noted = _Identity(_VERSION, self.cluster, self.name, number, check_code, is_applied=False)
                self._save(noted)
            try:
                applied = ApplyIdRequest(self.cluster, self.name, noted.broker_id, noted.check_code)
                await self._ask(RequestCode.APPLY_BROKER_ID, applied.encode())
            except NameRefused as error:
                if error.name != "BROKER_ID_INVALID" or noted.is_applied:
                    raise
                noted = None  # Another broker was faster.
                continue
            if not noted.is_applied:
                noted.is_applied = True
                self._save(noted)
            self.broker_id = noted.broker_id
            return
        raise NameRefused("BROKER_ID_INVALID", f"{_MAX_ID_TRIES} ids of {self.name} were all given to others.")

    async def register(self) -> MasterView:
        """Say that this replica's process has started; the set, which has no master if that is dead."""
        all_ack = str(self._policy.all_in_set).lower()
        request = RegisterReplicaRequest(self.cluster, self.name, self.broker_id, self.address, all_ack=all_ack)
        return _view(await self._ask(RequestCode.REGISTER_REPLICA, request.encode()))

    async def find_master(self) -> MasterView:
        """The set as the controllers have it now."""
        return _view(await self._ask(RequestCode.GET_REPLICA_INFO, ReplicaSetQuery(self.name).encode()))

    async def find_replicas(self) -> list[str]:
        """`host:port` of the others of the set, the master first, and then of those that are not in it."""
        answer = await self._ask(RequestCode.GET_SYNC_STATE_DATA, {}, msgspec.json.encode([self.name]))
        found = decode_body(ReplicaSetInfoTable, answer.body).replicas_info_table.get(self.name)
        if found is None:
            return []
        others = [one for one in found.in_sync_replicas if one.broker_id != self.broker_id]
        others.sort(key=lambda one: one.broker_id != found.master_broker_id)
        others += [one for one in found.not_in_sync_replicas if one.broker_id != self.broker_id]
        return [one.broker_address for one in others if one.broker_address]

    async def elect(self, designated: int | None = None) -> MasterView:
        """Have a master elected where there is none, or that replica in place of the present one.

        Raises ELECT_MASTER_FAILED, MASTER_NOT_AVAILABLE.
        """
        request = ElectRequest(self.name, self.cluster, designated or self.broker_id, designated is not None)
        command = RemotingCommand(RequestCode.ELECT_MASTER, request.encode())
        answer = await self.lines.ask(command)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.MASTER_STILL_EXISTS):
            raise error_of(answer, "the controller")
        return _view(answer, knows_lease=True)

    async def alter(self, wanted: SetRequest) -> tuple[frozenset[int], int]:
        """Change the set as its master; members and epoch of the new one. Raises what the controller refuses."""
        request = AlterSetRequest(self.name, self.broker_id, wanted.epoch)
        body = encode_body(SyncStateSetBody(sorted(wanted.members), wanted.set_epoch))
        answer = await self._ask(RequestCode.ALTER_SYNC_STATE_SET, request.encode(), body)
        sync_state = decode_body(SyncStateSetBody, answer.body)
        return frozenset(sync_state.sync_state_set), sync_state.sync_state_set_epoch

    async def say_goodbye(self, heartbeat: BrokerHeartbeat) -> None:
        """Say that this replica stops; returns when the controllers have heard it, and elected another master."""
        await self.lines.tell_all(RemotingCommand(RequestCode.BROKER_HEARTBEAT, heartbeat.encode()), _GOODBYE_S)

    def _load(self) -> _Identity | None:
        text = self._document.load()
        if text is None:
            return None
        try:
            noted = msgspec.json.decode(text, type=_Identity)
        except msgspec.DecodeError as error:
            raise StoreError("STORE_FORMAT", f"{IDENTITY} cannot be read: {error}.") from None
        if noted.version != _VERSION:
            raise StoreError("STORE_FORMAT", f"{IDENTITY} is of version {noted.version}, not {_VERSION}.")
        return noted

    def _save(self, identity: _Identity) -> None:
        self._document.save(msgspec.json.encode(identity))

    async def _ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        answer = await self.lines.ask(RemotingCommand(code, ext, body))
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer, "the controller")
        return answer


def view_of_notice(command: RemotingCommand) -> MasterView:
    """What a controller says in a request of code 1008."""
    return _view(command, knows_lease=True)


def _view(command: RemotingCommand, *, knows_lease: bool = False) -> MasterView:
    fields = MasterFields.decode(command.ext)
    sync_state = decode_body(SyncStateSetBody, command.body) if command.body else SyncStateSetBody()
    lease_ms = fields.previous_lease_ms if knows_lease else None
    return MasterView(
        fields.master_id,
        fields.address,
        fields.master_epoch or 0,
        frozenset(sync_state.sync_state_set),
        fields.set_epoch or sync_state.sync_state_set_epoch,
        lease_ms,
    )
