"""Requests to a controller: codes 901, 904, 1001 to 1006 and 1011 to 1013, and the fields of their responses.

Source of the names: RocketMQ 5.3 (facts only). Fields that say "ours" are unknown to its brokers, which leave them out
and pass them over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.protocol.remoting.fields import (
    Request,
    choice_field,
    flag_field,
    list_field,
    number_field,
    optional_number_field,
    text_field,
)

__all__ = [
    "BY_CONTROLLER",
    "DEFAULT_PRIORITY",
    "AlterSetRequest",
    "ApplyIdRequest",
    "BrokerHeartbeat",
    "CleanBrokerRequest",
    "ControllerMetadata",
    "ElectRequest",
    "MasterFields",
    "MemberGroupQuery",
    "NextIdAnswer",
    "NextIdQuery",
    "RaftEnvelope",
    "RegisterReplicaRequest",
    "ReplicaSetQuery",
]

BY_CONTROLLER: Final = -1
"""The broker id of an election that no broker asked for."""

DEFAULT_PRIORITY: Final = 2**31 - 1
"""The election priority of a broker that names none; a lower one wins."""


@dataclass(frozen=True, slots=True)
class MemberGroupQuery(Request):
    """Code 901: the addresses of all replicas of one broker name."""

    cluster: str = text_field("clusterName")
    name: str = text_field("brokerName")


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(Request):
    """Code 904: a replica lives, and how far its log goes. Offsets are bytes of the log."""

    cluster: str = text_field("clusterName")
    address: str = text_field("brokerAddr")
    name: str = text_field("brokerName")
    broker_id: int = number_field("brokerId", BY_CONTROLLER)
    epoch: int = number_field("epoch", 0)
    """Of the last entry of the replica's log."""
    max_offset: int = number_field("maxOffset", 0)
    confirm_offset: int = number_field("confirmOffset", 0)
    timeout_ms: int = number_field("heartbeatTimeoutMills", 0)
    """Silence after which the replica counts as dead; 0 leaves that to the controller."""
    priority: int = number_field("electionPriority", DEFAULT_PRIORITY)
    is_goodbye: bool = flag_field("goodbye")
    """Ours: the broker stops. It counts as dead at once, and its lease as ended."""
    is_damaged: bool = flag_field("damaged")
    """Ours: the replica's log lacks bytes that it fetches from others; it is elected where no other one can be."""


@dataclass(frozen=True, slots=True)
class AlterSetRequest(Request):
    """Code 1001, beside the body: the master wants another sync state set."""

    name: str = text_field("brokerName")
    master_id: int = number_field("masterBrokerId")
    master_epoch: int = number_field("masterEpoch")


@dataclass(frozen=True, slots=True)
class ElectRequest(Request):
    """Code 1002. Where it is not designated, the broker asks for some master, and the best one is chosen."""

    name: str = text_field("brokerName")
    cluster: str = text_field("clusterName", "")
    broker_id: int = number_field("brokerId", BY_CONTROLLER)
    is_designated: bool = flag_field("designateElect")


@dataclass(frozen=True, slots=True)
class RegisterReplicaRequest(Request):
    """Code 1003: a replica tells its address."""

    cluster: str = text_field("clusterName")
    name: str = text_field("brokerName")
    broker_id: int = number_field("brokerId")
    address: str = text_field("brokerAddress")
    is_learner: bool = flag_field("asyncLearner")
    """Ours: the replica copies the log and is never a member of the set."""
    all_ack: str = text_field("allAckInSyncStateSet", "")
    """Ours: `true` where its acknowledgements wait for every member of the set; blank where the broker has no lease."""


@dataclass(frozen=True, slots=True)
class ReplicaSetQuery(Request):
    """Code 1004."""

    name: str = text_field("brokerName")


@dataclass(frozen=True, slots=True)
class CleanBrokerRequest(Request):
    """Code 1011: forget replicas of a broker name, or all of them."""

    name: str = text_field("brokerName")
    cluster: str = text_field("clusterName", "")
    ids: tuple[str, ...] = list_field("brokerControllerIdsToClean", ";")
    """As texts; none means all."""
    includes_living: bool = flag_field("isCleanLivingBroker")


@dataclass(frozen=True, slots=True)
class NextIdQuery(Request):
    """Code 1012: which id a new replica may ask for."""

    cluster: str = text_field("clusterName")
    name: str = text_field("brokerName")


@dataclass(frozen=True, slots=True)
class NextIdAnswer(Request):
    """The fields that answer it."""

    cluster: str = text_field("clusterName")
    name: str = text_field("brokerName")
    next_id: int = number_field("nextBrokerId")


@dataclass(frozen=True, slots=True)
class ApplyIdRequest(Request):
    """Code 1013: a new replica takes an id. The check code, `address;milliseconds`, tells a repetition from another
    broker's wish."""

    cluster: str = text_field("clusterName")
    name: str = text_field("brokerName")
    broker_id: int = number_field("appliedBrokerId")
    check_code: str = text_field("registerCheckCode")


@dataclass(frozen=True, slots=True)
class MasterFields(Request):
    """Who is the master: in the answers to 1002, 1003 and 1004, and in what replicas are told by 1008."""

    master_id: int | None = optional_number_field("masterBrokerId")
    address: str | None = choice_field("masterAddress")
    master_epoch: int | None = optional_number_field("masterEpoch")
    set_epoch: int | None = optional_number_field("syncStateSetEpoch")
    previous_lease_ms: int = number_field("previousLeaseMs", 0)
    """Ours: how long the former master may still hold its lease; what two masters must never do at a time waits."""


@dataclass(frozen=True, slots=True)
class ControllerMetadata(Request):
    """The fields that answer code 1005. `peers` is `id:host:port` for each controller, separated by `;`."""

    group: str = text_field("group", "")
    leader_id: str | None = choice_field("controllerLeaderId")
    leader_address: str | None = choice_field("controllerLeaderAddress")
    is_leader: str = text_field("isLeader", "")
    """`true` or `false`, as text in both cases."""
    peers: str = text_field("peers", "")


@dataclass(frozen=True, slots=True)
class RaftEnvelope(Request):
    """Code 9110, ours: from which controller of which group to which one the message in the body goes."""

    group: str = text_field("group")
    sender: str = text_field("from")
    receiver: str = text_field("to")
