"""Malformed messages: workers leave them in a spool, the driver counts them and sends them to a dead-letter topic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millstream.streams.spark.source.partition import Slice
from millstream.streams.state.spool import Spool

__all__ = ["MalformedMessage", "MalformedWriter", "malformed_spool"]


@dataclass(frozen=True, slots=True)
class MalformedMessage:
    """A message that is no row of its table."""

    queue: str
    """The queue that it lies in: `broker/queue id`."""

    queue_offset: int
    """Its offset there."""

    reason: str
    """Why it is no row."""

    body: bytes
    """Its body; blank where malformed messages are only counted."""


def malformed_spool(directory: Path) -> Spool[MalformedMessage]:
    """The malformed messages of one table; a file for each slice that has any."""
    return Spool(directory, ".malformed", MalformedMessage)


class MalformedWriter:
    """Writes the malformed messages of one slice; a second read of the slice writes the same file again."""

    def __init__(self, directory: str, part: Slice, *, keep_bodies: bool) -> None:
        self._file = malformed_spool(Path(directory)).file(f"{part.queue}-{part.start}-{part.end}")
        self._queue = part.queue
        self._keep_bodies = keep_bodies

    def add(self, queue_offset: int, reason: str, body: bytes | memoryview) -> None:
        """Leave one message."""
        kept = bytes(body) if self._keep_bodies else b""
        self._file.add(MalformedMessage(self._queue, queue_offset, reason, kept))

    def finish(self) -> None:
        """Complete the file; to be called at the slice's end."""
        self._file.finish()
