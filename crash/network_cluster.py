"""Nameservers, brokers and proxies, each on a node of a network of its own. The programme itself is on the hub."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from crash.network import Network, Node
from millstream.server.child import RoleProcess

__all__ = ["NetworkCluster"]

NAMESERVER_PORT: Final = 9876
BROKER_PORT: Final = 10911
GRPC_PORT: Final = 8081


class _Command(NamedTuple):
    """How a process is started."""

    role: str
    options: tuple[str, ...]
    through: tuple[str, ...]


class NetworkCluster:
    """Each process has a folder and a log of its name in `directory`. All end with `running`."""

    def __init__(self, network: Network, directory: Path, running: ExitStack) -> None:
        self._network = network
        self.directory = directory
        self._running = running
        self.nodes: dict[str, Node] = {}
        self.processes: dict[str, RoleProcess] = {}
        """The last process of each name."""
        self._commands: dict[str, _Command] = {}
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

    def restart(self, name: str) -> None:
        """Start again, over its folder, what was stopped or killed."""
        self._run(name)

    def _start(self, role: str, name: str, *options: str, inside: tuple[str, ...] = ()) -> dict[str, str]:
        """`inside` are words before the command on its node; they must become the process."""
        node = self.nodes.get(name) or self.node(name)
        self._commands[name] = _Command(role, ("--host", node.address, *options), (*node.through, *inside))
        return self._run(name).addresses

    def node(self, name: str) -> Node:
        """The node of a process, which need not run yet."""
        node = self.nodes[name] = self._network.node(name)
        return node

    def _run(self, name: str) -> RoleProcess:
        role, options, through = self._commands[name]
        log = self.directory / f"{name}.log"
        process = RoleProcess(role, self.directory / name, options=options, log=log, through=through)
        self.processes[name] = self._running.enter_context(process)
        return process
