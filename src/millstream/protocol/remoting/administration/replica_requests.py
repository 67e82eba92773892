"""Requests among replicas, controllers and nameservers: codes 905 to 908, 1007 and 1008.

Source of the names: RocketMQ 5.3 (facts only). Code 1008 carries `MasterFields` and a `SyncStateSetBody`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from millstream.protocol.remoting.bodies import CamelBody
from millstream.protocol.remoting.fields import Request, number_field, text_field

__all__ = [
    "BrokerEpochs",
    "EpochEntry",
    "MasterHaInfo",
    "MasterOffsetReset",
    "MinBrokerIdChange",
    "ReplicaClientStatus",
    "ReplicaConnectionStatus",
    "ReplicationStatus",
]


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange(Request):
    """Code 905: another id is the smallest one that is registered. Only acting masters heed it."""

    name: str = text_field("brokerName")
    min_id: int = number_field("minBrokerId")
    min_address: str = text_field("minBrokerAddr", "")
    offline_address: str = text_field("offlineBrokerAddr", "")
    ha_address: str = text_field("haBrokerAddr", "")


@dataclass(frozen=True, slots=True)
class MasterHaInfo(Request):
    """Code 906, and what answers it: where a master replicates from. A blank master address asks."""

    ha_address: str = text_field("masterHaAddress", "")
    flush_offset: int = number_field("masterFlushOffset", 0)
    address: str = text_field("masterAddress", "")


@dataclass(frozen=True, slots=True)
class MasterOffsetReset(Request):
    """Code 908: how far the master's log is on the disk, a byte position."""

    flush_offset: int = number_field("masterFlushOffset")


class EpochEntry(CamelBody):
    """The part of a log that was written under one master epoch; byte positions, the end excluded."""

    epoch: int
    start_offset: int
    end_offset: int


class BrokerEpochs(CamelBody):
    """The body that answers code 1007. `broker_id` is that of the role: 0 at a master."""

    cluster_name: str
    broker_name: str
    broker_id: int
    epoch_list: list[EpochEntry] = msgspec.field(default_factory=list)
    max_offset: int = 0


class ReplicaConnectionStatus(CamelBody):
    """One replica as its master sees it. `diff` is in bytes; rates are bytes a second."""

    addr: str
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class ReplicaClientStatus(CamelBody):
    """A replica as it sees itself. Times are milliseconds since 1970, offsets byte positions."""

    master_addr: str = ""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    is_activated: bool = False


class ReplicationStatus(CamelBody):
    """The body that answers code 907; the half that is not the broker's role is empty."""

    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[ReplicaConnectionStatus] = msgspec.field(default_factory=list)
    ha_client_runtime_info: ReplicaClientStatus = msgspec.field(default_factory=ReplicaClientStatus)
