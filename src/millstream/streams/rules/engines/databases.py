"""Hyperscan's databases: compiled expressions, asked which of them match."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from millstream.streams.rules.engines.kept_databases import kept_databases

__all__ = ["HAS_HYPERSCAN", "WORTH_KEEPING_S", "Database", "RefusedError"]

HAS_HYPERSCAN: Final = importlib.util.find_spec("hyperscan") is not None
"""Whether this machine has it; without, everything is asked one by one."""


WORTH_KEEPING_S: Final = 0.01
"""Processor time beyond which a database that was compiled is kept for other processes."""


class RefusedError(Exception):
    """Hyperscan does not take one of the expressions."""


def _found(patterns: Sequence[bytes], flags: int) -> Any | None:
    """A database that was kept; None where there is none, or one that is damaged or of another kind of processor."""
    import hyperscan

    kept = kept_databases().find(patterns, flags)
    if kept is None:
        return None
    try:
        database = hyperscan.loadb(kept, hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except hyperscan.HyperscanError:
        return None
    return database


def _compiled(patterns: Sequence[bytes], flags: int) -> Any:
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
        kept_databases().keep(patterns, flags, hyperscan.dumpb(database))
    return database


class Database:
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
        self._database = _found(patterns, flags) or _compiled(patterns, flags)
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
