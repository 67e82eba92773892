"""The spool for malformed messages: workers leave them in a directory, the driver takes them at the batch's end.

A file is named by the rows that were read, so that a second read of the same rows (a retry, a second scan of the
topic in one batch, a replay) writes the same file again instead of one more.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from millstream.streams.spark.source.partition import Slice
from millstream.streams.state.atomic_file import write_file

__all__ = ["MalformedMessage", "Spool", "SpoolWriter"]

_PER_FILE = 1_000
"""Malformed messages that a worker keeps in memory at most."""

_SUFFIX = ".malformed"


@dataclass(frozen=True, slots=True)
class MalformedMessage:
    """A message that is no row of its table: where it lies, why, and its body (blank if only counted)."""

    queue: str
    queue_offset: int
    reason: str
    body: bytes


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
        name = f"{queue}-{self._part.start}-{self._part.end}-{self._files}{_SUFFIX}"
        write_file(self._directory / name, msgspec.msgpack.encode(self._waiting), durable=False)
        self._files += 1
        self._waiting = []


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
