"""The permissions that request codes of a replicated broker need, besides those of every broker."""

from __future__ import annotations

from typing import Final

from millstream.broker.remoting.permissions import BROKER_NEEDS
from millstream.protocol.remoting.codes import RequestCode
from millstream.security.policy import Action
from millstream.security.resource import ResourceKind
from millstream.transport.gate import Needs, everything

__all__ = ["REPLICA_NEEDS"]

_CHANGE: Final = everything(ResourceKind.CLUSTER, Action.UPDATE)

REPLICA_NEEDS: Final[dict[int, Needs]] = {
    **BROKER_NEEDS,
    RequestCode.FETCH_LOG: _CHANGE,
    RequestCode.FETCH_RANGE: _CHANGE,
    RequestCode.FETCH_SEED: _CHANGE,
    RequestCode.FETCH_SEED_FILE: _CHANGE,
    RequestCode.HAND_OVER: _CHANGE,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: _CHANGE,
    RequestCode.GET_BROKER_EPOCH_CACHE: everything(ResourceKind.CLUSTER, Action.GET),
}
"""Request code -> what it needs. Who may fetch the log reads all messages: replicas sign as a super user."""
