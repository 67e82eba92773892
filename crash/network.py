"""A network of our own: nodes on one bridge, and cuts between any two of them, both ways or one way.

It lies in a network namespace that ends with the process in it, so nothing of the machine's own network is touched. A
cut is silent, as a black hole is: the packets go to a hardware address that nobody has, and no error tells of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

__all__ = ["HUB", "Network", "Node", "namespace_words"]

HUB: Final = "10.77.0.1"
"""The address of the process that makes the network; it is cut off from nobody."""

_PREFIX = "10.77.0."
_NOBODY = "02:00:00:00:de:ad"
_READY_S = 5.0


def namespace_words() -> list[str] | None:
    """What stands before a command that is to run where networks can be made, and small disks be mounted.

    None where the system lets us not.
    """
    unshare, ip, enter = (shutil.which(name) for name in ("unshare", "ip", "nsenter"))
    if unshare is None or ip is None or enter is None:
        return None
    words = [unshare, *([] if os.geteuid() == 0 else ["-r"]), "-n", "-m"]
    trial = "ip link add trial type bridge && ip link add one type veth peer name other"
    made = subprocess.run([*words, "sh", "-c", trial], capture_output=True, check=False)
    return words if made.returncode == 0 else None


@dataclass(frozen=True)
class Node:
    """One host of the network. `through` are the words before a command that is to run on it."""

    name: str
    address: str
    through: tuple[str, ...]


class Network:
    """Use it as a context manager, in a process that `namespace_words` started."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._holders: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        _ip("link set lo up")
        _ip("link add hub type bridge")
        _ip(f"addr add {HUB}/24 dev hub")
        _ip("link set hub up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for holder in self._holders:
            holder.kill()
            holder.communicate()

    def node(self, name: str) -> Node:
        """A new host."""
        # What holds its namespace ends with us, whichever way we end: its input ends then.
        holder = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE)
        self._holders.append(holder)
        _wait_for_namespace(holder.pid)
        number = len(self._nodes) + 2
        node = Node(name, f"{_PREFIX}{number}", ("nsenter", f"--net=/proc/{holder.pid}/ns/net"))
        _ip(f"link add v{number} type veth peer name wire netns {holder.pid}")
        _ip(f"link set v{number} master hub up")
        _ip("link set lo up", node)
        _ip(f"addr add {node.address}/24 dev wire", node)
        _ip("link set wire up", node)
        self._nodes.append(node)
        return node

    def cut(self, one: Node, other: Node, *, one_way: bool = False) -> None:
        """Nothing that `one` sends reaches `other` any more, and (but for `one_way`) the other way round."""
        _ip(f"neigh replace {other.address} lladdr {_NOBODY} nud permanent dev wire", one)
        if not one_way:
            self.cut(other, one, one_way=True)

    def heal(self, one: Node, other: Node) -> None:
        """Everything between the two arrives again."""
        for here, there in ((one, other), (other, one)):
            _ip(f"neigh del {there.address} dev wire", here, fails=True)


def _ip(words: str, node: Node | None = None, *, fails: bool = False) -> None:
    command = [*(node.through if node is not None else ()), "ip", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not fails:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _wait_for_namespace(pid: int) -> None:
    own, deadline_s = os.readlink("/proc/self/ns/net"), time.monotonic() + _READY_S
    while os.readlink(f"/proc/{pid}/ns/net") == own:
        if time.monotonic() > deadline_s:
            raise RuntimeError("a network namespace was not made in time")
        time.sleep(0.002)
