"""One run of a crash programme: its seed, size and scratch directory, and what it counted and found."""

from __future__ import annotations

import random
import shutil
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from millstream.model.errors import MillstreamError

__all__ = [
    "ANY_ERROR",
    "KEPT_DIRECTORIES",
    "SHOWN_FAILURES",
    "SMOKE_DIVISOR",
    "FirstFailure",
    "ProgrammeRun",
    "Size",
    "scratch_directory",
]

SHOWN_FAILURES = 20
"""Failures that a report names one by one; the others are counted."""

SMOKE_DIVISOR = 10
"""What a smoke run leaves of the cases that CI runs."""

KEPT_DIRECTORIES = 5
"""Failing directories that one run keeps."""

ANY_ERROR = (
    MillstreamError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    msgspec.MsgspecError,
)
"""What a store must not raise where a programme expects an answer; a programme notes it as a failure and goes on."""

_MEMORY = Path("/dev/shm")
_Case = TypeVar("_Case")


class FirstFailure(Exception):
    """Ends a run that was asked for its first failure alone."""


class Size(StrEnum):
    """How long a programme runs: a tenth of CI for every commit, CI, long, or hours."""

    SMOKE = "smoke"
    CI = "ci"
    FULL = "full"
    SOAK = "soak"


@dataclass
class ProgrammeRun:
    """What one run of a programme may use, and what it reports.

    `fail` and `count` are all that a programme has to call. `keep` is where failing directories are copied to.
    With `stops_at_failure` the first failure raises FirstFailure.
    """

    seed: int
    size: Size
    scratch: Path
    keep: Path
    stops_at_failure: bool = False
    counts: dict[str, int | float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def count(self, what: str, amount: int = 1) -> None:
        """Add to the count of that name."""
        self.counts[what] = self.counts.get(what, 0) + amount

    def by_size(self, ci: int, full: int, soak: int) -> int:
        """The amount that belongs to the run's size; a smoke run takes a tenth of CI's, and one at least."""
        smoke = max(1, ci // SMOKE_DIVISOR)
        return {Size.SMOKE: smoke, Size.CI: ci, Size.FULL: full, Size.SOAK: soak}[self.size]

    @property
    def is_small(self) -> bool:
        """Whether the run is made for every commit, and so of few cases."""
        return self.size in (Size.SMOKE, Size.CI)

    def sample(self, cases: Sequence[_Case]) -> list[_Case]:
        """The cases in their order; a smoke run takes a tenth of them by chance, and one at least."""
        if self.size is not Size.SMOKE or not cases:
            return list(cases)
        chosen = self.random.sample(range(len(cases)), max(1, len(cases) // SMOKE_DIVISOR))
        return [cases[index] for index in sorted(chosen)]

    def fail(self, what: str, directory: Path | None = None) -> None:
        """Note a broken promise, and keep a copy of the directory that shows it."""
        if directory is not None and directory.is_dir() and len(self.kept) < KEPT_DIRECTORIES:
            target = self.keep / f"failure-{self.seed}-{len(self.failures)}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(directory, target)
            self.kept.append(target)
            what = f"{what} (kept in {target})"
        self.failures.append(what)
        if self.stops_at_failure:
            raise FirstFailure(what)

    def verdict(self, name: str, seconds: float) -> str:
        """The report: the first failures, then one line that says PASS or FAIL with the seed and the counts."""
        counts = " ".join(f"{what}={amount:,}" for what, amount in self.counts.items())
        lines = [f"  {failure}" for failure in self.failures[:SHOWN_FAILURES]]
        if len(self.failures) > SHOWN_FAILURES:
            lines.append(f"  and {len(self.failures) - SHOWN_FAILURES} more")
        word = "FAIL" if self.failures else "PASS"
        return "\n".join([*lines, f"{word} {name} seed={self.seed} size={self.size} {counts} ({seconds:.1f} s)"])


@contextmanager
def scratch_directory(*, on_disk: bool = False) -> Iterator[Path]:
    """A directory that is removed at the end, in memory where the system has one unless it must be on a disk."""
    memory = _MEMORY if _MEMORY.is_dir() and not on_disk else None
    with tempfile.TemporaryDirectory(prefix="millstream-crash-", dir=memory) as directory:
        yield Path(directory)
