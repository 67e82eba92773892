"""Hyperscan's databases in files: what one process has compiled, all later ones and those beside it map in its place.

Compiling those of a few thousand rules takes a process two seconds, at each start and in each worker.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from millstream.streams.caches import cache_directory
from millstream.streams.state.atomic_file import write_file

__all__ = ["DATABASES_VARIABLE", "MOST_KEPT_BYTES", "KeptDatabases", "kept_databases"]

DATABASES_VARIABLE: Final = "MILLSTREAM_PATTERN_DATABASES"
"""The environment's name of the directory; `off` does without."""

MOST_KEPT_BYTES: Final = 128 * 1024 * 1024
"""Bytes of all files together; beyond, those that were unused for longest are removed. 2,400 rules have 4 MB."""

_SUFFIX: Final = ".hsdb"


class KeptDatabases:
    """The files of one directory, which others must not write to; without one, nothing is kept and nothing found."""

    def __init__(self, directory: Path | None, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._directory = directory
        self._most_bytes = most_bytes

    def find(self, patterns: Sequence[bytes], flags: int) -> bytes | None:
        """The database of these expressions in hyperscan's own form, which has a checksum; None if it is not kept."""
        file = self._file(patterns, flags)
        if file is None:
            return None
        try:
            found = file.read_bytes()
            os.utime(file)
        except OSError:
            return None
        return found

    def keep(self, patterns: Sequence[bytes], flags: int, database: bytes) -> None:
        """Put it in the place of one that is there; a directory that cannot be written to keeps nothing."""
        file = self._file(patterns, flags)
        if file is None or len(database) > self._most_bytes:
            return
        # Where it cannot be kept, compiling it again costs time alone.
        with suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(len(database))
            write_file(file, database, durable=False)

    def _make_room(self, more_bytes: int) -> None:
        """Remove the oldest, and what a process that died has left behind among them."""
        assert self._directory is not None
        files = []
        for file in self._directory.glob(f"*{_SUFFIX}*"):
            with suppress(FileNotFoundError):
                stat = file.stat()
                files.append((stat.st_mtime_ns, stat.st_size, file))
        total = more_bytes + sum(size for _, size, _ in files)
        for _, size, file in sorted(files):
            if total <= self._most_bytes:
                return
            file.unlink(missing_ok=True)
            total -= size

    def _file(self, patterns: Sequence[bytes], flags: int) -> Path | None:
        if self._directory is None:
            return None
        digest = hashlib.blake2b(_made_by().encode(), digest_size=20)
        digest.update(b"%d %d" % (flags, len(patterns)))
        for pattern in patterns:
            digest.update(b"%d:" % len(pattern))
            digest.update(pattern)
        return self._directory / f"{digest.hexdigest()}{_SUFFIX}"


def kept_databases() -> KeptDatabases:
    """Those of this user."""
    return KeptDatabases(cache_directory("patterns", DATABASES_VARIABLE))


@cache
def _made_by() -> str:
    """What a database depends on beside its expressions; hyperscan looks at the kind of processor by itself."""
    return f"{version('hyperscan')} {platform.machine()} {sys.byteorder}"
