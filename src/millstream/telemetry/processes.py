"""Processes of this machine: memory, CPU time, descriptors and ports, from Linux's /proc."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "MAX_DESCRIPTORS",
    "ProcessSample",
    "ProcessTree",
    "TreeRecorder",
    "descriptor_limit",
    "descriptors_in_use",
    "owner_of",
    "owners_of",
    "raise_descriptor_limit",
]


MAX_DESCRIPTORS: Final = 1_048_576
"""Descriptors that a process asks for at most, also where the system sets no limit."""


def descriptor_limit() -> int:
    """How many descriptors this process may have open, by its soft limit."""
    return _cap_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one, which needs no permission; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _cap_limit(hard)
    if _cap_limit(soft) < wanted:
        # Some systems name a hard limit that they do not grant: then the soft one stays.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def descriptors_in_use() -> int | None:
    """How many descriptors this process has open, where /proc shows it."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # One is the listing's own.
    except OSError:
        return None


def _cap_limit(limit: int) -> int:
    return MAX_DESCRIPTORS if limit == resource.RLIM_INFINITY else min(limit, MAX_DESCRIPTORS)


_NET_TABLES: Final = Path("/proc")
_LISTENING: Final = "0A"


def owner_of(host: str, port: int) -> int | None:
    """The id of the process; None where the address is another machine's, nobody listens or nobody may look."""
    return next(_owners(host, port), None)


def owners_of(host: str, port: int) -> list[int]:
    """The same of all processes that share the port, lowest id first."""
    return sorted(_owners(host, port))


def _owners(host: str, port: int) -> Iterator[int]:
    inodes = set(_listening_inodes(port)) if _is_local(host) else set()
    for entry in _NET_TABLES.iterdir() if inodes else ():
        if entry.name.isdecimal() and any(inode in inodes for inode in _sockets_of(entry)):
            yield int(entry.name)


def _is_local(host: str) -> bool:
    """Whether an address of this machine: only those can be bound."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _listening_inodes(port: int) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (_NET_TABLES / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{words[9]}]"


def _sockets_of(process: Path) -> Iterator[str]:
    try:
        names = os.listdir(process / "fd")
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(process / "fd" / name)
        except OSError:
            continue


_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_SAMPLE_INTERVAL_S = 0.5
_ENDED = "Z"
"""The state of a process that nobody has waited for yet: it has no memory and no name any more."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process at one moment; `kind` is server, java or python."""

    pid: int
    kind: str
    memory_bytes: int
    cpu_s: float


class ProcessTree:
    """The processes below `roots`, the roots included."""

    def __init__(self, roots: Iterable[int]) -> None:
        self._roots = tuple(roots)

    def sample(self) -> list[ProcessSample] | None:
        """One sample per living process; None where the system has no /proc.

        The kernel walks all pages of each process for its memory: some 90 ms for a Spark session and its workers.
        """
        cpu_s = self.cpu_s()
        if cpu_s is None:
            return None
        every = ((pid, kind, _memory_bytes(pid), seconds) for (pid, kind), seconds in cpu_s.items())
        return [ProcessSample(pid, kind, memory, seconds) for pid, kind, memory, seconds in every if memory is not None]

    def cpu_s(self) -> dict[tuple[int, str], float] | None:
        """Processor seconds of each living process by its number and kind; None where the system has no /proc."""
        if not (_PROC / "self" / "stat").exists():
            return None
        children: dict[int, list[int]] = {}
        cpu_s: dict[int, float] = {}
        for entry in _PROC.iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if words[0] == _ENDED:
                    continue
                children.setdefault(int(words[1]), []).append(int(entry.name))
                cpu_s[int(entry.name)] = (int(words[11]) + int(words[12])) / _TICKS_PER_S
        found, waiting = dict[int, float](), list(self._roots)
        while waiting:
            pid = waiting.pop()
            if pid not in found and pid in cpu_s:
                found[pid] = cpu_s[pid]
                waiting.extend(children.get(pid, ()))
        return {(pid, _kind(pid)): seconds for pid, seconds in found.items()}


def _memory_bytes(pid: int) -> int | None:
    try:
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return None


def _kind(pid: int) -> str:
    try:
        command = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "python"
    if b"quickstart" in command:
        return "server"
    return "java" if os.path.basename(command[0]) == b"java" else "python"


class TreeRecorder:
    """Watches a process tree from a thread: the peak memory of the sum and per kind, and processor time so far.

    Without `memory` its peaks stay unknown, and watching takes next to none of the time that is measured.
    """

    def __init__(self, roots: Iterable[int], *, memory: bool = True) -> None:
        self._tree = ProcessTree(roots)
        self._memory = memory
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._cpu_s: dict[tuple[int, str], float] = {}
        self.peak_bytes: int | None = None
        self.peak_bytes_by_kind: dict[str, int] = {}

    def __enter__(self) -> TreeRecorder:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.take()

    def cpu_s(self, kind: str | None = None) -> float:
        """Processor seconds of the processes seen so far, all or of one kind; ended ones up to their last sample."""
        return sum(seconds for (_, of_kind), seconds in self._cpu_s.items() if kind in (None, of_kind))

    def take(self) -> None:
        """Take one sample now."""
        if not self._memory:
            self._cpu_s |= self._tree.cpu_s() or {}
            return
        samples = self._tree.sample()
        if samples is None:
            return
        by_kind: dict[str, int] = {}
        for sample in samples:
            by_kind[sample.kind] = by_kind.get(sample.kind, 0) + sample.memory_bytes
            self._cpu_s[sample.pid, sample.kind] = sample.cpu_s
        self.peak_bytes = max(self.peak_bytes or 0, sum(by_kind.values()))
        for kind, memory_bytes in by_kind.items():
            self.peak_bytes_by_kind[kind] = max(self.peak_bytes_by_kind.get(kind, 0), memory_bytes)

    def _run(self) -> None:
        while not self._stopped.wait(_SAMPLE_INTERVAL_S):
            self.take()
