"""State as releases before key groups kept it, in a directory for each of 8 buckets: these are its key groups now."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.streams.errors import JobError
from millstream.streams.operators.state import part_change
from millstream.streams.spark.operators.clocks import CLOCK_TABLES
from millstream.streams.state.group_log import SHARED, Sections

__all__ = ["BucketFiles"]

_MAGIC: Final = b"MSB1"
_HEAD: Final = struct.Struct("<4sIQ")
_DELTA: Final = ".delta"
_SNAPSHOT: Final = ".snapshot"


class BucketFiles:
    """The files of one bucket: `N.delta` is what micro-batch N changed, `N.snapshot` all there is after it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def changes(self, before: int) -> Iterator[bytes]:
        """What makes the state before micro-batch `before`, in order. Raises JobError CHECKPOINT_DAMAGED."""
        versions = sorted(one for one in self._versions() if one[0] < before)
        whole = max((number for number, is_whole in versions if is_whole), default=-1)
        for number, is_whole in versions:
            if number > whole or (number == whole and is_whole):
                yield self._read(f"{number}{_SNAPSHOT if is_whole else _DELTA}")

    def sections(self, group: int, change: bytes) -> Sections:
        """A change as the group's and as that of what all groups share."""
        shared, own = part_change(change, CLOCK_TABLES)
        return {SHARED: shared, group: own}

    def _versions(self) -> Iterator[tuple[int, bool]]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return
        for name in names:
            number, suffix = os.path.splitext(name)
            if number.isdigit() and suffix in (_DELTA, _SNAPSHOT):
                yield int(number), suffix == _SNAPSHOT

    def _read(self, name: str) -> bytes:
        path = self._directory / name
        content = path.read_bytes()
        if len(content) >= _HEAD.size:
            magic, checksum, size = _HEAD.unpack_from(content)
            body = content[_HEAD.size :]
            if magic == _MAGIC and size == len(body) and checksum == zlib.crc32(body):
                return body
        raise JobError("CHECKPOINT_DAMAGED", f"The state file {path} is damaged.")
