"""A broker of three replicas, three controllers, a nameserver and a proxy, each on a node of a network of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from crash.network import Network
from crash.network_cluster import BROKER_PORT, NetworkCluster
from millstream.client.blocking import BlockingConnection
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.administration.controller_requests import ControllerMetadata
from millstream.protocol.remoting.administration.sync_state_sets import ReplicaSetInfoTable
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.signature import Credentials

__all__ = [
    "CONTROLLERS",
    "LEASE_S",
    "NAMESERVER",
    "PROXY",
    "REPLICAS",
    "SET_NAME",
    "ReplicaCluster",
    "SetView",
    "wait_until",
]

REPLICAS: Final = ("r1", "r2", "r3")
CONTROLLERS: Final = ("c1", "c2", "c3")
NAMESERVER: Final = "ns"
PROXY: Final = "proxy"
SET_NAME: Final = "broker-a"

LEASE_S: Final = 3.0
"""For how long an answered heartbeat lets a master answer what the set does not protect."""

_CONTROLLER_PORT = 9878
_ANSWER_S = 2.0
_LOOK_S = 0.01


class SetView(msgspec.Struct, frozen=True):
    """What the leader of the controllers says of the set; replicas by the names of their processes."""

    master: str | None
    epoch: int
    members: frozenset[str]


class ReplicaCluster(NetworkCluster):
    """`settings` are further ones of each replica, `credentials` those of this programme. Use `start` once."""

    def __init__(
        self,
        network: Network,
        directory: Path,
        running: ExitStack,
        *,
        settings: Sequence[str] = (),
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(network, directory, running)
        self._settings = tuple(word for text in settings for word in ("--set", text))
        self._credentials = credentials

    def start(self, replicas: Sequence[str] = REPLICAS, *, with_proxy: bool = True) -> str:
        """Start all; where gRPC clients reach the proxy, an empty text without one."""
        self.nameserver(NAMESERVER)
        for name in CONTROLLERS:
            self.node(name)
        for name in CONTROLLERS:
            self._start_controller(name)
        for name in replicas:
            self.start_replica(name)
        return self.proxy(PROXY) if with_proxy else ""

    def start_replica(self, name: str, inside: tuple[str, ...] = ()) -> None:
        """Start a replica; `inside` are words before its command."""
        controllers = msgspec.json.encode([self._controller(one) for one in CONTROLLERS]).decode()
        options = ("--name", SET_NAME, "--port", str(BROKER_PORT), "--nameservers", self.nameservers)
        words = ("--set", f"controllers={controllers}", *self._settings)
        self._start("broker", name, *options, *words, inside=inside)

    def replica_address(self, name: str) -> str:
        """`host:port` of a replica."""
        return f"{self.nodes[name].address}:{BROKER_PORT}"

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        os.kill(self.processes[name].pid, number)

    def ask(self, address: str, command: RemotingCommand, timeout_s: float = _ANSWER_S) -> RemotingCommand:
        """The answer to one request over a connection of its own. Raises Unreachable, TimedOut."""
        connection = BlockingConnection(address, timeout_s=timeout_s, credentials=self._credentials)
        try:
            return connection.request(command, timeout_s)
        finally:
            connection.close()

    def leader(self) -> str | None:
        """The name of the controller that leads, as far as one of them says."""
        for name in CONTROLLERS:
            try:
                answer = self.ask(self._controller(name), RemotingCommand(RequestCode.GET_CONTROLLER_METADATA, {}))
            except MillstreamError:
                continue
            if ControllerMetadata.decode(answer.ext).is_leader == "true":
                return name
        return None

    def view(self) -> SetView | None:
        """What the leader says of the set; None while nobody leads."""
        body = msgspec.json.encode([SET_NAME])
        for name in CONTROLLERS:
            try:
                command = RemotingCommand(RequestCode.GET_SYNC_STATE_DATA, {}, body)
                answer = self.ask(self._controller(name), command)
            except MillstreamError:
                continue
            if answer.code == 0:
                return self._read_view(answer.body)
        return None

    def master(self) -> str:
        """The master's name; waits for one. Raises AssertionError where there is none in time."""
        found: list[str] = []

        def is_there() -> bool:
            view = self.view()
            if view is not None and view.master is not None:
                found.append(view.master)
            return bool(found)

        if not wait_until(is_there, 20.0):
            raise AssertionError("no master for 20 s")
        return found[-1]

    def await_members(self, members: Collection[str], timeout_s: float) -> float:
        """Seconds until the set is that one, with a master; infinite if not in time."""
        began_s = time.monotonic()

        def is_so() -> bool:
            view = self.view()
            return view is not None and view.master is not None and view.members == frozenset(members)

        return time.monotonic() - began_s if wait_until(is_so, timeout_s) else float("inf")

    def _start_controller(self, name: str) -> None:
        peers = [f"{one}-{self._controller(one)}" for one in CONTROLLERS]
        words = (f"controller.id={name}", f"controller.peers={msgspec.json.encode(peers).decode()}")
        options = [word for text in words for word in ("--set", text)]
        self._start("controller", name, "--port", str(_CONTROLLER_PORT), *options)

    def _controller(self, name: str) -> str:
        return f"{self.nodes[name].address}:{_CONTROLLER_PORT}"

    def _read_view(self, body: bytes) -> SetView | None:
        found = msgspec.json.decode(body, type=ReplicaSetInfoTable).replicas_info_table.get(SET_NAME)
        if found is None:
            return None
        names = {self.replica_address(name): name for name in REPLICAS if name in self.nodes}
        members = frozenset(names.get(one.broker_address, one.broker_address) for one in found.in_sync_replicas)
        return SetView(names.get(found.master_address or ""), found.master_epoch, members)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it became true in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_LOOK_S)
    return True
