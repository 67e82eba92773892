"""The state of one operator's bucket on disk: a file per micro-batch, each a delta or now and then a snapshot.

Version N is what the state was after micro-batch N. Spark repeats at most the latest micro-batch, so the version
before it and all that it is made of are kept; what a failed attempt left is written again with the same content.
File: magic `MSB1`, CRC-32 of the rest, its length in bytes, the rest (pickle).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millstream.streams.errors import JobError
from millstream.streams.state.atomic_file import write_file

__all__ = ["BucketFiles", "Version"]

_MAGIC = b"MSB1"
_HEAD = struct.Struct("<4sIQ")
_DELTA, _SNAPSHOT = ".delta", ".snapshot"

MIN_SNAPSHOT_BYTES = 1024 * 1024
"""Deltas of fewer bytes than this are not replaced by a snapshot."""

MAX_DELTAS = 200
"""Deltas behind a snapshot at most: a start reads so many files of a bucket."""


@dataclass(frozen=True, slots=True)
class Version:
    """One file: the micro-batch after which it holds, and whether it stands alone."""

    number: int
    whole: bool


class BucketFiles:
    """The files of one bucket in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def latest(self, before: int) -> int:
        """The newest version before that number; -1 if there is none."""
        return max((version.number for version in self._versions() if version.number < before), default=-1)

    def changes(self, after: int, before: int) -> Iterator[tuple[bool, bytes]]:
        """What leads from version `after` to the newest one before `before`; True marks one that stands alone."""
        versions = sorted((one for one in self._versions() if one.number < before), key=lambda one: one.number)
        whole = max((one.number for one in versions if one.whole), default=-1)
        for version in versions:
            if version.number > after and version.number >= whole:
                yield version.whole, self._read(version)

    def keep(self, number: int, delta: bytes, snapshot: Callable[[], bytes]) -> None:
        """Write version `number` as `delta`, or from `snapshot` where the deltas have grown larger than one."""
        versions = [one for one in self._versions() if one.number < number]
        whole = max((one.number for one in versions if one.whole), default=-1)
        since = [one for one in versions if one.number > whole]
        base_bytes = self._size(Version(whole, True)) if whole >= 0 else 0
        grown_bytes = sum(self._size(one) for one in since) + len(delta)
        self._directory.mkdir(parents=True, exist_ok=True)
        if len(since) >= MAX_DELTAS or grown_bytes > max(MIN_SNAPSHOT_BYTES, base_bytes):
            self._write(Version(number, True), snapshot())
            self._path(Version(number, False)).unlink(missing_ok=True)
            # The version before this one is still needed if this micro-batch is repeated.
            for old in versions:
                if old.number < whole:
                    self._path(old).unlink(missing_ok=True)
        elif delta:
            self._write(Version(number, False), delta)

    def _versions(self) -> Iterator[Version]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return
        for name in names:
            number, suffix = os.path.splitext(name)
            if number.isdigit() and suffix in (_DELTA, _SNAPSHOT):
                yield Version(int(number), suffix == _SNAPSHOT)

    def _path(self, version: Version) -> Path:
        return self._directory / f"{version.number}{_SNAPSHOT if version.whole else _DELTA}"

    def _size(self, version: Version) -> int:
        return self._path(version).stat().st_size

    def _read(self, version: Version) -> bytes:
        path = self._path(version)
        content = path.read_bytes()
        if len(content) >= _HEAD.size:
            magic, checksum, size = _HEAD.unpack_from(content)
            body = content[_HEAD.size :]
            if magic == _MAGIC and size == len(body) and checksum == zlib.crc32(body):
                return body
        raise JobError("CHECKPOINT_DAMAGED", f"The state file {path} is damaged.")

    def _write(self, version: Version, body: bytes) -> None:
        content = _HEAD.pack(_MAGIC, zlib.crc32(body), len(body)) + body
        # No more durable than Spark's own note that the micro-batch is done.
        write_file(self._path(version), content, durable=False)
