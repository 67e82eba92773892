"""Sets, heartbeats and a controller that is alone, for tests of the controller."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from millstream.controller.controller import Controller, ControllerOptions
from millstream.controller.elections import Elections
from millstream.controller.liveness import Liveness
from millstream.controller.replica_sets import Replica, ReplicaSet, ReplicaSets
from millstream.controller.replicated_log import ControllerPeer, SingleMemberLog
from millstream.model.clock import ManualClock
from millstream.protocol.remoting.administration.controller_requests import (
    DEFAULT_PRIORITY,
    ApplyIdRequest,
    BrokerHeartbeat,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.command import RemotingCommand

NAME = "broker-a"
ME = ControllerPeer("n0", "127.0.0.1:9877")


def replica_set(*ids: int, **changes: Any) -> ReplicaSet:
    """A set of these replicas; without changes it never had a master."""
    replicas = {number: Replica(f"h{number}:10911", f"h{number}:10911;{number}") for number in ids}
    return replace(ReplicaSet("c", NAME, replicas, max(ids) + 1), **changes)


def led_set(*ids: int, master: int = 1, members: tuple[int, ...] | None = None, **changes: Any) -> ReplicaSet:
    """One that has a master, in its third epoch."""
    members = ids if members is None else members
    return replica_set(*ids, master=master, master_epoch=3, members=members, set_epoch=7, revision=20, **changes)


def heartbeat(number: int, **changes: Any) -> BrokerHeartbeat:
    told: dict[str, Any] = {"epoch": 3, "max_offset": 1000, "priority": DEFAULT_PRIORITY, **changes}
    return BrokerHeartbeat("c", f"h{number}:10911", NAME, number, **told)


def with_replica(found: ReplicaSet, number: int, **changes: Any) -> ReplicaSet:
    """The set with another value of one replica."""
    return replace(found, replicas={**found.replicas, number: replace(found.replicas[number], **changes)})


@dataclass
class LoneController:
    """A controller with a clock of its own; what it sends is kept, and brokers are there unless they are `closed`."""

    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(peers=(ME,)))
    clock: ManualClock = field(default_factory=ManualClock)
    sent: list[tuple[str, RemotingCommand]] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sets = ReplicaSets()
        self.log = SingleMemberLog(self.sets, ME)
        self.controller = Controller(
            self.sets,
            self.log,
            self.options,
            self.clock,
            notify=lambda address, command: self.sent.append((address, command)),
            reach=self._reach,
        )

    async def _reach(self, address: str) -> bool:
        return address not in self.closed

    async def add(self, number: int, *, name: str = NAME, **register: Any) -> None:
        """A replica takes its id, registers and is heard."""
        address = f"h{number}:10911"
        await self.controller.apply_id(ApplyIdRequest("c", name, number, f"{address};{number}"))
        await self.controller.register(RegisterReplicaRequest("c", name, number, address, **register))
        await self.beat(number, name=name)

    async def beat(self, number: int, *, name: str = NAME, **changes: Any) -> int:
        """The milliseconds of the lease that it renews."""
        told = dataclasses.replace(heartbeat(number, **changes), name=name)
        return await self.controller.renew_lease(told) if self.controller.beat(told) else 0


def elections_at(*heard: int, silence_s: float = 2.0, **options: Any) -> tuple[Elections, Liveness]:
    """Elections at a controller that has led for long and has just heard these replicas, at second 100."""
    liveness = Liveness(silence_s)
    for number in heard:
        liveness.note(heartbeat(number), 100.0)
    return Elections(liveness, **options), liveness
