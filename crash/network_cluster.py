"""Nameservers, brokers and proxies, each on a node of a network of its own. The programme itself is on the hub."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from crash.network import Network, Node
from millstream.server.child import RoleProcess

__all__ = ["NetworkCluster"]

NAMESERVER_PORT: Final = 9876
BROKER_PORT: Final = 10911
GRPC_PORT: Final = 8081


class NetworkCluster:
    """Each process has a folder and a log of its name in `directory`. All end with `running`."""

    def __init__(self, network: Network, directory: Path, running: ExitStack) -> None:
        self._network = network
        self._directory = directory
        self._running = running
        self.nodes: dict[str, Node] = {}
        self._nameservers: list[str] = []

    @property
    def nameservers(self) -> str:
        """Where all of them are."""
        return ";".join(self._nameservers)

    def nameserver(self, name: str) -> str:
        """Start one; where it is."""
        address = self._start("nameserver", name, "--port", str(NAMESERVER_PORT))["nameserver"]
        self._nameservers.append(address)
        return address

    def broker(self, name: str) -> None:
        """Start one."""
        self._start("broker", name, "--name", name, "--port", str(BROKER_PORT), "--nameservers", self.nameservers)

    def proxy(self, name: str) -> str:
        """Start one; where gRPC clients reach it."""
        ports = ("--grpc-port", str(GRPC_PORT), "--remoting-port", "-1")
        return self._start("proxy", name, *ports, "--nameservers", self.nameservers)["grpc"]

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """See `Network.cut`, by the names of processes."""
        self._network.cut(self.nodes[one], self.nodes[other], one_way=one_way)

    def heal(self, one: str, other: str) -> None:
        """See `Network.heal`."""
        self._network.heal(self.nodes[one], self.nodes[other])

    def _start(self, role: str, name: str, *options: str) -> dict[str, str]:
        node = self.nodes[name] = self._network.node(name)
        process = RoleProcess(
            role,
            self._directory / name,
            options=("--host", node.address, *options),
            log=self._directory / f"{name}.log",
            through=node.through,
        )
        return self._running.enter_context(process).addresses
