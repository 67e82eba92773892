"""Bodies about sync state sets: the replicas that hold all that a master acknowledged.

Source of the names: RocketMQ 5.3's SyncStateSet, ElectMasterResponseBody and BrokerReplicasInfo (facts only).
"""

from __future__ import annotations

import msgspec

from millstream.model.errors import MessageRefused
from millstream.protocol.remoting.bodies import BrokerMemberGroup, CamelBody
from millstream.protocol.remoting.java_formats import read_fastjson

__all__ = [
    "ElectedMasterBody",
    "InSyncReplica",
    "ReplicaSetInfo",
    "ReplicaSetInfoTable",
    "SyncStateSetBody",
    "decode_broker_names",
]


class SyncStateSetBody(CamelBody):
    """A set of controller ids and its epoch: with code 1001 the set that is wanted and the epoch that the master has,
    in answers and with code 1008 those that hold."""

    sync_state_set: list[int] = msgspec.field(default_factory=list)
    sync_state_set_epoch: int = 0


class ElectedMasterBody(CamelBody, omit_defaults=True):
    """The body that answers code 1002."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[int] | None = None


class InSyncReplica(CamelBody):
    """One replica of a set."""

    broker_name: str
    broker_id: int
    broker_address: str
    alive: bool


class ReplicaSetInfo(CamelBody):
    """One broker name. Without a master its id and address are None."""

    master_broker_id: int | None
    master_address: str | None
    master_epoch: int
    sync_state_set_epoch: int
    in_sync_replicas: list[InSyncReplica] = msgspec.field(default_factory=list)
    not_in_sync_replicas: list[InSyncReplica] = msgspec.field(default_factory=list)


class ReplicaSetInfoTable(CamelBody):
    """The body that answers code 1006, by broker name."""

    replicas_info_table: dict[str, ReplicaSetInfo] = msgspec.field(default_factory=dict)


def decode_broker_names(body: bytes) -> list[str]:
    """The names that code 1006 asks for: a JSON list. MESSAGE_MALFORMED."""
    try:
        return msgspec.convert(read_fastjson(body), list[str])
    except (ValueError, RecursionError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"The list of broker names cannot be read: {error}.") from None
