"""Asks every replica of a set for the lock of one queue, all the time: two of them must never give it at a time."""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

import msgspec

from crash.direct_load import DIRECT_TOPIC
from crash.replica_cluster import REPLICAS, SET_NAME, ReplicaCluster
from millstream.client.blocking import BlockingConnection
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["LockGrant", "LockWatch", "find_overlap_s"]

_GROUP: Final = "crash-lock-watch"
_PAUSE_S = 0.02
_TIMEOUT_S = 0.5


class LockGrant(NamedTuple):
    """A lock that a replica gave: between when it was asked for and when the answer came."""

    replica: str
    asked_s: float
    answered_s: float


class LockWatch:
    """One thread for each replica, from the start to `stop`. Each is a client of its own; a lock is a broker's own."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.grants: list[LockGrant] = []
        self._cluster = cluster
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=[name]) for name in REPLICAS]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, name: str) -> None:
        connection: BlockingConnection | None = None
        while not self._stopping.wait(_PAUSE_S):
            try:
                if connection is None or not connection.is_open:
                    connection = BlockingConnection(self._cluster.replica_address(name), timeout_s=_TIMEOUT_S)
                asked_s = time.monotonic()
                answer = connection.request(_lock_request(name), _TIMEOUT_S)
            except MillstreamError:
                connection = None
                continue
            if answer.code == 0 and msgspec.json.decode(answer.body)["lockOKMQSet"]:
                self.grants.append(LockGrant(name, asked_s, time.monotonic()))


def _lock_request(client_id: str) -> RemotingCommand:
    queue = {"topic": DIRECT_TOPIC, "brokerName": SET_NAME, "queueId": 0}
    body = {"consumerGroup": _GROUP, "clientId": client_id, "mqSet": [queue]}
    return RemotingCommand(RequestCode.LOCK_BATCH_MQ, {}, msgspec.json.encode(body))


def find_overlap_s(grants: list[LockGrant], old: str) -> float:
    """For how long the old master surely gave locks after another one had; 0 if it did not."""
    others = [grant.answered_s for grant in grants if grant.replica != old]
    own = [grant.asked_s for grant in grants if grant.replica == old]
    return max(0.0, max(own) - min(others)) if own and others else 0.0
