"""Replica sets as commands collect and print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from millstream.cli.options import check_nameserver
from millstream.cli.printer import Value
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import BrokerStatus
from millstream.client.operations import parse_addresses
from millstream.client.replica_operations import ControllerStatus, ReplicaOperations, ReplicaState, SetStatus

__all__ = [
    "IN_SET",
    "ControllerOption",
    "SetsLook",
    "controller_rows",
    "look_at_sets",
    "member_count",
    "replica_rows",
]

IN_SET: Final = "in the set"
"""The state of a replica that is as it should be."""

ControllerOption = Annotated[
    str | None,
    Parameter(
        name="--controllers",
        env_var="MILLSTREAM_CONTROLLERS",
        help="host:port of controllers, separated by ;. Default: those that the brokers name.",
        validator=check_nameserver,
    ),
]
"""For commands that look at replicas: needed only while no broker with replicas answers."""


@dataclass(frozen=True, slots=True)
class SetsLook:
    """One look: the sets by name, and the controllers by address. Both are empty where no broker has replicas."""

    sets: list[SetStatus]
    controllers: list[ControllerStatus]

    def of(self, name: str) -> SetStatus | None:
        """The set of that broker; None where it has no replicas."""
        return next((one for one in self.sets if one.name == name), None)


def look_at_sets(client: BlockingClient, looks: Sequence[BrokerStatus], named: str | None) -> SetsLook:
    """What the masters among `looks` say about their sets, and the controllers that are `named` or that they name."""
    addresses = set(parse_addresses(named)) if named else set()
    for look in looks:
        if look.report is not None and look.report.replica_set is not None:
            addresses.update(look.report.replica_set.controllers)
    operations = ReplicaOperations(client.conversations)
    controllers = client.run(operations.controllers(addresses))
    return SetsLook(client.run(operations.sets(looks, controllers)), controllers)


def member_count(found: SetStatus | None) -> str | None:
    """`2 of 3`: how many replicas have everything, of how many; None without replicas."""
    return None if found is None else f"{len(found.members)} of {len(found.replicas)}"


def _state_of(replica: ReplicaState) -> str:
    """One or two words for how a replica is."""
    if replica.is_alive is False:
        return "dead"
    if not replica.in_set:
        return "not in the set"
    if replica.damaged_bytes:
        return "damaged"
    return IN_SET if replica.behind_bytes is not None else "not connected"


def replica_rows(found: SetStatus) -> list[dict[str, Value]]:
    """A row for each replica that is not the master."""
    return [
        {
            "cluster": found.cluster,
            "broker": found.name,
            "replica": one.broker_id,
            "address": one.address,
            "epoch": found.epoch,
            "state": _state_of(one),
            "behind_bytes": one.behind_bytes,
        }
        for one in found.replicas
        if not one.is_master
    ]


def controller_rows(look: SetsLook) -> list[dict[str, Value]]:
    """A row for each controller."""
    return [
        {
            "address": one.address,
            "role": "controller (leader)" if one.leader == one.address else "controller",
            "state": "serving" if one.failure is None else "unreachable",
        }
        for one in look.controllers
    ]
