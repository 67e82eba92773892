"""Memory and processor time of a process and all that it started, read from Linux's /proc.

Memory is the proportional set size (PSS): pages that processes share are counted once in a sum. On a system without
/proc every figure is None, which means unknown.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessSample", "ProcessTree", "TreeRecorder"]

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
