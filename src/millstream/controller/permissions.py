"""The permissions that each request code of a controller needs, as in RocketMQ's access control 2.0."""

from __future__ import annotations

from typing import Final

from millstream.protocol.remoting.codes import RequestCode
from millstream.security.policy import Action
from millstream.security.resource import ResourceKind
from millstream.transport.gate import Needs, everything

__all__ = ["CONTROLLER_NEEDS"]

_READ: Final = everything(ResourceKind.CLUSTER, Action.GET)
_CHANGE: Final = everything(ResourceKind.CLUSTER, Action.UPDATE)

CONTROLLER_NEEDS: Final[dict[int, Needs]] = {
    RequestCode.BROKER_HEARTBEAT: _CHANGE,
    RequestCode.ALTER_SYNC_STATE_SET: _CHANGE,
    RequestCode.ELECT_MASTER: _CHANGE,
    RequestCode.REGISTER_REPLICA: _CHANGE,
    RequestCode.GET_REPLICA_INFO: _READ,
    RequestCode.GET_CONTROLLER_METADATA: _READ,
    RequestCode.GET_SYNC_STATE_DATA: _READ,
    RequestCode.CLEAN_BROKER_DATA: _CHANGE,
    RequestCode.GET_NEXT_BROKER_ID: _READ,
    RequestCode.APPLY_BROKER_ID: _CHANGE,
}
"""Request code -> what it needs. Settings, and what controllers tell each other, are for super users."""
