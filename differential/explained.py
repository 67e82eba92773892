"""Differences that are meant, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from differential.cases import Case
from differential.comparison import Difference

__all__ = ["EXPLAINED", "Explained", "reason_of"]


class Explained(NamedTuple):
    """Which differences are meant, and why."""

    fits: Callable[[Case, Difference], bool]
    reason: str


def reason_of(case: Case, difference: Difference) -> str | None:
    """Why the difference is meant; None where it is not."""
    return next((one.reason for one in EXPLAINED if one.fits(case, difference)), None)


EXPLAINED: Final[tuple[Explained, ...]] = ()
"""What is meant to differ. Everything else that differs is a fault, of ours or of the generator."""
