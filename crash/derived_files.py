"""Which files of a data directory are derived from the log, and how their ends look; new kinds are added here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DERIVED_KINDS", "DerivedKind", "kind_of"]

_UNKNOWN_TAIL_BYTES = 128


@dataclass(frozen=True)
class DerivedKind:
    """Files whose path below the data directory matches `pattern`, with entries of `entry_bytes` (0: one document).

    `is_rebuilt_equal`: after a start over a torn one and a clean stop the file is what it would be without the tear.
    """

    pattern: str
    entry_bytes: int = 0
    is_rebuilt_equal: bool = False
    is_padded: bool = False
    """Whether zeros follow the last entry."""

    is_document: bool = False
    """Whether it is a JSON snapshot, whose names may come in any order."""

    def says_the_same(self, content: bytes, other: bytes) -> bool:
        """Whether two contents, each of a whole file, have the same meaning."""
        if self.is_document:
            first, second = (json.loads(whole.partition(b"\n")[2]) for whole in (content, other))
            return bool(first == second)
        return content == other

    @property
    def tail_bytes(self) -> int:
        """The bytes of the last two entries; of a document all."""
        return 2 * self.entry_bytes if self.entry_bytes else 1 << 40

    def end_of(self, content: bytes) -> int:
        """Where the last entry ends."""
        return len(content.rstrip(b"\0")) if self.is_padded else len(content)


DERIVED_KINDS = (
    DerivedKind("consumequeue/*/*/*", entry_bytes=20, is_rebuilt_equal=True),
    DerivedKind("checkpoint", is_rebuilt_equal=True, is_document=True),
    DerivedKind("checkpoint.bak"),
    DerivedKind("flushed"),
    # Torn, the checkpoint says what was confirmed by then; no more is shown until replicas confirm the rest.
    DerivedKind("confirmed"),
    # The intent of a cut: torn in both copies it cannot be read, and a start is refused; one copy is enough.
    DerivedKind("cut-to"),
    DerivedKind("cut-to.bak"),
    DerivedKind("format", is_rebuilt_equal=True),
    # Documents of their own, not derived: a torn one gives way to its copy.
    DerivedKind("manifest"),
    DerivedKind("manifest.bak"),
    DerivedKind("deleted-topics"),
    DerivedKind("deleted-topics.bak"),
)

_NOT_DERIVED = ("commitlog/*", "lock", "abort")


def kind_of(path: Path) -> DerivedKind | None:
    """How the file is torn; one that nobody has listed is taken to end with small entries. None for the log itself."""
    if any(path.match(pattern) and len(path.parts) == pattern.count("/") + 1 for pattern in _NOT_DERIVED):
        return None
    for kind in DERIVED_KINDS:
        if path.match(kind.pattern) and len(path.parts) == kind.pattern.count("/") + 1:
            return kind
    return DerivedKind(str(path), entry_bytes=_UNKNOWN_TAIL_BYTES // 2)
