"""The spool for malformed messages: workers leave them in a directory, the driver takes them at the batch's end.

A file is named by the rows that were read, so that a second read of the same rows (a retry, a second scan of the
topic in one batch, a replay) writes the same file again instead of one more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millstream.streams.spark.source.partition import Slice

__all__ = ["MalformedMessage", "Spool", "SpoolWriter", "write_spool"]

_PER_FILE = 1_000
"""Malformed messages that a worker keeps in memory at most."""

_SUFFIX = ".malformed"


@dataclass(frozen=True, slots=True)
class MalformedMessage:
    """A message that is no row of its table: where it lies, why, and its body (blank if only counted).

    A row that a user's function refused has a blank `queue`; its body is the row as JSON.
    """

    queue: str
    queue_offset: int
    reason: str
    body: bytes
    only_counted: bool = False


class SpoolWriter:
    """Writes the malformed messages of one slice, in files of at most 1,000."""

    def __init__(self, directory: str, part: Slice, *, keep_bodies: bool) -> None:
        self._directory = Path(directory)
        self._part = part
        self._keep_bodies = keep_bodies
        self._waiting: list[MalformedMessage] = []
        self._files = 0

    def add(self, queue_offset: int, reason: str, body: bytes | memoryview) -> None:
        """Keep one message."""
        kept = bytes(body) if self._keep_bodies else b""
        self._waiting.append(MalformedMessage(self._part.queue, queue_offset, reason, kept))
        if len(self._waiting) >= _PER_FILE:
            self.flush()

    def flush(self) -> None:
        """Write what waits; to be called at the slice's end."""
        if not self._waiting:
            return
        queue = self._part.queue.replace("/", "_")
        write_spool(self._directory, f"{queue}-{self._part.start}-{self._part.end}-{self._files}", self._waiting)
        self._files += 1
        self._waiting = []


def write_spool(directory: str | Path, name: str, messages: Sequence[MalformedMessage]) -> None:
    """Leave messages in a file of that name; one that is there already is replaced."""
    spool = Path(directory)
    spool.mkdir(parents=True, exist_ok=True)
    unfinished = spool / f".{name}{_SUFFIX}.{os.getpid()}"
    unfinished.write_bytes(msgspec.msgpack.encode(messages))
    unfinished.replace(spool / f"{name}{_SUFFIX}")


class Spool:
    """The driver's side: takes files out of the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def files(self) -> list[Path]:
        """The files that are complete, in a fixed order."""
        return sorted(self._directory.glob(f"[!.]*{_SUFFIX}"))

    def read(self, file: Path) -> list[MalformedMessage]:
        """The messages of one file."""
        return msgspec.msgpack.decode(file.read_bytes(), type=list[MalformedMessage])
