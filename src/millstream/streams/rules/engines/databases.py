"""Hyperscan databases of compiled expressions.

Hyperscan's databases in files: what one process has compiled, all later ones and those beside it map in its place.

Compiling those of a few thousand rules takes a process two seconds, at each start and in each worker.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from millstream.streams.caches import cache_directory
from millstream.streams.state.atomic_file import write_file

__all__ = [
    "DATABASES_VARIABLE",
    "HAS_HYPERSCAN",
    "MOST_KEPT_BYTES",
    "WORTH_KEEPING_S",
    "DatabaseCache",
    "PatternDatabase",
    "RefusedError",
    "open_database_cache",
]

DATABASES_VARIABLE: Final = "MILLSTREAM_PATTERN_DATABASES"
"""The environment's name of the directory; `off` does without."""

MOST_KEPT_BYTES: Final = 128 * 1024 * 1024
"""Bytes of all files together; beyond, those that were unused for longest are removed. 2,400 rules have 4 MB."""

_SUFFIX: Final = ".hsdb"


class DatabaseCache:
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
        digest = hashlib.blake2b(_build_key().encode(), digest_size=20)
        digest.update(b"%d %d" % (flags, len(patterns)))
        for pattern in patterns:
            digest.update(b"%d:" % len(pattern))
            digest.update(pattern)
        return self._directory / f"{digest.hexdigest()}{_SUFFIX}"


def open_database_cache() -> DatabaseCache:
    """Those of this user."""
    return DatabaseCache(cache_directory("patterns", DATABASES_VARIABLE))


@cache
def _build_key() -> str:
    """What a database depends on beside its expressions; hyperscan looks at the kind of processor by itself."""
    return f"{version('hyperscan')} {platform.machine()} {sys.byteorder}"


HAS_HYPERSCAN: Final = importlib.util.find_spec("hyperscan") is not None
"""Whether this machine has it; without, everything is asked one by one."""


WORTH_KEEPING_S: Final = 0.01
"""Processor time beyond which a database that was compiled is kept for other processes."""


class RefusedError(Exception):
    """Hyperscan does not take one of the expressions."""


def _find_cached(patterns: Sequence[bytes], flags: int) -> Any | None:
    """A database that was kept; None where there is none, or one that is damaged or of another kind of processor."""
    import hyperscan

    kept = open_database_cache().find(patterns, flags)
    if kept is None:
        return None
    try:
        database = hyperscan.loadb(kept, hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except hyperscan.HyperscanError:
        return None
    return database


def _compile_patterns(patterns: Sequence[bytes], flags: int) -> Any:
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    began_s = time.process_time()
    try:
        database.compile(
            expressions=list(patterns),
            ids=list(range(len(patterns))),
            elements=len(patterns),
            flags=[flags] * len(patterns),
        )
    except hyperscan.HyperscanError as error:
        raise RefusedError(str(error)) from error
    if time.process_time() - began_s > WORTH_KEEPING_S:
        open_database_cache().keep(patterns, flags, hyperscan.dumpb(database))
    return database


class PatternDatabase:
    """Expressions by their place. Raises RefusedError where there is one that hyperscan does not take.

    With `once`, each expression is told once a text, and may match nothing at all; `caseless` is so for ASCII.
    """

    def __init__(
        self, patterns: Sequence[bytes], *, utf8: bool = False, once: bool = False, caseless: bool = False
    ) -> None:
        import hyperscan

        flags = hyperscan.HS_FLAG_DOTALL
        if once:
            flags |= hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_ALLOWEMPTY
        if caseless:
            flags |= hyperscan.HS_FLAG_CASELESS
        if utf8:
            flags |= hyperscan.HS_FLAG_UTF8
        self._database = _find_cached(patterns, flags) or _compile_patterns(patterns, flags)
        self._matches: list[tuple[int, int]] = []
        self.size_bytes = int(self._database.size())

    def _note(self, number: int, _start: int, end: int, _flags: int, _context: Any) -> None:
        self._matches.append((number, end))

    def each(self, texts: Iterable[bytes]) -> list[tuple[int, int]]:
        """The place of the text and the expression of each match, text by text."""
        found: list[tuple[int, int]] = []
        place = 0

        def note(number: int, _start: int, _end: int, _flags: int, _context: Any) -> None:
            found.append((place, number))

        scan = self._database.scan
        for place, text in enumerate(texts):  # noqa: B007 - `note` reads it
            scan(text, match_event_handler=note)
        return found

    def any_in(self, texts: Iterable[bytes | memoryview]) -> list[int]:
        """The places of the texts in which anything matches; each is scanned up to its first match."""
        from hyperscan import ScanTerminated

        found: list[int] = []
        scan = self._database.scan
        for place, text in enumerate(texts):
            try:
                scan(text, match_event_handler=_stop)
            except ScanTerminated:
                found.append(place)
        return found

    def matches(self, text: bytes) -> list[tuple[int, int]]:
        """The expression and the end of each match."""
        self._matches = []
        self._database.scan(text, match_event_handler=self._note)
        return self._matches


def _stop(_number: int, _start: int, _end: int, _flags: int, _context: Any) -> bool:
    return True
